//! What operators read.

use std::fmt::{Debug, Write};
use std::sync::LazyLock;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, span};

use super::*;
use crate::cluster_accessor::NotConnectedReason;

/// The lines at `info` and above, as `LEVEL message field=value`; this thread's, so that each test has its own.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn here() -> (Self, DefaultGuard) {
        // While a process has but one subscriber, tracing asks the thread that comes by an event first whether it is
        // wanted, for good and for all: that may be the thread of another test, which listens to nothing.
        static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Lines::default()));
        LazyLock::force(&SECOND);
        let lines = Self::default();
        let guard = tracing::subscriber::set_default(lines.clone());
        (lines, guard)
    }

    fn with(&self, text: &str) -> Vec<String> {
        let lines = self.0.lock();
        let found = lines.iter().filter(|line| line.contains(text));
        found.cloned().collect()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let written = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        written.unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn a_refused_credential_is_told_once_with_what_to_renew() {
    let (lines, _guard) = Lines::here();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "one").unwrap();
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| {
        script.public_probe = true;
        script.accepted = Some("Bearer one".to_owned());
    });
    let mut config = config_of(&server);
    config.credential = CredentialConfig::TokenFile(path.clone());
    config.timing.backoff_min = Duration::from_millis(10);
    config.timing.backoff_max = Duration::from_millis(20);
    let running = Running::start(config);
    let connection = running.connected().await;
    server.change(|script| script.accepted = Some("Bearer two".to_owned()));
    connection.credential_rejected();
    // Connects that follow are refused for the same reason.
    running.until(|view| view.consecutive_failures >= 4).await;
    let told = lines.with("credential refused");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("WARN"), "{told:?}");
    let renew = format!("renew=the token file {}", path.display());
    assert!(told[0].contains(&renew), "{told:?}");

    std::fs::write(&path, "two").unwrap();
    let again = running.connected().await;
    server.change(|script| script.accepted = Some("Bearer three".to_owned()));
    again.credential_rejected();
    running.disconnected().await;
    assert_eq!(lines.with("credential refused").len(), 2);
}

#[tokio::test]
async fn a_refused_credential_of_a_kubeconfig_is_told_with_where_that_is() {
    let (lines, _guard) = Lines::here();
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.accepted = Some("Bearer right".to_owned()));
    for (kind, name, renew) in [
        (
            SourceKind::Kubeconfig,
            "/home/me/.kube/config",
            "renew=the token in context \"dev\" of /home/me/.kube/config ",
        ),
        (
            SourceKind::Directory,
            "/etc/clusters/dev.kubeconfig",
            "renew=the token in /etc/clusters/dev.kubeconfig ",
        ),
        (
            SourceKind::ClusterApi,
            "fleet/dev",
            "renew=the token in the kubeconfig of Cluster fleet/dev ",
        ),
        (
            SourceKind::Secret,
            "fleet/dev",
            "renew=the token in the kubeconfig in Secret fleet/dev ",
        ),
    ] {
        let mut config = config_of(&server);
        config.credential = CredentialConfig::Token("s3cret".into());
        config.context = "dev".to_owned();
        config.source = ClusterSource {
            kind,
            name: name.to_owned(),
        };
        Running::start(config).disconnected().await;
        let told = lines.with("WARN credential refused");
        assert!(
            told[0].contains(renew) && !told[0].contains("s3cret"),
            "{told:?}"
        );
        lines.0.lock().clear();
    }
}

/// The value of a field in a line.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, rest) = line.split_once(&format!(" {name}=")).expect(line);
    rest.split(' ').next().unwrap()
}

#[tokio::test]
async fn a_rejection_that_is_not_about_the_credential_is_told() {
    let (lines, _guard) = Lines::here();
    let server = FakeServer::start("127.0.0.1").await;
    let running = Running::start(config_of(&server));
    running.connected().await.credential_rejected();
    running.until(|view| view.probes_ok >= 2).await;
    let told = lines.with("WARN request unauthorized, credential accepted");
    assert_eq!(told.len(), 1);
    assert!(lines.with("credential refused").is_empty());
}

#[tokio::test]
async fn a_rejected_credential_that_has_a_successor_is_no_warning() {
    let (lines, _guard) = Lines::here();
    let (_dir, path, server, config) = server_and_token_file("one").await;
    let running = Running::start(config);
    let connection = running.connected().await;
    std::fs::write(&path, "two").unwrap();
    server.change(|script| script.accepted = Some("Bearer two".to_owned()));
    connection.credential_rejected();
    running.until(|view| view.probes_ok >= 2).await;
    assert_eq!(lines.with("credential rotated").len(), 1);
    assert!(lines.with("WARN").is_empty(), "{:?}", lines.with("WARN"));
}

#[tokio::test]
async fn a_loss_and_a_first_failure_are_warnings_and_repeats_are_not() {
    let (lines, _guard) = Lines::here();
    let server = FakeServer::start("127.0.0.1").await;
    server.kill();
    let mut config = config_of(&server);
    config.timing.backoff_min = Duration::from_millis(10);
    config.timing.backoff_max = Duration::from_millis(20);
    let running = Running::start(config);
    running.until(|view| view.consecutive_failures >= 3).await;
    let failed = lines.with("WARN connect failed");
    assert_eq!(failed.len(), 1, "{failed:?}");
    for name in ["elapsed", "retry_in"] {
        let seconds = field(&failed[0], name).strip_suffix('s').unwrap();
        assert_eq!(seconds.split_once('.').unwrap().1.len(), 3, "{failed:?}");
    }
    server.revive().await;
    let connection = running.connected().await;
    assert_eq!(lines.with("INFO connected").len(), 1);

    server.kill();
    connection.suspect();
    running.until(|view| view.consecutive_failures >= 6).await;
    assert_eq!(lines.with("WARN disconnected").len(), 1);
    assert_eq!(lines.with("WARN connect failed").len(), 1);
}

