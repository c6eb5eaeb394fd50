//! A watch from memory or live? The watch's own options; what it shares with lists is in [`super`].

use std::time::Duration;

use fleetcache_cache::resource_version::ResourceVersion;
use fleetcache_cache::selector::Selector;
use http::HeaderMap;
use http::header::UPGRADE;

use super::{Freshness, LiveReason, is_plain_duration, resource, selector, with_cache_control};
use crate::cache_control::CacheControl;
use crate::query::query_pairs;
use crate::read_settings::ReadSettings;
use crate::request_info::{RequestInfo, ResourcePath};
use crate::writing::Writing;

/// No watch is asked to last longer; more seconds than this are counted in another way by the server.
const LONGEST: i64 = 1_000_000_000;

/// A watch that may be answered from memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedWatch {
    /// Where it begins.
    pub begin: Begin,
    /// Bookmarks are asked for.
    pub bookmarks: bool,
    /// When it is to end; at a time of the server's own choice where `None`.
    pub timeout: Option<Duration>,
    /// Time for which the server may not have been heard.
    pub max_age: Option<Duration>,
    /// The objects that are asked for.
    pub selector: Selector,
    /// How they are written.
    pub writing: Writing,
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With what there is, as ADDED events.
    State {
        /// How new it must be.
        freshness: Freshness,
        /// `sendInitialEvents=true` was said: a server that does not know it would refuse.
        streaming_list: bool,
    },
    /// After a state, without telling it.
    Now(Freshness),
    /// With the changes above a version.
    After(ResourceVersion),
}

/// Whether an informer could answer a watch at all, whatever it holds.
///
/// # Errors
/// Why it could not.
pub fn watchable<'r>(
    info: &'r RequestInfo<'_>,
    headers: &HeaderMap,
    settings: &ReadSettings,
) -> Result<(&'r ResourcePath<'r>, CachedWatch), LiveReason> {
    if headers.contains_key(UPGRADE) {
        return Err(LiveReason::Upgrade);
    }
    let resource = resource(info)?;
    let mut watch = options(info)?;
    let cache_control = CacheControl::of(headers);
    if cache_control.no_store {
        return Err(LiveReason::CacheControl);
    }
    watch.max_age = cache_control.max_age;
    let unset = settings.unset_resource_version(&resource.gvr);
    if let Begin::State { freshness, .. } | Begin::Now(freshness) = &mut watch.begin {
        *freshness = with_cache_control(*freshness, unset, cache_control)?;
    }
    // Whether lines are indented is not asked: those of a stream are not.
    watch.writing = Writing::of(info.verb, info.query, headers);
    watch.writing.of_some_kind()?;
    Ok((resource, watch))
}

/// Reads the options of a watch. The first value of a repeated one counts; those that the server would refuse go live.
fn options(info: &RequestInfo<'_>) -> Result<CachedWatch, LiveReason> {
    let (mut version, mut version_match, mut timeout) = (None, None, None);
    let (mut initial_events, mut bookmarks) = (None, None);
    let (mut labels, mut fields) = (None, None);
    if info.query.contains(';') {
        return Err(LiveReason::Options);
    }
    for (key, value) in query_pairs(info.query) {
        match &*key {
            "resourceVersion" => drop(version.get_or_insert(value)),
            "resourceVersionMatch" => drop(version_match.get_or_insert(value)),
            "sendInitialEvents" => drop(initial_events.get_or_insert_with(|| is_true(&value))),
            "allowWatchBookmarks" => drop(bookmarks.get_or_insert_with(|| is_true(&value))),
            "labelSelector" => drop(labels.get_or_insert(value)),
            "fieldSelector" => drop(fields.get_or_insert(value)),
            "timeoutSeconds" if timeout.is_none() => {
                let seconds: i64 = value.parse().map_err(|_| LiveReason::Options)?;
                if !(0..=LONGEST).contains(&seconds) {
                    return Err(LiveReason::Options);
                }
                timeout = Some(Duration::from_secs(seconds.unsigned_abs()));
            }
            "limit" if value.parse::<i64>().is_err() => return Err(LiveReason::Options),
            "continue" if !value.is_empty() => return Err(LiveReason::Continue),
            "shardSelector" if !value.is_empty() => return Err(LiveReason::Selector),
            "timeout" if !is_plain_duration(&value) => return Err(LiveReason::Options),
            _ => {}
        }
    }
    let version = version.as_deref().unwrap_or_default();
    let version_match = version_match.as_deref().unwrap_or_default();
    let freshness = match version {
        "" => Freshness::Latest,
        "0" => Freshness::Any,
        version => Freshness::NotOlderThan(
            ResourceVersion::parse(version).ok_or(LiveReason::ResourceVersion)?,
        ),
    };
    let begin = match (initial_events, version_match, freshness) {
        (None, "", Freshness::NotOlderThan(version)) => Begin::After(version),
        (None, "", freshness) => Begin::State {
            freshness,
            streaming_list: false,
        },
        (Some(true), "NotOlderThan", freshness) => Begin::State {
            freshness,
            streaming_list: true,
        },
        (Some(false), "NotOlderThan", Freshness::NotOlderThan(version)) => Begin::After(version),
        (Some(false), "NotOlderThan", freshness) => Begin::Now(freshness),
        _ => return Err(LiveReason::Options),
    };
    Ok(CachedWatch {
        begin,
        bookmarks: bookmarks.unwrap_or_default(),
        timeout: timeout.filter(|timeout| !timeout.is_zero()),
        max_age: None,
        selector: selector(labels, fields)?,
        writing: Writing::default(),
    })
}

