//! The table.

mod lists;
mod paths;
mod representations;
mod selectors;

use http::Method;

use super::cluster::Facts;

/// The collections that most rows are about.
const CONFIGMAPS: &str = "/api/v1/namespaces/diff/configmaps";
const PODS: &str = "/api/v1/namespaces/diff/pods";
const WIDGETS: &str = "/apis/ex.io/v1/namespaces/diff/widgets";

/// One request that changes nothing.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// What it is about.
    pub(super) case: &'static str,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
    /// Whether memory can answer it, by `docs/API.md`.
    pub(super) hit: bool,
}

impl Row {
    /// A GET as of most clients: plain JSON is wanted.
    fn get(case: &'static str, path: impl Into<String>, hit: bool) -> Self {
        Self {
            case,
            method: Method::GET,
            path: path.into(),
            headers: vec![("accept".to_owned(), "application/json".to_owned())],
            body: String::new(),
            hit,
        }
    }

    /// A GET without any header, of which nothing is expected but to be the same.
    pub(super) fn random(path: String) -> Self {
        Self {
            headers: Vec::new(),
            ..Self::get("random", path, false)
        }
    }

    /// The same request with this header, in place of one of that name.
    fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Any other request.
    fn other(case: &'static str, method: &str, path: impl Into<String>) -> Self {
        Self {
            method: Method::from_bytes(method.as_bytes()).unwrap(),
            ..Self::get(case, path, false)
        }
    }
}

/// All of them.
pub(super) fn all(facts: &Facts) -> Vec<Row> {
    let mut rows = lists::rows(facts);
    rows.extend(selectors::rows());
    rows.extend(paths::rows());
    rows.extend(representations::rows());
    rows
}

/// Every byte escaped, as no client has to.
pub(super) fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
