use fleetcache_cache::documents::{Documents, Held};
use http::Method;
use http::header::EXPIRES;

use super::*;

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const V2_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const OPENAPI_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
const KUBECTL: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;\
                       g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let line = |(name, value): &(&str, &str)| {
        let name = HeaderName::try_from(*name).unwrap();
        (name, HeaderValue::try_from(*value).unwrap())
    };
    lines.iter().map(line).collect()
}

fn request(target: &str, lines: &[(&str, &str)]) -> Option<DocumentRequest> {
    let target = format!("/clusters/a{target}");
    let info = RequestInfo::parse(&Method::GET, &target).unwrap();
    DocumentRequest::of(&info, &headers(lines))
}

#[test]
fn what_a_request_takes_away_from_itself_is_no_part_of_a_document() {
    let asked = |connection| {
        let lines = [("accept", OPENAPI_PROTOBUF), ("connection", connection)];
        request("/openapi/v3/version", &lines).is_some()
    };
    for connection in [
        "accept",
        "close, Accept",
        "user-agent",
        "IF-None-Match",
        "if-modified-since",
    ] {
        assert!(!asked(connection), "{connection}");
    }
    assert!(asked("keep-alive, x-accept"));
}

#[test]
fn documents_are_told_from_their_paths() {
    for (target, expected) in [
        ("/version", Some("/version")),
        ("/version?timeout=32s", Some("/version")),
        ("/api", Some("/api")),
        ("/api/", Some("/api")),
        ("/api/v1", Some("/api/v1")),
        ("/apis", Some("/apis")),
        ("/apis?timeout=32s", Some("/apis")),
        ("/apis?profile=nopeer", Some("/apis?profile=nopeer")),
        ("/apis/apps", Some("/apis/apps")),
        ("/apis/apps/v1", Some("/apis/apps/v1")),
        ("/openapi/v3", Some("/openapi/v3")),
        ("/openapi/v3/version", Some("/openapi/v3/version")),
        (
            "/openapi/v3/apis/apps/v1?hash=A1&timeout=1s",
            Some("/openapi/v3/apis/apps/v1?hash=A1"),
        ),
        ("/openapi/v3/", None),
        ("/openapi/v3?hash=A%2F", None),
        ("/openapi/v3?hash=A&hash=B", None),
        ("/openapi/v2", None),
        ("/openapi", None),
        ("/version/", Some("/version")),
        ("/version/a", None),
        ("/", None),
        ("", None),
        ("/healthz", None),
        ("/api/v2", None),
        ("/api//", None),
        ("/apis//v1", None),
        ("/apis/../api", None),
        ("/apis/%61pps", None),
        ("/apis/apps/v1/deployments", None),
        ("/api/v1/pods", None),
        ("/apis?watch=1", None),
        ("/apis?pretty=1", None),
        ("/apis?hash=1", None),
    ] {
        let path = request(target, &[]).map(|request| request.key.path);
        assert_eq!(path.as_deref(), expected, "{target}");
    }
}

#[test]
fn what_only_the_server_can_answer_is_left_to_it() {
    let is_left = |lines: &[(&str, &str)]| request("/apis", lines).is_none();
    assert!(!is_left(&[("accept", "a/b"), ("if-none-match", "\"1\"")]));
    for line in [
        ("cache-control", "no-cache"),
        ("range", "bytes=0-1"),
        ("upgrade", "h2c"),
    ] {
        assert!(is_left(&[line]), "{line:?}");
    }
    assert!(is_left(&[("accept", "a/b"), ("accept", "c/d")]));
    let post = RequestInfo::parse(&Method::POST, "/clusters/a/apis").unwrap();
    assert!(DocumentRequest::of(&post, &HeaderMap::new()).is_none());
}

/// Holds what answered each `Accept` with its content type; the body is the number.
fn held(path: &str, forms: &[(&str, &str)]) -> Vec<Held> {
    let documents = Documents::new(&Arc::default());
    for (number, (accept, content_type)) in forms.iter().enumerate() {
        let key = DocumentKey {
            path: path.to_owned(),
            accept: (*accept).to_owned(),
            indented: false,
        };
        let headers = headers(&[("content-type", content_type)]);
        let body = number.to_string();
        documents.keep(1, &key, Instant::now(), &headers, body.as_bytes());
    }
    documents.of_path(path)
}

