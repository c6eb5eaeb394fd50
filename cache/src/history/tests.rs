//! The history beside a plain list of all that was ever appended: any sequence of changes, relists, epochs and pauses, with
//! watchers that begin anywhere and take what they find at any time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;
use crate::object::ObjectHead;
use crate::store::Element;

const MEBIBYTE: usize = 1 << 20;

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// So many changes, each of so many mebibytes, and the versions between one and the next: none where objects expire
    /// together, and not all arrive at once.
    Append {
        count: u64,
        size: usize,
        apart: u64,
    },
    /// The server has said that it is further, and nothing happened.
    Bookmark(u64),
    /// A list, so much later than what was known.
    Relist(u64),
    /// Another cluster, whose version is this much of the one before.
    Epoch {
        percent: u64,
    },
    Interrupt,
    Silent(bool),
    Pass(u64),
    Trim,
    /// A watch of what happens above a version, so much of the newest; or of what is yet to come.
    Enter(Option<u64>),
    /// One of the watchers takes so much of what there is for it.
    Take {
        watcher: prop::sample::Index,
        count: usize,
    },
    Leave(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..5_u64, prop_oneof![9 => Just(0_usize), 1 => 1..5_usize], 0..4_u64)
            .prop_map(|(count, size, apart)| Step::Append { count, size, apart }),
        2 => (1..5_u64).prop_map(Step::Bookmark),
        1 => (0..5_u64).prop_map(Step::Relist),
        1 => (20..180_u64).prop_map(|percent| Step::Epoch { percent }),
        1 => Just(Step::Interrupt),
        1 => any::<bool>().prop_map(Step::Silent),
        2 => (1..200_u64).prop_map(Step::Pass),
        1 => Just(Step::Trim),
        6 => prop::option::weighted(0.9, 0..110_u64).prop_map(Step::Enter),
        10 => (any::<prop::sample::Index>(), 1..8_usize)
            .prop_map(|(watcher, count)| Step::Take { watcher, count }),
        1 => any::<prop::sample::Index>().prop_map(Step::Leave),
    ]
}

fn envelope() -> Arc<Envelope> {
    let list = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
    Arc::new(Envelope::learn(list.as_bytes(), "Pod").unwrap().envelope)
}

fn change(version: u64, mebibytes: usize) -> Change {
    let filler = "x".repeat(mebibytes * MEBIBYTE);
    let item = format!(
        r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u","resourceVersion":"{version}"}},"spec":"{filler}"}}"#
    );
    let head = ObjectHead::parse(item.as_bytes()).unwrap();
    let element = Element::new(&head.metadata, item.as_bytes(), item.clone().into()).unwrap();
    Change::applied(Arc::new(element), None)
}

fn rv(version: u64) -> ResourceVersion {
    ResourceVersion::from_number(version)
}

/// What was appended in one run, in full.
#[derive(Default)]
struct Run {
    number: usize,
    epoch: u64,
    since: u64,
    through: u64,
    /// Version, bytes, when, and whether that version was shown before.
    changes: Vec<(u64, usize, Instant, bool)>,
    /// How many of them may have been let go, and must have been at the latest look.
    gone: usize,
}

/// The reference.
#[derive(Default)]
struct Reference {
    run: Run,
    expired_below: u64,
    /// The highest version of epochs that are over.
    former: u64,
    silent: bool,
    watchers: Vec<(Place, Watched)>,
}

/// What a watcher is owed.
struct Watched {
    run: usize,
    next: usize,
}

impl Reference {
    fn begin(&mut self, epoch: u64, version: u64) {
        self.expired_below = version;
        self.run = Run {
            number: self.run.number + 1,
            epoch,
            since: version,
            through: version,
            ..Run::default()
        };
        self.silent = false;
    }

    fn let_go(&mut self, now: Instant) {
        let run = &mut self.run;
        loop {
            let held = &run.changes[run.gone..];
            let bytes: usize = held.iter().map(|(_, bytes, ..)| bytes).sum();
            let old = |at: &Instant| now.duration_since(*at) > MOST_AGE;
            match held.first() {
                Some((version, _, at, late)) if bytes > MOST_BYTES || old(at) => {
                    run.since = *version + u64::from(*late);
                    run.gone += 1;
                }
                _ => return,
            }
        }
    }

    fn enter(&mut self, after: Option<u64>) -> Result<Watched, NotWatchable> {
        let run = &self.run;
        let all = run.changes.len();
        let next = match after {
            None => all,
            Some(after) if after < self.expired_below => {
                return Err(NotWatchable::Expired(rv(self.expired_below)));
            }
            Some(after) if after > run.through && after <= self.former => {
                return Err(NotWatchable::Expired(rv(self.expired_below)));
            }
            Some(after) if after < run.since => return Err(NotWatchable::TooOld),
            Some(after) => {
                let later = run.changes.iter().position(|(version, .., late)| {
                    *version > after || (*version == after && *late)
                });
                later.unwrap_or(all)
            }
        };
        Ok(Watched {
            run: run.number,
            next,
        })
    }
}

