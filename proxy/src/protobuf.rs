//! The envelope and the metadata of Kubernetes' protobuf, read without its schemas.
//!
//! A body is `k8s\0` and a `runtime.Unknown`, whose raw bytes are the object; `ObjectMeta` is field 1 of every built-in
//! kind. Field numbers are those of `generated.proto` in apimachinery.

use fleetcache_cache::protobuf::MAGIC;
use fleetcache_cache::protobuf::read::{Fields, Value};
use fleetcache_cache::resource_version::ResourceVersion;

use crate::answer::{Answer, deletion, success};

/// Reads the answer to a request about one object; `None` where it cannot be read.
pub fn read_answer(bytes: &[u8]) -> Option<Answer> {
    let (kind, raw) = kind_and_object(bytes)?;
    if kind == "Status" {
        let details = bytes_of(raw, 5)?.unwrap_or_default();
        return success(text(raw, 2)?, text(details, 6)?.to_owned());
    }
    if kind.ends_with("List") {
        return None;
    }
    let meta = bytes_of(raw, 1)?.unwrap_or_default();
    let (mut begun, mut grace, mut kept_by) = (false, 0, 0);
    for field in Fields::of(meta) {
        let field = field.ok()?;
        match (field.number, field.value) {
            (9, _) => begun = true,
            (10, Value::Number(seconds)) => grace = i64::try_from(seconds).unwrap_or(i64::MAX),
            (14, _) => kept_by += 1,
            _ => {}
        }
    }
    if kind == "Namespace" {
        // NamespaceSpec is field 2, its only field the finalizers.
        kept_by += Fields::of(bytes_of(raw, 2)?.unwrap_or_default()).count();
    }
    let name = text(meta, 1)?;
    (!name.is_empty()).then_some(())?;
    Some(Answer::Object {
        namespace: text(meta, 3)?.to_owned(),
        name: name.to_owned(),
        uid: text(meta, 5)?.to_owned(),
        resource_version: ResourceVersion::parse(text(meta, 6)?),
        deletion: deletion(begun, kept_by, grace),
    })
}

/// What a Status says to people.
pub(crate) fn status_message(bytes: &[u8]) -> Option<&str> {
    let (kind, raw) = kind_and_object(bytes)?;
    (kind == "Status").then(|| text(raw, 3))?
}

fn kind_and_object(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let unknown = bytes.strip_prefix(MAGIC)?;
    let mut kind = "";
    let mut raw: &[u8] = &[];
    for field in Fields::of(unknown) {
        let field = field.ok()?;
        match (field.number, field.value) {
            (1, Value::Bytes(type_meta)) => kind = text(type_meta, 2)?,
            (2, Value::Bytes(object)) => raw = object,
            _ => {}
        }
    }
    Some((kind, raw))
}

/// The last length-delimited value of a field, if any; `None` outside where the message is malformed.
#[expect(clippy::option_option, reason = "malformed and absent are told apart")]
fn bytes_of(message: &[u8], number: u64) -> Option<Option<&[u8]>> {
    let mut found = None;
    for field in Fields::of(message) {
        let field = field.ok()?;
        if let Value::Bytes(bytes) = field.value
            && field.number == number
        {
            found = Some(bytes);
        }
    }
    Some(found)
}

fn text(message: &[u8], number: u64) -> Option<&str> {
    std::str::from_utf8(bytes_of(message, number)?.unwrap_or_default()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Deletion;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).unwrap();
        assert!(length < 128);
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        // The server writes both strings of the content empty.
        [
            MAGIC,
            &field(1, &type_meta),
            &field(2, raw),
            &[0x1a, 0, 0x22, 0],
        ]
        .concat()
    }

    #[test]
    fn metadata_is_read() {
        let meta = [
            field(1, b"a"),
            field(3, b"ns"),
            field(5, b"uid"),
            field(6, b"42"),
            vec![7 << 3, 3],
        ]
        .concat();
        let expected = Answer::Object {
            namespace: "ns".to_owned(),
            name: "a".to_owned(),
            uid: "uid".to_owned(),
            resource_version: Some(ResourceVersion::from_number(42)),
            deletion: Deletion::None,
        };
        assert_eq!(read_answer(&body("Pod", &field(1, &meta))), Some(expected));
    }

    #[test]
    fn deletion_is_read() {
        let deletion_of = |kind: &str, meta: Vec<Vec<u8>>, rest: Vec<u8>| {
            let raw = [field(1, &[field(1, b"a"), meta.concat()].concat()), rest].concat();
            match read_answer(&body(kind, &raw)) {
                Some(Answer::Object { deletion, .. }) => deletion,
                other => panic!("an object, not {other:?}"),
            }
        };
        let (at, grace, finalizer) = (field(9, &[8, 1]), vec![10 << 3, 30], field(14, b"f"));
        assert_eq!(
            deletion_of("Pod", vec![at.clone()], vec![]),
            Deletion::Finished
        );
        assert_eq!(
            deletion_of("Pod", vec![at.clone(), grace], vec![]),
            Deletion::Pending
        );
        assert_eq!(
            deletion_of("Pod", vec![at.clone(), finalizer], vec![]),
            Deletion::Pending
        );
        let spec = field(2, &field(1, b"kubernetes"));
        assert_eq!(deletion_of("Namespace", vec![at], spec), Deletion::Pending);
    }

    #[test]
    fn a_status_is_read() {
        let details = [field(1, b"a"), field(6, b"uid")].concat();
        let raw = [field(2, b"Success"), field(5, &details)].concat();
        assert_eq!(
            read_answer(&body("Status", &raw)),
            Some(Answer::Success {
                uid: "uid".to_owned()
            })
        );
        assert_eq!(read_answer(&body("Status", &field(2, b"Failure"))), None);
        let said = body("Status", &field(3, b"no"));
        assert_eq!(status_message(&said), Some("no"));
        assert_eq!(status_message(&body("Pod", &field(3, b"no"))), None);
    }

    #[test]
    fn malformed_bytes_are_none() {
        let whole = body("Pod", &field(1, &field(1, b"a")));
        for end in 0..whole.len() {
            // A cut at a field's boundary is a message without the rest; it must not be taken for an object.
            assert!(
                !matches!(read_answer(&whole[..end]), Some(Answer::Object { .. })) || end > 12,
                "{end}"
            );
        }
        assert_eq!(read_answer(b"{}"), None);
        assert_eq!(read_answer(&[MAGIC, &[0xff; 12]].concat()), None);
        assert_eq!(
            read_answer(&body("PodList", &field(1, &field(2, b"5")))),
            None
        );
    }
}
