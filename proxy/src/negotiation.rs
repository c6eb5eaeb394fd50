//! Which representation of an answer kube-apiserver would choose. A pure function of the request and of what is asked.
//!
//! What the server does, quirks included, is in `k8s.io/apiserver/pkg/endpoints/handlers/negotiation` and in the parser and
//! the order of `goautoneg`; built-in kinds go through go-restful before, which has a rule of its own.

use std::borrow::Cow;

use fleetcache_cache::form::{IncludeObject, MetaVersion};
use http::HeaderMap;
use http::header::{ACCEPT, USER_AGENT};

use crate::query::query_pairs;

/// Go sorts up to this many clauses by insertion, which its odd order makes matter; more are sorted in another way.
const MOST_CLAUSES: usize = 12;

/// What an endpoint can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// A built-in kind of the server, or another with a Go type.
    BuiltIn,
    /// A custom resource.
    Custom,
    /// JSON alone.
    Json,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Representation {
    /// What is written of objects.
    pub form: Form,
    /// In which encoding.
    pub encoding: Encoding,
}

/// What is written of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// All.
    Object,
    /// Cells, and what the query says is behind them.
    Table(MetaVersion),
    /// The metadata of one object, or of each in a watch.
    Metadata(MetaVersion),
    /// The metadata of a list's objects.
    MetadataList(MetaVersion),
}

/// In which encoding an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JSON.
    Json {
        /// Indented for people.
        pretty: bool,
    },
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
    /// YAML.
    Yaml,
}

/// Why there is no representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Nothing that is offered is accepted.
    NotAcceptable,
    /// That depends on more than the request, or it is written as nobody writes it.
    Unclear,
}

/// How the server would write its answer.
///
/// # Errors
/// It would refuse, or it is for the server to say.
pub fn negotiate(
    offer: Offer,
    query: &str,
    headers: &HeaderMap,
) -> Result<Representation, Unusable> {
    // Of several values the first counts. The server trims it; one that is not plain text is for it to read.
    let accept = headers.get(ACCEPT).map_or(Ok(""), |it| it.to_str());
    let accept = accept.map_err(|_| Unusable::Unclear)?.trim();
    let mut accepted = accepted(offer, accept)?;
    if let Encoding::Json { pretty } = &mut accepted.encoding {
        *pretty |= asks_for_people(query, headers);
    }
    Ok(accepted)
}

/// Whether an error is indented: errors are objects, so a clause that asks for a table or metadata is none for them, and
/// where there is no other they are written for people.
pub(crate) fn indents_errors(offer: Offer, query: &str, headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|it| it.to_str().ok());
    let accept = accept.unwrap_or_default().trim();
    let is_for_people = || asks_for_people(query, headers);
    let Some(clauses) = clauses(accept).filter(|_| !accept.is_empty()) else {
        return is_for_people();
    };
    let mut found = clauses
        .iter()
        .filter_map(|clause| clause.given(offer).ok()?);
    let plain = found.find(|given| given.form == Form::Object);
    plain.is_none_or(|given| given.encoding == Encoding::Json { pretty: true } || is_for_people())
}

/// One clause of `Accept`.
pub(crate) struct Clause<'a> {
    pub(crate) media_type: &'a str,
    pub(crate) subtype: &'a str,
    weight: f32,
    pub(crate) parameters: Vec<(&'a str, &'a str)>,
}

/// The clauses of an `Accept` in the order in which the server tries them; `None` where a weight is for it to read.
pub(crate) fn clauses(accept: &str) -> Option<Vec<Clause<'_>>> {
    let mut clauses = Vec::new();
    for part in accept.split(',') {
        clauses.extend(clause(part)?);
    }
    sort(&mut clauses);
    Some(clauses)
}

/// What the first clause gives that is usable.
fn accepted(offer: Offer, accept: &str) -> Result<Representation, Unusable> {
    if accept.is_empty() {
        return Ok(PLAIN);
    }
    if offer == Offer::BuiltIn && !passes_go_restful(accept) {
        return Err(Unusable::NotAcceptable);
    }
    let clauses = clauses(accept).ok_or(Unusable::Unclear)?;
    if clauses.len() > MOST_CLAUSES {
        return Err(Unusable::Unclear);
    }
    for clause in &clauses {
        if let Some(given) = clause.given(offer)? {
            return Ok(given);
        }
    }
    Err(Unusable::NotAcceptable)
}

/// Whether built-in kinds are asked for anything that go-restful knows them to produce: some clause must name it, parameters
/// aside, and `application/*` is no such name. That another than these does too is not needed.
fn passes_go_restful(accept: &str) -> bool {
    let produced = |clause: &str| {
        let name = clause.split(';').next().unwrap_or_default();
        matches!(
            name.trim_matches(' '),
            "*/*" | "application/json" | "application/vnd.kubernetes.protobuf" | "application/yaml"
        )
    };
    accept.split(',').any(produced)
}

const PLAIN: Representation = Representation {
    form: Form::Object,
    encoding: Encoding::Json { pretty: false },
};