/// Takes one change, or finds that there is none or that it is over, as it should be.
fn take(
    history: &History,
    floor: &Floor,
    reference: &mut Reference,
    watcher: usize,
) -> Result<(), TestCaseError> {
    let run = &reference.run;
    let (place, watched) = &mut reference.watchers[watcher];
    let next = history.next(place, Waker::noop());
    if watched.run != run.number {
        prop_assert!(matches!(next, Err(Over::Run)), "{next:?}");
        return Ok(());
    }
    if watched.next < run.gone {
        prop_assert!(matches!(next, Err(Over::TooSlow)), "{next:?}");
        return Ok(());
    }
    match (next, run.changes.get(watched.next)) {
        (Ok(Next::Change(change, is_late)), Some((version, .., late))) => {
            prop_assert_eq!(is_late, *late);
            prop_assert_eq!(change.resource_version(), rv(*version));
            prop_assert!(
                floor.told(run.epoch) >= rv(*version),
                "told before the floor was raised"
            );
            watched.next += 1;
        }
        (Ok(Next::None(through, silent)), None) => {
            prop_assert_eq!(through, rv(run.through));
            prop_assert_eq!(silent.is_some(), reference.silent);
        }
        (next, expected) => prop_assert!(false, "{next:?} instead of {expected:?}"),
    }
    Ok(())
}

async fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let floor = Arc::new(Floor::default());
    let history = History::new(Arc::clone(&floor));
    let mut reference = Reference::default();
    prop_assert_eq!(
        history.enter(None).unwrap_err(),
        NotServable::NotSynced.into()
    );
    history.begin(1, rv(100), envelope());
    reference.begin(1, 100);
    // The first list of all replaces nothing.
    reference.expired_below = 0;
    for step in steps {
        match step {
            Step::Append { count, size, apart } => {
                let first = reference.run.through + apart;
                let versions = (0..count).map(|n| first + n * apart);
                let changes: Vec<Change> = versions.map(|version| change(version, size)).collect();
                let (now, shown) = (Instant::now(), reference.run.through);
                for (n, change) in changes.iter().enumerate() {
                    let version = first + n as u64 * apart;
                    let kept = (version, change.bytes(), now, version <= shown);
                    reference.run.changes.push(kept);
                    reference.run.through = version;
                }
                let through = rv(reference.run.through);
                let woken = Arc::new(Woken::default());
                let (mut waits, _) = history.enter(None).unwrap();
                let found = history.next(&mut waits, &Waker::from(Arc::clone(&woken)));
                prop_assert!(matches!(found, Ok(Next::None(..))), "{found:?}");
                history.append(changes.into_iter(), through);
                history.leave(&waits);
                prop_assert!(woken.0.load(Ordering::Relaxed), "nobody was woken");
                reference.let_go(now);
            }
            Step::Bookmark(further) => {
                reference.run.through += further;
                history.append(std::iter::empty(), rv(reference.run.through));
                reference.let_go(Instant::now());
            }
            Step::Relist(further) => {
                let (epoch, version) = (reference.run.epoch, reference.run.through + further);
                history.begin(epoch, rv(version), envelope());
                reference.begin(epoch, version);
            }
            Step::Epoch { percent } => {
                let through = reference.run.through;
                history.end_epoch();
                prop_assert_eq!(
                    history.enter(None).unwrap_err(),
                    NotServable::NotSynced.into()
                );
                reference.former = reference.former.max(through);
                let (epoch, version) = (reference.run.epoch + 1, through * percent / 100 + 1);
                history.begin(epoch, rv(version), envelope());
                reference.begin(epoch, version);
            }
            Step::Interrupt => {
                history.interrupt(envelope());
                reference.run.number += 1;
            }
            Step::Silent(silent) => {
                history.set_silent(silent);
                reference.silent = silent;
            }
            Step::Pass(seconds) => tokio::time::advance(Duration::from_secs(seconds)).await,
            Step::Trim => {
                history.trim();
                reference.let_go(Instant::now());
            }
            Step::Enter(percent) => {
                let after = percent.map(|percent| reference.run.through * percent / 100);
                let entered = history.enter(after.map(rv)).map(|(place, _)| place);
                match (entered, reference.enter(after)) {
                    (Ok(place), Ok(watched)) => reference.watchers.push((place, watched)),
                    (entered, expected) => {
                        prop_assert_eq!(entered.err(), expected.err(), "after {:?}", after)
                    }
                }
            }
            Step::Take { watcher, count } => {
                for _ in 0..count.min(count * reference.watchers.len()) {
                    let watcher = watcher.index(reference.watchers.len());
                    take(&history, &floor, &mut reference, watcher)?;
                }
            }
            Step::Leave(watcher) => {
                if !reference.watchers.is_empty() {
                    let watcher = watcher.index(reference.watchers.len());
                    let (place, _) = reference.watchers.swap_remove(watcher);
                    history.leave(&place);
                }
            }
        }
        prop_assert_eq!(history.watchers(), reference.watchers.len());
        let held = &reference.run.changes[reference.run.gone..];
        let bytes: usize = held.iter().map(|(_, bytes, ..)| bytes).sum();
        prop_assert_eq!(history.bytes(), bytes);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_change_that_came_late_is_missed_by_nobody_once_it_is_let_go() {
    let history = History::new(Arc::new(Floor::default()));
    history.begin(1, rv(60), envelope());
    // A list of version 60 was shown before this one came.
    history.append([change(60, 0)].into_iter(), rv(60));
    tokio::time::advance(MOST_AGE + Duration::from_secs(1)).await;
    history.append([change(61, 0)].into_iter(), rv(61));
    assert_eq!(
        history.enter(Some(rv(60))).unwrap_err(),
        NotWatchable::TooOld
    );
    history.enter(Some(rv(61))).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_watcher_finds_all_that_was_appended_or_that_it_is_over(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(steps))?;
    }
}