#[tokio::test]
async fn reasons_that_take_turns_are_told_once_each() {
    let (lines, _guard) = Lines::here();
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.probe = StatusCode::SERVICE_UNAVAILABLE);
    let mut config = config_of(&server);
    config.timing.backoff_min = Duration::from_millis(1);
    config.timing.backoff_max = Duration::from_millis(2);
    let running = Running::start(config);
    for turn in 0..12_u16 {
        let failures = running.accessor.status().consecutive_failures;
        let code = if turn % 2 == 0 { 503 } else { 500 };
        server.change(|script| script.probe = StatusCode::from_u16(code).unwrap());
        // The next one may have been asked before the change.
        running
            .until(|view| view.consecutive_failures >= failures + 2)
            .await;
    }
    let told = lines.with("WARN connect failed");
    assert_eq!(told.len(), 2, "{told:?}");
    // None that it has met is news before it was connected.
    for code in 501..520 {
        server.change(|script| script.probe = StatusCode::from_u16(code).unwrap());
        let failures = running.accessor.status().consecutive_failures;
        running
            .until(|view| view.consecutive_failures >= failures + 2)
            .await;
    }
    let told = lines.with("WARN connect failed");
    assert_eq!(told.len(), 8, "{told:?}");
}

/// The one line about a cluster that cannot be connected.
async fn failure(lines: &Lines, config: ClusterConfig) -> (String, View) {
    let view = Running::start(config).disconnected().await;
    let told = lines.with("WARN connect failed");
    lines.0.lock().clear();
    assert_eq!(told.len(), 1, "{told:?}");
    (told[0].clone(), view)
}

#[tokio::test]
async fn missing_files_are_named() {
    let (lines, _guard) = Lines::here();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gone");
    for (credential, what) in [
        (CredentialConfig::TokenFile(path.clone()), "token"),
        (
            CredentialConfig::ClientCertificateFiles {
                certificate: path.clone(),
                key: path.clone(),
            },
            "client certificate",
        ),
    ] {
        let mut config = config("https://127.0.0.1:1");
        config.credential = credential;
        let (line, view) = failure(&lines, config).await;
        let error = format!("error={}: No such file or directory", path.display());
        assert!(line.contains(&error), "{line}");
        let message = view.trouble.unwrap().message;
        assert_eq!(message, format!("the {what} file cannot be read"));
    }
}

#[tokio::test]
async fn a_wrong_authority_is_told_with_its_remedy() {
    let (lines, _guard) = Lines::here();
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    let stranger = crate::upstream::fake::Authority::new();
    config.endpoint.certificate_authority = Some(stranger.pem.into_bytes());
    let (line, _) = failure(&lines, config).await;
    let hint =
        "hint=certificate-authority(-data) of its kubeconfig did not sign the server's certificate";
    assert!(line.contains(hint), "{line}");
}

#[tokio::test]
async fn plain_http_to_a_tls_port_is_told() {
    let (lines, _guard) = Lines::here();
    // One that breaks the connection, and one that answers as Go's servers do.
    let breaking = FakeServer::start("127.0.0.1").await;
    let (line, _) = failure(&lines, config(&format!("http://{}", breaking.address))).await;
    assert!(line.contains("hint=the server may want https://"), "{line}");

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let words =
            "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let _ = client.read(&mut [0; 1024]).await;
            let _ = client.write_all(words.as_bytes()).await;
        }
    });
    let (line, view) = failure(&lines, config(&format!("http://{address}"))).await;
    assert!(line.contains("hint=the server may want https://"), "{line}");
    let message = view.trouble.unwrap().message;
    assert_eq!(message, "the server does not speak plain HTTP");
}

#[tokio::test]
async fn a_credential_that_plain_http_keeps_back_is_told() {
    let (lines, _guard) = Lines::here();
    let server = FakeServer::start_plain().await;
    server.change(|script| {
        script.public_probe = true;
        script.accepted = Some("Bearer t".to_owned());
    });
    let mut config = config_of(&server);
    config.credential = CredentialConfig::Token("t".into());
    Running::start(config).disconnected().await;
    let told = lines.with("WARN credential refused");
    assert!(
        told[0].contains("hint=no credential is sent over http://; use https://"),
        "{told:?}"
    );
}

#[tokio::test]
async fn what_may_help_is_told_in_the_log_and_in_the_status() {
    let (lines, _guard) = Lines::here();
    let server = FakeServer::start("127.0.0.1").await;
    let mut of_another_name = config_of(&server);
    of_another_name.endpoint.tls_server_name = Some("another.name".to_owned());
    for (config, words) in [
        (
            config("https://127.0.0.1:1"),
            NotConnectedReason::ConnectionRefused.hint(),
        ),
        (of_another_name, "set tls-server-name of its cluster"),
    ] {
        let (line, view) = failure(&lines, config).await;
        let hint = view.status().hint.unwrap();
        assert!(hint.contains(words), "{hint}");
        assert!(line.contains(&format!("hint={hint}")), "{line}");
    }
}
