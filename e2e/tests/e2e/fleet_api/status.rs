//! `fleetcache status`, run as a user would.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use fleetcache_e2e::binaries;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::process::Process;
use fleetcache_e2e::sim::{SimCluster, SimConfig};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::{is_at_rest, object_when, root, serve};
use crate::fleet::CONFIGMAPS;
use crate::pair::warm;
use crate::reload::fleetcache;

async fn status(args: &[&str]) -> Command {
    let mut command = Command::new(binaries::fleetcache().await.unwrap());
    command.arg("status").args(args).env_clear();
    command.kill_on_drop(true);
    command
}

/// One that runs on, and is read.
async fn piped(args: &[&str]) -> Child {
    let mut command = status(args).await;
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Exit code, standard output and standard error.
pub(super) async fn run(args: &[&str]) -> (i32, String, String) {
    let output = status(args).await.output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

pub(super) fn text(path: &Path) -> &str {
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

    let follow = ["-w", "--broken", "--state-dir", text(dir)];
    let mut running = piped(&follow).await;
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let mut next = async || lines.next_line().await.unwrap().expect("it goes on");
    let mut notes = BufReader::new(running.stderr.take().unwrap()).lines();
    let note = notes.next_line().await.unwrap();
    assert_eq!(note.as_deref(), Some("nothing is broken"));
    sim.kill();
    assert!(next().await.starts_with("NAME "));
    // Nothing of what was well: this is the first row.
    assert!(next().await.starts_with("edge   Disconnected"));
    let (code, wide, _) = run(&["edge", "-o", "wide", "--state-dir", text(dir)]).await;
    assert_eq!(code, 0);
    assert!(
        wide.contains(" NEXT TRY ") && wide.contains("check that the kube-apiserver"),
        "{wide}"
    );
    let (code, json, _) = run(&["-o", "json", "--broken", "--state-dir", text(dir)]).await;
    let list: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, list["items"].as_array().unwrap().len()), (0, 1));
    sim.heal().unwrap();
    while !next().await.starts_with("edge   Connected") {}
    let well = run(&["--broken", "--state-dir", text(dir)]).await;
    let nothing = |said: &str| (0, String::new(), said.to_owned());
    assert_eq!(well, nothing("nothing is broken\n"));
    let (code, json, said) = run(&["-o", "json", "--broken", "--state-dir", text(dir)]).await;
    let list: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &*said), (0, ""));
    assert_eq!(list["items"], serde_json::json!([]));
    let (code, _, complaint) = run(&["nope", "--state-dir", text(dir)]).await;
    assert_eq!(code, 1);
    assert!(
        complaint.contains("there is no cluster \"nope\"; `fleetcache status` lists all"),
        "{complaint}"
    );
}

/// Whoever reads it has seen enough, as `head` has.
#[tokio::test]
async fn a_command_that_nobody_reads_ends_without_a_word() {
    let sim = SimCluster::start(SimConfig::new("edge")).await.unwrap();
    let proxy = serve(&[("edge", &sim.context())], None).await;
    let kubeconfig = proxy.kubeconfig();
    let dir = text(kubeconfig.parent().unwrap());
    let files = tempfile::tempdir().unwrap();
    let (clusters, config) = (files.path().join("clusters"), files.path().join("config"));
    std::fs::write(&clusters, sim.kubeconfig()).unwrap();
    // Or there is something to say of it.
    std::fs::set_permissions(&clusters, Permissions::from_mode(0o600)).unwrap();
    let text_of_config = format!(
        "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nclusters: {{ kubeconfigs: [ {{ path: {} }} ] }}\n",
        text(&clusters)
    );
    std::fs::write(&config, text_of_config).unwrap();
    for command in [
        &["rbac"][..],
        &["config", "schema"],
        &["config", "check", text(&config)],
        &["kubeconfig", "--state-dir", dir],
        &["status", "--state-dir", dir],
        &["status", "-o", "json", "--state-dir", dir],
        &["status", "--watch", "--state-dir", dir],
        &["why", "/clusters/edge/api/v1/pods", "--state-dir", dir],
        &["refresh", "edge", "--state-dir", dir],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut run = Command::new(binaries::fleetcache().await.unwrap());
        run.args(command).env_clear().env("HOME", files.path());
        run.kill_on_drop(true);
        run.stdout(writer).stderr(Stdio::piped());
        let run = run.spawn().unwrap().wait_with_output();
        let run = tokio::time::timeout(PATIENCE, run).await;
        let output = run.expect("it ends").unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), &*said),
            (Some(128 + 13), ""),
            "{command:?}"
        );
    }
}

