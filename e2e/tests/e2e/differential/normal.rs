//! What may differ between the answers to the same request, beyond what `pair` leaves out.

use serde_json::value::RawValue;

/// The text of "too large resource version" names the server's newest version, which moves.
pub(super) fn without_current_version(body: &str) -> String {
    let Some((before, after)) = body.split_once(", current: ") else {
        return body.to_owned();
    };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{before}, current: ?{rest}")
}

/// As [`is_shaped`] has it.
const UID: &str = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

/// What stands before a version; the last also before a uid.
const VERSIONS: [&str; 2] = ["resourceVersion", "in record ("];

/// The same for two objects of the same making in two namespaces: without the namespace's name, uids, versions, times and
/// the order of the managers.
pub(crate) fn of_any_object(body: &str, namespace: &str) -> String {
    let body = without_moment(&body.replace(namespace, "NAMESPACE"));
    in_order_of_managers(&body)
}

/// Without uids, versions and times.
fn without_moment(body: &str) -> String {
    let mut rest = body;
    let mut out = String::with_capacity(rest.len());
    let number = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    while let Some(first) = rest.chars().next() {
        let version = VERSIONS.iter().find(|before| rest.starts_with(**before));
        if let Some(before) = version {
            // Quoted, or quoted within a message.
            let quotes = rest[before.len()..]
                .bytes()
                .take_while(|byte| b"\\\":".contains(byte))
                .count();
            let (before, after) = rest.split_at(before.len() + quotes);
            out.push_str(before);
            rest = if is_shaped(after, UID) {
                after
            } else {
                &after[number(after)..]
            };
        } else if is_shaped(rest, UID) {
            out.push_str("UID");
            rest = &rest[UID.len()..];
        } else if is_shaped(rest, "dddd-dd-ddTdd:dd:dd") {
            out.push_str("TIME");
            rest = &rest[19..];
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

/// With the entries of each `managedFields` in the order of their text. The server sorts them by their times, which are
/// whole seconds: two writes of one second stand in another order than the same two writes of different seconds.
fn in_order_of_managers(body: &str) -> String {
    const FIELD: &str = "\"managedFields\":";
    let mut rest = body;
    let mut out = String::with_capacity(rest.len());
    while let Some(at) = rest.find(FIELD) {
        let (before, after) = rest.split_at(at + FIELD.len());
        out.push_str(before);
        rest = after;
        let mut values = serde_json::Deserializer::from_str(after).into_iter::<Vec<&RawValue>>();
        if let Some(Ok(entries)) = values.next() {
            let mut entries: Vec<&str> = entries.iter().map(|entry| entry.get()).collect();
            entries.sort_unstable();
            out.push('[');
            out.push_str(&entries.join(","));
            out.push(']');
            rest = &after[values.byte_offset()..];
        }
    }
    out.push_str(rest);
    out
}

/// Whether `text` begins so: `x` is a hexadecimal digit, `d` a decimal one, anything else itself.
fn is_shaped(text: &str, shape: &str) -> bool {
    text.len() >= shape.len()
        && text
            .bytes()
            .zip(shape.bytes())
            .all(|(byte, shape)| match shape {
                b'x' => byte.is_ascii_hexdigit(),
                b'd' => byte.is_ascii_digit(),
                _ => byte == shape,
            })
}

#[test]
fn what_is_of_the_moment_is_left_out() {
    let object = r#"{"namespace":"n-1","uid":"0a1b2c3d-0000-1111-2222-333344445555","resourceVersion":"12","at":"2026-01-02T03:04:05Z","x":"1"}"#;
    assert_eq!(
        of_any_object(object, "n-1"),
        r#"{"namespace":"NAMESPACE","uid":"UID","resourceVersion":"","at":"TIMEZ","x":"1"}"#
    );
    assert_eq!(
        of_any_object(r#"was {\"resourceVersion\":\"12\"}, in record (7)"#, "n-1"),
        r#"was {\"resourceVersion\":\"\"}, in record ()"#
    );
    // The status was written in the second of the spec, or after it, and the spec then again.
    let managed = |first: &str, second: &str| {
        let entry = |of: &str| {
            format!(r#"{{"manager":"m","time":"2026-01-02T03:04:05Z","subresource":"{of}"}}"#)
        };
        format!(
            r#"{{"metadata":{{"managedFields":[{},{}]}},"spec":{{}}}}"#,
            entry(first),
            entry(second)
        )
    };
    assert_eq!(
        of_any_object(&managed("", "status"), "n-1"),
        of_any_object(&managed("status", ""), "n-1")
    );
    assert_ne!(
        of_any_object(&managed("", "status"), "n-1"),
        of_any_object(&managed("status", "status"), "n-1")
    );
    assert_eq!(
        of_any_object(r#"{"managedFields":[],"n":1}"#, "n-1"),
        r#"{"managedFields":[],"n":1}"#
    );
    assert_eq!(
        without_current_version("Too large resource version: 9, current: 12\""),
        "Too large resource version: 9, current: ?\""
    );
}
