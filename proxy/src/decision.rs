//! From memory or live? A pure function of the request, and a named reason for each request that goes live.

use std::borrow::Cow;
use std::time::Duration;

use fleetcache_cache::continue_token::{ContinueToken, Style};
use fleetcache_cache::form::Unwritable;
use fleetcache_cache::holding::Holding;
use fleetcache_cache::informer::NotServable;
use fleetcache_cache::informers::{Lookup, Refusal};
use fleetcache_cache::resource_version::ResourceVersion;
use fleetcache_cache::selector::Selector;
use http::HeaderMap;
use http::header::UPGRADE;

use crate::cache_control::CacheControl;
use crate::query::query_pairs;
use crate::read_settings::{ReadSettings, UnsetResourceVersion};
use crate::request_info::{RequestInfo, ResourcePath, Verb};
use crate::writing::Writing;

pub mod watch;

/// A read that may be answered from memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedRead {
    /// How new the answer must be.
    pub freshness: Freshness,
    /// Time for which the server may not have been heard.
    pub max_age: Option<Duration>,
    /// A list with more objects than this is given in pages.
    pub limit: Option<u64>,
    /// Where the page begins, in a list that is continued.
    pub from: Option<ContinueToken>,
    /// The server asks its storage for one object, or an index, if a list that begins with the first object is by such a
    /// selector; whether more follows a full page is then its own affair.
    pub by_index: bool,
    /// How it is written.
    pub writing: Writing,
    /// The objects of a list that are asked for.
    pub selector: Selector,
}

/// How new an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// resourceVersion 0: any state the cluster has been in.
    Any,
    /// resourceVersion unset: at or above the floor.
    Latest,
    /// A resourceVersion that the answer may not be older than.
    NotOlderThan(ResourceVersion),
    /// The state at this resourceVersion.
    Exact(ResourceVersion),
    /// What the cluster holds now, and not older than a version, where one was named.
    Consistent {
        /// The version; 0 where none was named.
        not_older_than: ResourceVersion,
    },
}

/// Why a request is not answered from memory. The names are in logs, in the metric and in `Cache-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveReason {
    /// The cache does not hold the name: only the cluster may say that it does not exist.
    Absent,
    /// The newest state is not in memory yet.
    BelowFloor,
    /// `Cache-Control` asks for it.
    CacheControl,
    /// The configuration says that reads of this kind with resourceVersion unset are live.
    Configured,
    /// A page of a list that memory cannot continue: its state is not held, or only the server can judge the token.
    Continue,
    /// A custom resource without objects: only the cluster may say that the kind is still served.
    Empty,
    /// The changes that a watch asks for are not held any more; the cluster may still hold them.
    History,
    /// The list fills its limit, and whether more follows is for the server to say: it takes such a selector to an index.
    Limit,
    /// The server was not heard for longer than `Cache-Control: max-age` allows.
    MaxAge,
    /// Not a GET.
    Method,
    /// The configuration says that this kind is never kept.
    Never,
    /// The cluster does not allow it to the user, or could not say: its own answer is given.
    NotAllowed,
    /// Nobody has asked for this kind in this encoding, or too seldom: this informer would answer.
    NotStarted(Holding),
    /// The informer has not synced, or not resumed on this connection.
    NotSynced,
    /// Options that only the server can judge.
    Options,
    /// The path is not exactly one of a resource.
    Path,
    /// The kind cannot be kept, for a reason of its own.
    Refused(Refusal),
    /// Another representation than memory has.
    Representation,
    /// A resourceVersion that memory has not reached or cannot answer for: of the future, exact and not held, or malformed.
    ResourceVersion,
    /// A namespace for a cluster-scoped kind, or none for an object of a namespaced one.
    Scope,
    /// A selector that only the server can judge.
    Selector,
    /// A subresource.
    Subresource,
    /// What the cluster would be asked about the user is longer than questions are: by its selectors, mostly.
    TooLong,
    /// A write's effect is not known yet.
    Unconfirmed,
    /// Whether memory is what the cluster holds now could not be found out in time.
    Unproven,
    /// An upgrade to another protocol.
    Upgrade,
}

