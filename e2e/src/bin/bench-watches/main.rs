//! What watches cost: memory of idle ones, and CPU of each event for each watcher, in one run.
//!
//! The clients are processes of their own, so that what is measured is the server's alone. The proxy is compared with the
//! kube-apiserver behind it, which does more, and with a server that does nothing but send the same bytes, which nobody can beat.
#![allow(clippy::print_stdout, reason = "the table is what it is run for")]

mod bare;
mod clients;
mod events;
mod idle;
mod setup;
mod target;

use clap::{Parser, Subcommand};
use fleetcache_e2e::{measure, open_files};

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
    open_files::allow(args.idle + OTHER_FILES)?;
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
