//! Lines, and that each request has them.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use fleetcache_auth::UserInfo;
use futures_util::poll;
use http::Response;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::body::{Body, BoxError, full};
use crate::metrics::{Scrape, Source};

mod copies;

const PATIENCE: Duration = Duration::from_secs(30);

struct Log {
    audit: Audit,
    metrics: Arc<Metrics>,
    dir: TempDir,
}

impl Log {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let metrics = Arc::default();
        let audit = Audit::new(&metrics);
        let target = AuditTarget::File(dir.path().join("audit"));
        audit
            .write_to(Some(Output::open(&target).unwrap()))
            .unwrap();
        Self {
            audit,
            metrics,
            dir,
        }
    }

    async fn begin(&self, method: &str, target: &str) -> Record {
        let mut request = Request::builder().method(method).uri("/").body(()).unwrap();
        let id = HeaderValue::from_static("id");
        let record = self.audit.begin(&mut request, target, &id).await;
        record.unwrap()
    }

    /// One request and its answer, to the end.
    async fn ask(&self, target: &str, response: Response<Body>) {
        let record = self.begin("GET", target).await;
        let code = response.status().as_u16();
        let response = record.answer(response, answered(code), false);
        let _ = response.into_body().collect().await;
    }

    /// All that is written in the end.
    async fn lines(self) -> Vec<Value> {
        self.audit.close(PATIENCE).await;
        read(&self.dir.path().join("audit"))
    }

    /// A value of the metrics.
    fn count(&self, outcome: &str) -> u64 {
        let totals = Box::new(Default::default);
        let text = Scrape::without_clusters(&self.metrics, totals).text();
        let name = format!("fleetcache_audit_events_total{{outcome=\"{outcome}\"}} ");
        let mut values = text.lines().filter_map(|line| line.strip_prefix(&name));
        values.next().map_or(0, |it| it.parse().unwrap())
    }
}

fn read(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines();
    lines.map(|it| serde_json::from_str(it).unwrap()).collect()
}

