//! As whom clusters are spoken to, and what happens when that changes.

use std::path::Path;

use super::*;
use crate::cluster_accessor::NotConnectedReason;
use crate::exec_plugin::ExecPluginConfig;

fn exec(script: String) -> CredentialConfig {
    CredentialConfig::Exec(ExecPluginConfig {
        command: "sh".into(),
        args: vec!["-c".to_owned(), script],
        env: Vec::new(),
        api_version: "client.authentication.k8s.io/v1".to_owned(),
        install_hint: None,
        cluster_info: None,
    })
}

/// A plugin that prints the file as a token.
fn prints_token_of(path: &Path) -> CredentialConfig {
    exec(format!(
        r#"printf '{{"apiVersion":"client.authentication.k8s.io/v1","status":{{"token":"%s"}}}}' "$(cat {})""#,
        path.display()
    ))
}

#[tokio::test]
async fn a_client_certificate_is_shown_on_both_clients() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    config.credential = server.authority.client_certificate("me");
    let connection = Running::start(config).connected().await;
    get(&connection, "/live").await.unwrap();
    let shard = connection.informer_shard();
    let request = connection.informer_request("/informer", "*/*");
    connection.send_informer(&shard, request).await.unwrap();
    for target in ["/live", "/informer"] {
        assert!(server.asked(|seen| seen.target == target).await.certificate);
    }
}

#[tokio::test]
async fn a_request_of_a_callers_shows_nothing_of_the_connections_credential() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    config.credential = server.authority.client_certificate("me");
    let connection = Running::start(config).connected().await;
    let send = async |target: &str| {
        let token = HeaderValue::from_static("Bearer theirs");
        let (headers, body) = (HeaderMap::new(), empty_body());
        let request = connection.request_of_caller(Method::GET, target, headers, body, token);
        connection.send_live(request).await.unwrap();
        server.asked(|seen| seen.target == target).await
    };
    let (one, two) = (send("/one").await, send("/two").await);
    assert!(!one.certificate);
    assert_eq!(one.headers["authorization"], "Bearer theirs");
    assert_eq!(two.connection, one.connection, "it has a pool");
    get(&connection, "/own").await.unwrap();
    let own = server.asked(|seen| seen.target == "/own").await;
    assert!(own.certificate && !own.headers.contains_key("authorization"));
}

#[tokio::test]
async fn a_client_certificate_of_a_stranger_is_a_tls_failure_and_was_not_sent() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    config.credential = crate::upstream::fake::Authority::new().client_certificate("me");
    // The server's reset may overtake its alert; a later connect tells.
    let message = "TLS failed: the server did not accept the handshake or the client certificate";
    Running::start(config)
        .until(|view| {
            let trouble = view.trouble.as_ref();
            trouble.is_some_and(|trouble| trouble.message == message)
        })
        .await;
}

#[tokio::test]
async fn a_rejected_token_is_read_again_and_swapped_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "one\n").unwrap();
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.accepted = Some("Bearer one".to_owned()));
    let mut config = config_of(&server);
    config.credential = CredentialConfig::TokenFile(path.clone());
    let running = Running::start(config);
    let connection = running.connected().await;

    std::fs::write(&path, "two\n").unwrap();
    server.change(|script| script.accepted = Some("Bearer two".to_owned()));
    connection.credential_rejected();
    server
        .asked(|seen| {
            seen.headers
                .get("authorization")
                .is_some_and(|a| a == "Bearer two")
                && seen.target == "/readyz"
        })
        .await;
    get(&connection, "/x").await.unwrap();
    let seen = server.asked(|seen| seen.target == "/x").await;
    assert_eq!(seen.headers["authorization"], "Bearer two");
    assert!(!connection.closed().is_cancelled());
    assert_eq!(running.connected().await.generation, 1);
}

#[tokio::test]
async fn tokens_that_are_refused_one_after_the_other_cost_no_connection() {
    let (_dir, path, server, config) = server_and_token_file("0").await;
    let running = Running::start(config);
    let connection = running.connected().await;
    for round in 1..=5 {
        server.change(|script| script.accepted = Some(format!("Bearer {round}")));
        let number = connection.credential_number();
        connection.credential_rejected();
        // The refusal is known before the new one is there.
        tokio::time::sleep(Duration::from_millis(50)).await;
        std::fs::write(&path, round.to_string()).unwrap();
        assert!(within(connection.another_credential(number)).await);
        get(&connection, "/x").await.unwrap();
        let bearer = format!("Bearer {round}");
        let used = |seen: &crate::upstream::fake::Seen| {
            seen.target == "/x" && seen.headers["authorization"] == *bearer
        };
        server.asked(used).await;
    }
    assert_eq!(running.connected().await.generation, 1);
    assert!(!connection.closed().is_cancelled());
    // None comes: whoever waits hears of the end.
    server.change(|script| script.accepted = Some("Bearer other".to_owned()));
    let number = connection.credential_number();
    connection.credential_rejected();
    assert!(!within(connection.another_credential(number)).await);
    running.disconnected().await;
}

