//! Which representation of an answer the server would choose for a custom resource, as far as the fleet's API has it: JSON,
//! as the object, as a table or as metadata alone. YAML and protobuf are not offered.

use http::HeaderMap;
use http::header::{ACCEPT, USER_AGENT};

use super::refusal::Refusal;
use super::table::Include;
use crate::negotiation::{Clause, clauses, is_for_people};
use crate::query::query_pairs;

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
    Table(&'static str, Include),
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
        let accept = headers.get(ACCEPT).and_then(|it| it.to_str().ok());
        let accept = accept.unwrap_or_default().trim();
        let agent = headers.get(USER_AGENT).map_or(&[][..], |it| it.as_bytes());
        let pretty = is_for_people(query, agent);
        let plain = Self {
            form: Form::Object,
            pretty,
        };
        if accept.is_empty() {
            return Ok(plain);
        }
        let Some(clauses) = clauses(accept) else {
            return Ok(plain);
        };
        let not_acceptable = || Refusal::NotAcceptable(OFFERED.to_owned());
        let found = clauses.iter().find_map(form);
        let (form, asked) = found.ok_or_else(not_acceptable)?;
        let form = match form {
            Form::Table(version, _) => Form::Table(version, include(query)?),
            form => form,
        };
        let pretty = pretty || asked;
        Ok(Self { form, pretty })
    }
}

/// Whether an error is indented: errors are objects, so a clause that asks for a table or metadata is none for them, and
/// where there is no other they are written for people.
pub(super) fn indents_errors(query: &str, headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|it| it.to_str().ok());
    let accept = accept.unwrap_or_default().trim();
    let agent = headers.get(USER_AGENT).map_or(&[][..], |it| it.as_bytes());
    let Some(clauses) = clauses(accept).filter(|_| !accept.is_empty()) else {
        return is_for_people(query, agent);
    };
    let mut found = clauses.iter().filter_map(form);
    let plain = found.find(|(form, _)| *form == Form::Object);
    plain.is_none_or(|(_, asked)| asked || is_for_people(query, agent))
}

/// What a clause asks for, and whether indented; `None` where it is another type or another form.
fn form(clause: &Clause<'_>) -> Option<(Form, bool)> {
    let is_json = matches!(
        (clause.media_type, clause.subtype),
        ("application", "json" | "*") | ("*", "*")
    );
    if !is_json {
        return None;
    }
    let (mut kind, mut group, mut version, mut pretty) = ("", "", "", false);
    for (name, value) in &clause.parameters {
        match *name {
            "as" => kind = value,
            "g" => group = value,
            "v" => version = value,
            "pretty" => pretty = *value == "1",
            _ => {}
        }
    }
    let version = match version {
        "v1" => "v1",
        "v1beta1" => "v1beta1",
        _ => "",
    };
    let form = match (kind, group, version) {
        ("", ..) => Form::Object,
        (_, _, "") => return None,
        ("Table", "meta.k8s.io", version) => Form::Table(version, Include::default()),
        ("PartialObjectMetadata", "meta.k8s.io", version) => Form::Metadata(version),
        ("PartialObjectMetadataList", "meta.k8s.io", version) => Form::MetadataList(version),
        _ => return None,
    };
    Some((form, pretty))
}

/// What a table is to have behind its cells.
fn include(query: &str) -> Result<Include, Refusal> {
    let asked = query_pairs(query).find(|(key, _)| key == "includeObject");
    match asked.as_ref().map_or("", |(_, value)| &**value) {
        "" | "Metadata" => Ok(Include::Metadata),
        "Object" => Ok(Include::Object),
        "None" => Ok(Include::None),
        other => Err(Refusal::BadRequest(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(accept: &str) -> Option<Form> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        let representation = Representation::of("", &headers);
        representation.ok().map(|it| it.form)
    }

    #[test]
    fn the_first_clause_counts_that_can_be_had() {
        let table = |version| Some(Form::Table(version, Include::Metadata));
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
