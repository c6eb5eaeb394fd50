//! What is asked about, from a command line or a query.

use std::str::FromStr;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::query::query_pairs;

/// The request that is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Its method.
    pub method: Method,
    /// Its path and query, or its whole URL.
    pub target: String,
    /// Its headers.
    pub headers: HeaderMap,
}

impl Question {
    /// From a command line: a method, GET where there is none, a path or URL, and headers as `Name: value`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(method: &str, target: &str, headers: &[impl AsRef<str>]) -> Result<Self, String> {
        if is_method(target) {
            return Err(format!(
                "the path or URL is missing: {target} of what? Such as /clusters/<name>/api/v1/pods"
            ));
        }
        if !target.starts_with('/') && !target.contains("://") {
            return Err(format!(
                "{target:?} is not a path such as /clusters/<name>/api/v1/pods, nor a URL"
            ));
        }
        let mut question = Self {
            method: Method::from_str(&method.to_ascii_uppercase())
                .ok()
                .filter(|_| is_method(method))
                .ok_or_else(|| format!("{method:?} is not a method such as GET"))?,
            target: target.to_owned(),
            headers: HeaderMap::new(),
        };
        for header in headers.iter().map(AsRef::as_ref) {
            let parsed = header.split_once(':').and_then(|(name, value)| {
                let name = HeaderName::from_str(name.trim()).ok()?;
                Some((name, HeaderValue::from_str(value.trim()).ok()?))
            });
            let (name, value) = parsed
                .ok_or_else(|| format!("{header:?} is not a header such as \"Accept: */*\""))?;
            question.headers.append(name, value);
        }
        Ok(question)
    }

    /// From the query of `/why`: `method`, `target`, and `header` as often as there are any.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_query(query: &str) -> Result<Self, String> {
        let (mut method, mut target) = (None, None);
        let mut headers = Vec::new();
        for (key, value) in query_pairs(query) {
            match &*key {
                "method" => method = Some(value),
                "target" => target = Some(value),
                "header" => headers.push(value),
                other => {
                    return Err(format!(
                        "{other:?} is not \"method\", \"target\" or \"header\""
                    ));
                }
            }
        }
        let target = target.ok_or("target is missing: the path or URL that is asked about")?;
        Self::parse(method.as_deref().unwrap_or("GET"), &target, &headers)
    }

    /// The path and query as a server sees them.
    pub(super) fn path_and_query(&self) -> &str {
        let target = self.target.split('#').next().unwrap_or_default();
        match target.split_once("://") {
            Some((scheme, rest)) if !scheme.contains('/') => {
                rest.find('/').map_or("/", |start| &rest[start..])
            }
            _ => target,
        }
    }
}

/// Whether a word is a method of HTTP. Kubernetes' verbs, such as `list`, would be taken for writes.
fn is_method(word: &str) -> bool {
    const METHODS: [Method; 9] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::CONNECT,
        Method::TRACE,
    ];
    METHODS
        .iter()
        .any(|it| word.eq_ignore_ascii_case(it.as_str()))
}