#[tokio::test]
async fn a_rejected_plugin_token_is_printed_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "one").unwrap();
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.accepted = Some("Bearer one".to_owned()));
    let mut config = config_of(&server);
    config.credential = prints_token_of(&path);
    let running = Running::start(config);
    let connection = running.connected().await;
    std::fs::write(&path, "two").unwrap();
    server.change(|script| script.accepted = Some("Bearer two".to_owned()));
    connection.credential_rejected();
    server
        .asked(|seen| {
            seen.headers
                .get("authorization")
                .is_some_and(|a| a == "Bearer two")
                && seen.target == "/readyz"
        })
        .await;
    assert_eq!(running.connected().await.generation, 1);
}

#[tokio::test]
async fn a_credential_that_stays_rejected_disconnects() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    config.credential = CredentialConfig::Token("t".into());
    let running = Running::start(config);
    let connection = running.connected().await;
    server.change(|script| script.accepted = Some("Bearer other".to_owned()));
    connection.credential_rejected();
    running.disconnected().await;
    let why = running.accessor.connected().await.unwrap_err();
    assert_eq!(why.reason, NotConnectedReason::Unauthorized);
    assert_eq!(
        why.message,
        "the server does not accept the credential (401 Unauthorized)"
    );
    assert!(connection.closed().is_cancelled());
}

/// Requests for the uid of `kube-system`.
fn questions(server: &FakeServer) -> usize {
    let seen = server.seen.borrow();
    seen.iter()
        .filter(|seen| seen.target.ends_with("/kube-system"))
        .count()
}

#[tokio::test]
async fn a_credential_that_only_requests_find_refused_disconnects() {
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| {
        script.public_probe = true;
        script.accepted = Some("Bearer t".to_owned());
    });
    let mut config = config_of(&server);
    config.credential = CredentialConfig::Token("t".into());
    config.timing.backoff_min = Duration::from_millis(10);
    config.timing.backoff_max = Duration::from_millis(20);
    let running = Running::start(config);
    let connection = running.connected().await;
    server.change(|script| script.accepted = Some("Bearer other".to_owned()));
    connection.credential_rejected();
    let view = running.until(|view| view.consecutive_failures >= 3).await;
    assert_eq!(
        view.trouble.unwrap().reason,
        NotConnectedReason::Unauthorized
    );
    assert!(connection.closed().is_cancelled());
    // No connect in between was taken for a good one, though each probe was answered.
    assert_eq!(view.probes_ok, 1);
    server.change(|script| script.accepted = Some("Bearer t".to_owned()));
    assert_eq!(running.connected().await.generation, 2);
}

#[tokio::test]
async fn a_rejection_that_is_not_about_the_credential_changes_nothing() {
    let server = FakeServer::start("127.0.0.1").await;
    // May not read the namespace: 403 is an accepted credential.
    server.change(|script| script.uid = None);
    let running = Running::start(config_of(&server));
    let connection = running.connected().await;
    let before = questions(&server);
    connection.credential_rejected();
    running.until(|view| view.probes_ok >= 2).await;
    assert_eq!(questions(&server), before + 1);
    assert!(!connection.closed().is_cancelled());
    assert_eq!(running.accessor.status().state, ConnectionState::Connected);
}

#[tokio::test]
async fn a_token_file_that_appears_connects_before_the_backoff_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.accepted = Some("Bearer late".to_owned()));
    let mut config = config_of(&server);
    config.credential = CredentialConfig::TokenFile(path.clone());
    config.timing.backoff_min = Duration::from_secs(600);
    config.timing.backoff_max = Duration::from_secs(600);
    let running = Running::start(config);
    running.disconnected().await;
    let why = running.accessor.connected().await.unwrap_err();
    assert_eq!(why.reason, NotConnectedReason::CredentialMissing);
    assert_eq!(why.message, "the token file cannot be read");
    assert_eq!(server.connections(), 0);
    std::fs::write(&path, "late").unwrap();
    running.connected().await;
}