#[test]
fn a_list_of_media_ranges_is_negotiated_clause_by_clause() {
    let proto = "application/vnd.kubernetes.protobuf";
    let check = |forms: &[(&str, &str)], accept: &str, expected: Option<usize>| {
        let held = held("/apis", forms);
        let request = request("/apis", &[("accept", accept)]).unwrap();
        let chosen = variants::choose(&request.key, &held);
        let body = chosen.map(|chosen| chosen.document.body());
        let expected = expected.map(|number| number.to_string());
        assert_eq!(
            body.as_deref(),
            expected.as_ref().map(String::as_bytes),
            "{accept}"
        );
    };
    let all = [
        ("x", "application/json"),
        ("y", V2),
        ("z", V2_PROTOBUF),
        (proto, proto),
    ];
    check(&all, "application/json", Some(0));
    check(&all, "application/json, */*", Some(0));
    check(&all, "*/*", Some(0));
    check(&all, "", Some(0));
    check(&all, V2, Some(1));
    check(&all, KUBECTL, Some(1));
    check(&all, V2_PROTOBUF, Some(2));
    check(&all, proto, Some(3));
    check(&all, &format!("{proto};q=0.5, {V2};q=0.8"), Some(1));
    check(&all, &format!("application/json;q=0, {proto}"), Some(3));
    check(
        &all,
        "application/yaml, application/json;charset=utf-8",
        Some(0),
    );
    check(&all, "application/yaml", None);
    check(&all, "application/*", None);
    check(&all, &V2.replace("v=v2", "v=v2beta1"), None);
    check(&all, &format!("{V2};profile=nopeer"), None);
    check(&all[..1], KUBECTL, Some(0));
    check(&all[..1], V2, None);
    check(&all[1..], "*/*", None);
    let nopeer = format!("{V2};profile=nopeer");
    check(&[(&nopeer, V2)], &nopeer, Some(0));
    check(&[(&nopeer, V2)], V2, None);
    // The server's own answer to the same words, whatever they mean.
    check(
        &[("a", V2), (KUBECTL, "application/json")],
        KUBECTL,
        Some(1),
    );
}

#[test]
fn openapi_is_one_index_and_documents_in_two_forms() {
    let index = held("/openapi/v3", &[("x", "text/plain; charset=utf-8")]);
    let request_of = |path: &str, accept| request(path, &[("accept", accept)]).unwrap().key;
    let key = request_of("/openapi/v3", "application/json");
    assert!(variants::choose(&key, &index).is_some());
    let path = "/openapi/v3/api/v1";
    let protobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
    let forms = held(path, &[("x", protobuf)]);
    let key = request_of(path, OPENAPI_PROTOBUF);
    assert!(variants::choose(&key, &forms).is_some());
    let key = request_of(path, "application/json");
    assert!(variants::choose(&key, &forms).is_none());
}

#[test]
fn the_clients_own_etag_is_found_in_its_list() {
    for (tags, expected) in [
        ("\"1\"", true),
        ("W/\"1\"", true),
        ("\"0\" , \"1\"", true),
        ("\"11\"", false),
        ("1", false),
        // kube-apiserver does not read it so.
        ("*", false),
    ] {
        let request = request("/apis", &[("if-none-match", tags)]).unwrap();
        assert_eq!(request.is_matched_by(b"\"1\""), expected, "{tags}");
    }
    assert!(!request("/apis", &[]).unwrap().is_matched_by(b"\"1\""));
}

#[tokio::test]
async fn a_revalidated_document_has_the_headers_of_the_304_and_its_own() {
    let documents = Documents::new(&Arc::default());
    let key = request("/apis", &[]).unwrap().key;
    let kept = [
        ("content-type", V2),
        ("etag", "\"1\""),
        ("expires", "old"),
        ("vary", "Accept"),
        ("last-modified", "then"),
        ("date", "old"),
    ];
    documents.keep(1, &key, Instant::now(), &headers(&kept), b"body");
    let document = documents.get(1, &key).unwrap();
    let fresh = headers(&[
        ("etag", "\"1\""),
        ("expires", "new"),
        ("warning", "a"),
        ("warning", "b"),
        ("content-length", "0"),
    ]);
    let response = revalidated(&document, &fresh);
    assert_eq!(response.status(), 200);
    let expected = headers(&[
        ("content-type", V2),
        ("etag", "\"1\""),
        ("expires", "new"),
        ("vary", "Accept"),
        ("last-modified", "then"),
        ("warning", "a"),
        ("warning", "b"),
        ("content-length", "4"),
    ]);
    assert_eq!(*response.headers(), expected);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "body");

    let response = not_modified(&document);
    assert_eq!(response.status(), 304);
    assert_eq!(response.headers()[ETAG], "\"1\"");
    assert_eq!(response.headers()[EXPIRES], "old");
    assert!(!response.headers().contains_key(CONTENT_TYPE));
    assert!(!response.headers().contains_key(CONTENT_LENGTH));
}
