//! One line of the log: an `Event` of `audit.k8s.io/v1`, as kube-apiserver writes it at the level `Metadata`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use fleetcache_auth::UserInfo;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::ser::Formatter;

use super::attributes::{Attributes, ObjectReference};
use super::record::{Answered, Facts, Known};
use super::request_uri::request_uri;
use crate::metrics::Source;
use crate::request_info::RequestInfo;

/// Bytes of a user agent; kube-apiserver cuts there, too.
pub(super) const USER_AGENT_BYTES: usize = 1024;

/// Bytes of an event beside those that are counted.
const OVERHEAD: usize = 512;

/// The code of a request that was given up before there was an answer. No client sees it.
const CLIENT_GONE: u16 = 499;

/// When an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Stage {
    /// The headers of an answer are there that may last long.
    ResponseStarted,
    /// The answer has ended, whoever ended it.
    ResponseComplete,
    /// Answering panicked.
    Panic,
}

/// An event, before it is a line.
pub(super) struct Event {
    facts: Arc<Facts>,
    stage: Stage,
    at: Timestamp,
    /// None where there was no answer.
    answered: Option<Answered>,
    /// The body of an answer that may be a Status.
    body: Bytes,
    bytes: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: Cow<'a, str>,
    stage: Stage,
    #[serde(rename = "requestURI")]
    request_uri: Cow<'a, str>,
    verb: &'a str,
    user: User<'a>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Option::is_none")]
    source_ips: Option<[String; 1]>,
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<&'a ObjectReference>,
    response_status: Status<'a>,
    #[serde(serialize_with = "micros")]
    request_received_timestamp: Timestamp,
    #[serde(serialize_with = "micros")]
    stage_timestamp: Timestamp,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'static str, &'a str>,
}

#[derive(Default, Serialize)]
struct User<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<&'a BTreeMap<String, Vec<String>>>,
}

#[derive(Default, Serialize)]
struct Status<'a> {
    metadata: BTreeMap<(), ()>,
    #[serde(skip_serializing_if = "str::is_empty")]
    status: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
    code: u16,
}

/// What an answer's body says, if it is a Status.
#[derive(Deserialize)]
struct StatusBody {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    reason: String,
    details: Option<Value>,
}

impl Event {
    /// One of now.
    pub(super) fn new(
        facts: Arc<Facts>,
        stage: Stage,
        answered: Option<Answered>,
        body: Bytes,
    ) -> Self {
        let user = facts.known.get().map_or(0, |known| known.user.bytes());
        let user_agent = facts.user_agent.as_ref().map_or(0, |it| it.len());
        let texts = facts.method.as_str().len() + facts.target.len() + facts.audit_id.len();
        let bytes = OVERHEAD + texts + user_agent + user + body.len();
        Self {
            facts,
            stage,
            at: Timestamp::now(),
            answered,
            body,
            bytes,
        }
    }

    /// About its bytes in memory. What it shares with others counts as its own.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends its line, with the end of it.
    pub(super) fn write_line(&self, to: &mut Vec<u8>) {
        let Facts {
            audit_id,
            method,
            target,
            user_agent,
            source,
            received,
            known,
        } = &*self.facts;
        let info = RequestInfo::parse(method, target);
        let asked = info
            .as_ref()
            .map_or(target.as_str(), |it| &it.path_and_query);
        let attributes = Attributes::of(method, asked);
        let proxied = attributes.is_proxied();
        let known = known.get();
        let mut annotations = BTreeMap::new();
        if let Some(info) = &info {
            annotations.insert("fleetcache.dev/cluster", info.cluster);
        }
        if let Some(Known { by, .. }) = known {
            annotations.insert("fleetcache.dev/authentication", *by);
        }
        if let Some(Answered { source, reason, .. }) = self.answered {
            annotations.insert("fleetcache.dev/source", source.as_str());
            if !reason.is_empty() {
                annotations.insert("fleetcache.dev/reason", reason);
            }
        }
        let line = Line {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: "Metadata",
            audit_id: text(audit_id),
            stage: self.stage,
            request_uri: request_uri(target, proxied),
            verb: &attributes.verb,
            user: known.map(|it| user(&it.user)).unwrap_or_default(),
            source_ips: source.map(|it| [it.to_string()]),
            user_agent: user_agent.as_deref().map(agent).unwrap_or_default(),
            object_ref: attributes.object.as_ref(),
            response_status: self.status(proxied),
            request_received_timestamp: *received,
            stage_timestamp: self.at,
            annotations,
        };
        let start = to.len();
        let mut serializer = serde_json::Serializer::with_formatter(&mut *to, OneLine);
        if let Err(error) = line.serialize(&mut serializer) {
            // All keys are texts, and a vector takes all bytes.
            tracing::error!(%error, "audit event not written");
            to.truncate(start);
            return;
        }
        to.push(b'\n');
    }

    fn status(&self, proxied: bool) -> Status<'static> {
        let Some(Answered { code, source, .. }) = self.answered else {
            let failure = Status {
                status: "Failure".into(),
                ..Status::default()
            };
            return match self.stage {
                Stage::Panic => Status {
                    reason: "InternalError".into(),
                    code: 500,
                    ..failure
                },
                Stage::ResponseStarted | Stage::ResponseComplete => Status {
                    message: "the client went away before there was an answer".into(),
                    code: CLIENT_GONE,
                    ..failure
                },
            };
        };
        // What is behind a proxy answers as it likes, and nobody can tell it from the cluster.
        let is_foreign = proxied && source == Source::Live;
        let said = (!is_foreign).then(|| serde_json::from_slice::<StatusBody>(&self.body));
        match said {
            Some(Ok(said)) if said.kind == "Status" && said.api_version == "v1" => Status {
                status: said.status.into(),
                message: said.message.into(),
                reason: said.reason.into(),
                details: said.details,
                code,
                ..Status::default()
            },
            _ => Status {
                code,
                ..Status::default()
            },
        }
    }
}

fn user(user: &UserInfo) -> User<'_> {
    User {
        username: &user.name,
        uid: &user.uid,
        groups: &user.groups,
        extra: (!user.extra.is_empty()).then_some(&user.extra),
    }
}

fn text(value: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(value)
}

fn agent(value: &[u8]) -> Cow<'_, str> {
    match value.get(..USER_AGENT_BYTES) {
        Some(start) if value.len() > USER_AGENT_BYTES => {
            format!("{}...TRUNCATED", text(start)).into()
        }
        Some(_) | None => text(value),
    }
}

fn micros<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"))
}

/// JSON in one line, whoever reads it: what some take for the end of a line, or a terminal for a command, is escaped, too.
struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let is_odd = |c: char| matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}');
        let mut rest = fragment;
        while let Some(at) = rest.find(is_odd) {
            let (plain, odd) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            let mut odd = odd.chars();
            if let Some(c) = odd.next() {
                write!(writer, "\\u{:04x}", u32::from(c))?;
            }
            rest = odd.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}
