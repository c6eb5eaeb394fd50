//! What a thousand clusters cost, and what seven hundred black holes among them cost the others, in one run.
//!
//! The proxy is the real binary, the clusters are simulated in another process, and the clients are in this one.
#![allow(clippy::print_stdout, reason = "the table is what it is run for")]

mod down;
mod fast_fail;
mod fleet;
mod gets;
mod target;
mod up;

use std::ops::Range;
use std::time::Duration;

use clap::{Parser, Subcommand};
use fleetcache_e2e::{measure, open_files};

use fleet::Fleet;

/// Descriptors of the clusters for each of them: two listen, four are a black hole, and two proxies and more connect.
const FILES_A_CLUSTER: usize = 10;

/// Descriptors of a process that are not a cluster's.
const OTHER_FILES: usize = 500;

/// How long a start may take until all clusters are connected that can be.
const START: Duration = Duration::from_secs(30);

/// A fleet of simulated clusters, most of them black holes, and the proxy in front of it.
#[derive(Clone, Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// How many clusters.
    #[arg(long, default_value_t = 1000)]
    clusters: usize,
    /// How many of them are black holes, where some are.
    #[arg(long, default_value_t = 700)]
    down: usize,
    /// Rounds of GETs with and without the black holes; they alternate.
    #[arg(long, default_value_t = 24, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(2..))]
    rounds: usize,
    /// Seconds of each round.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Seconds over which the CPU of an idle proxy is measured.
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// A look at whether it works: 60 clusters, 42 of them down, and everything short.
    #[arg(long)]
    quick: bool,
    /// A variable of the proxy's environment, such as MALLOC_ARENA_MAX=2.
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Only these parts.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "up,down,fast-fail"
    )]
    parts: Vec<Part>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// All are healthy: memory, CPU, a restart.
    Up,
    /// Most are black holes: what the others notice.
    Down,
    /// Requests to black holes.
    FastFail,
}

/// What the process is that this one starts.
#[derive(Clone, Copy, Debug, Subcommand)]
enum Role {
    /// Is the clusters.
    #[command(hide = true)]
    Fleet,
}

impl Args {
    /// Those that are black holes, where some are: the first by their names, which are dialled first.
    fn holes(&self) -> Range<usize> {
        0..self.down.min(self.clusters)
    }

    /// Those that are always healthy.
    fn up(&self) -> Range<usize> {
        self.holes().end..self.clusters
    }

    fn idle(&self) -> Duration {
        Duration::from_secs(self.idle)
    }
}

fn main() -> anyhow::Result<()> {
    let mut args = Args::parse();
    if args.quick {
        (args.clusters, args.down) = (60, 42);
        (args.rounds, args.seconds, args.idle) = (2, 1, 3);
    }
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        match args.role {
            Some(Role::Fleet) => fleet::run().await,
            None => {
                // Before the others are started: they have the same limit.
                open_files::allow(args.clusters * FILES_A_CLUSTER + OTHER_FILES)?;
                bench(&args).await
            }
        }
    })
}

async fn bench(args: &Args) -> anyhow::Result<()> {
    println!("load averages at the start: {}", measure::load()?);
    let fleet = Fleet::start(args.clusters).await?;
    let (empty, each) = fleet.cost()?;
    println!(
        "{} simulated clusters: {:.1} KiB each, in a process of {:.1} MiB",
        args.clusters, each, empty
    );
    if args.parts.contains(&Part::Up) {
        up::measure(&fleet, args).await?;
    }
    if args.parts.contains(&Part::Down) {
        down::measure(&fleet, args).await?;
    }
    if args.parts.contains(&Part::FastFail) {
        fast_fail::measure(&fleet, args).await?;
    }
    println!("load averages at the end: {}", measure::load()?);
    Ok(())
}

/// Prints what was measured, and whether it is within what is wanted.
fn verdict(what: &str, measured: &str, is_met: bool, wanted: &str) {
    let met = if is_met { "met" } else { "NOT MET" };
    println!("  {what}: {measured} (wanted {wanted}: {met})");
}

/// As milliseconds.
fn millis(seconds: f64) -> String {
    format!("{:.3} ms", seconds * 1000.0)
}