/// Waits until it is so.
async fn until(is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

fn answered(code: u16) -> Answered {
    Answered {
        code,
        source: Source::Live,
        reason: "method",
    }
}

fn json_answer(code: u16, body: &str) -> Response<Body> {
    let response = Response::builder().status(code);
    let response = response.header("content-type", "application/json");
    response.body(full(body.to_owned())).unwrap()
}

/// A body that has sent something, and goes on.
fn endless() -> (Response<Body>, tokio::sync::mpsc::UnboundedSender<()>) {
    let (held, mut open) = tokio::sync::mpsc::unbounded_channel();
    let stream = futures_util::stream::poll_fn(move |context| {
        let _ = open.poll_recv(context);
        Poll::<Option<Result<Frame<Bytes>, BoxError>>>::Pending
    });
    (Response::new(StreamBody::new(stream).boxed_unsync()), held)
}

#[tokio::test]
async fn a_line_has_what_kube_apiserver_writes_and_whence_the_answer_came() {
    let log = Log::start();
    let mut request = Request::get("/")
        .header("user-agent", "kubectl/v1")
        .header("x-forwarded-for", "9.9.9.9")
        .header("authorization", "Bearer secret")
        .body(())
        .unwrap();
    let address = "::ffff:10.0.0.7".parse().unwrap();
    request
        .extensions_mut()
        .insert(crate::listener::ClientAddress(address));
    let target = "/clusters/a/api/v1/namespaces/n/pods?limit=5";
    let id = HeaderValue::from_static("id");
    let record = log.audit.begin(&mut request, target, &id).await.unwrap();
    assert_eq!(request.headers()[AUDIT_ID], "id");
    let user = UserInfo {
        name: "jane".to_owned(),
        uid: "7".to_owned(),
        groups: vec!["a".to_owned(), "b".to_owned()],
        extra: BTreeMap::from([("k".to_owned(), vec!["x".to_owned(), "y".to_owned()])]),
        named_by: None,
    };
    record.known(&Arc::new(user), "jwt");
    drop(request);
    let response = record.answer(json_answer(200, "[]"), answered(200), false);
    drop(response);
    log.audit.close(PATIENCE).await;
    let text = fs::read_to_string(log.dir.path().join("audit")).unwrap();
    let line: Value = serde_json::from_str(&text).unwrap();
    for key in ["requestReceivedTimestamp", "stageTimestamp"] {
        let at = line[key].as_str().unwrap();
        assert_eq!((at.len(), &at[19..20], &at[26..]), (27, ".", "Z"), "{at}");
    }
    let (received, ended) = (&line["requestReceivedTimestamp"], &line["stageTimestamp"]);
    // In kube-apiserver's order.
    let expect = format!(
        concat!(
            r#"{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"id","stage":"ResponseComplete","#,
            r#""requestURI":"/clusters/a/api/v1/namespaces/n/pods?limit=5","verb":"list","#,
            r#""user":{{"username":"jane","uid":"7","groups":["a","b"],"extra":{{"k":["x","y"]}}}},"sourceIPs":["10.0.0.7"],"#,
            r#""userAgent":"kubectl/v1","objectRef":{{"resource":"pods","namespace":"n","apiVersion":"v1"}},"#,
            r#""responseStatus":{{"metadata":{{}},"code":200}},"requestReceivedTimestamp":{},"stageTimestamp":{},"#,
            r#""annotations":{{"fleetcache.dev/authentication":"jwt","fleetcache.dev/cluster":"a","#,
            r#""fleetcache.dev/reason":"method","fleetcache.dev/source":"live"}}}}"#,
            "\n"
        ),
        received, ended
    );
    assert_eq!(text, expect);
}

#[tokio::test]
async fn a_request_is_one_line_whatever_is_in_it() {
    let log = Log::start();
    let odd = "a\n\r\0\t\u{1b}[2J\"\\\u{7f}\u{85}\u{9b}\u{2028}\u{2029}é😀\u{feff}";
    let mut request = Request::get("/").body(()).unwrap();
    let headers = request.headers_mut();
    headers.insert(
        "user-agent",
        HeaderValue::from_bytes(b"\xff\x85\tb\"").unwrap(),
    );
    let target = format!("/clusters/{odd}/api/v1/namespaces/%0a%22{odd}");
    let id = HeaderValue::from_bytes("i\u{2028}d".as_bytes()).unwrap();
    let record = log.audit.begin(&mut request, &target, &id).await.unwrap();
    let user = UserInfo {
        name: odd.to_owned(),
        groups: vec![odd.to_owned()],
        extra: BTreeMap::from([(odd.to_owned(), vec![odd.to_owned()])]),
        ..UserInfo::default()
    };
    record.known(&Arc::new(user), "jwt");
    drop(request);
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "message": odd, "details": {"name": odd}});
    let pretty = format!("{status:#}");
    drop(
        record
            .answer(json_answer(404, &pretty), answered(404), false)
            .into_body()
            .collect()
            .await,
    );
    log.audit.close(PATIENCE).await;
    let text = fs::read_to_string(log.dir.path().join("audit")).unwrap();
    let body = text.strip_suffix('\n').unwrap();
    assert!(!body.chars().any(char::is_control), "{body:?}");
    assert!(!body.contains(['\u{2028}', '\u{2029}']), "{body:?}");
    let line: Value = serde_json::from_str(body).unwrap();
    assert_eq!(line["auditID"], "i\u{2028}d");
    assert_eq!(line["requestURI"], target);
    assert_eq!(line["user"]["username"], odd);
    assert_eq!(line["user"]["extra"][odd], json!([odd]));
    assert_eq!(line["userAgent"], "\u{fffd}\u{fffd}\tb\"");
    assert_eq!(line["objectRef"]["name"], format!("\n\"{odd}"));
    assert_eq!(line["responseStatus"]["message"], odd);
    assert_eq!(line["annotations"]["fleetcache.dev/cluster"], odd);
}

