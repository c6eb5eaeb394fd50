//! GETs that come from memory, one after the other over all healthy clusters.

use std::time::{Duration, Instant};

use anyhow::ensure;
use fleetcache_e2e::measure;

use crate::Args;
use crate::fleet::CONFIGMAP;
use crate::target::Target;

/// How long each answer took, in seconds.
pub(crate) struct Round(Vec<f64>);

/// Both kinds of rounds.
#[derive(Default)]
pub(crate) struct Rounds {
    pub(crate) broken: Vec<Round>,
    pub(crate) alone: Vec<Round>,
}

impl Round {
    pub(crate) async fn of(target: &Target, args: &Args) -> anyhow::Result<Self> {
        let end = Instant::now() + Duration::from_secs(args.seconds);
        let mut took = Vec::new();
        for index in args.up().cycle() {
            let path = format!("/clusters/edge-{index:04}/{CONFIGMAP}");
            let answer = target.client.get(&path).await?;
            ensure!(
                answer.is_hit(),
                "{path}: {} {}",
                answer.status,
                answer.text()
            );
            took.push(answer.elapsed.as_secs_f64());
            if Instant::now() > end {
                break;
            }
        }
        Ok(Self(took))
    }
}

impl Rounds {
    /// The median over the rounds of the percentile of each, with the black holes and without.
    pub(crate) fn percentiles(&self, percent: usize) -> (f64, f64) {
        let usual = |rounds: &[Round]| {
            let each = rounds
                .iter()
                .map(|Round(took)| measure::percentile(took, percent));
            measure::median(&each.collect::<Vec<_>>())
        };
        (usual(&self.broken), usual(&self.alone))
    }

    pub(crate) fn usual_count(&self) -> usize {
        let counts = self.broken.iter().map(|Round(took)| took.len() as f64);
        measure::median(&counts.collect::<Vec<_>>()) as usize
    }
}
