//! What watches cost: memory of idle ones, and CPU of each event for each watcher, in one run.
//!
//! The clients are processes of their own, so that what is measured is the server's alone. The proxy is compared with the
//! kube-apiserver behind it, which does more, and with a server that does nothing but send the same bytes, which nobody can beat.
#![allow(clippy::print_stdout, reason = "the table is what it is run for")]

mod bare;
mod child;
mod clients;
mod events;
mod idle;
mod setup;
mod target;

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use fleetcache_e2e::measure;

/// Descriptors of a server that are not its clients' connections.
const OTHER_FILES: usize = 500;

/// Memory of idle watches, and CPU per event and watcher.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// Idle watches; 0 leaves this part out.
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    /// Watchers of the events.
    #[arg(long, value_delimiter = ',', default_value = "200,1000")]
    watchers: Vec<usize>,
    /// Rounds of each server; they alternate. 0 leaves this part out.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Events that are delivered in one round, to all watchers together.
    #[arg(long, default_value_t = 100_000)]
    deliveries: usize,
}

/// What the processes are that this one starts.
#[derive(Clone, Copy, Subcommand)]
enum Role {
    /// Opens watches and counts what arrives.
    #[command(hide = true)]
    Clients,
    /// Sends the same bytes to everybody.
    #[command(hide = true)]
    Bare,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    allow_files(args.idle + OTHER_FILES)?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        match args.role {
            Some(Role::Clients) => clients::run().await,
            Some(Role::Bare) => bare::run().await,
            None => bench(&args).await,
        }
    })
}

async fn bench(args: &Args) -> anyhow::Result<()> {
    println!("load averages at the start: {}", measure::load()?);
    let setup = setup::Setup::start().await?;
    println!("an event is a line of {} bytes", setup.event.len());
    if args.idle > 0 {
        idle::measure(&setup, args.idle).await?;
    }
    if args.rounds > 0 {
        for &watchers in &args.watchers {
            events::measure(&setup, watchers, args).await?;
        }
    }
    println!("load averages at the end: {}", measure::load()?);
    Ok(())
}

/// Sees to it that this process and those it starts may open so many files: by being started again, from a shell that raised
/// the limit.
fn allow_files(needed: usize) -> anyhow::Result<()> {
    let limits = std::fs::read_to_string("/proc/self/limits")?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let mut limits = line.context("no limit of open files")?.split_whitespace();
    let mut next = || {
        limits
            .next()
            .map_or(0, |limit| limit.parse().unwrap_or(usize::MAX))
    };
    let (soft, hard) = (next(), next());
    if soft >= needed {
        return Ok(());
    }
    if hard < needed {
        bail!(
            "{needed} open files are needed and the limit is {hard}: raise it (ulimit -Hn), or ask for fewer with --idle"
        );
    }
    let failed = Command::new("sh")
        .args(["-c", r#"ulimit -Sn "$0" && exec "$@""#, &needed.to_string()])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .exec();
    Err(failed).context("cannot raise the limit of open files")
}
