//! ClusterConnections as `kubectl get` prints them, and as metadata alone.
//!
//! Each column is a field of the object, as those of a CustomResourceDefinition are; only of a time to come a definition could
//! not tell how long it is to that.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bytes::Bytes;
use fleetcache_cache::form::IncludeObject;
use fleetcache_cache::table::age::in_words;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::object::{ClusterConnection, Metadata};
use crate::status::as_go_writes;

/// What every server says of this column.
const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// Name, type, priority and description; columns of a priority above 0 show with `-o wide`.
type Column = (&'static str, &'static str, u8, &'static str);

/// All columns but the name.
#[rustfmt::skip]
const COLUMNS: [Column; 16] = [
    ("State", "string", 0, "Where the connection stands"),
    ("Reason", "string", 0, "What is wrong, in a word"),
    ("Server Version", "string", 0, "What the server called its version when it was asked last"),
    ("Last Success", "date", 0, "Time since a probe or a connect last succeeded"),
    ("Informers", "integer", 0, "Kinds that are kept in memory"),
    ("Objects", "integer", 0, "Objects in memory"),
    ("Memory", "string", 0, "Memory of them, estimated"),
    ("Age", "date", 0, "Time since the proxy took the cluster in"),
    ("Next Try", "string", 1, "Time to the next connect, where one is planned"),
    ("Last Probe", "date", 1, "Time since the last probe or connect ended, well or not"),
    ("Failures", "integer", 1, "Failed connects or probes in a row"),
    ("Watchers", "integer", 1, "Open watches from memory"),
    ("Source", "string", 1, "What kind of source named it"),
    ("Context", "string", 1, "The kubeconfig context that it came from"),
    ("Message", "string", 1, "What is wrong, in a sentence"),
    ("Hint", "string", 1, "What may help against what is wrong"),
];

/// `columnDefinitions`, as JSON.
fn columns() -> String {
    let column = |(name, kind, priority, description): &Column| {
        let format = if *name == "Name" { "name" } else { "" };
        format!(
            r#"{{"name":"{name}","type":"{kind}","format":"{format}","description":"{description}","priority":{priority}}}"#
        )
    };
    let name = ("Name", "string", 0, NAME);
    let all: Vec<_> = [&name].into_iter().chain(&COLUMNS).map(column).collect();
    format!("[{}]", all.join(","))
}

/// The bytes of a table before and after its rows. `metadata` is JSON.
pub(super) fn around(version: &str, metadata: &str, with_columns: bool) -> (Bytes, Bytes) {
    let columns = if with_columns {
        columns()
    } else {
        "null".to_owned()
    };
    let head = format!(
        r#"{{"kind":"Table","apiVersion":"meta.k8s.io/{version}","metadata":{metadata},"columnDefinitions":{columns},"rows":["#
    );
    (head.into(), "]}".into())
}

/// One row; `version` is that of the representation, `v1` or `v1beta1`.
pub(super) fn row(object: &ClusterConnection, version: &str, include: IncludeObject) -> Bytes {
    let shown = match include {
        IncludeObject::Metadata => metadata_alone(&object.metadata, version),
        IncludeObject::Object => object.to_json(),
        IncludeObject::None => "null".into(),
    };
    let cells = as_go_writes(json!(cells(object)).to_string());
    let parts: [&[u8]; 5] = [
        b"{\"cells\":",
        cells.as_bytes(),
        b",\"object\":",
        &shown,
        b"}",
    ];
    parts.concat().into()
}

/// The row of a bookmark: the server finds no field in it.
pub(super) fn bookmark_row(
    object: &ClusterConnection,
    version: &str,
    include: IncludeObject,
) -> Bytes {
    let include = match include {
        // Its annotation would be lost.
        IncludeObject::None => IncludeObject::Metadata,
        include => include,
    };
    let row = row(object, version, include);
    let cells = json!([&[json!("")][..], &vec![Value::Null; COLUMNS.len()][..]].concat());
    let at = row.windows(10).position(|it| it == b",\"object\":");
    let object = &row[at.unwrap_or_default()..];
    [b"{\"cells\":", cells.to_string().as_bytes(), object]
        .concat()
        .into()
}

fn cells(object: &ClusterConnection) -> [Value; COLUMNS.len() + 1] {
    let (metadata, spec, status) = (&object.metadata, &object.spec, &object.status);
    // As the server does where an object lacks the field.
    let text = |text: &str| (!text.is_empty()).then_some(text).into();
    let now = Timestamp::try_from(SystemTime::now()).unwrap_or_default();
    let age = |since: Option<Timestamp>| since.map(|since| age(since, now)).into();
    let until = |at: Option<Timestamp>| at.map(|at| until(at, now)).into();
    [
        metadata.name.as_str().into(),
        text(&status.state),
        text(&status.reason),
        text(&status.server_version),
        age(status.last_probe_success_time),
        status.totals.informers.into(),
        status.totals.objects.into(),
        text(&status.totals.memory),
        age(metadata.creation_timestamp),
        until(status.next_attempt_time),
        age(status.last_probe_time),
        status.consecutive_failures.into(),
        status.totals.watchers.into(),
        text(&spec.source.kind),
        text(&spec.context),
        text(&status.message),
        text(&status.hint),
    ]
}

/// An object's metadata as `PartialObjectMetadata`, in the order of Go's struct.
pub(super) fn metadata_alone(metadata: &Metadata, version: &str) -> Bytes {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct InStructOrder<'a> {
        #[serde(skip_serializing_if = "str::is_empty")]
        name: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        uid: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        resource_version: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        creation_timestamp: Option<Timestamp>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        labels: &'a BTreeMap<String, String>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        annotations: &'a BTreeMap<String, String>,
    }
    let metadata = InStructOrder {
        name: &metadata.name,
        uid: &metadata.uid,
        resource_version: &metadata.resource_version,
        creation_timestamp: metadata.creation_timestamp,
        labels: &metadata.labels,
        annotations: &metadata.annotations,
    };
    let metadata = serde_json::to_string(&metadata).expect("strings always serialise");
    let metadata = as_go_writes(metadata);
    format!(
        r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/{version}","metadata":{metadata}}}"#
    )
    .into()
}

/// How long ago a time was, in the words of `duration.HumanDuration`.
fn age(since: Timestamp, now: Timestamp) -> String {
    in_words(now.as_second() - since.as_second()).to_string()
}

/// How long it is to a time; one that has just come is due.
fn until(at: Timestamp, now: Timestamp) -> String {
    in_words((at.as_second() - now.as_second()).max(0)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_try_is_told_as_the_time_to_it() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        for (next, expected) in [(112, "12s"), (100, "0s"), (97, "0s"), (220, "2m")] {
            assert_eq!(until(at(next), at(100)), expected);
        }
    }
}
