//! Which representation of an answer the server would choose for a custom resource, as far as the fleet's API has it: JSON,
//! as the object, as a table or as metadata alone. YAML and protobuf are not offered.

use fleetcache_cache::form::IncludeObject;
use http::HeaderMap;

use super::refusal::Refusal;
use crate::negotiation::{
    self, Encoding, Offer, Representation as Negotiated, Unusable, asks_for_people, include_object,
    negotiate,
};

/// What there is.
const OFFERED: &str = "only the following media types are accepted: application/json";

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Representation {
    /// What is written.
    pub form: Form,
    /// Indented for people.
    pub pretty: bool,
}

/// What is written of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// All.
    Object,
    /// Cells, and what is behind them; `v1` or `v1beta1`.
    Table(&'static str, IncludeObject),
    /// The metadata of one object.
    Metadata(&'static str),
    /// The metadata of a list's objects.
    MetadataList(&'static str),
}

impl Representation {
    /// Reads `Accept` and the query.
    ///
    /// # Errors
    /// Nothing that is offered is accepted.
    pub(super) fn of(query: &str, headers: &HeaderMap) -> Result<Self, Refusal> {
        let (form, pretty) = match negotiate(Offer::Json, query, headers) {
            Ok(Negotiated { form, encoding }) => {
                (form, encoding == Encoding::Json { pretty: true })
            }
            Err(Unusable::NotAcceptable) => {
                return Err(Refusal::NotAcceptable(OFFERED.to_owned()));
            }
            Err(Unusable::Unclear) => (negotiation::Form::Object, asks_for_people(query, headers)),
        };
        let form = match form {
            negotiation::Form::Object => Form::Object,
            negotiation::Form::Table(version) => Form::Table(version.as_str(), include(query)?),
            negotiation::Form::Metadata(version) => Form::Metadata(version.as_str()),
            negotiation::Form::MetadataList(version) => Form::MetadataList(version.as_str()),
        };
        Ok(Self { form, pretty })
    }
}

/// What a table is to have behind its cells.
fn include(query: &str) -> Result<IncludeObject, Refusal> {
    include_object(query).map_err(|other| {
        Refusal::BadRequest(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
        ))
    })
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;

    use super::*;

    fn check(accept: &str) -> Option<Form> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        let representation = Representation::of("", &headers);
        representation.ok().map(|it| it.form)
    }

    #[test]
    fn the_first_clause_counts_that_can_be_had() {
        let table = |version| Some(Form::Table(version, IncludeObject::Metadata));
        for (accept, expected) in [
            ("", Some(Form::Object)),
            ("*/*", Some(Form::Object)),
            ("application/*", Some(Form::Object)),
            ("application/json, */*", Some(Form::Object)),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Some(Form::Object),
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                table("v1"),
            ),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
                table("v1beta1"),
            ),
            ("application/json;as=Table;v=v2;g=meta.k8s.io", None),
            (
                "application/json;as=Foo,application/json",
                Some(Form::Object),
            ),
            (
                "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
                Some(Form::Metadata("v1")),
            ),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
                Some(Form::MetadataList("v1")),
            ),
            ("text/html", None),
            ("application/yaml", None),
            ("application/vnd.kubernetes.protobuf", None),
        ] {
            assert_eq!(check(accept), expected, "{accept}");
        }
    }
}
