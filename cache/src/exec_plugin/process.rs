//! A credential plugin as a process: what it prints, and its end.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::ExecPluginConfig;
use crate::credential::CredentialError;

/// What a plugin may print; a token or a certificate is a few kilobytes.
const MAX_STDOUT: usize = 1 << 20;

/// What is kept of the end of what it says to people.
const STDERR_KEPT: usize = 4 << 10;

/// How long the pipes of a plugin that has exited are read. All that itself printed is in them by then; a program that it left
/// behind may keep them open for as long as that lives.
const AFTER_EXIT: Duration = Duration::from_millis(500);

/// What the plugin prints if all goes well. Dropping the future ends the plugin, and what it started.
///
/// # Errors
/// Why that is nothing to use, in words that a client may see.
pub(super) async fn run(
    config: &ExecPluginConfig,
    deadline: Duration,
) -> Result<Vec<u8>, CredentialError> {
    let name = config.name();
    let mut plugin = Plugin(spawn(config)?);
    let Ok(ended) = timeout(deadline, plugin.outcome()).await else {
        return Err(CredentialError::missing(format!(
            "the credential plugin {name:?} did not end within {} s",
            deadline.as_secs_f32()
        )));
    };
    let ended = ended.map_err(|error| {
        CredentialError::missing(format!("the credential plugin {name:?} failed: {error}"))
    })?;
    if !ended.status.success() {
        let status = match ended.status.code() {
            Some(code) => format!("exit code {code}"),
            None => "killed by a signal".to_owned(),
        };
        let said = last_line(&ended.stderr).map_or_else(String::new, |line| format!(": {line}"));
        return Err(CredentialError::missing(format!(
            "the credential plugin {name:?} failed ({status}){said}"
        )));
    }
    Ok(ended.stdout)
}

fn spawn(config: &ExecPluginConfig) -> Result<Child, CredentialError> {
    Command::new(&config.command)
        .args(&config.args)
        .envs(config.env.iter().map(|(name, value)| (name, value)))
        .env("KUBERNETES_EXEC_INFO", config.exec_info())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Many a plugin is a script around the program that does the work: both are ended.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            let hint = match (&config.install_hint, error.kind()) {
                (Some(hint), io::ErrorKind::NotFound) => format!("; {}", hint.trim()),
                _ => String::new(),
            };
            CredentialError::missing(format!(
                "the credential plugin {:?} cannot be started: {error}{hint}",
                config.name()
            ))
        })
}

/// A process that leads its group.
struct Plugin(Child);

struct Ended {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Plugin {
    async fn outcome(&mut self) -> io::Result<Ended> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let pipes = (self.0.stdout.take(), self.0.stderr.take());
        let status = {
            let reading = async {
                tokio::try_join!(
                    read_all(pipes.0, &mut stdout),
                    read_end(pipes.1, &mut stderr)
                )
            };
            let mut reading = std::pin::pin!(reading);
            let mut is_read = false;
            let status = loop {
                tokio::select! {
                    read = &mut reading, if !is_read => {
                        read?;
                        is_read = true;
                    }
                    status = self.0.wait() => break status?,
                }
            };
            if !is_read && let Ok(read) = timeout(AFTER_EXIT, reading).await {
                read?;
            }
            status
        };
        Ok(Ended {
            status,
            stdout,
            stderr,
        })
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // None where it has exited by itself and was waited for: what it left behind then is meant to stay, and its id may
        // be another's.
        let id = self.0.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(Pid::from_raw) {
            // It may be gone just now.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

async fn read_all(from: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) -> io::Result<()> {
    let Some(from) = from else { return Ok(()) };
    let read = from.take(MAX_STDOUT as u64 + 1).read_to_end(into).await?;
    if read > MAX_STDOUT {
        return Err(io::Error::other("it printed more than 1 MiB"));
    }
    Ok(())
}

/// Reads on to the end, or a plugin that has much to say would wait, and keeps the last of it.
async fn read_end(from: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) -> io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    let mut piece = vec![0; STDERR_KEPT];
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 {
            return Ok(());
        }
        into.extend_from_slice(&piece[..read]);
        into.drain(..into.len().saturating_sub(STDERR_KEPT));
    }
}

/// The last line a plugin wrote to stderr, without what looks like an address or a secret: clients see it.
fn last_line(stderr: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().rev().map(str::trim).find(|l| !l.is_empty())?;
    let words: Vec<_> = line.split_whitespace().map(redacted).collect();
    Some(words.join(" ").chars().take(200).collect())
}

fn redacted(word: &str) -> &str {
    const HIDDEN: &str = "[…]";
    let core = word.trim_matches(|c: char| !c.is_alphanumeric());
    let is_address = core.contains("://")
        || core.contains('@')
        || core.bytes().filter(|&b| b == b'.').count() >= 2
        || core
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    let is_assignment = core.split_once(['=', ':']).is_some_and(|(name, value)| {
        let name = name.to_ascii_lowercase();
        !value.is_empty()
            && ["token", "secret", "password", "key", "credential"]
                .iter()
                .any(|secret| name.contains(secret))
    });
    let looks_random = core.len() >= 20 && core.bytes().any(|b| b.is_ascii_digit());
    if is_address || is_assignment || looks_random || core.len() > 40 {
        HIDDEN
    } else {
        word
    }
}
