//! Where lines go: rotation, a directory that is away, standard output, another path, and the end of the process.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{User, control_plane};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::process::Signal;
use fleetcache_e2e::proxy::{Options, Proxy};

use super::{Users, client, events, events_of};
use crate::pair::connected;

/// One request that is answered to its end, with that id.
async fn ask(client: &Client, id: &str) {
    let answer = client.get_with("/version", &[("audit-id", id)]).await;
    answer.unwrap().ok().unwrap();
}

fn has(log: &Path, id: &str) -> bool {
    events(log).iter().any(|it| it["auditID"] == id)
}

async fn exists(path: &Path) {
    wait_for("a file", PATIENCE, async || {
        path.exists().then_some(()).ok_or("it is not there")
    })
    .await
    .unwrap();
}

/// How many lines had that outcome.
fn count(proxy: &Proxy, outcome: &str) -> f64 {
    let name = "fleetcache_audit_events_total";
    let metrics = proxy.metrics().unwrap();
    metrics.sum(name, &[("outcome", outcome)]).unwrap()
}

#[tokio::test]
async fn a_log_is_rotated_and_outlasts_its_directory() {
    let users = Users::new();
    let cluster = control_plane().await;
    fs::create_dir(users.path("logs")).unwrap();
    let (log, rotated) = (users.path("logs/audit"), users.path("logs/audit.1"));
    let proxy = users.proxy(&cluster, "logs/audit").await;
    let alice = client(&proxy, &cluster, User::Alice);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&log), 0o600);
    ask(&alice, "before").await;
    events_of(&log, "before").await;

    fs::rename(&log, &rotated).unwrap();
    proxy.signal(Signal::Hangup);
    exists(&log).await;
    assert_eq!(mode(&log), 0o600);
    ask(&alice, "after").await;
    events_of(&log, "after").await;
    assert!(!has(&rotated, "after") && has(&rotated, "before") && !has(&log, "before"));

    // Nothing is written where nobody finds it, and nobody's request fails.
    fs::rename(users.path("logs"), users.path("away")).unwrap();
    proxy.signal(Signal::Hangup);
    wait_for("events to be lost", PATIENCE, async || {
        ask(&alice, "lost").await;
        let lost = count(&proxy, "lost");
        anyhow::ensure!(lost > 2.0, "{lost}");
        Ok(())
    })
    .await
    .unwrap();
    fs::create_dir(users.path("logs")).unwrap();
    ask(&alice, "again").await;
    events_of(&log, "again").await;
    let said = |text: &str| proxy.log().lines().filter(|it| it.contains(text)).count();
    assert_eq!(
        said("audit log cannot be written: events are lost until it can be"),
        1
    );
    assert_eq!(said("audit log is written again"), 1);
}

#[tokio::test]
async fn what_is_under_way_at_the_end_is_in_the_log() {
    let users = Users::new();
    let cluster = control_plane().await;
    let proxy = users.proxy(&cluster, "audit.log").await;
    let alice = client(&proxy, &cluster, User::Alice);
    for at in 0..200 {
        ask(&alice, &format!("end-{at}")).await;
    }
    // The users' own group may do this: what lasts is ended by the proxy.
    let path = "/apis/fleetcache.dev/v1alpha1/clusterconnections?watch=1";
    let mut root = proxy.root().unwrap();
    root.credential = cluster.context(User::Alice).unwrap().credential;
    let root = Client::new(&root).unwrap();
    let headers = [("audit-id", "watch")];
    let watch = root
        .open(http::Method::GET, path, &headers, "")
        .await
        .unwrap();
    assert_eq!(watch.status(), 200);
    assert!(proxy.stop().await.unwrap().success());
    drop(watch);
    let log = users.log();
    let all = events(&log);
    for at in 0..200 {
        let id = format!("end-{at}");
        let count = all.iter().filter(|it| it["auditID"] == id.as_str()).count();
        assert_eq!(count, 1, "{id}");
    }
    let stages = all.iter().filter(|it| it["auditID"] == "watch");
    let stages: Vec<_> = stages.map(|it| it["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["ResponseStarted", "ResponseComplete"]);
}

#[tokio::test]
async fn a_log_is_turned_on_moved_and_turned_off() {
    let users = Users::new();
    let cluster = control_plane().await;
    let config = users.path("fleetcache.yaml");
    let write = |audit| fs::write(&config, users.config(audit)).unwrap();
    write(None);
    let proxy = Proxy::start(Options {
        kubeconfigs: vec![cluster.kubeconfig()],
        args: vec!["--config".to_owned(), config.display().to_string()],
        ..Options::default()
    })
    .await
    .unwrap();
    let alice = client(&proxy, &cluster, User::Alice);
    connected(&alice).await;
    let reload = async |audit, reloads: usize| {
        write(audit);
        proxy.signal(Signal::Hangup);
        wait_for("the reload", PATIENCE, async || {
            let log = proxy.log();
            let lines = log
                .lines()
                .filter(|it| it.contains("configuration") && it.contains("reloaded"));
            let count = lines.count();
            (count == reloads)
                .then_some(())
                .ok_or_else(|| format!("{count}: {log}"))
        })
        .await
        .unwrap();
    };
    let (one, two) = (users.path("one"), users.path("two"));
    reload(Some("one"), 1).await;
    ask(&alice, "first").await;
    events_of(&one, "first").await;
    reload(Some("none/audit"), 2).await;
    let refused = "its directory";
    assert!(proxy.log().contains(refused), "{}", proxy.log());
    ask(&alice, "as before").await;
    events_of(&one, "as before").await;
    reload(Some("two"), 3).await;
    ask(&alice, "second").await;
    events_of(&two, "second").await;
    assert!(!has(&one, "second") && !has(&two, "first"));
    reload(None, 4).await;
    ask(&alice, "off").await;
    reload(Some("two"), 5).await;
    ask(&alice, "on").await;
    events_of(&two, "on").await;
    assert!(!has(&one, "off") && !has(&two, "off"));
}

#[tokio::test]
async fn standard_output_has_the_log_and_nothing_else() {
    let users = Users::new();
    let cluster = control_plane().await;
    let proxy = users.proxy(&cluster, "-").await;
    let alice = client(&proxy, &cluster, User::Alice);
    ask(&alice, "stdout").await;
    // The harness has both in one file; what is no log line is an event.
    let found = wait_for("the event", PATIENCE, async || {
        let log = proxy.log();
        let mut lines = log
            .lines()
            .filter(|it| it.contains("\"auditID\":\"stdout\""));
        lines.next().map(str::to_owned).ok_or("it is not there")
    });
    let line = found.await.unwrap();
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(event["kind"], "Event");
    assert!(count(&proxy, "written") >= 1.0);
}