/// What a watch begins with has the figures of that moment, though no change has come since others were told.
#[tokio::test]
async fn a_watch_begins_with_the_figures_of_now() {
    let sim = SimCluster::start(SimConfig::new("edge")).await.unwrap();
    let proxy = serve(&[("edge", &sim.context())], None).await;
    let client = root(&proxy);
    object_when(&client, "edge", "the cluster to be at rest", is_at_rest).await;
    warm(&proxy.client("edge").unwrap(), CONFIGMAPS).await;
    let informers = |line: &[u8]| {
        let event: Value = serde_json::from_slice(line).unwrap();
        assert_eq!(event["type"], "ADDED");
        event["object"]["status"]["totals"]["informers"].clone()
    };
    let watch = format!("{}?watch=1", super::PATH);
    let mut lines = client.lines(&watch).await.unwrap();
    assert_eq!(informers(&lines.next().await.unwrap().unwrap()), 1);

    let kubeconfig = proxy.kubeconfig();
    let mut running = piped(&["-w", "-o", "json", "--fleet-kubeconfig", text(&kubeconfig)]).await;
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap().expect("it goes on");
    assert_eq!(informers(first.as_bytes()), 1);
}

/// A proxy that is started more than once over one state directory, on other ports each time.
async fn start_in(dir: &Path, kubeconfig: &Path) -> Process {
    let mut command = std::process::Command::new(binaries::fleetcache().await.unwrap());
    let any = "127.0.0.1:0";
    command.args([
        "serve",
        "--listen",
        any,
        "--admin-listen",
        any,
        "--state-dir",
    ]);
    command.arg(dir).arg("--kubeconfig").arg(kubeconfig);
    command.env_clear().env("HOME", dir);
    Process::spawn("fleetcache", command, &dir.join("log")).unwrap()
}

#[tokio::test]
async fn a_watch_goes_on_when_the_proxy_is_back() {
    let sim = SimCluster::start(SimConfig::new("edge")).await.unwrap();
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let kubeconfig = dir.join("input");
    std::fs::write(&kubeconfig, sim.kubeconfig()).unwrap();
    let mut proxy = start_in(dir, &kubeconfig).await;
    let in_dir = ["--state-dir", text(dir)];
    wait_for("the cluster to be connected", PATIENCE, async || {
        let (_, table, complaint) = run(&in_dir).await;
        anyhow::ensure!(table.contains(" Connected "), "{table}{complaint}");
        Ok(())
    })
    .await
    .unwrap();
    // The state directory tells where the admin port is.
    let command = |words: &[&'static str]| [words, &in_dir].concat().join(" ");
    for (words, expected) in [
        (&["refresh", "edge"][..], "cluster \"edge\" was refreshed"),
        (
            &["why", "/clusters/edge/api/v1/pods"],
            "list pods.v1 of cluster",
        ),
    ] {
        let command = command(words);
        let args: Vec<_> = command.split(' ').collect();
        let (code, told) = fleetcache(&args).await;
        assert_eq!(code, Some(0), "{told}");
        assert!(told.contains(expected), "{told}");
    }

    let mut running = piped(&["--watch", "--state-dir", text(dir)]).await;
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let mut notes = BufReader::new(running.stderr.take().unwrap()).lines();
    let mut connected = async || {
        loop {
            let line = lines.next_line().await.unwrap().expect("it goes on");
            if line.starts_with("edge   Connected") {
                return;
            }
        }
    };
    connected().await;
    proxy.terminate(PATIENCE).await.unwrap();
    assert!(!dir.join("admin-address").exists());
    let (code, told) = fleetcache(&["refresh", "edge", "--state-dir", text(dir)]).await;
    assert_eq!(code, Some(1));
    assert!(told.contains("`fleetcache serve` writes it"), "{told}");
    let note = notes.next_line().await.unwrap().expect("it goes on");
    assert!(
        note.ends_with("it is asked again until it answers"),
        "{note}"
    );
    proxy = start_in(dir, &kubeconfig).await;
    let note = notes.next_line().await.unwrap().expect("it goes on");
    assert!(note.ends_with(" answers again"), "{note}");
    connected().await;
    proxy.terminate(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn what_stands_in_the_way_is_told_with_what_to_do() {
    let sim = SimCluster::start(SimConfig::new("a")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let of_cluster = dir.path().join("cluster");
    let behind = sim
        .kubeconfig()
        .replace("https://", "https://h/clusters/a?");
    std::fs::write(&of_cluster, behind).unwrap();
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
        (
            ["--output", "yaml"],
            2,
            "possible values: table, wide, json",
        ),
    ] {
        let (code, _, complaint) = run(&args).await;
        assert_eq!(code, expected, "{args:?}: {complaint}");
        assert!(complaint.contains(words), "{args:?}: {complaint}");
    }
}
