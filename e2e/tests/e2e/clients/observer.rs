//! A Go program that runs beside the test, and what it has told so far.

use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;

use fleetcache_e2e::client_go::Running;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::process::ChildStdin;
use tokio::task::JoinHandle;

/// Which side of the proxy a program is on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Endpoint<'a> {
    pub(super) kubeconfig: &'a Path,
    pub(super) context: &'a str,
    pub(super) namespace: &'a str,
}

/// A running program. Dropping it ends it.
pub(super) struct Observer {
    pub(super) what: String,
    lines: Arc<Mutex<Vec<Value>>>,
    input: Option<ChildStdin>,
    ended: JoinHandle<anyhow::Result<ExitStatus>>,
}

impl Observer {
    pub(super) async fn start(
        what: impl Into<String>,
        endpoint: Endpoint<'_>,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let Endpoint {
            kubeconfig,
            context,
            namespace,
        } = endpoint;
        let mut program = Running::start(kubeconfig, context, namespace, args, env)
            .await
            .unwrap();
        let input = program.take_input();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&lines);
        let ended = tokio::spawn(async move {
            while let Some(line) = program.next_line().await? {
                told.lock().push(serde_json::from_str(&line)?);
            }
            program.wait().await
        });
        Self {
            what: what.into(),
            lines,
            input,
            ended,
        }
    }

    /// What it has told so far.
    pub(super) fn lines(&self) -> Vec<Value> {
        self.lines.lock().clone()
    }

    /// How many of its lines are such.
    pub(super) fn count(&self, is: impl Fn(&Value) -> bool) -> usize {
        self.lines.lock().iter().filter(|line| is(line)).count()
    }

    /// Waits until it has told so many such lines; it fails at once if the program ends before.
    pub(super) async fn until(&self, what: &str, count: usize, is: impl Fn(&Value) -> bool) {
        let what = format!("{}: {what}", self.what);
        let told = wait_for(&what, PATIENCE, async || match self.count(&is) {
            found if found >= count => Ok(Ok(())),
            _ if self.ended.is_finished() => Ok(Err(self.lines())),
            found => Err(format!("{found} of {count}")),
        });
        if let Err(lines) = told.await.unwrap() {
            panic!("{what}: it ended before: {lines:#?}");
        }
    }

    /// Gives the word to end, to a program that takes it from its input.
    pub(super) fn close_input(&mut self) {
        self.input = None;
    }

    /// Everything it told, of a program that ends and must end well.
    pub(super) async fn end(self) -> Vec<Value> {
        let status = self.ended.await.unwrap().unwrap();
        let lines = std::mem::take(&mut *self.lines.lock());
        assert!(status.success(), "{}: {status} after {lines:#?}", self.what);
        lines
    }
}

/// Whether the line tells of a request that was answered, and not of one that the program's own end cancelled.
pub(super) fn is_request(line: &Value) -> bool {
    line["request"].is_string()
        && !line["error"]
            .as_str()
            .is_some_and(|error| error.contains("context canceled"))
}

/// Whether the line tells of a watch.
pub(super) fn is_watch(line: &Value) -> bool {
    is_request(line) && query(line).contains("watch=true")
}

/// Whether the line tells of a list, or of one page of it.
pub(super) fn is_list(line: &Value) -> bool {
    is_request(line) && line["request"] == "GET" && !is_watch(line)
}

/// The query of a line that tells of a request.
pub(super) fn query(line: &Value) -> &str {
    line["query"].as_str().unwrap_or_default()
}

/// Whether the proxy answered this request from memory.
pub(super) fn is_hit(line: &Value) -> bool {
    line["cacheStatus"]
        .as_str()
        .is_some_and(|status| status.starts_with("fleetcache; hit"))
}
