//! Which representation of an answer kube-apiserver would choose, as far as it is JSON. A pure function of the request.
//!
//! What the server does, quirks included, is in `k8s.io/apiserver/pkg/endpoints/handlers/negotiation` and in the parser and
//! the order of `goautoneg`; built-in kinds go through go-restful before, which has a rule of its own.

use http::HeaderMap;
use http::header::{ACCEPT, USER_AGENT};

use crate::query::query_pairs;

/// Go sorts up to this many clauses by insertion, which its odd order makes matter; more are sorted in another way.
const MOST_CLAUSES: usize = 12;

/// Plain JSON, as an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json {
    /// Indented for people.
    pub pretty: bool,
}

/// How the answer would be written if it would be plain JSON; `None` where it would be anything else, or where that depends
/// on more than the request.
pub fn negotiate(query: &str, headers: &HeaderMap) -> Option<Json> {
    // Of several values the first counts. The server trims it; one that is not plain text is for it to read.
    let accept = headers
        .get(ACCEPT)
        .map_or(Some(""), |it| it.to_str().ok())?;
    let accepted = accepted(accept.trim())?;
    let agent = headers.get(USER_AGENT).map_or(&[][..], |it| it.as_bytes());
    Some(Json {
        pretty: accepted.pretty || is_for_people(query, agent),
    })
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

/// The first clause that is usable, if it gives plain JSON whatever the kind.
fn accepted(accept: &str) -> Option<Json> {
    if accept.is_empty() {
        return Some(Json { pretty: false });
    }
    // go-restful: some clause must name what it can produce, parameters aside, and `application/*` is no such name. That
    // another than these does too is not needed.
    let produced = |clause: &str| {
        let name = clause
            .split(';')
            .next()
            .unwrap_or_default()
            .trim_matches(' ');
        matches!(name, "application/json" | "*/*")
    };
    if !accept.split(',').any(produced) {
        return None;
    }
    let clauses = clauses(accept)?;
    if clauses.len() > MOST_CLAUSES {
        return None;
    }
    let usable = clauses.iter().find(|clause| clause.may_be_used())?;
    usable.plain_json()
}

impl Clause<'_> {
    /// Whether any kind may be answered so. Kinds differ in what else than JSON they have.
    fn may_be_used(&self) -> bool {
        match (self.media_type, self.subtype) {
            ("application", subtype) => {
                matches!(
                    subtype,
                    "*" | "cbor" | "json" | "vnd.kubernetes.protobuf" | "yaml"
                )
            }
            ("*", subtype) => subtype == "*",
            _ => false,
        }
    }

    fn plain_json(&self) -> Option<Json> {
        if !matches!(self.subtype, "json" | "*") {
            return None;
        }
        let mut pretty = false;
        for (name, value) in &self.parameters {
            match *name {
                // Another form of the answer, or a clause that is skipped.
                "as" | "g" | "v" | "stream" | "sv" => return None,
                "pretty" => pretty = *value == "1",
                _ => {}
            }
        }
        Some(Json { pretty })
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
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const COMPACT: Option<Json> = Some(Json { pretty: false });
    const PRETTY: Option<Json> = Some(Json { pretty: true });

    fn check(query: &str, headers: &[(HeaderName, &str)]) -> Option<Json> {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, value);
        }
        negotiate(query, &map)
    }

    #[test]
    fn accept_is_read_as_the_server_reads_it() {
        for (accept, expected) in [
            ("application/json", COMPACT),
            ("application/json, */*", COMPACT),
            ("*/*", COMPACT),
            ("*/*;q=0.8", COMPACT),
            ("*/*, *", COMPACT),
            ("", COMPACT),
            (" ", COMPACT),
            ("application/json;charset=utf-8", COMPACT),
            ("application/json; charset=\"utf-8\"; odd", COMPACT),
            ("application/json;pretty=1", PRETTY),
            ("application/json; pretty = 1 ", PRETTY),
            ("application/json;pretty=true", COMPACT),
            ("application/json;pretty=1;pretty=0", COMPACT),
            ("application/json;export=1;profile=x", COMPACT),
            ("application/json;q=0.9,application/yaml;q=0.1", COMPACT),
            ("application/yaml;q=0.1,application/json;q=0.9", COMPACT),
            ("application/json;q=0.1, application/yaml;q=0.9", None),
            // A name is before a wildcard, whatever they weigh.
            ("*/*;q=0.9,application/yaml;q=0.1", None),
            ("*/*;q=0.9,application/json;pretty=1;q=0.1", PRETTY),
            ("*/*,application/*;pretty=1", PRETTY),
            ("application/*", None),
            ("application/*,application/json", COMPACT),
            ("*", None),
            ("text/html", None),
            ("text/html,*/*;q=0.8", COMPACT),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
                COMPACT,
            ),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
                COMPACT,
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                None,
            ),
            ("application/json;as=Nonsense,application/json", None),
            ("application/json;stream=watch", None),
            ("application/vnd.kubernetes.protobuf,application/json", None),
            (
                "application/json,application/vnd.kubernetes.protobuf",
                COMPACT,
            ),
            ("application/cbor,application/json", None),
            ("application/yaml", None),
            ("application/json;q=1e0", None),
            ("application/json;q= 1", None),
            ("application/json;q=.", None),
            ("application / json,*/*", COMPACT),
            ("application / json", None),
            ("application/json/x, */*;pretty=1", PRETTY),
            ("APPLICATION/JSON", None),
            (",,", None),
            ("*/, */*;q=0.1", COMPACT),
            ("application/json/;q=1=, x/y//;pretty=1, */*;q=0.1", COMPACT),
            ("application/json;pretty==1,*/*", COMPACT),
            (
                "a/a,a/b,a/c,a/d,a/e,a/f,a/g,a/h,a/i,a/j,a/k,application/json",
                COMPACT,
            ),
            (
                "a/a,a/b,a/c,a/d,a/e,a/f,a/g,a/h,a/i,a/j,a/k,a/l,application/json",
                None,
            ),
        ] {
            assert_eq!(check("", &[(ACCEPT, accept)]), expected, "{accept}");
        }
        // The first of several headers counts.
        let two = [(ACCEPT, "application/json"), (ACCEPT, "text/html")];
        assert_eq!(check("", &two), COMPACT);
        let two = [(ACCEPT, "text/html"), (ACCEPT, "application/json")];
        assert_eq!(check("", &two), None);
        let mut bytes = HeaderMap::new();
        bytes.insert(ACCEPT, HeaderValue::from_bytes(b"*/*;x=\xff").unwrap());
        assert_eq!(negotiate("", &bytes), None);
    }

    #[test]
    fn indentation_is_for_people_and_for_who_asks() {
        let curl = "curl/8.5.0";
        for (query, agent, expected) in [
            ("", "", COMPACT),
            ("", curl, PRETTY),
            ("", "Wget/1.21", PRETTY),
            ("", "Mozilla/5.0 (X11; Linux x86_64)", PRETTY),
            ("", "Mozilla/4.0", COMPACT),
            ("", "my-curl", COMPACT),
            ("", "kubectl/v1.36.3", COMPACT),
            ("pretty=true", "", PRETTY),
            ("pretty=True", "", PRETTY),
            ("pretty=1", "", PRETTY),
            ("pretty=t", "", PRETTY),
            ("pretty=tRUE", curl, COMPACT),
            ("pretty=yes", curl, COMPACT),
            ("pretty=false", curl, COMPACT),
            ("pretty=0", curl, COMPACT),
            ("pretty=", curl, PRETTY),
            ("pretty", curl, PRETTY),
            ("pretty=", "", COMPACT),
            ("pretty=&pretty=true", "", COMPACT),
            ("pretty=true&pretty=false", "", PRETTY),
            ("limit=5&pretty=%74rue", "", PRETTY),
            ("%70retty=true", "", COMPACT),
            ("%70retty=true&notpretty=1", "", PRETTY),
            ("pretty=+true", "", COMPACT),
            // What cannot be decoded is left out.
            ("pretty=%zz", curl, PRETTY),
            ("pretty=true%", "", COMPACT),
            ("pretty=%1&pretty=true", "", PRETTY),
        ] {
            let headers = [(USER_AGENT, agent)];
            assert_eq!(check(query, &headers), expected, "{query} {agent}");
        }
        let accept = "application/json;pretty=1";
        assert_eq!(check("pretty=false", &[(ACCEPT, accept)]), PRETTY);
    }
}
