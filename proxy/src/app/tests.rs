//! A whole proxy over clusters that are not there.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::*;
use crate::args::ServeArgs;
use crate::clusters::{ClustersError, Itself};
use crate::config::Config;

/// A kubeconfig of clusters where nobody listens.
fn kubeconfig(dir: &Path, servers: &[(&str, &str)]) -> PathBuf {
    let mut text =
        String::from("apiVersion: v1\nkind: Config\nusers: [ { name: u, user: { token: t } } ]\n");
    let mut list = |key: &str, item: &dyn Fn(&str, &str) -> String| {
        let _ = writeln!(text, "{key}:");
        for (name, server) in servers {
            let _ = writeln!(text, "- {{ name: {name}, {} }}", item(name, server));
        }
    };
    list("clusters", &|_, server| {
        format!("cluster: {{ server: '{server}' }}")
    });
    list("contexts", &|name, _| {
        format!("context: {{ cluster: {name}, user: u }}")
    });
    let path = dir.join("input");
    fs::write(&path, text).unwrap();
    path
}

async fn start(dir: &Path, kubeconfig: PathBuf, listen: &str) -> anyhow::Result<App> {
    let args = ServeArgs {
        kubeconfig: vec![kubeconfig],
        listen: Some(listen.to_owned()),
        admin_listen: Some("127.0.0.1:0".to_owned()),
        state_dir: Some(dir.join("state")),
        ..ServeArgs::default()
    };
    App::start(Box::new(move || Config::from_args(&args, &|_| None))).await
}

async fn start_two(dir: &TempDir) -> App {
    let servers = [
        ("alpha", "https://127.0.0.1:1"),
        ("beta", "https://127.0.0.1:1"),
    ];
    let input = kubeconfig(dir.path(), &servers);
    start(dir.path(), input, "127.0.0.1:0").await.unwrap()
}

fn get(path: &str, token: Option<&str>) -> Request<Empty<bytes::Bytes>> {
    let mut request = Request::get(path).header("host", "proxy");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.body(Empty::new()).unwrap()
}

/// Asks the proxy as its kubeconfig says.
async fn ask(app: &App, path: &str, token: Option<&str>) -> Response<Incoming> {
    send(app, get(path, token)).await
}