impl LiveReason {
    /// The reason as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::BelowFloor => "below-floor",
            Self::CacheControl => "cache-control",
            Self::Configured => "configured",
            Self::Continue => "continue",
            Self::Empty => "empty",
            Self::History => "history",
            Self::Limit => "limit",
            Self::MaxAge => "max-age",
            Self::Method => "method",
            Self::Never => "never",
            Self::NotAllowed => "not-allowed",
            Self::NotStarted(_) => "not-started",
            Self::NotSynced => "not-synced",
            Self::Options => "options",
            Self::Path => "path",
            Self::Refused(refusal) => refusal.as_str(),
            Self::Representation => "representation",
            Self::ResourceVersion => "resource-version",
            Self::Scope => "scope",
            Self::Selector => "selector",
            Self::Subresource => "subresource",
            Self::TooLong => "too-long",
            Self::Unconfirmed => "unconfirmed",
            Self::Unproven => "unproven",
            Self::Upgrade => "upgrade",
        }
    }

    /// The reason in the words of RFC 9211, §2.2.
    pub fn forward(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Configured
            | Self::Never
            | Self::NotAllowed
            | Self::Path
            | Self::Refused(_)
            | Self::Subresource
            | Self::Upgrade => "bypass",
            Self::CacheControl
            | Self::Continue
            | Self::Limit
            | Self::Options
            | Self::Representation
            | Self::ResourceVersion
            | Self::Scope
            | Self::Selector
            | Self::TooLong => "request",
            Self::Absent | Self::Empty | Self::History | Self::NotStarted(_) | Self::NotSynced => {
                "miss"
            }
            Self::BelowFloor | Self::MaxAge | Self::Unconfirmed | Self::Unproven => "stale",
        }
    }
}

impl From<Unwritable> for LiveReason {
    fn from(_: Unwritable) -> Self {
        Self::Representation
    }
}

impl From<NotServable> for LiveReason {
    fn from(why: NotServable) -> Self {
        match why {
            NotServable::BelowFloor => Self::BelowFloor,
            NotServable::NotSynced => Self::NotSynced,
            NotServable::OtherScope => Self::Scope,
            NotServable::FormerEpoch | NotServable::NotHeld | NotServable::TooOld => {
                Self::ResourceVersion
            }
            NotServable::Unconfirmed => Self::Unconfirmed,
            NotServable::Unproven => Self::Unproven,
        }
    }
}

/// Whether an informer could answer a request at all, whatever it holds. `Cache-Control` and the configuration can only
/// ask for newer answers than the request's resourceVersion does.
///
/// # Errors
/// Why it could not.
pub fn cacheable<'r>(
    info: &'r RequestInfo<'_>,
    headers: &HeaderMap,
    settings: &ReadSettings,
) -> Result<(&'r ResourcePath<'r>, CachedRead), LiveReason> {
    if headers.contains_key(UPGRADE) {
        return Err(LiveReason::Upgrade);
    }
    match info.verb {
        Verb::Get | Verb::List => {}
        Verb::Create
        | Verb::Delete
        | Verb::DeleteCollection
        | Verb::Other
        | Verb::Patch
        | Verb::Update
        | Verb::Watch => {
            return Err(LiveReason::Method);
        }
    }
    let resource = resource(info)?;
    let mut read = options(info, resource)?;
    let cache_control = CacheControl::of(headers);
    if cache_control.no_store {
        return Err(LiveReason::CacheControl);
    }
    read.max_age = cache_control.max_age;
    let unset = settings.unset_resource_version(&resource.gvr);
    read.freshness = with_cache_control(read.freshness, unset, cache_control)?;
    read.writing = Writing::of(info.verb, info.query, headers);
    read.writing.of_some_kind()?;
    Ok((resource, read))
}

/// What a request is about, which is no subresource.
fn resource<'r>(info: &'r RequestInfo<'_>) -> Result<&'r ResourcePath<'r>, LiveReason> {
    let resource = info.resource.as_ref().ok_or(LiveReason::Path)?;
    match resource.subresource {
        None => Ok(resource),
        Some(_) => Err(LiveReason::Subresource),
    }
}

/// The selectors of a list or watch, where they are given.
fn selector(
    labels: Option<Cow<'_, str>>,
    fields: Option<Cow<'_, str>>,
) -> Result<Selector, LiveReason> {
    let (labels, fields) = (labels.unwrap_or_default(), fields.unwrap_or_default());
    Selector::parse(&labels, &fields).map_err(|_| LiveReason::Selector)
}

/// How new an answer must be where `Cache-Control` and the configuration have their say too.
///
/// # Errors
/// It must be the cluster's own.
fn with_cache_control(
    asked: Freshness,
    unset: UnsetResourceVersion,
    cache_control: CacheControl,
) -> Result<Freshness, LiveReason> {
    Ok(match (asked, unset) {
        // What was at a version never changes.
        (exact @ Freshness::Exact(_), _) => exact,
        (Freshness::Latest, UnsetResourceVersion::Live) => return Err(LiveReason::Configured),
        (Freshness::NotOlderThan(not_older_than), _) if cache_control.no_cache => {
            Freshness::Consistent { not_older_than }
        }
        (freshness, unset)
            if cache_control.no_cache
                || (freshness, unset) == (Freshness::Latest, UnsetResourceVersion::Consistent) =>
        {
            Freshness::Consistent {
                not_older_than: ResourceVersion::default(),
            }
        }
        (freshness, _) => freshness,
    })
}

