//! How the clusters of the demo fail: which of them, when, and in what way.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use fleetcache_e2e::fleet_box::{FleetBox, Script};
use fleetcache_e2e::sim::{Fault, SimCluster};

/// More clusters than this are filled when somebody looks, change less often, and fail otherwise.
pub(crate) const FEW: usize = 20;

/// How long all of few clusters are up between two outages.
pub(crate) const UP: Duration = Duration::from_secs(15);

/// How long an outage of few clusters lasts: long enough to try kubectl on it.
pub(crate) const DOWN: Duration = Duration::from_secs(20);

/// Of many clusters, so often some come back and others go.
pub(crate) const TURN: Duration = Duration::from_secs(20);

/// The share of those that are down which come back in a turn: one in so many.
const TURNS: usize = 10;

/// How the clusters of the demo fail.
pub(crate) enum Outages {
    /// In turn.
    Turns(Turns),
    /// As a script says.
    Script(Script),
}

/// Who fails in turn. The lines to try name clusters, and what they say of them shall be so at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turns {
    /// Always down, of many.
    pub(crate) gone: Option<usize>,
    /// Those that fail in turn. The first cluster is not among them and always up, unless all are to be down.
    pub(crate) failing: Range<usize>,
    /// How many of these are down at a time.
    pub(crate) at_a_time: usize,
    /// How many of these come back at a time.
    pub(crate) back: usize,
}

/// Many clusters, as they are down in turn.
struct Rotation {
    turns: Turns,
    /// Those of the turns that are down, the longest first.
    down: VecDeque<usize>,
    /// How many have failed so far.
    failed: usize,
}

impl Turns {
    pub(crate) fn of(clusters: usize, down: usize) -> Self {
        let many = clusters > FEW;
        let gone = (many && down > 0).then(|| clusters - 1);
        let failing = usize::from(down < clusters)..gone.unwrap_or(clusters);
        let at_a_time = down - usize::from(gone.is_some());
        let back = if many {
            // No more than there are others who can fail instead: who comes back shall stay for a while.
            let others = failing.len() - at_a_time;
            at_a_time.div_ceil(TURNS).min(others)
        } else {
            at_a_time
        };
        Self {
            gone,
            failing,
            at_a_time,
            back,
        }
    }

    /// All together.
    pub(crate) fn down(&self) -> usize {
        self.at_a_time + usize::from(self.gone.is_some())
    }

    /// Those that fail next in turn, after so many others.
    fn next(&self, failed: usize) -> impl Iterator<Item = usize> + use<> {
        self.failing.clone().cycle().skip(failed)
    }
}

impl Rotation {
    fn new(turns: Turns) -> Self {
        Self {
            turns,
            down: VecDeque::new(),
            failed: 0,
        }
    }

    /// Those that come back in a turn.
    fn come_back(&mut self) -> Vec<usize> {
        self.down.drain(..self.turns.back).collect()
    }

    /// Those that fail, so that as many as wanted are down.
    fn fail(&mut self) -> Vec<usize> {
        let missing = self.turns.at_a_time - self.down.len();
        let failing: Vec<usize> = self.turns.next(self.failed).take(missing).collect();
        self.failed += missing;
        self.down.extend(&failing);
        failing
    }
}

impl Outages {
    /// Breaks those that are down from the start.
    pub(crate) fn begin(&self, clusters: &FleetBox) -> anyhow::Result<()> {
        let clusters = clusters.clusters();
        let turns = match self {
            Self::Turns(turns) if clusters.len() > FEW => turns,
            _ => return Ok(()),
        };
        if let Some(index) = turns.gone {
            clusters[index].vanish()?;
        }
        for index in Rotation::new(turns.clone()).fail() {
            break_somehow(&clusters[index], index)?;
        }
        Ok(())
    }

    /// Whether the first cluster can be reached at the start.
    pub(crate) fn first_begins_up(&self, clusters: usize) -> bool {
        match self {
            Self::Turns(turns) => clusters <= FEW || !turns.failing.contains(&0),
            Self::Script(_) => true,
        }
    }