#[tokio::test]
async fn a_status_is_told_and_no_other_body_is() {
    let log = Log::start();
    let status = |code: u16| {
        format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{{"continue":"c"}},"status":"Failure","message":"no","reason":"R","details":{{"name":"n"}},"code":{code},"secret":"s"}}"#
        )
    };
    let told = json!({"metadata": {}, "status": "Failure", "message": "no", "reason": "R", "details": {"name": "n"}, "code": 404});
    let code = |code: u16| json!({"metadata": {}, "code": code});
    let api = "/clusters/a/api/v1/pods/p";
    let proxied = "/clusters/a/api/v1/namespaces/n/services/s/proxy/";
    let gzip = |mut answer: Response<Body>| {
        let gzip = HeaderValue::from_static("gzip");
        answer.headers_mut().insert("content-encoding", gzip);
        answer
    };
    let long = format!(
        r#"{{"kind":"Status","apiVersion":"v1","message":"{}"}}"#,
        "x".repeat(20_000)
    );
    let mut text = json_answer(404, &status(404));
    let plain = HeaderValue::from_static("text/plain");
    text.headers_mut().insert("content-type", plain);
    let table = [
        (api, json_answer(404, &status(404)), told.clone()),
        // Each piece by itself is no JSON.
        (api, json_answer(404, &status(404)).map(in_pieces), told),
        (api, json_answer(200, &status(200)), code(200)),
        (proxied, json_answer(404, &status(404)), code(404)),
        (api, gzip(json_answer(404, &status(404))), code(404)),
        (api, text, code(404)),
        (api, json_answer(500, &long), code(500)),
        (
            api,
            json_answer(500, r#"{"kind":"Pod","apiVersion":"v1","message":"m"}"#),
            code(500),
        ),
        (
            api,
            json_answer(
                500,
                r#"{"kind":"Status","apiVersion":"x/v1","message":"m"}"#,
            ),
            code(500),
        ),
        (api, json_answer(500, "{"), code(500)),
    ];
    let mut expect = Vec::new();
    for (target, answer, status) in table {
        log.ask(target, answer).await;
        expect.push(status);
    }
    let record = log.begin("DELETE", api).await;
    let deleted = r#"{"kind":"Status","apiVersion":"v1","status":"Success"}"#;
    let answer = record.answer(json_answer(200, deleted), answered(200), false);
    let _ = answer.into_body().collect().await;
    expect.push(json!({"metadata": {}, "status": "Success", "code": 200}));
    // It is the proxy's own.
    let record = log.begin("GET", proxied).await;
    let local = Answered {
        source: Source::Local,
        ..answered(401)
    };
    let refused = r#"{"kind":"Status","apiVersion":"v1","reason":"Unauthorized"}"#;
    let answer = record.answer(json_answer(401, refused), local, false);
    let _ = answer.into_body().collect().await;
    expect.push(json!({"metadata": {}, "reason": "Unauthorized", "code": 401}));
    let lines = log.lines().await;
    let statuses: Vec<_> = lines
        .iter()
        .map(|it| it["responseStatus"].clone())
        .collect();
    assert_eq!(statuses, expect);
}

fn in_pieces(body: Body) -> Body {
    let bytes = futures_util::FutureExt::now_or_never(body.collect());
    let bytes = bytes.unwrap().unwrap().to_bytes();
    let pieces: Vec<_> = bytes.chunks(7).map(Bytes::copy_from_slice).collect();
    let frames = pieces
        .into_iter()
        .map(|it| Ok::<_, BoxError>(Frame::data(it)));
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}

fn stages(lines: &[Value]) -> Vec<String> {
    let stage = |it: &Value| {
        format!(
            "{} {}",
            it["stage"].as_str().unwrap(),
            it["responseStatus"]["code"]
        )
    };
    lines.iter().map(stage).collect()
}

#[tokio::test]
async fn what_lasts_long_is_told_when_it_begins_and_when_it_ends() {
    let log = Log::start();
    let record = log.begin("GET", "/clusters/a/api/v1/pods?watch=1").await;
    let (answer, held) = endless();
    let mut body = record.answer(answer, answered(200), true).into_body();
    assert!(poll!(pin!(body.frame())).is_pending());
    let path = log.dir.path().join("audit");
    until(|| !read(&path).is_empty()).await;
    assert_eq!(stages(&read(&path)), ["ResponseStarted 200"]);
    // The client goes away.
    drop(body);
    drop(held);
    // One that is refused says why in both.
    let record = log.begin("GET", "/clusters/a/api/v1/pods?watch=1").await;
    let status = r#"{"kind":"Status","apiVersion":"v1","reason":"Forbidden"}"#;
    let answer = record.answer(json_answer(403, status), answered(403), true);
    let _ = answer.into_body().collect().await;
    let lines = log.lines().await;
    let expect = [
        "ResponseStarted 200",
        "ResponseComplete 200",
        "ResponseStarted 403",
        "ResponseComplete 403",
    ];
    assert_eq!(stages(&lines), expect);
    assert_eq!(lines[2]["responseStatus"]["reason"], "Forbidden");
}