/// What there is of the kind, as a reason where it is nothing.
///
/// # Errors
/// Why there is no informer.
pub fn informer(
    lookup: Lookup,
) -> Result<std::sync::Arc<fleetcache_cache::informer::Informer>, LiveReason> {
    match lookup {
        Lookup::Informer(informer) => Ok(informer),
        Lookup::Never => Err(LiveReason::Never),
        Lookup::NotStarted(holding) => Err(LiveReason::NotStarted(holding)),
        Lookup::Refused(refusal) => Err(LiveReason::Refused(refusal)),
    }
}

/// Reads the options of a GET or LIST. The first value of a repeated one counts; those unknown to the server are
/// ignored, as it does; those it would refuse go live, so that it says so in its own words.
fn options(info: &RequestInfo<'_>, resource: &ResourcePath<'_>) -> Result<CachedRead, LiveReason> {
    let list = info.verb == Verb::List;
    let (mut version, mut version_match) = (None, None);
    let (mut limit, mut token) = (None, None);
    let (mut labels, mut fields) = (None, None);
    // Go refuses a query with a semicolon in part; what it makes of the rest is its own affair.
    if info.query.contains(';') {
        return Err(LiveReason::Options);
    }
    for (key, value) in query_pairs(info.query) {
        match &*key {
            "resourceVersion" => drop(version.get_or_insert(value)),
            "resourceVersionMatch" => drop(version_match.get_or_insert(value)),
            "limit" if limit.is_none() && list => {
                let parsed: i64 = value.parse().map_err(|_| LiveReason::Options)?;
                limit = Some(parsed);
            }
            "continue" if !list && !value.is_empty() => return Err(LiveReason::Continue),
            "continue" => drop(token.get_or_insert(value)),
            "labelSelector" if list => drop(labels.get_or_insert(value)),
            "fieldSelector" if list => drop(fields.get_or_insert(value)),
            "shardSelector" if !value.is_empty() => return Err(LiveReason::Selector),
            "timeout" if !is_plain_duration(&value) => return Err(LiveReason::Options),
            // Of a named object the server takes none of these; of a list, each needs its own judgement.
            "sendInitialEvents" | "allowWatchBookmarks" => return Err(LiveReason::Options),
            "timeoutSeconds" if value.parse::<i64>().is_err() => return Err(LiveReason::Options),
            // The server refuses to give an object without what the cluster added to it.
            "export" if !list => return Err(LiveReason::Options),
            "limit" if !list => return Err(LiveReason::Options),
            "watch" if !list => return Err(LiveReason::Options),
            _ => {}
        }
    }
    let selector = selector(labels, fields)?;
    // Of a single object the server takes any match, and none counts.
    let version_match = version_match.filter(|_| list).unwrap_or_default();
    let version = version.unwrap_or_default();
    let limit = limit.filter(|limit| *limit > 0).map(i64::unsigned_abs);
    let from = match token.as_deref().unwrap_or_default() {
        "" => None,
        token => Some(ContinueToken::parse(token).ok_or(LiveReason::Continue)?),
    };
    let parse = |version| ResourceVersion::parse(version).ok_or(LiveReason::ResourceVersion);
    let freshness = match (&from, &*version_match, &*version) {
        // Any other version or a match are a mistake.
        (Some(from), "", "" | "0") => match from.resource_version {
            Some(version) => Freshness::Exact(version),
            None => Freshness::Latest,
        },
        (Some(_), ..) => return Err(LiveReason::Continue),
        (None, "", "") => Freshness::Latest,
        (None, "" | "NotOlderThan", "0") => Freshness::Any,
        // With a limit alone the version is meant exactly, unless the server takes one object from its storage.
        (None, "", version) if limit.is_some() => {
            if selector.names_one("metadata.name") {
                return Err(LiveReason::ResourceVersion);
            }
            Freshness::Exact(parse(version)?)
        }
        // A match without a version is a mistake, and so is exactly any version.
        (None, "NotOlderThan", "") | (None, "Exact", "" | "0") => {
            return Err(LiveReason::ResourceVersion);
        }
        (None, "" | "NotOlderThan", version) => Freshness::NotOlderThan(parse(version)?),
        (None, "Exact", version) => Freshness::Exact(parse(version)?),
        _ => return Err(LiveReason::ResourceVersion),
    };
    // The watch cache of the server ignores the limit at resourceVersion 0, in whatever page.
    let is_ignored = version == "0" && Style::of(&resource.gvr) == Style::WatchCache;
    let indexed = ["metadata.name", "metadata.namespace", "spec.nodeName"];
    Ok(CachedRead {
        freshness,
        max_age: None,
        limit: limit.filter(|_| !is_ignored),
        by_index: from.is_none() && indexed.iter().any(|field| selector.names_one(field)),
        from,
        writing: Writing::default(),
        selector,
    })
}

/// A Go duration of one number and one unit that is no longer than Go can count (292 years); any other is for the server to
/// judge.
fn is_plain_duration(text: &str) -> bool {
    let digits = text.trim_end_matches(['s', 'm', 'h']);
    text.len() == digits.len() + 1
        && !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && digits.len() < 7
}

#[cfg(test)]
mod tests;
