//! Requests, and where they go.

use fleetcache_cache::form::{Form, MetaVersion};
use http::{HeaderName, HeaderValue, Method};

use super::*;
use crate::writing::Written;

fn check(target: &str, headers: &[(&str, &str)]) -> Result<CachedRead, LiveReason> {
    check_with(&ReadSettings::default(), target, headers)
}

fn check_with(
    settings: &ReadSettings,
    target: &str,
    headers: &[(&str, &str)],
) -> Result<CachedRead, LiveReason> {
    let target = format!("/clusters/a{target}");
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(
            HeaderName::try_from(*name).unwrap(),
            HeaderValue::try_from(*value).unwrap(),
        );
    }
    let info = RequestInfo::parse(&Method::GET, &target).unwrap();
    cacheable(&info, &map, settings).map(|(_, read)| read)
}

#[test]
fn cache_control_and_the_configuration_ask_for_newer_answers_only() {
    use UnsetResourceVersion::{Cached, Consistent, Live};
    let consistent = |version| {
        Ok(Freshness::Consistent {
            not_older_than: ResourceVersion::from_number(version),
        })
    };
    let not_older = Ok(Freshness::NotOlderThan(ResourceVersion::from_number(5)));
    let no_store = Err(LiveReason::CacheControl);
    for (unset, query, cache_control, expected) in [
        (Cached, "", "", Ok(Freshness::Latest)),
        (Cached, "", "max-stale", Ok(Freshness::Latest)),
        (Cached, "", "max-age=3", Ok(Freshness::Latest)),
        (Cached, "", "no-cache", consistent(0)),
        (Cached, "", "max-age=0", consistent(0)),
        (Cached, "", "no-cache, max-age=3", consistent(0)),
        (Cached, "?resourceVersion=0", "no-cache", consistent(0)),
        (Cached, "?resourceVersion=5", "no-cache", consistent(5)),
        (Cached, "?resourceVersion=5", "only-if-cached", not_older),
        (Cached, "?resourceVersion=0", "no-store", no_store),
        (Cached, "", "no-cache, no-store", no_store),
        (Consistent, "", "", consistent(0)),
        (Consistent, "", "max-age=3", consistent(0)),
        (Consistent, "?resourceVersion=0", "", Ok(Freshness::Any)),
        (Consistent, "?resourceVersion=5", "", not_older),
        (Live, "", "", Err(LiveReason::Configured)),
        (Live, "", "max-age=3", Err(LiveReason::Configured)),
        (Live, "", "no-cache", Err(LiveReason::Configured)),
        (Live, "?resourceVersion=0", "", Ok(Freshness::Any)),
        (Live, "?resourceVersion=0", "no-cache", consistent(0)),
        (Live, "?resourceVersion=5", "", not_older),
    ] {
        // The last rule for a kind counts, and only for that kind.
        let rule = |resource: &str, unset| (String::new(), resource.to_owned(), unset);
        let settings = ReadSettings {
            of_resources: vec![rule("pods", Live), rule("pods", unset), rule("nodes", Live)],
            ..ReadSettings::default()
        };
        let target = format!("/api/v1/pods{query}");
        let headers = [("cache-control", cache_control)];
        let read = check_with(&settings, &target, &headers);
        let freshness = read.as_ref().map(|read| read.freshness).map_err(|why| *why);
        assert_eq!(freshness, expected, "{unset:?} {query} {cache_control}");
        let max_age = cache_control.contains("max-age=3").then_some(3);
        if let Ok(read) = read {
            assert_eq!(read.max_age, max_age.map(Duration::from_secs));
        }
        let all = ReadSettings {
            unset_resource_version: unset,
            ..ReadSettings::default()
        };
        let read = check_with(&all, &target, &headers);
        assert_eq!(read.map(|read| read.freshness), expected);
    }
}

