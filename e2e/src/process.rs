//! Child processes that never outlive the test process, however it ends.
//!
//! Each child leads its own process group and is killed when its [`Process`] is dropped. Values in statics are never dropped,
//! and a test process can be killed itself; for those there is one watchdog per test process: a shell that reads from a pipe
//! which ends group ids and directories to clean up, and cleans them up when the pipe closes. (`PR_SET_PDEATHSIG` would
//! fire when the *thread* that started the child ends, which in a test is long before the process does.)

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;

use crate::poll::wait_for;

/// Reads `run GROUP`, `end GROUP` and `dir PATH`, one a line. Groups get SIGKILL, which also ends a stopped process.
const WATCHDOG: &str = r#"
groups=
while read -r op arg; do
  case $op in
    run) groups="$groups $arg" ;;
    end) left=; for g in $groups; do [ "$g" = "$arg" ] || left="$left $g"; done; groups=$left ;;
    dir) set -- "$@" "$arg" ;;
  esac
done
for g in $groups; do kill -s KILL -- "-$g"; done
for d in "$@"; do rm -rf -- "$d" || { sleep 1; rm -rf -- "$d"; }; done
"#;

/// How many lines of a server's log a failed test shows.
const TAIL_LINES: usize = 20;

/// A signal a test sends to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Resume a stopped process.
    Continue,
    /// Read the configuration again.
    Hangup,
    /// End at once, without a word to anyone.
    Kill,
    /// Stop reading and answering while every connection stays open.
    Stop,
    /// Ask to end.
    Terminate,
}

impl Signal {
    const fn name(self) -> &'static str {
        match self {
            Self::Continue => "CONT",
            Self::Hangup => "HUP",
            Self::Kill => "KILL",
            Self::Stop => "STOP",
            Self::Terminate => "TERM",
        }
    }
}

/// A running program, its log file, and the promise that it ends with the test.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with no input; what it prints goes to the end of the file `log`.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot open {}", log.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        tell_watchdog("run", &child.id().to_string());
        Ok(Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        })
    }

    /// The process id, which is also the id of its group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the process printed, from its first start on.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map_or_else(
            |error| error.to_string(),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    /// The last lines of the log under a heading, for error messages.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
        format!(
            "--- the last lines of {} (pid {}):\n{tail}\n---",
            self.name,
            self.id()
        )
    }

    /// `Some` once the process has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child
            .try_wait()
            .unwrap_or_else(|_| Some(ExitStatus::from_raw(0)))
    }

    /// Sends `signal` to the whole group.
    pub fn signal(&self, signal: Signal) {
        signal_group(self.id(), signal);
    }

    /// Kills the group and returns when the process is gone.
    pub fn kill(&mut self) {
        // A process that has ended was waited for, and its id may be somebody else's by now.
        if self.exited().is_none() {
            self.signal(Signal::Kill);
            let _ = self.child.wait();
        }
        tell_watchdog("end", &self.id().to_string());
    }

    /// Asks the process to end and returns how it did; it is killed after `patience`.
    pub async fn terminate(&mut self, patience: Duration) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::Terminate);
        let name = self.name.clone();
        let ended = wait_for(&format!("{name} to end"), patience, || {
            let exited = self.exited();
            async move { exited.ok_or("it still runs") }
        })
        .await;
        self.kill();
        ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log_tail());
        }
        self.kill();
    }
}

/// Registers a directory to be removed when the test process ends, should nobody have removed it before: a static is never
/// dropped, and a process can be killed.
pub fn remove_at_exit(dir: &Path) {
    tell_watchdog("dir", &dir.display().to_string());
}

/// Sends `signal` to a process group. The shell's builtin is used because the standard library can only kill.
pub fn signal_group(group: u32, signal: Signal) {
    let _ = Command::new("sh")
        .args([
            "-c",
            r#"kill -s "$0" -- "-$1""#,
            signal.name(),
            &group.to_string(),
        ])
        .stderr(Stdio::null())
        .status();
}

fn tell_watchdog(op: &str, arg: &str) {
    static STARTED: OnceLock<Mutex<Child>> = OnceLock::new();
    let watchdog = STARTED.get_or_init(|| Mutex::new(start_watchdog()));
    // The watchdog only matters when this process fails to clean up; one that is gone is no reason to fail a test.
    let _ = watchdog
        .lock()
        .stdin
        .as_mut()
        .map(|input| writeln!(input, "{op} {arg}"));
}

/// It ends when this process does, so nobody waits for it.
fn start_watchdog() -> Child {
    let mut command = Command::new("sh");
    command
        .args(["-c", WATCHDOG, "watchdog"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Its own group, so that an interrupt at the terminal ends the tests and not what cleans up after them.
        .process_group(0);
    command
        .spawn()
        .expect("every system the tests run on has sh")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(dir: &Path) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", "echo started; exec sleep 1000"]);
        Process::spawn("sleeper", command, &dir.join("log")).unwrap()
    }

    fn state_of(pid: u32) -> String {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .unwrap_or_default()
            .chars()
            .take(1)
            .collect()
    }

    #[tokio::test]
    async fn a_dropped_process_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let process = sleeper(dir.path());
        wait_for("its log", crate::poll::PATIENCE, || async {
            process
                .log()
                .contains("started")
                .then_some(())
                .ok_or("empty")
        })
        .await
        .unwrap();
        let pid = process.id();
        drop(process);
        assert_eq!(state_of(pid), "");
    }

    #[tokio::test]
    async fn a_stopped_process_can_be_resumed_and_terminated() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = sleeper(dir.path());
        process.signal(Signal::Stop);
        let pid = process.id();
        wait_for("the stop", crate::poll::PATIENCE, || async move {
            (state_of(pid) == "T").then_some(()).ok_or("running")
        })
        .await
        .unwrap();
        process.signal(Signal::Continue);
        let status = process.terminate(crate::poll::PATIENCE).await.unwrap();
        assert_eq!(status.signal(), Some(15));
    }
}
