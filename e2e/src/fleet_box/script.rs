//! What happens to which clusters, and when.

use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::time::{Instant, sleep_until};

use crate::sim::Fault;

/// Steps in the order of their times. As text, one a line:
///
/// ```text
/// # the time, the clusters, and what happens to them
/// 5s 0..700 vanish
/// 20s 10% of 0..700 heal
/// 20s 700..800 answer 503
/// ```
///
/// What happens is `vanish` (every packet is lost), `kill` (connections break, new ones are refused), `refuse` (new
/// connections only), `cut`, `stall` (accepts, and never answers), `half-open`, `slow 200ms` (each request),
/// `slow-handshake 2s`, `another-ca`, `unauthorized`, `answer 503` (to everything), `rebuild`, or `heal`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script(Vec<Step>);

/// One line of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Since the start of the script.
    pub at: Duration,
    /// To which clusters.
    pub which: Which,
    /// What happens.
    pub change: Change,
}

/// Some clusters, by their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of these.
    All(Range<usize>),
    /// So many of a hundred of these, spread evenly.
    Percent(usize, Range<usize>),
}

/// What happens to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A fault.
    Fault(Fault),
    /// It goes down as a killed process does.
    Kill,
    /// It becomes a black hole.
    Vanish,
    /// All faults end.
    Heal,
}

impl Script {
    /// The steps, by their times; those of one time in the order given.
    pub fn new(mut steps: Vec<Step>) -> Self {
        steps.sort_by_key(|step| step.at);
        Self(steps)
    }

    /// All steps, for who does them by hand.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Does each step when its time has come, and ends with the last.
    ///
    /// # Errors
    /// The first of a step.
    pub async fn play<E>(&self, mut apply: impl FnMut(&Step) -> Result<(), E>) -> Result<(), E> {
        let start = Instant::now();
        for step in &self.0 {
            sleep_until(start + step.at).await;
            apply(step)?;
        }
        Ok(())
    }
}

impl Which {
    /// The places, in order.
    pub fn indices(&self) -> impl Iterator<Item = usize> + use<> {
        let (percent, range) = match self {
            Self::All(range) => (100, range.clone()),
            Self::Percent(percent, range) => (*percent, range.clone()),
        };
        let start = range.start;
        // Whenever the share of those so far reaches the next whole number.
        range.filter(move |index| {
            let so_far = (index - start) * percent / 100;
            (index - start + 1) * percent / 100 > so_far
        })
    }
}

impl FromStr for Script {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().map(str::trim).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let steps = lines.map(|(number, line)| {
            let step = line.parse::<Step>();
            step.with_context(|| format!("line {}: {line:?}", number + 1))
        });
        Ok(Self::new(steps.collect::<anyhow::Result<_>>()?))
    }
}

impl FromStr for Step {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (at, which, change) = match words.as_slice() {
            [at, percent, "of", range, change @ ..] => {
                let number = percent.strip_suffix('%').context("a percentage and no %")?;
                let number = number.parse().context("no percentage")?;
                ensure!(number <= 100, "more than all");
                (at, Which::Percent(number, parse_range(range)?), change)
            }
            [at, range, change @ ..] => (at, Which::All(parse_range(range)?), change),
            _ => bail!("a time, clusters and what happens to them are wanted"),
        };
        Ok(Self {
            at: parse_duration(at)?,
            which,
            change: parse_change(change)?,
        })
    }
}

fn parse_change(words: &[&str]) -> anyhow::Result<Change> {
    Ok(Change::Fault(match words {
        ["vanish"] => return Ok(Change::Vanish),
        ["kill"] => return Ok(Change::Kill),
        ["heal"] => return Ok(Change::Heal),
        ["refuse"] => Fault::Refuse,
        ["cut"] => Fault::Cut,
        ["stall"] => Fault::Stall,
        ["half-open"] => Fault::HalfOpen,
        ["slow", delay] => Fault::Slow(parse_duration(delay)?),
        ["slow-handshake", delay] => Fault::SlowHandshake(parse_duration(delay)?),
        ["another-ca"] => Fault::AnotherCa,
        ["unauthorized"] => Fault::Unauthorized,
        ["rebuild"] => Fault::Rebuild,
        ["answer", code] => Fault::Answer {
            code: code.parse().context("no status code")?,
            paths: Vec::new(),
        },
        _ => bail!("nothing that can happen to a cluster"),
    }))
}

