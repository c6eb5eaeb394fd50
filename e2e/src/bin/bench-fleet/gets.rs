//! GETs that come from memory, one after the other over all healthy clusters: at two proxies in turn, one of which has the
//! black holes too.
//!
//! What may differ between the two is the black holes alone. So both are asked for the same objects of the same clusters; one
//! stands still while the other is measured, for what one does in the background would be noise for the other; a round of
//! each makes a pair, of which either is the first as often as the second; and the ratio is that of a pair, so that what
//! else the machine does meanwhile is the same for both. Pairs of rounds of one and the same proxy tell how far that can be
//! trusted.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::ensure;
use fleetcache_e2e::client::Client;
use fleetcache_e2e::kubeconfig::Context;
use fleetcache_e2e::measure;
use fleetcache_e2e::process::Signal;

use crate::Args;
use crate::fleet::CONFIGMAP;
use crate::target::Target;

/// A proxy that goes on does all at once that was due while it stood still.
const CATCH_UP: Duration = Duration::from_millis(1000);

/// How long each answer took, in seconds.
pub(crate) struct Round(Vec<f64>);

/// Rounds of both, pair by pair.
#[derive(Default)]
pub(crate) struct Rounds {
    pub(crate) broken: Vec<Round>,
    pub(crate) alone: Vec<Round>,
}

/// The middle of what several pairs said, between the quarters.
pub(crate) struct Ratio {
    low: f64,
    pub(crate) middle: f64,
    high: f64,
}

/// Alternates pairs of rounds of two proxies; one of them is stopped at any time.
pub(crate) async fn alternate(
    broken: &Target,
    alone: &Target,
    args: &Args,
) -> anyhow::Result<Rounds> {
    let mut rounds = Rounds::default();
    for pair in 0..args.rounds {
        for second in [false, true] {
            let is_broken = (pair % 2 == 0) != second;
            let (measured, other) = if is_broken {
                (broken, alone)
            } else {
                (alone, broken)
            };
            other.proxy.signal(Signal::Stop);
            let round = Round::of(measured, args, CATCH_UP).await;
            other.proxy.signal(Signal::Continue);
            let rounds = if is_broken {
                &mut rounds.broken
            } else {
                &mut rounds.alone
            };
            rounds.push(round?);
        }
    }
    Ok(rounds)
}

impl Round {
    /// Asks for a while, after `before` in which it is asked too, so that connection and caches are warm.
    pub(crate) async fn of(target: &Target, args: &Args, before: Duration) -> anyhow::Result<Self> {
        let (context, args) = (target.proxy.root()?, args.clone());
        // On a thread of its own: a client whose tasks wake each other on other threads measures that.
        let asked = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build()?;
            runtime.block_on(Self::ask(&context, &args, before))
        });
        asked.await?
    }

    async fn ask(context: &Context, args: &Args, before: Duration) -> anyhow::Result<Self> {
        let client = Client::http2(context)?;
        let begin = Instant::now() + before;
        let end = begin + Duration::from_secs(args.seconds);
        let mut took = Vec::new();
        for (count, index) in args.up().cycle().enumerate() {
            let path = format!("/clusters/edge-{index:04}/{CONFIGMAP}");
            let answer = client.get(&path).await?;
            ensure!(
                answer.is_hit(),
                "{path}: {} {}",
                answer.status,
                answer.text()
            );
            let now = Instant::now();
            // Each of them once before.
            if now >= begin && count >= args.up().len() {
                took.push(answer.elapsed.as_secs_f64());
            }
            if now > end && !took.is_empty() {
                break;
            }
        }
        Ok(Self(took))
    }

    fn percentile(&self, percent: usize) -> f64 {
        measure::percentile(&self.0, percent)
    }
}

impl Rounds {
    /// The median over the rounds of the percentile of each, with the black holes and without.
    pub(crate) fn percentiles(&self, percent: usize) -> (f64, f64) {
        let usual = |rounds: &[Round]| {
            let each = rounds.iter().map(|round| round.percentile(percent));
            measure::median(&each.collect::<Vec<_>>())
        };
        (usual(&self.broken), usual(&self.alone))
    }

    /// How many times longer it takes beside the black holes.
    pub(crate) fn ratio(&self, percent: usize) -> Ratio {
        let pairs = self.broken.iter().zip(&self.alone);
        Ratio::of(
            pairs.map(|(broken, alone)| broken.percentile(percent) / alone.percentile(percent)),
        )
    }

    /// The same of rounds between which nothing differs: each of those without black holes beside the next of them.
    pub(crate) fn noise(&self, percent: usize) -> Ratio {
        let each: Vec<f64> = self.alone.iter().map(|it| it.percentile(percent)).collect();
        Ratio::of(each.windows(2).map(|two| two[0] / two[1]))
    }

    pub(crate) fn usual_count(&self) -> usize {
        let counts = self.broken.iter().map(|Round(took)| took.len() as f64);
        measure::median(&counts.collect::<Vec<_>>()) as usize
    }
}

impl Ratio {
    fn of(pairs: impl Iterator<Item = f64>) -> Self {
        let pairs: Vec<f64> = pairs.collect();
        let at = |percent| measure::percentile(&pairs, percent);
        Self {
            low: at(25),
            middle: at(50),
            high: at(75),
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { low, middle, high } = self;
        write!(f, "{middle:.2} times ({low:.2} to {high:.2})")
    }
}