    /// Takes clusters down and brings them back, for ever.
    pub(crate) async fn play(&self, clusters: &FleetBox) -> anyhow::Result<()> {
        match self {
            Self::Script(script) => {
                clusters.play(script).await?;
                std::future::pending().await
            }
            Self::Turns(turns) if clusters.clusters().len() <= FEW => {
                fail_few(clusters.clusters(), turns).await
            }
            Self::Turns(turns) => fail_many(clusters.clusters(), turns).await,
        }
    }
}

/// All are up, then the next ones are down, in turn.
async fn fail_few(clusters: &[SimCluster], turns: &Turns) -> anyhow::Result<()> {
    let mut failed = 0;
    loop {
        tokio::time::sleep(UP).await;
        let failing: Vec<usize> = turns.next(failed).take(turns.at_a_time).collect();
        failed += failing.len();
        for &index in &failing {
            clusters[index].kill();
        }
        tokio::time::sleep(DOWN).await;
        for &index in &failing {
            clusters[index].heal()?;
        }
    }
}

/// As many are down all the time. In each turn those that are down longest come back, and others go.
async fn fail_many(clusters: &[SimCluster], turns: &Turns) -> anyhow::Result<()> {
    let mut rotation = Rotation::new(turns.clone());
    // These were broken before the proxy started.
    rotation.fail();
    loop {
        tokio::time::sleep(TURN).await;
        for index in rotation.come_back() {
            clusters[index].heal()?;
        }
        for index in rotation.fail() {
            break_somehow(&clusters[index], index)?;
        }
    }
}

/// Most clusters that are away simply do not answer. The others show what else there is.
fn break_somehow(cluster: &SimCluster, index: usize) -> anyhow::Result<()> {
    match index % 10 {
        0..5 => cluster.vanish()?,
        5 => cluster.kill(),
        6 => cluster.fault(Fault::Stall),
        7 => {
            cluster.fault(Fault::AnotherCa);
            cluster.fault(Fault::Cut);
        }
        8 => cluster.fault(Fault::Unauthorized),
        _ => {
            cluster.fault(Fault::Answer {
                code: 503,
                paths: Vec::new(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_few_never_fails_unless_all_do() {
        let of = |clusters, down| {
            let it = Turns::of(clusters, down);
            (it.gone, it.failing, it.at_a_time)
        };
        assert_eq!(of(3, 1), (None, 1..3, 1));
        assert_eq!(of(20, 19), (None, 1..20, 19));
        assert_eq!(of(3, 0), (None, 1..3, 0));
        assert_eq!(of(3, 3), (None, 0..3, 3));
        assert_eq!(of(1, 1), (None, 0..1, 1));
    }

    #[test]
    fn of_many_one_is_always_up_and_one_always_down() {
        let at_least_half_a_turn = 30;
        for (clusters, down, back) in [
            (1000, 700, 70),
            (60, 20, 2),
            (21, 1, 0),
            (21, 19, 1),
            (21, 20, 0),
            (21, 21, 0),
            (100, 97, 2),
        ] {
            let turns = Turns::of(clusters, down);
            assert_eq!(turns.back, back, "{clusters} {down}");
            assert_eq!(turns.gone, Some(clusters - 1));
            assert_eq!(turns.down(), down);
            let mut rotation = Rotation::new(turns);
            let mut back = Vec::new();
            for _ in 0..at_least_half_a_turn {
                let failing = rotation.fail();
                assert!(failing.iter().all(|index| !back.contains(index)));
                assert!(down == clusters || !rotation.down.contains(&0));
                assert!(!rotation.down.contains(&(clusters - 1)));
                let mut each: Vec<usize> = rotation.down.iter().copied().collect();
                each.sort_unstable();
                each.dedup();
                assert_eq!(each.len(), down - 1);
                back = rotation.come_back();
            }
        }
    }
}