fn parse_range(text: &str) -> anyhow::Result<Range<usize>> {
    let (start, end) = text.split_once("..").context("no range such as 0..700")?;
    let range = start.parse()?..end.parse()?;
    ensure!(range.start <= range.end, "the range ends before it begins");
    Ok(range)
}

fn parse_duration(text: &str) -> anyhow::Result<Duration> {
    let (number, unit): (_, fn(u64) -> Duration) = if let Some(number) = text.strip_suffix("ms") {
        (number, Duration::from_millis)
    } else {
        let number = text
            .strip_suffix('s')
            .context("no time such as 5s or 200ms")?;
        (number, Duration::from_secs)
    };
    Ok(unit(number.parse().context("no time such as 5s or 200ms")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(at: u64, which: Which, change: Change) -> Step {
        Step {
            at: Duration::from_millis(at),
            which,
            change,
        }
    }

    #[test]
    fn a_script_is_read_from_its_text() {
        let script: Script = "# a comment\n\n20s 10% of 0..700 heal\n 5s 0..700 vanish\n\
             200ms 1..2 slow 50ms\n20s 700..800 answer 503\n"
            .parse()
            .unwrap();
        let answer = Fault::Answer {
            code: 503,
            paths: Vec::new(),
        };
        let slow = Fault::Slow(Duration::from_millis(50));
        assert_eq!(
            script.steps(),
            [
                step(200, Which::All(1..2), Change::Fault(slow)),
                step(5_000, Which::All(0..700), Change::Vanish),
                step(20_000, Which::Percent(10, 0..700), Change::Heal),
                step(20_000, Which::All(700..800), Change::Fault(answer)),
            ]
        );
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, mistake) in [
            ("5s 0..1 heal\n5 0..1 heal", "line 2"),
            ("5s 0..1", "nothing that can happen"),
            ("5s 0..1 explode", "nothing that can happen"),
            ("5s 0-1 heal", "no range"),
            ("5s 2..1 heal", "ends before"),
            ("5s 101% of 0..1 heal", "more than all"),
            ("5s 10 of 0..1 heal", "no %"),
            ("5s", "are wanted"),
        ] {
            let error = text.parse::<Script>().unwrap_err();
            assert!(format!("{error:#}").contains(mistake), "{text}: {error:#}");
        }
    }

    #[test]
    fn a_share_is_spread_evenly() {
        let of = |percent, range| Which::Percent(percent, range).indices().collect::<Vec<_>>();
        assert_eq!(of(10, 100..130), [109, 119, 129]);
        assert_eq!(of(50, 0..5), [1, 3]);
        assert_eq!(of(100, 3..5), [3, 4]);
        assert_eq!(of(0, 3..5), [0; 0]);
        assert_eq!(of(10, 0..700).len(), 70);
    }

    #[tokio::test]
    async fn steps_are_done_when_their_time_has_come() {
        let script: Script = "90ms 0..2 heal\n5ms 0..1 vanish\n5ms 1..2 kill\n100s 0..1 cut"
            .parse()
            .unwrap();
        let start = Instant::now();
        let mut done = Vec::new();
        let played = script.play(|step| {
            assert!(start.elapsed() >= step.at, "{step:?} is early");
            done.push(step.change.clone());
            // Ends it.
            match step.change {
                Change::Heal => Err(()),
                _ => Ok(()),
            }
        });
        played.await.unwrap_err();
        assert_eq!(done, [Change::Vanish, Change::Kill, Change::Heal]);
    }
}