async fn send(app: &App, request: Request<Empty<bytes::Bytes>>) -> Response<Incoming> {
    let mut roots = RootCertStore::empty();
    let ca = fs::read(app.state_dir().join("ca.crt")).unwrap();
    roots
        .add(CertificateDer::from_pem_slice(&ca).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TcpStream::connect(app.proxy_addr()).await.unwrap();
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender.send_request(request).await.unwrap()
}

async fn ask_admin(addr: SocketAddr, path: &str) -> (u16, String) {
    let stream = TcpStream::connect(addr).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let answer = sender.send_request(get(path, None)).await.unwrap();
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_proxy_starts_answers_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let app = start_two(&dir).await;
    let (proxy_addr, admin_addr) = (app.proxy_addr(), app.admin_addr());

    // The kubeconfig says where, with what and as whom.
    let mode = fs::metadata(app.kubeconfig()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(app.kubeconfig()).unwrap();
    let written: Value = serde_saphyr::from_str(&text).unwrap();
    let token = written["users"][0]["user"]["token"].as_str().unwrap();
    assert_eq!(written["clusters"][1]["name"], "beta");
    assert_eq!(
        written["clusters"][1]["cluster"]["server"],
        format!("https://{proxy_addr}/clusters/beta")
    );

    // Nothing without the token; clusters that are down do not make the proxy unready.
    assert_eq!(ask(&app, "/clusters/alpha/api", None).await.status(), 401);
    assert_eq!(
        ask(&app, "/clusters/alpha/api", Some("other"))
            .await
            .status(),
        401
    );
    assert_eq!(
        ask(&app, "/clusters/alpha/api", Some(token)).await.status(),
        503
    );
    assert_eq!(
        ask(&app, "/clusters/gamma/api", Some(token)).await.status(),
        404
    );
    assert_eq!(
        ask_admin(admin_addr, "/readyz").await,
        (200, "ok".to_owned())
    );
    let (_, metrics) = ask_admin(admin_addr, "/metrics").await;
    for line in [
        "fleetcache_cluster_connection_up{cluster=\"alpha\"} 0",
        "fleetcache_cluster_connection_up{cluster=\"beta\"} 0",
        "fleetcache_informers 0",
    ] {
        assert!(
            metrics.lines().any(|it| it == line),
            "{line} is missing in\n{metrics}"
        );
    }

    app.shutdown().await;
    assert!(TcpStream::connect(proxy_addr).await.is_err());
    assert!(TcpStream::connect(admin_addr).await.is_err());
    // The directory is free again, and what clients know still holds.
    let app = start_two(&dir).await;
    assert_eq!(
        ask(&app, "/clusters/alpha/api", Some(token)).await.status(),
        503
    );
    app.shutdown().await;
}

#[test]
fn what_cannot_be_served_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let servers = [
        ("alpha", "https://127.0.0.1:1"),
        ("own", "https://127.0.0.1:8443/clusters/a"),
    ];
    let input = kubeconfig(dir.path(), &servers);
    let empty = dir.path().join("empty");
    fs::write(&empty, "").unwrap();
    let missing = dir.path().join("missing");
    let (input, empty, missing) = [&input, &empty, &missing].map(|it| it.display()).into();
    let load = |files: String, contexts: &[&str], from_variable: bool| {
        let mut args = ServeArgs {
            context: contexts.iter().map(|&it| it.to_owned()).collect(),
            state_dir: Some(dir.path().join("state")),
            ..ServeArgs::default()
        };
        if !from_variable {
            args.kubeconfig = files.split(':').map(PathBuf::from).collect();
        }
        let env = |name: &str| (name == "KUBECONFIG").then(|| files.clone().into());
        let config = Config::from_args(&args, &env).unwrap();
        let itself = Itself {
            listen: &config.listen,
            ca_pem: "CA",
        };
        let loaded = clusters::load(&config, &itself);
        let reasons = loaded.map(|it| it.rejected.into_iter().map(|it| it.reason).collect());
        reasons.map_err(|err: ClustersError| err.to_string())
    };
    let unread = format!(
        "{missing}: it cannot be read: No such file or directory (os error 2); check the path and its permissions"
    );
    let nothing = "no cluster to serve; name a kubeconfig with --kubeconfig, in $KUBECONFIG or at ~/.kube/config (not served: ";
    assert_eq!(
        load(missing.to_string(), &["alpha"], true),
        Err(format!("{nothing}{unread})"))
    );
    assert_eq!(
        load(empty.to_string(), &[], false),
        Err(format!("{nothing}{empty} has no contexts)"))
    );
    assert_eq!(
        load(format!("{missing}:{input}"), &["alpha"], false),
        Ok(vec![unread.clone()])
    );
    assert_eq!(
        load(format!("{missing}:{input}"), &["alpha", "beta"], false),
        Err(format!(
            "--context: no context \"beta\"; there are: alpha, own (not served: {unread})"
        ))
    );
    let damaged = dir.path().join("damaged");
    fs::write(&damaged, "contexts: [").unwrap();
    let err = load(damaged.display().to_string(), &["alpha"], false).unwrap_err();
    assert!(err.contains("it is not a kubeconfig"), "{err}");
    let own = format!(
        "context \"own\" of {input} is this proxy itself (its server is https://127.0.0.1:8443/clusters/a)"
    );
    assert_eq!(
        load(input.to_string(), &[], true),
        Err(format!(
            "{own}. $KUBECONFIG names the kubeconfig that fleetcache wrote for its clients; unset it or name yours with \
             --kubeconfig"
        ))
    );
    assert_eq!(
        load(input.to_string(), &[], false),
        Err(format!(
            "{own}; leave it out by naming the others with --context, or give another kubeconfig"
        ))
    );
}

#[tokio::test]
async fn what_stands_in_the_way_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let check = async |input: PathBuf, listen: &str, start_of: &str| {
        let err = format!("{:#}", start(dir.path(), input, listen).await.unwrap_err());
        assert!(err.starts_with(start_of), "{err}");
    };
    let any = "127.0.0.1:0";
    check(
        dir.path().join("missing"),
        any,
        "no cluster to serve; name a kubeconfig with --kubeconfig, in $KUBECONFIG or at ~/.kube/config (not served: ",
    )
    .await;
    let input = || kubeconfig(dir.path(), &[("alpha", "https://127.0.0.1:1")]);
    let held = TcpListener::bind(any).await.unwrap();
    let taken = held.local_addr().unwrap();
    let expect = format!(
        "cannot listen on {taken}: Address already in use; stop what uses it or choose another with --listen"
    );
    check(input(), &taken.to_string(), &expect).await;
    drop(held);

    // Its own kubeconfig, whatever port it had then.
    let app = start(dir.path(), input(), any).await.unwrap();
    let own = app.kubeconfig();
    let in_use = format!(
        "{} is used by another fleetcache",
        app.state_dir().display()
    );
    check(input(), any, &in_use).await;
    app.shutdown().await;
    let expect = format!(
        "context \"alpha\" of {} is this proxy itself (its server is https://127.0.0.1:",
        own.display()
    );
    check(own, any, &expect).await;
}

