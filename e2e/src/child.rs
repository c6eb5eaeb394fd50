//! This program again, in another role: it is told what to do in the first line of its input, and ends with it.

use std::process::Stdio;

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

/// A process of this program.
#[derive(Debug)]
pub struct Child {
    role: &'static str,
    process: tokio::process::Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts this program with one argument, its role, and tells it what it needs.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn start(role: &'static str, told: &impl Serialize) -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = process.stdin.take().context("its input is piped")?;
        let output = process.stdout.take().context("its output is piped")?;
        let mut child = Self {
            role,
            process,
            input,
            output: BufReader::new(output).lines(),
        };
        child.tell(&serde_json::to_string(told)?).await?;
        Ok(child)
    }

    /// The process id.
    ///
    /// # Errors
    /// If it has ended.
    pub fn id(&self) -> anyhow::Result<u32> {
        self.process.id().context("it has ended")
    }

    /// Writes a line to it.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(())
    }

    /// The next line that it prints.
    ///
    /// # Errors
    /// If it has ended. Why, it has said by itself.
    pub async fn hear(&mut self) -> anyhow::Result<String> {
        let line = self.output.next_line().await?;
        line.with_context(|| format!("the process '{}' ended early", self.role))
    }
}

/// The first line of this process's input, and the rest, which ends with it.
///
/// # Errors
/// If the input has ended, or is something else.
pub async fn told<T: DeserializeOwned>() -> anyhow::Result<(T, mpsc::UnboundedReceiver<String>)> {
    let (sender, mut lines) = mpsc::unbounded_channel();
    // A thread and not tokio's own, which needs a feature that would build half of the workspace anew.
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lines();
        while let Some(Ok(line)) = input.next() {
            let _ = sender.send(line);
        }
    });
    let line = lines.recv().await.context("no input")?;
    Ok((serde_json::from_str(&line)?, lines))
}