#[test]
fn plain_reads_may_come_from_memory() {
    let read = |freshness, limit| {
        Ok(CachedRead {
            freshness,
            max_age: None,
            limit,
            from: None,
            by_index: false,
            writing: Writing::default(),
            selector: Selector::default(),
        })
    };
    let at_five = ResourceVersion::from_number(5);
    let latest = |limit| read(Freshness::Latest, limit);
    let not_older = |limit| read(Freshness::NotOlderThan(at_five), limit);
    let exact = |limit| read(Freshness::Exact(at_five), limit);
    let any = || read(Freshness::Any, None);
    for (target, expected) in [
        ("/api/v1/pods", latest(None)),
        ("/api/v1/pods?", latest(None)),
        ("/api/v1/pods?limit=500", latest(Some(500))),
        ("/api/v1/pods?limit=0", latest(None)),
        ("/api/v1/pods?limit=-1", latest(None)),
        (
            "/api/v1/pods?limit=1&limit=3&foo=bar&x[]=1",
            latest(Some(1)),
        ),
        (
            "/api/v1/pods?resourceVersion=&continue=&labelSelector=",
            latest(None),
        ),
        ("/api/v1/pods?resourceVersion=0", any()),
        ("/api/v1/pods?resourceVersion=0&limit=1", any()),
        ("/api/v1/pods?timeout=30s&timeoutSeconds=5", latest(None)),
        // The server leaves out what it cannot decode.
        (
            "/api/v1/pods?fieldSelector=metadata.name%3Da%zz",
            latest(None),
        ),
        ("/api/v1/pods?watch=false", latest(None)),
        ("/api/v1/namespaces/x/pods/p", latest(None)),
        ("/api/v1/namespaces/x/pods/p?resourceVersion=0", any()),
        (
            "/api/v1/pods?resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=1",
            any(),
        ),
        ("/api/v1/pods?resourceVersion=5", not_older(None)),
        ("/api/v1/pods?resourceVersion=5&limit=1", exact(Some(1))),
        (
            "/api/v1/pods?resourceVersion=5&resourceVersionMatch=Exact",
            exact(None),
        ),
        (
            "/api/v1/pods?resourceVersion=5&resourceVersionMatch=Exact&limit=2",
            exact(Some(2)),
        ),
        // Events are in no watch cache, which would ignore the limit.
        (
            "/apis/events.k8s.io/v1/events?resourceVersion=0&limit=1",
            read(Freshness::Any, Some(1)),
        ),
        (
            "/api/v1/pods?resourceVersion=5&resourceVersion=x",
            not_older(None),
        ),
        (
            "/api/v1/pods?resourceVersion=5&resourceVersionMatch=NotOlderThan&limit=3",
            not_older(Some(3)),
        ),
        (
            "/api/v1/namespaces/x/pods/p?resourceVersion=5&resourceVersionMatch=Exact",
            not_older(None),
        ),
    ] {
        assert_eq!(check(target, &[]), expected, "{target}");
    }
}

#[test]
fn a_page_is_of_the_version_in_its_token() {
    let token = |version: Option<u64>| ContinueToken {
        resource_version: version.map(ResourceVersion::from_number),
        ..ContinueToken::after(ResourceVersion::default(), "a", Style::WatchCache)
    };
    let (at_seven, newest) = (token(Some(7)), token(None));
    let exact = Freshness::Exact(ResourceVersion::from_number(7));
    let consistent = Freshness::Consistent {
        not_older_than: ResourceVersion::default(),
    };
    let (seven, now) = (at_seven.to_string(), newest.to_string());
    for (options, cache_control, freshness, limit, from) in [
        (
            format!("limit=2&continue={seven}"),
            "",
            exact,
            Some(2),
            &at_seven,
        ),
        (format!("continue={seven}"), "", exact, None, &at_seven),
        (
            format!("continue={seven}&continue=x"),
            "",
            exact,
            None,
            &at_seven,
        ),
        // The watch cache ignores the limit at 0 here too.
        (
            format!("limit=2&resourceVersion=0&continue={seven}"),
            "",
            exact,
            None,
            &at_seven,
        ),
        // What was at a version does not change.
        (
            format!("continue={seven}"),
            "no-cache",
            exact,
            None,
            &at_seven,
        ),
        (
            format!("limit=2&continue={now}"),
            "",
            Freshness::Latest,
            Some(2),
            &newest,
        ),
        (
            format!("continue={now}"),
            "no-cache",
            consistent,
            None,
            &newest,
        ),
    ] {
        let target = format!("/api/v1/pods?{options}");
        let read = check(&target, &[("cache-control", cache_control)]).unwrap();
        assert_eq!((read.freshness, read.limit), (freshness, limit), "{target}");
        assert_eq!(read.from.as_ref(), Some(from), "{target}");
    }
    for refused in [
        "resourceVersion=7",
        "resourceVersion=abc",
        "resourceVersionMatch=Exact",
    ] {
        let target = format!("/api/v1/pods?continue={seven}&{refused}");
        assert_eq!(check(&target, &[]), Err(LiveReason::Continue), "{target}");
    }
}

