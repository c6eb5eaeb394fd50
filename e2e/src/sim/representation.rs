//! The forms in which a client may ask for objects: as they are, their metadata, or rows of a table.

use serde_json::{Map, Value};

use super::json;
use super::object::{Object, as_map, metadata_mut};
use super::query::Query;
use super::resource::Resource;
use super::status::Status;
use super::table;

/// What an `Accept` header asks for. Everything is JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Representation {
    /// The object itself.
    Object,
    /// `PartialObjectMetadata`.
    Metadata,
    /// Rows of a `Table`.
    Table(Include),
}

/// What a row holds of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Include {
    Metadata,
    Object,
    None,
}

impl Representation {
    /// The first clause that can be answered, the best `q` first.
    pub(super) fn negotiate(accept: Option<&str>, query: &Query) -> Result<Self, Status> {
        let accept = accept
            .filter(|accept| !accept.trim().is_empty())
            .unwrap_or("*/*");
        let mut clauses: Vec<Clause<'_>> = accept.split(',').map(Clause::parse).collect();
        clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
        let offered = clauses.iter().find_map(Clause::representation);
        match offered.ok_or_else(Status::not_acceptable)? {
            Self::Table(_) => Ok(Self::Table(Include::parse(query.get("includeObject"))?)),
            other => Ok(other),
        }
    }

    /// One object with its kind, as a GET or a watch event shows it. Of a table the columns are only in the first
    /// event of a watch.
    pub(super) fn encode(self, resource: &Resource, object: &Object, columns: bool) -> Vec<u8> {
        match self {
            Self::Object => object.json().to_vec(),
            Self::Metadata => encode_metadata(&object.value()),
            Self::Table(include) => {
                let version = format!(r#"{{"resourceVersion":"{}"}}"#, object.revision);
                let mut body = table::open(resource, &version, columns);
                table::push_row(&mut body, resource, object, include);
                body.extend_from_slice(table::CLOSE);
                body
            }
        }
    }

    /// The object of a bookmark: the kind, a resourceVersion, and what the encoder cannot leave out.
    pub(super) fn encode_bookmark(
        self,
        resource: &Resource,
        revision: u64,
        initial: bool,
        columns: bool,
    ) -> Vec<u8> {
        let annotation = if initial {
            r#","annotations":{"k8s.io/initial-events-end":"true"}"#
        } else {
            ""
        };
        let metadata = format!(r#""metadata":{{"resourceVersion":"{revision}"{annotation}}}"#);
        match self {
            Self::Object if resource.custom => {
                let annotation = if initial {
                    r#""annotations":{"k8s.io/initial-events-end":"true"},"#
                } else {
                    ""
                };
                let (version, kind) = (resource.api_version(), resource.kind);
                let text = format!(
                    r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{{annotation}"resourceVersion":"{revision}"}}}}"#
                );
                text.into_bytes()
            }
            Self::Object => {
                format!("{}{metadata}{}}}", resource.type_prefix(), resource.empty).into_bytes()
            }
            Self::Metadata => partial(&metadata).into_bytes(),
            Self::Table(include) => {
                let version = format!(r#"{{"resourceVersion":"{revision}"}}"#);
                let mut body = table::open(resource, &version, columns);
                let object = match include {
                    Include::Object => Self::Object,
                    // Never without: its annotation would be lost.
                    Include::Metadata | Include::None => Self::Metadata,
                };
                let object = object.encode_bookmark(resource, revision, initial, false);
                table::push_bookmark_row(&mut body, resource, &object);
                body.extend_from_slice(table::CLOSE);
                body
            }
        }
    }
}

impl Include {
    fn parse(text: Option<&str>) -> Result<Self, Status> {
        match text.unwrap_or_default() {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::None),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            ))),
        }
    }
}

/// `PartialObjectMetadata` of an object.
pub(super) fn encode_metadata(object: &Value) -> Vec<u8> {
    let mut object = object.clone();
    let metadata: &Map<String, Value> = metadata_mut(as_map(&mut object));
    let metadata = json::encode_metadata(metadata);
    let mut body =
        br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#.to_vec();
    body.extend_from_slice(&metadata);
    body.push(b'}');
    body
}

fn partial(metadata: &str) -> String {
    format!(r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",{metadata}}}"#)
}

/// One media type of an `Accept` header.
struct Clause<'a> {
    media_type: &'a str,
    quality: f32,
    transform: Option<&'a str>,
    /// Whether a transform is asked of the group and version that define it.
    defined: bool,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let get = |name: &str| {
            parameters
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| *value)
        };
        Self {
            media_type,
            quality: get("q")
                .and_then(|quality| quality.parse().ok())
                .unwrap_or(1.0),
            transform: get("as"),
            defined: get("g") == Some("meta.k8s.io") && matches!(get("v"), Some("v1" | "v1beta1")),
        }
    }

    fn representation(&self) -> Option<Representation> {
        if !matches!(self.media_type, "application/json" | "*/*") {
            return None;
        }
        match self.transform {
            None => Some(Representation::Object),
            Some("Table") if self.defined => Some(Representation::Table(Include::Metadata)),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") if self.defined => {
                Some(Representation::Metadata)
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_clause_that_can_be_answered_wins() {
        let check = |accept: &str, expected: Option<Representation>| {
            let found = Representation::negotiate(Some(accept), &Query::default()).ok();
            assert_eq!(found, expected, "{accept}");
        };
        let table = Representation::Table(Include::Metadata);
        check("", Some(Representation::Object));
        check(
            "application/vnd.kubernetes.protobuf,application/json",
            Some(Representation::Object),
        );
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            Some(table),
        );
        check(
            "application/json;as=Foo;v=v1;g=meta.k8s.io,application/json",
            Some(Representation::Object),
        );
        check(
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Some(Representation::Metadata),
        );
        check(
            "application/json;q=0.5, application/json;as=Table;v=v1;g=meta.k8s.io",
            Some(table),
        );
        check("application/vnd.kubernetes.protobuf", None);
        check("text/html", None);
    }

    #[test]
    fn bookmarks_carry_what_the_encoder_cannot_leave_out() {
        let check = |plural: &str, initial: bool, expected: &str| {
            let resource = Resource::named(plural).unwrap();
            let bookmark = Representation::Object.encode_bookmark(resource, 225, initial, false);
            assert_eq!(String::from_utf8(bookmark).unwrap(), expected);
        };
        check(
            "pods",
            true,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"225","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}"#,
        );
        check(
            "configmaps",
            false,
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"225"}}"#,
        );
        check(
            "widgets",
            true,
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"225"}}"#,
        );
    }
}