#[tokio::test]
async fn a_failing_plugin_is_told() {
    let mut config = config("https://127.0.0.1:1");
    config.credential = exec("echo no login >&2; exit 1".to_owned());
    let running = Running::start(config);
    running.disconnected().await;
    let why = running.accessor.connected().await.unwrap_err();
    assert_eq!(why.reason, NotConnectedReason::CredentialMissing);
    assert_eq!(
        why.message,
        r#"the credential plugin "sh" failed (exit code 1): no login"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_hangs_holds_no_request_beyond_the_first_connects_time() {
    let mut config = config("https://127.0.0.1:1");
    config.credential = exec("exec sleep 600".to_owned());
    config.connect = ConnectPolicy::OnDemand;
    let running = Running::start(config);
    // 3 s for a connect and 10 s for its plugin, counted from the first request on.
    for waits in [13, 0, 0] {
        let start = tokio::time::Instant::now();
        let why = running.accessor.connected().await.unwrap_err();
        assert_eq!(start.elapsed().as_secs(), waits);
        assert_eq!(why.reason, NotConnectedReason::ClusterStarting);
        assert_eq!(why.message, r#"waiting for the credential plugin "sh""#);
    }
}

#[tokio::test]
async fn a_server_that_goes_while_a_plugin_hangs_is_missed_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (ran, hangs) = (dir.path().join("ran"), dir.path().join("hangs"));
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.accepted = Some("Bearer t".to_owned()));
    let mut config = config_of(&server);
    config.credential = exec(format!(
        r#"[ -e {0} ] && touch {1} && exec sleep 600; touch {0}; printf '{{"apiVersion":"client.authentication.k8s.io/v1","status":{{"token":"t"}}}}'"#,
        ran.display(),
        hangs.display()
    ));
    config.timing.probe_interval = Duration::from_millis(50);
    let running = Running::start(config);
    let connection = running.connected().await;
    server.change(|script| script.accepted = Some("Bearer other".to_owned()));
    connection.credential_rejected();
    within(async {
        while !hangs.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    // That it is refused now is nothing new.
    let before = server.seen.borrow().len();
    let mut seen = server.seen.subscribe();
    within(seen.wait_for(|seen| seen.len() > before + 5))
        .await
        .unwrap();
    drop(seen);
    assert!(!connection.closed().is_cancelled());
    server.kill();
    let view = running.disconnected().await;
    assert_eq!(
        view.trouble.unwrap().reason,
        NotConnectedReason::ConnectionRefused
    );
}

#[tokio::test]
async fn after_the_plugin_the_first_connect_itself_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "t").unwrap();
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.mute = true);
    let mut config = config_of(&server);
    config.credential = prints_token_of(&path);
    let view = Running::start(config)
        .until(|view| {
            let message = "it is being connected for the first time";
            let said = view.trouble.as_ref().map(|trouble| &*trouble.message);
            view.state == ConnectionState::Connecting && said == Some(message)
        })
        .await;
    assert_eq!(view.outcomes, 0);
}

#[tokio::test]
async fn another_client_certificate_is_shown_on_new_connections_only() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("crt"), dir.path().join("key"));
    let server = FakeServer::start("127.0.0.1").await;
    let write = |name: &str| {
        let (certificate_pem, key_pem) = server.authority.issue(name);
        std::fs::write(&certificate, certificate_pem).unwrap();
        std::fs::write(&key, key_pem).unwrap();
    };
    write("one");
    let mut config = config_of(&server);
    config.credential = CredentialConfig::ClientCertificateFiles {
        certificate: certificate.clone(),
        key: key.clone(),
    };
    let running = Running::start(config);
    let connection = running.connected().await;
    let shard = connection.informer_shard();
    let informer = async |target: &str| {
        let request = connection.informer_request(target, "*/*");
        connection.send_informer(&shard, request).await.unwrap();
        server.asked(|seen| seen.target == target).await.connection
    };
    let first = informer("/one").await;
    assert_eq!(informer("/again").await, first);

    write("two");
    let probes = |seen: &Vec<crate::upstream::fake::Seen>| {
        seen.iter().filter(|seen| seen.target == "/readyz").count()
    };
    let before = probes(&server.seen.borrow());
    connection.credential_rejected();
    let mut seen = server.seen.subscribe();
    within(seen.wait_for(|seen| probes(seen) > before))
        .await
        .unwrap();
    assert_ne!(informer("/two").await, first);
    assert_eq!(running.connected().await.generation, 1);
}