#[test]
fn a_first_page_may_come_from_an_index_of_the_server() {
    let seven = ContinueToken::after(ResourceVersion::from_number(7), "a", Style::WatchCache);
    for (selector, options, expected) in [
        ("metadata.name%3Da", "limit=1", true),
        (
            "metadata.namespace%3D%3Da,status.phase!%3Dx",
            "limit=1",
            true,
        ),
        ("spec.nodeName%3Da", "limit=1", true),
        ("spec.nodeName!%3Da", "limit=1", false),
        ("status.phase%3Da", "limit=1", false),
        (
            "metadata.name%3Da",
            &*format!("limit=1&continue={seven}"),
            false,
        ),
    ] {
        let target = format!("/api/v1/pods?{options}&fieldSelector={selector}");
        let read = check(&target, &[]).unwrap();
        assert_eq!(read.by_index, expected, "{target}");
    }
}

#[test]
fn what_only_the_server_can_answer_goes_live() {
    use LiveReason::*;
    for (target, expected) in [
        ("/api/v1/pods?labelSelector=a%20b", Selector),
        ("/api/v1/pods?fieldSelector=status.phase", Selector),
        ("/api/v1/pods?shardSelector=x", Selector),
        ("/api/v1/pods?continue=abc", Continue),
        (
            "/api/v1/pods?resourceVersion=5&limit=1&fieldSelector=metadata.name%3Da",
            ResourceVersion,
        ),
        ("/api/v1/namespaces/x/pods/p?continue=abc", Continue),
        ("/api/v1/pods?resourceVersion=05", ResourceVersion),
        (
            "/api/v1/pods?resourceVersionMatch=NotOlderThan",
            ResourceVersion,
        ),
        (
            "/api/v1/pods?resourceVersion=0&resourceVersionMatch=Exact",
            ResourceVersion,
        ),
        (
            "/api/v1/pods?resourceVersion=0&resourceVersionMatch=Foo",
            ResourceVersion,
        ),
        ("/api/v1/pods?resourceVersion=abc", ResourceVersion),
        ("/api/v1/pods?resourceVersionMatch=Exact", ResourceVersion),
        ("/api/v1/pods?limit=", Options),
        ("/api/v1/pods?limit=abc", Options),
        ("/api/v1/pods?timeout=abc", Options),
        ("/api/v1/pods?timeout=2562048h", Options),
        ("/api/v1/pods?timeoutSeconds=abc", Options),
        ("/api/v1/pods?sendInitialEvents=true", Options),
        ("/api/v1/pods?a=1;limit=1", Options),
        ("/api/v1/namespaces/x/pods/p?export=1", Options),
        ("/api/v1/namespaces/x/pods/p?watch=1", Options),
        ("/api/v1/namespaces/x/pods/p/status", Subresource),
        ("/api/v1/pods//", Path),
        ("/api", Path),
        ("/version", Path),
    ] {
        assert_eq!(check(target, &[]), Err(expected), "{target}");
    }
}

#[test]
fn what_memory_can_write_comes_from_it() {
    const LIST: &str = "/api/v1/pods";
    const ONE: &str = "/api/v1/namespaces/x/pods/p";
    const CUSTOM: &str = "/apis/example.com/v1/widgets";
    let written = |form, pretty| {
        let gzip = false;
        Ok(Written { form, pretty, gzip })
    };
    let json = |pretty| written(Form::Object, pretty);
    let metadata = || written(Form::Metadata(MetaVersion::V1), false);
    let in_protobuf = || written(Form::ProtobufMetadata(MetaVersion::V1), false);
    let as_one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let as_list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let typed = "application/vnd.kubernetes.protobuf,application/json";
    let lists = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    for (target, name, value, expected) in [
        (LIST, "accept", "application/json", json(false)),
        (LIST, "accept", "application/json;pretty=1", json(true)),
        (LIST, "user-agent", "curl/8.0", json(true)),
        (LIST, "accept", "text/html", Err(LiveReason::Representation)),
        (LIST, "upgrade", "websocket", Err(LiveReason::Upgrade)),
        (
            LIST,
            "cache-control",
            "no-store",
            Err(LiveReason::CacheControl),
        ),
        (LIST, "accept", as_list, metadata()),
        (LIST, "accept", as_one, Err(LiveReason::Representation)),
        (ONE, "accept", as_one, metadata()),
        (ONE, "accept", as_list, Err(LiveReason::Representation)),
        (LIST, "accept", lists, in_protobuf()),
        (CUSTOM, "accept", lists, in_protobuf()),
        (ONE, "accept", lists, Err(LiveReason::Representation)),
        (LIST, "accept", typed, written(Form::Protobuf, false)),
        (CUSTOM, "accept", typed, json(false)),
    ] {
        let is_custom = target == CUSTOM;
        let written =
            check(target, &[(name, value)]).and_then(|read| read.writing.of_kind(is_custom));
        assert_eq!(written, expected, "{target} {name}: {value}");
    }
}