#[tokio::test]
async fn a_dropped_proxy_ends() {
    let dir = tempfile::tempdir().unwrap();
    let app = start_two(&dir).await;
    let addr = app.admin_addr();
    drop(app);
    while TcpStream::connect(addr).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_that_panics_is_answered_counted_and_in_the_audit_log() {
    let dir = tempfile::tempdir().unwrap();
    let servers = [("alpha", "https://127.0.0.1:1")];
    let config = dir.path().join("fleetcache.yaml");
    let text = "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\naudit: { path: audit }\n";
    fs::write(&config, text).unwrap();
    let args = ServeArgs {
        config: Some(config),
        kubeconfig: vec![kubeconfig(dir.path(), &servers)],
        listen: Some("127.0.0.1:0".to_owned()),
        admin_listen: Some("127.0.0.1:0".to_owned()),
        state_dir: Some(dir.path().join("state")),
        ..ServeArgs::default()
    };
    let read = move || Config::from_args(&args, &|_| None);
    let app = App::start(Box::new(read)).await.unwrap();
    let before = telemetry::panics();
    let mut request = get("/clusters/alpha/api/v1/pods", None);
    let headers = request.headers_mut();
    headers.insert("x-panic", "now".parse().unwrap());
    headers.insert("audit-id", "the client's own".parse().unwrap());
    let answer = send(&app, request).await;
    assert_eq!(answer.status(), 500);
    assert_eq!(answer.headers()["audit-id"], "the client's own");
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status["reason"], "InternalError");
    assert!(telemetry::panics() > before);
    let (_, metrics) = ask_admin(app.admin_addr(), "/metrics").await;
    let counted =
        r#"fleetcache_request_total{verb="list",resource="other",source="local",code="500"} 1"#;
    assert!(metrics.lines().any(|it| it == counted), "{metrics}");
    assert_eq!(ask(&app, "/clusters/alpha/api", None).await.status(), 401);
    app.shutdown().await;
    let log = fs::read_to_string(dir.path().join("audit")).unwrap();
    let lines = log
        .lines()
        .map(|it| serde_json::from_str::<Value>(it).unwrap());
    let told = lines.map(|it| {
        let code = it["responseStatus"]["code"].as_u64().unwrap();
        let reason = &it["annotations"]["fleetcache.dev/reason"];
        let [stage, reason] = [&it["stage"], reason].map(|it| it.as_str().unwrap().to_owned());
        (stage, code, reason)
    });
    let told: Vec<_> = told.collect();
    let told: Vec<_> = told
        .iter()
        .map(|(stage, code, reason)| (&**stage, *code, &**reason))
        .collect();
    let expect = [
        ("Panic", 500, "InternalError"),
        ("ResponseComplete", 401, "Unauthorized"),
    ];
    assert_eq!(told, expect);
}
