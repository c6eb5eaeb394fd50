//! The demo, as a newcomer meets it: whatever it prints to be tried is tried, and shows what is said of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fleetcache_e2e::binaries::{self, Program};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::process::{Process, Signal, signal_group};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// A line that hangs ends here.
const TIMEOUT: Duration = Duration::from_secs(90);

/// What a line shows, by a part of it. One that goes on for ever is read up to that.
const SHOWN: [(&str, &[&str]); 17] = [
    ("config get-contexts", &["fleet", "oslo"]),
    ("-o json", &["\"apiVersion\""]),
    ("-o yaml | head", &["apiVersion: v1"]),
    (FROM_MEMORY, &["fleetcache; hit"]),
    ("get pods -A -o name", &["pod/web-"]),
    ("--watch -o name", &["pod/"]),
    ("create configmap", &["created"]),
    ("get configmap", &["it: works"]),
    ("get cc --watch", &["NAME"]),
    ("get cc --no-headers", &["Connected", "<none>"]),
    ("get cc", &["NAME", "AGE"]),
    ("wait --for=condition=Connected", &["condition met"]),
    ("fleetcache status", &["NAME", "AGE"]),
    ("fleetcache refresh", &["cluster \""]),
    ("fleetcache why", &["list pods.v1 of cluster \"oslo\""]),
    // One of these.
    ("get nodes", &["node-0", "(ServiceUnavailable)"]),
    ("curl ", &[]),
];

/// The line that shows where an answer came from.
const FROM_MEMORY: &str = "grep -i cache-status";

const NOT_CONNECTED: &str = "is not connected";

struct Demo {
    process: Process,
    home: TempDir,
    path: String,
    kubeconfig: PathBuf,
    lines: Vec<String>,
}

impl Demo {
    async fn start(args: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let kubectl = Program::Kubectl.path().await.unwrap();
        let fleetcache = binaries::fleetcache().await.unwrap();
        let dir = |program: &Path| program.parent().unwrap().display().to_string();
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{}:{path}", dir(&kubectl), dir(&fleetcache));
        let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
        command.args(args).env("TMPDIR", home.path());
        let log = home.path().join("demo.log");
        let process = Process::spawn("the demo", command, &log).unwrap();
        let printed = wait_for("what is to be tried", PATIENCE, async || {
            let log = process.log();
            let printed = log.split_once("In another terminal:\n");
            let printed = printed.and_then(|(_, rest)| rest.split_once("\nCtrl-C ends it all"));
            printed.map(|(lines, _)| lines.to_owned()).ok_or(log)
        });
        let printed = printed.await.unwrap();
        let lines = printed.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (setup, lines): (Vec<&str>, Vec<&str>) = lines.partition(|line| {
            let word = line.split(' ').next().unwrap_or_default();
            ["cd", "export", "alias"].contains(&word)
        });
        let exported = setup
            .iter()
            .find_map(|line| line.strip_prefix("export KUBECONFIG="));
        Self {
            process,
            home,
            path,
            kubeconfig: exported.unwrap().into(),
            lines: lines.into_iter().map(str::to_owned).collect(),
        }
    }

    /// What a line prints, errors included, up to where all of this was seen.
    async fn try_line(&self, line: &str, until: &[&str]) -> String {
        let mut command = tokio::process::Command::new("sh");
        command
            // `time` is not of every shell.
            .args([
                "-c",
                &format!("exec 2>&1; {}", line.trim_start_matches("time ")),
            ])
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // A group of its own, so that it ends with all that it started.
            .process_group(0);
        let mut child = command.spawn().unwrap();
        let group = child.id().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = String::new();
        let endless = line.contains("--watch");
        let read = async {
            while let Some(next) = output.next_line().await.unwrap() {
                seen += &next;
                seen.push('\n');
                if endless && until.iter().all(|wanted| seen.contains(wanted)) {
                    break;
                }
            }
        };
        let ended = tokio::time::timeout(TIMEOUT, read).await;
        // It has not been waited for, so its id is nobody else's.
        signal_group(group, Signal::Kill);
        child.wait().await.unwrap();
        assert!(ended.is_ok(), "{line} goes on; so far: {seen}");
        seen
    }

    async fn try_all(&self) {
        for line in &self.lines {
            let shown = SHOWN.iter().find(|(part, _)| line.contains(part));
            let (part, wanted) = shown.unwrap_or_else(|| panic!("what does {line} show?"));
            // Not every machine that has Rust and Go has curl.
            if *part == "curl " {
                continue;
            }
            let seen = if *part == FROM_MEMORY {
                // The reads before have begun to fill it.
                let seen = wait_for("an answer from memory", PATIENCE, async || {
                    let seen = self.try_line(line, wanted).await;
                    match seen.contains(wanted[0]) {
                        true => Ok(seen),
                        false => Err(seen),
                    }
                });
                seen.await.unwrap()
            } else {
                self.try_line(line, wanted).await
            };
            let is_shown = |it: &&str| seen.contains(*it);
            let is_right = if line.contains("black hole all the time") {
                is_shown(&NOT_CONNECTED)
            } else if *part == "get nodes" {
                wanted.iter().any(is_shown)
            } else {
                wanted.iter().all(is_shown)
            };
            assert!(is_right, "{line}: {seen}");
        }
        for (part, _) in SHOWN {
            assert!(self.lines.iter().any(|line| line.contains(part)), "{part}");
        }
    }

    async fn stop(mut self) {
        let ended = self.process.terminate(PATIENCE).await.unwrap();
        assert!(ended.success(), "{}", self.process.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_that_the_demo_prints_works() {
    let demo = Demo::start(&[]).await;
    demo.try_all().await;
    demo.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_that_the_demo_of_many_prints_works() {
    let demo = Demo::start(&["--clusters", "60", "--down", "40"]).await;
    demo.try_all().await;
    demo.stop().await;
}