#[tokio::test]
async fn a_tunnel_ends_when_all_of_it_has() {
    let log = Log::start();
    let record = log
        .begin("POST", "/clusters/a/api/v1/namespaces/n/pods/p/exec")
        .await;
    let tunnel = record.clone();
    drop(record.answer(Response::new(full("")), answered(101), true));
    let path = log.dir.path().join("audit");
    until(|| !read(&path).is_empty()).await;
    let mut closing = pin!(log.audit.close(PATIENCE));
    assert!(poll!(closing.as_mut()).is_pending());
    assert_eq!(stages(&read(&path)), ["ResponseStarted 101"]);
    drop(tunnel);
    closing.await;
    assert_eq!(
        stages(&read(&path)),
        ["ResponseStarted 101", "ResponseComplete 101"]
    );
}

#[tokio::test]
async fn a_request_without_an_answer_has_its_line() {
    let log = Log::start();
    drop(log.begin("GET", "/clusters/a/api").await);
    // Caught by who answers it.
    let record = log.begin("GET", "/clusters/a/api").await;
    record.panicked();
    drop(record.answer(json_answer(500, ""), answered(500), false));
    // Not caught yet.
    let record = log.begin("GET", "/clusters/a/api").await;
    let _ = catch_unwind(AssertUnwindSafe(move || {
        let _record = record;
        panic!("on purpose");
    }));
    // Half-way.
    let record = log.begin("GET", "/clusters/a/api").await;
    let panics =
        futures_util::stream::poll_fn(|_| -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            panic!("on purpose")
        });
    let answer = Response::new(StreamBody::new(panics).boxed_unsync());
    let mut body = record.answer(answer, answered(200), false).into_body();
    let polled = catch_unwind(AssertUnwindSafe(|| {
        futures_util::FutureExt::now_or_never(body.frame()).is_some()
    }));
    assert!(polled.is_err());
    drop(body);
    let expect = [
        "ResponseComplete 499",
        "Panic 500",
        "Panic 500",
        "Panic 200",
    ];
    assert_eq!(stages(&log.lines().await), expect);
}

#[tokio::test]
async fn what_cannot_be_written_is_counted_and_requests_go_on() {
    let log = Log::start();
    let ok = || json_answer(200, "{}");
    log.ask("/clusters/a/api", ok()).await;
    until(|| log.count("written") >= 1).await;
    fs::remove_dir_all(log.dir.path()).unwrap();
    log.audit.reopen();
    for lost in 1..=3 {
        log.ask("/clusters/a/api", ok()).await;
        until(|| log.count("lost") >= lost).await;
    }
    fs::create_dir(log.dir.path()).unwrap();
    log.ask("/clusters/b/api", ok()).await;
    until(|| log.count("written") >= 2).await;
    assert_eq!(log.count("lost"), 3);
    let lines = log.lines().await;
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["requestURI"], "/clusters/b/api");
}

#[tokio::test]
async fn all_is_written_in_the_end_and_nothing_while_it_is_off() {
    let log = Log::start();
    for _ in 0..5000 {
        log.ask("/clusters/a/api", json_answer(200, "{}")).await;
    }
    log.audit.write_to(None).unwrap();
    let mut request = Request::get("/").body(()).unwrap();
    let id = HeaderValue::from_static("id");
    assert!(log.audit.begin(&mut request, "/", &id).await.is_none());
    assert!(request.headers().is_empty() && request.extensions().is_empty());
    assert_eq!(log.lines().await.len(), 5000);
    // One that was never on has nothing to wait for.
    Audit::new(&Arc::default()).close(PATIENCE).await;
}
