//! One cell of the matrix: a request of a user, asked of the cluster and of the proxy, and what may differ.

use std::fmt;

use bytes::Bytes;
use fleetcache_e2e::client::{Answer, Client};
use http::{Method, StatusCode};
use serde_json::Value;

use super::world::Subject;
use crate::differential::normal::of_any_object;
use crate::pair::{Comparable, compare};

/// How often a cell is asked where its cluster does not stand still, or a watch ended before all was told.
const ATTEMPTS: usize = 5;

/// Where an answer to who may have it comes from, once informers have synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// Memory.
    Memory,
    /// The cluster, since memory holds no such object.
    Absent,
    /// The cluster: memory never has it.
    Live,
    /// Either.
    Any,
}

/// The server's 401 in plain JSON.
const UNAUTHORIZED: &str = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\
                            \"message\":\"Unauthorized\",\"reason\":\"Unauthorized\",\"code\":401}\n";

/// In which form two answers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As they are, but for the list's own version.
    Read,
    /// Events as they are; when a bookmark comes is up to the server.
    Watch,
    /// Without uids, versions and times: each request makes an object of its own, or is of its own moment.
    Object,
    /// As [`Self::Read`] or [`Self::Watch`], without ages.
    Table,
    /// As [`Self::Object`]; the server goes through roles in any order.
    Rules,
    /// The status, the headers and the names of some metrics.
    Metrics,
}

/// A request. Its cells are those of all users.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: String,
    pub(super) from: From,
    pub(super) form: Form,
}

impl Row {
    /// A GET of JSON.
    pub(super) fn get(path: impl Into<String>, from: From) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            headers: vec![("accept", "application/json".to_owned())],
            body: String::new(),
            from,
            form: Form::Read,
        }
    }

    /// A watch of a second.
    pub(super) fn watch(path: impl AsRef<str>, from: From) -> Self {
        let path = path.as_ref();
        let join = if path.contains('?') { '&' } else { '?' };
        Self {
            form: Form::Watch,
            ..Self::get(format!("{path}{join}watch=1&timeoutSeconds=1"), from)
        }
    }

    /// The same in another representation.
    pub(super) fn accept(mut self, accept: &str) -> Self {
        self.headers = vec![("accept", accept.to_owned())];
        if accept.contains("as=Table") {
            self.form = Form::Table;
        }
        self
    }

    /// A write, or another request that is always live.
    pub(super) fn send(method: Method, path: impl Into<String>, body: &Value) -> Self {
        let media_type = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        Self {
            method,
            headers: vec![("content-type", media_type.to_owned())],
            body: if body.is_null() {
                String::new()
            } else {
                body.to_string()
            },
            form: Form::Object,
            ..Self::get(path, From::Live)
        }
    }

    /// Whether it lasts for a second.
    pub(super) fn is_watch(&self) -> bool {
        self.path.contains("watch=1")
    }

    /// Asks it.
    pub(super) async fn ask(&self, client: &Client, prefix: &str) -> Answer {
        let headers: Vec<(&str, &str)> = self
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let path = format!("{prefix}{}", self.path);
        let answer = client.send(self.method.clone(), &path, &headers, self.body.clone());
        answer
            .await
            .unwrap_or_else(|error| panic!("{self}: {error:#}"))
    }

    /// Where the proxy's answer is not the server's.
    fn difference(&self, direct: &Answer, proxied: &Answer) -> Result<(), String> {
        let (mut expected, mut told) = (without_body(direct), without_body(proxied));
        if direct.status == StatusCode::UNAUTHORIZED {
            unauthorized(direct, &mut expected);
            told.body = proxied.text();
        } else if direct.body != proxied.body {
            // Most are the same to the byte, and need not be looked into.
            expected.body = self.body_of(direct);
            told.body = self.body_of(proxied);
        }
        compare(&expected, &told)
    }

    fn body_of(&self, answer: &Answer) -> String {
        if !answer.status.is_success() {
            return answer.text();
        }
        match self.form {
            Form::Read => Comparable::from(answer).body,
            Form::Watch => events(&answer.text()),
            Form::Table => without_ages(&events(&Comparable::from(answer).body)),
            Form::Object => of_any_object(&answer.text(), "no namespace"),
            Form::Rules => rules(&answer.json().unwrap()),
            Form::Metrics => metrics(&answer.text()),
        }
    }

    /// Whether one ended before it told all that the other did, as on a busy machine within a second.
    fn is_cut(&self, direct: &Answer, proxied: &Answer) -> bool {
        let [direct, proxied] = [direct, proxied].map(|answer| self.body_of(answer));
        self.is_watch() && (direct.starts_with(&proxied) || proxied.starts_with(&direct))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        for (name, value) in &self.headers {
            if value != "application/json" {
                write!(f, " {name}: {value}")?;
            }
        }
        Ok(())
    }
}