impl Clause<'_> {
    /// What it gives; `None` where it is passed over.
    fn given(&self, offer: Offer) -> Result<Option<Representation>, Unusable> {
        // A wildcard gives the first that is offered and has the form that is asked for, which JSON is and has.
        let encoding = match (self.media_type, self.subtype) {
            ("*", "*") | ("application", "*" | "json") => Encoding::Json { pretty: false },
            ("application", "yaml") => Encoding::Yaml,
            ("application", "vnd.kubernetes.protobuf") => Encoding::Protobuf,
            // Some servers have it.
            ("application", "cbor") if offer != Offer::Json => return Err(Unusable::Unclear),
            _ => return Ok(None),
        };
        let (mut kind, mut group, mut version, mut pretty) = ("", "", "", false);
        for (name, value) in &self.parameters {
            match *name {
                "as" => kind = value,
                "g" => group = value,
                "v" => version = value,
                "pretty" => pretty = *value == "1",
                // Which streams there are depends on the server.
                "stream" | "sv" if offer != Offer::Json => return Err(Unusable::Unclear),
                _ => {}
            }
        }
        let meta_version = match (group, version) {
            ("meta.k8s.io", "v1") => Some(MetaVersion::V1),
            ("meta.k8s.io", "v1beta1") => Some(MetaVersion::V1beta1),
            _ => None,
        };
        // Each of the three makes it another form, which there must be.
        let form = match (kind, group, version, meta_version) {
            ("", "", "", _) => Form::Object,
            ("Table", .., Some(version)) => Form::Table(version),
            ("PartialObjectMetadata", .., Some(version)) => Form::Metadata(version),
            ("PartialObjectMetadataList", .., Some(version)) => Form::MetadataList(version),
            _ => return Ok(None),
        };
        let encoding = match (encoding, form, offer) {
            (Encoding::Json { .. }, ..) => Encoding::Json { pretty },
            (_, _, Offer::Json) => return Ok(None),
            (Encoding::Protobuf, Form::Table(_), _) => return Ok(None),
            (Encoding::Protobuf, Form::Object, Offer::Custom) => return Ok(None),
            (encoding, ..) => encoding,
        };
        Ok(Some(Representation { form, encoding }))
    }
}

/// Reads a clause; `Some(None)` is one that the server leaves out, `None` one whose weight is for it to read.
fn clause(part: &str) -> Option<Option<Clause<'_>>> {
    let mut pieces = part.split(';');
    let name = pieces.next().unwrap_or_default();
    let (media_type, subtype) = split(name, '/');
    let media_type = media_type.trim_matches(' ');
    let subtype = match split(subtype, '/') {
        ("", "") if media_type == "*" => "*",
        ("", "") => return Some(None),
        (subtype, "") => subtype.trim_matches(' '),
        _ => return Some(None),
    };
    let mut clause = Clause {
        media_type,
        subtype,
        weight: 1.0,
        parameters: Vec::new(),
    };
    for parameter in pieces {
        let (name, value) = split(parameter, '=');
        let (value, more) = split(value, '=');
        if value.is_empty() || !more.is_empty() {
            continue;
        }
        match name.trim_matches(' ') {
            "q" => clause.weight = weight(value)?,
            name => clause.parameters.push((name, value.trim_matches(' '))),
        }
    }
    Some(Some(clause))
}

/// What is before the first separator and what is after; nothing is after where there is none.
fn split(text: &str, separator: char) -> (&str, &str) {
    text.split_once(separator).unwrap_or((text, ""))
}

/// A weight of RFC 9110. Go reads more (spaces make it 0, and there are exponents), which nobody means.
fn weight(text: &str) -> Option<f32> {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain.then(|| text.parse().ok()).flatten()
}

/// Go's insertion sort in the order of goautoneg, which is none: a wildcard comes after a name of less weight.
fn sort(clauses: &mut [Clause<'_>]) {
    let is_less = |a: &Clause<'_>, b: &Clause<'_>| {
        a.weight > b.weight
            || (a.media_type != "*" && b.media_type == "*")
            || (a.subtype != "*" && b.subtype == "*")
    };
    for end in 1..clauses.len() {
        let mut at = end;
        while at > 0 && is_less(&clauses[at], &clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// What a Table is to have beside its cells.
///
/// # Errors
/// What was asked for, which the server refuses.
pub(crate) fn include_object(query: &str) -> Result<IncludeObject, Cow<'_, str>> {
    let asked = query_pairs(query).find(|(key, _)| key == "includeObject");
    let asked = asked.map_or(Cow::Borrowed(""), |(_, value)| value);
    match &*asked {
        "" | "Metadata" => Ok(IncludeObject::Metadata),
        "Object" => Ok(IncludeObject::Object),
        "None" => Ok(IncludeObject::None),
        _ => Err(asked),
    }
}

/// Whether the query or the agent of a request asks for indentation.
pub(crate) fn asks_for_people(query: &str, headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).map_or(&[][..], |it| it.as_bytes());
    is_for_people(query, agent)
}

/// Whether the query or the agent asks for indentation.
pub(crate) fn is_for_people(query: &str, agent: &[u8]) -> bool {
    // The server looks into the query only if the word itself stands there.
    if query.contains("pretty") {
        let asked = query_pairs(query).find(|(key, _)| key == "pretty");
        if let Some((_, value)) = asked.filter(|(_, value)| !value.is_empty()) {
            // The true ones of Go's ParseBool; all others, malformed ones too, are false.
            return matches!(&*value, "1" | "t" | "T" | "true" | "TRUE" | "True");
        }
    }
    indents_for(agent)
}

/// Whether the server indents for this agent where the query does not tell.
pub(crate) fn indents_for(agent: &[u8]) -> bool {
    ["curl", "Wget", "Mozilla/5.0"]
        .iter()
        .any(|prefix| agent.starts_with(prefix.as_bytes()))
}

#[cfg(test)]
mod tests;