/// As the server reads a boolean: `0` and `false` are false, anything else is true.
fn is_true(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::read_settings::UnsetResourceVersion;

    fn check(query: &str, headers: &HeaderMap) -> Result<CachedWatch, LiveReason> {
        let target = format!("/clusters/a/api/v1/pods?watch=1&{query}");
        let info = RequestInfo::parse(&Method::GET, &target).unwrap();
        watchable(&info, headers, &ReadSettings::default()).map(|(_, watch)| watch)
    }

    #[test]
    fn where_a_watch_begins_follows_from_three_options() {
        let rv = ResourceVersion::from_number;
        let state = |freshness, streaming_list| {
            Ok(Begin::State {
                freshness,
                streaming_list,
            })
        };
        for (query, expected) in [
            ("", state(Freshness::Latest, false)),
            ("resourceVersion=", state(Freshness::Latest, false)),
            ("resourceVersion=0", state(Freshness::Any, false)),
            ("resourceVersion=5", Ok(Begin::After(rv(5)))),
            (
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                state(Freshness::Latest, true),
            ),
            (
                "sendInitialEvents&resourceVersionMatch=NotOlderThan&resourceVersion=0",
                state(Freshness::Any, true),
            ),
            (
                "sendInitialEvents=1&resourceVersionMatch=NotOlderThan&resourceVersion=5",
                state(Freshness::NotOlderThan(rv(5)), true),
            ),
            (
                "sendInitialEvents=False&resourceVersionMatch=NotOlderThan",
                Ok(Begin::Now(Freshness::Latest)),
            ),
            (
                "sendInitialEvents=0&resourceVersionMatch=NotOlderThan&resourceVersion=0",
                Ok(Begin::Now(Freshness::Any)),
            ),
            (
                "sendInitialEvents=0&resourceVersionMatch=NotOlderThan&resourceVersion=5",
                Ok(Begin::After(rv(5))),
            ),
            ("sendInitialEvents=true", Err(LiveReason::Options)),
            ("sendInitialEvents=false", Err(LiveReason::Options)),
            (
                "resourceVersionMatch=NotOlderThan",
                Err(LiveReason::Options),
            ),
            (
                "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=5",
                Err(LiveReason::Options),
            ),
            ("resourceVersion=abc", Err(LiveReason::ResourceVersion)),
            ("resourceVersion=05", Err(LiveReason::ResourceVersion)),
        ] {
            let watch = check(query, &HeaderMap::new());
            assert_eq!(watch.map(|watch| watch.begin), expected, "{query}");
        }
    }

    #[test]
    fn options_are_read_as_the_server_reads_them() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (query, expected) in [
            ("", Ok((false, None))),
            ("allowWatchBookmarks=true", Ok((true, None))),
            ("allowWatchBookmarks", Ok((true, None))),
            (
                "allowWatchBookmarks=false&allowWatchBookmarks=1",
                Ok((false, None)),
            ),
            ("timeoutSeconds=5&timeoutSeconds=x", Ok((false, seconds(5)))),
            ("timeoutSeconds=0", Ok((false, None))),
            ("limit=1&foo=bar", Ok((false, None))),
            ("timeoutSeconds=-1", Err(LiveReason::Options)),
            ("timeoutSeconds=abc", Err(LiveReason::Options)),
            (
                "timeoutSeconds=9223372036854775807",
                Err(LiveReason::Options),
            ),
            ("limit=x", Err(LiveReason::Options)),
            ("continue=x", Err(LiveReason::Continue)),
            ("labelSelector=a%20b", Err(LiveReason::Selector)),
            ("shardSelector=x", Err(LiveReason::Selector)),
            ("a=1;b=2", Err(LiveReason::Options)),
        ] {
            let watch = check(query, &HeaderMap::new());
            let watch = watch.map(|watch| (watch.bookmarks, watch.timeout));
            assert_eq!(watch, expected, "{query}");
        }
    }

    #[test]
    fn headers_and_settings_count_for_the_state_that_it_begins_with() {
        let with = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            headers
        };
        for (query, headers, expected) in [
            (
                "",
                with("accept", "application/yaml"),
                Err(LiveReason::Representation),
            ),
            ("", with("upgrade", "websocket"), Err(LiveReason::Upgrade)),
            (
                "resourceVersion=5",
                with("cache-control", "no-store"),
                Err(LiveReason::CacheControl),
            ),
            (
                "resourceVersion=5",
                with("cache-control", "no-cache"),
                Ok(Begin::After(ResourceVersion::from_number(5))),
            ),
            (
                "resourceVersion=0",
                with("cache-control", "no-cache"),
                Ok(Begin::State {
                    freshness: Freshness::Consistent {
                        not_older_than: ResourceVersion::default(),
                    },
                    streaming_list: false,
                }),
            ),
        ] {
            let watch = check(query, &headers).map(|watch| watch.begin);
            assert_eq!(watch, expected, "{query} {headers:?}");
        }
        let live = ReadSettings {
            unset_resource_version: UnsetResourceVersion::Live,
            ..ReadSettings::default()
        };
        let target = "/clusters/a/api/v1/pods?watch=1";
        let info = RequestInfo::parse(&Method::GET, target).unwrap();
        let watch = watchable(&info, &HeaderMap::new(), &live).map(|(_, watch)| watch);
        assert_eq!(watch, Err(LiveReason::Configured));
    }
}
