//! `fleetcache status`, run as a user would.

use std::path::Path;
use std::process::Stdio;

use fleetcache_e2e::binaries;
use fleetcache_e2e::sim::{SimCluster, SimConfig};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::{is_at_rest, object_when, root, serve};

async fn status(args: &[&str]) -> Command {
    let mut command = Command::new(binaries::fleetcache().await.unwrap());
    command.arg("status").args(args).env_clear();
    command.kill_on_drop(true);
    command
}

/// Exit code, standard output and standard error.
async fn run(args: &[&str]) -> (i32, String, String) {
    let output = status(args).await.output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn status_shows_the_fleet_and_follows_it() {
    let sim = SimCluster::start(SimConfig::new("edge")).await.unwrap();
    let proxy = serve(&[("edge", &sim.context())], None).await;
    object_when(
        &root(&proxy),
        "edge",
        "the cluster to be at rest",
        is_at_rest,
    )
    .await;
    let kubeconfig = proxy.kubeconfig();
    let dir = kubeconfig.parent().unwrap();

    let (code, table, complaint) = run(&["--state-dir", text(dir)]).await;
    assert_eq!((code, &*complaint), (0, ""));
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("NAME   STATE       REASON"), "{table}");
    assert!(
        lines.len() == 2 && lines[1].starts_with("edge   Connected "),
        "{table}"
    );

    let json = ["--output", "json", "--fleet-kubeconfig", text(&kubeconfig)];
    let (code, list, _) = run(&json).await;
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!((code, &list["kind"]), (0, &"ClusterConnectionList".into()));
    assert_eq!(list["items"][0]["metadata"]["name"], "edge");

    let follow = ["--watch", "--state-dir", text(dir)];
    let mut running = status(&follow)
        .await
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let mut until = async |state: &str| loop {
        let line = lines.next_line().await.unwrap().expect("it goes on");
        if line.split_whitespace().nth(1) == Some(state) {
            return;
        }
    };
    until("Connected").await;
    sim.kill();
    until("Disconnected").await;
    sim.heal().unwrap();
    until("Connected").await;
    drop(proxy);
    let output = running.wait_with_output().await.unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("proxy"), "{complaint}");
}

#[tokio::test]
async fn what_stands_in_the_way_is_told_with_what_to_do() {
    let sim = SimCluster::start(SimConfig::new("a")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let of_cluster = dir.path().join("cluster");
    std::fs::write(&of_cluster, sim.kubeconfig()).unwrap();
    let gone = dir.path().join("gone");
    std::fs::write(&gone, sim.kubeconfig().replace(": a\n", ": fleet\n")).unwrap();
    sim.stop().await;
    for (args, expected, words) in [
        (
            ["--state-dir", text(dir.path())],
            1,
            "`fleetcache serve` writes it",
        ),
        (
            ["--fleet-kubeconfig", text(&of_cluster)],
            2,
            "has no context for a fleet",
        ),
        (
            ["--fleet-kubeconfig", "/nowhere"],
            2,
            "cannot read /nowhere",
        ),
        (
            ["--fleet-kubeconfig", text(&gone)],
            1,
            "is `fleetcache serve` running?",
        ),
        (["--output", "yaml"], 2, "possible values: table, json"),
    ] {
        let (code, _, complaint) = run(&args).await;
        assert_eq!(code, expected, "{args:?}: {complaint}");
        assert!(complaint.contains(words), "{args:?}: {complaint}");
    }
}
