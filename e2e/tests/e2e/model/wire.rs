//! The objects that an answer shows, in whatever representation.

use fleetcache_e2e::client::Answer;
use serde_json::Value;

use crate::forward::Shown;

/// All objects of an answer; `None` where it is none of objects.
pub(crate) fn shown(answer: &Answer) -> Option<Vec<Shown>> {
    if let Some(unknown) = answer.body.strip_prefix(b"k8s\0") {
        return protobuf(unknown);
    }
    let json = answer.json().ok()?;
    let objects: Vec<&Value> = match (&json["rows"], &json["items"]) {
        (Value::Array(rows), _) => rows.iter().map(|row| &row["object"]).collect(),
        (_, Value::Array(items)) => items.iter().collect(),
        // An empty list of metadata has no items at all.
        (_, Value::Null) if json["kind"] == "PartialObjectMetadataList" => Vec::new(),
        _ if json["kind"] == "Status" => return None,
        _ => vec![&json],
    };
    objects.into_iter().map(object).collect()
}

/// The version of a list.
pub(super) fn list_version(answer: &Answer) -> Option<u64> {
    if let Some(unknown) = answer.body.strip_prefix(b"k8s\0") {
        let version = first(first(first(unknown, 2)?, 1)?, 2)?;
        return str::from_utf8(version).ok()?.parse().ok();
    }
    let list = answer.json().ok()?;
    list["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// One object of JSON; `None` where it has no version, as in a dry run.
pub(super) fn object(json: &Value) -> Option<Shown> {
    let text = |field: &str| json["metadata"][field].as_str().map(str::to_owned);
    Some(Shown {
        namespace: text("namespace").unwrap_or_default(),
        name: text("name")?,
        uid: text("uid")?,
        version: text("resourceVersion")?.parse().ok()?,
    })
}

/// `runtime.Unknown`: its type is field 1, the object field 2. Lists have their items in field 2, objects their metadata in
/// field 1.
fn protobuf(unknown: &[u8]) -> Option<Vec<Shown>> {
    let kind = first(first(unknown, 1)?, 2)?;
    let raw = first(unknown, 2).unwrap_or_default();
    if kind == b"Status" {
        return None;
    }
    if kind.ends_with(b"List") {
        return fields(raw)?
            .into_iter()
            .filter(|(number, _)| *number == 2)
            .map(|(_, item)| object_meta(first(item, 1)?))
            .collect();
    }
    Some(vec![object_meta(first(raw, 1)?)?])
}

fn object_meta(meta: &[u8]) -> Option<Shown> {
    let text = |number| Some(String::from_utf8_lossy(first(meta, number)?).into_owned());
    Some(Shown {
        namespace: text(3).unwrap_or_default(),
        name: text(1)?,
        uid: text(5)?,
        version: text(6)?.parse().ok()?,
    })
}

fn first(message: &[u8], wanted: u64) -> Option<&[u8]> {
    let found = fields(message)?
        .into_iter()
        .find(|(number, _)| *number == wanted);
    found.map(|(_, bytes)| bytes)
}

/// The length-delimited fields of a message; numbers are left out.
fn fields(mut message: &[u8]) -> Option<Vec<(u64, &[u8])>> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match tag & 7 {
            0 => drop(varint(&mut message)?),
            1 => message = message.get(8..)?,
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                found.push((tag >> 3, message.get(..length)?));
                message = &message[length..];
            }
            5 => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(found)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