/// What a cell came to.
pub(super) struct Asked {
    /// What the server answered last.
    pub(super) direct: Answer,
    /// What the proxy answered last.
    pub(super) proxied: Answer,
    pub(super) failures: Vec<String>,
}

/// Asks the proxy for what the server answered with `direct`. Where they differ and the server says the same again, the proxy
/// is wrong; where it does not, they are asked anew. A status that differs is wrong in any case: no right changes here.
pub(super) async fn ask(subject: &Subject, row: &Row, prefix: &str, mut direct: Answer) -> Asked {
    let mut attempt = 1;
    loop {
        let proxied = row.ask(&subject.proxied, prefix).await;
        let failure = match row.difference(&direct, &proxied) {
            Ok(()) => None,
            Err(difference) => {
                let again = row.ask(&subject.direct, "").await;
                let stood_still = row.difference(&direct, &again).is_ok();
                let is_wrong = direct.status != proxied.status
                    || (stood_still && !row.is_cut(&direct, &proxied))
                    || attempt == ATTEMPTS;
                if !is_wrong {
                    direct = again;
                    attempt += 1;
                    continue;
                }
                let (name, said) = (&subject.name, proxied.cache_status());
                Some(format!("{name}: {row} ({prefix}, {said}): {difference}"))
            }
        };
        return Asked {
            direct,
            proxied,
            failures: failure.into_iter().collect(),
        };
    }
}

fn without_body(answer: &Answer) -> Comparable {
    Comparable::from(&Answer {
        body: Bytes::new(),
        ..answer.clone()
    })
}

/// What the proxy says to whom nobody knows: what the server says, but in plain JSON whatever was asked for (docs/API.md).
fn unauthorized(direct: &Answer, expected: &mut Comparable) {
    if direct.body.is_empty() {
        return;
    }
    let is_plain = direct.body.starts_with(b"{\"kind\"");
    expected.body = if is_plain {
        direct.text()
    } else {
        UNAUTHORIZED.to_owned()
    };
    for (name, value) in &mut expected.headers {
        if name == "content-type" {
            *value = "application/json".to_owned();
        }
    }
}

/// The events of a watch, without bookmarks but for the one that ends the initial events, which is without its version.
fn events(body: &str) -> String {
    let mut told = String::new();
    for line in body.split_inclusive('\n') {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            told += line;
            continue;
        };
        let metadata = &event["object"]["metadata"];
        // A deadline that is past is found before or after the watch has begun.
        if line.contains(r#""message":"context deadline exceeded""#) {
            continue;
        }
        if event["type"] != "BOOKMARK" {
            told += line;
        } else if !metadata["annotations"].is_null() {
            let version = format!(r#""resourceVersion":{}"#, metadata["resourceVersion"]);
            told += &line.replace(&version, "?");
        }
    }
    told
}

/// A Table without what passes while it is asked for.
fn without_ages(text: &str) -> String {
    let is_age = |text: &str| {
        let mut bytes = text.bytes();
        bytes.next().is_some_and(|byte| byte.is_ascii_digit())
            && text.ends_with(['s', 'm', 'h', 'd'])
            && bytes.all(|byte| byte.is_ascii_digit() || b"smhd".contains(&byte))
    };
    let parts = text.split('"');
    let parts = parts.map(|part| if is_age(part) { "AGE" } else { part });
    parts.collect::<Vec<_>>().join("\"")
}

/// A SelfSubjectRulesReview with its rules in an order.
fn rules(review: &Value) -> String {
    let mut review = review.clone();
    for list in ["resourceRules", "nonResourceRules"] {
        if let Some(rules) = review["status"][list].as_array_mut() {
            rules.sort_by_key(Value::to_string);
        }
    }
    of_any_object(&review.to_string(), "no namespace")
}

/// What all Go processes tell.
fn metrics(body: &str) -> String {
    let lines = body.lines();
    let told = lines.filter(|line| line.starts_with("# TYPE go_mem"));
    told.collect::<Vec<_>>().join("\n")
}
