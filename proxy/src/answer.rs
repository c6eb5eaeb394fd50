//! What an answer of a cluster tells about an object, in whatever representation it can be read.

use fleetcache_cache::object::{ObjectHead, StatusHead};
use fleetcache_cache::resource_version::ResourceVersion;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::protobuf;

/// What a single object's answer tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An object in some state.
    Object {
        /// Its namespace, "" where cluster-scoped.
        namespace: String,
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
        /// Its version; `None` where it has none, as in a dry run.
        resource_version: Option<ResourceVersion>,
        /// How far its deletion is.
        deletion: Deletion,
    },
    /// `Status` Success, with the uid of the object that it is about, if any.
    Success {
        /// The uid, "" where not told.
        uid: String,
    },
}

/// How far an object's deletion is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// It has not begun.
    None,
    /// Somebody or some time must pass first.
    Pending,
    /// Nothing keeps it any more.
    Finished,
}

/// Reads the answer to a request about one object; `None` where it cannot be read.
pub fn read(content_type: &str, bytes: &[u8]) -> Option<Answer> {
    match content_type.split(';').next().unwrap_or_default().trim() {
        "application/json" => read_json(bytes),
        "application/vnd.kubernetes.protobuf" => protobuf::read_answer(bytes),
        _ => None,
    }
}

fn read_json(bytes: &[u8]) -> Option<Answer> {
    let head = ObjectHead::parse(bytes).ok()?;
    if head.kind == "Status" && head.metadata.name.is_empty() {
        let status: StatusHead = serde_json::from_slice(bytes).ok()?;
        return success(
            &status.status,
            status
                .details
                .map(|details| details.uid)
                .unwrap_or_default(),
        );
    }
    if head.kind == "Table"
        && let Some(row) = only_row(bytes)
    {
        return read_json(row.get().as_bytes());
    }
    let meta = head.metadata;
    // A list, or something that is no object.
    if meta.name.is_empty() {
        return None;
    }
    let mut kept_by = meta.finalizers.map_or(0, |finalizers| finalizers.len());
    if head.kind == "Namespace" {
        kept_by += namespace_finalizers(bytes);
    }
    let grace = meta.deletion_grace_period_seconds.unwrap_or(0);
    Some(Answer::Object {
        deletion: deletion(meta.deletion_timestamp.is_some(), kept_by, grace),
        namespace: meta.namespace.into_owned(),
        name: meta.name.into_owned(),
        uid: meta.uid.into_owned(),
        resource_version: ResourceVersion::parse(&meta.resource_version),
    })
}

/// The object in the row of a Table that tells of one; such a Table has no name of its own.
fn only_row(bytes: &[u8]) -> Option<&RawValue> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Table<'a> {
        api_version: String,
        #[serde(borrow)]
        rows: Vec<Row<'a>>,
    }
    #[derive(Deserialize)]
    struct Row<'a> {
        #[serde(borrow)]
        object: Option<&'a RawValue>,
    }
    let table: Table<'_> = serde_json::from_slice(bytes).ok()?;
    let [row] = &table.rows[..] else {
        return None;
    };
    // A custom resource may be called so too.
    row.object
        .filter(|_| table.api_version.starts_with("meta.k8s.io/"))
}

/// How far a deletion is, from what an object says.
pub(crate) fn deletion(begun: bool, kept_by: usize, grace_seconds: i64) -> Deletion {
    match (begun, kept_by, grace_seconds) {
        (false, ..) => Deletion::None,
        (true, 0, 0) => Deletion::Finished,
        (true, ..) => Deletion::Pending,
    }
}

/// `Status` Success; a failure that comes as 2xx is not an answer that can be read.
pub(crate) fn success(status: &str, uid: String) -> Option<Answer> {
    (status == "Success").then_some(Answer::Success { uid })
}

/// A Namespace is kept by the finalizers of its spec too; a custom resource of that kind is not.
fn namespace_finalizers(bytes: &[u8]) -> usize {
    #[derive(Default, Deserialize)]
    struct Spec {
        #[serde(default)]
        finalizers: Option<Vec<IgnoredAny>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Namespace {
        api_version: String,
        #[serde(default)]
        spec: Spec,
    }
    let finalizers = serde_json::from_slice::<Namespace>(bytes)
        .ok()
        .filter(|namespace| namespace.api_version == "v1")
        .and_then(|namespace| namespace.spec.finalizers);
    finalizers.map_or(0, |finalizers| finalizers.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &str) -> (Option<u64>, Deletion) {
        match read("application/json;charset=utf-8", json.as_bytes()) {
            Some(Answer::Object {
                resource_version,
                deletion,
                ..
            }) => (resource_version.map(ResourceVersion::get), deletion),
            other => panic!("an object, not {other:?}"),
        }
    }

    #[test]
    fn an_objects_version_and_deletion_are_read() {
        for (json, expected) in [
            (
                r#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"5"}}"#,
                (Some(5), Deletion::None),
            ),
            (
                r#"{"kind":"Pod","metadata":{"name":"a"}}"#,
                (None, Deletion::None),
            ),
            (
                r#"{"kind":"Pod","metadata":{"name":"a","deletionTimestamp":"t","deletionGracePeriodSeconds":30}}"#,
                (None, Deletion::Pending),
            ),
            (
                r#"{"kind":"Pod","metadata":{"name":"a","deletionTimestamp":"t","deletionGracePeriodSeconds":0}}"#,
                (None, Deletion::Finished),
            ),
            (
                r#"{"kind":"W","metadata":{"name":"a","deletionTimestamp":"t","finalizers":["f"]}}"#,
                (None, Deletion::Pending),
            ),
            (
                r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"columnDefinitions":[],"rows":[{"cells":["a"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","resourceVersion":"5","deletionTimestamp":"t"}}}]}"#,
                (Some(5), Deletion::Finished),
            ),
            (
                r#"{"apiVersion":"ex.io/v1","kind":"Table","metadata":{"name":"a","resourceVersion":"5"},"rows":[{"object":{"metadata":{"name":"b","resourceVersion":"7"}}}]}"#,
                (Some(5), Deletion::None),
            ),
            (
                r#"{"kind":"W","metadata":{"name":"a","deletionTimestamp":"t","finalizers":[]}}"#,
                (None, Deletion::Finished),
            ),
            (
                r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"a","deletionTimestamp":"t"},"spec":{"finalizers":["kubernetes"]}}"#,
                (None, Deletion::Pending),
            ),
            (
                r#"{"apiVersion":"ex.io/v1","kind":"Namespace","metadata":{"name":"a","deletionTimestamp":"t"},"spec":{"finalizers":["mine"]}}"#,
                (None, Deletion::Finished),
            ),
            (
                r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"a","deletionTimestamp":"t"},"spec":{}}"#,
                (None, Deletion::Finished),
            ),
        ] {
            assert_eq!(object(json), expected, "{json}");
        }
    }

    #[test]
    fn a_status_is_read() {
        let json = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"a","kind":"configmaps","uid":"u"}}"#;
        assert_eq!(
            read("application/json", json.as_bytes()),
            Some(Answer::Success {
                uid: "u".to_owned()
            })
        );
    }

    #[test]
    fn what_cannot_be_read_is_none() {
        for (content_type, bytes) in [
            ("application/yaml", &b"kind: Pod"[..]),
            (
                "application/json",
                b"{\"kind\":\"Table\",\"metadata\":{\"resourceVersion\":\"5\"}}",
            ),
            (
                "application/json",
                b"{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"rows\":[{\"cells\":[\"a\"],\"object\":null}]}",
            ),
            (
                "application/json",
                b"{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}",
            ),
            (
                "application/json",
                b"{\"kind\":\"Status\",\"status\":\"Failure\"}",
            ),
            ("application/json", b"{\"kind\":"),
            ("", b""),
        ] {
            assert_eq!(
                read(content_type, bytes),
                None,
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
    }
}
