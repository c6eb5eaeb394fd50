//! Users, verbs, kinds, scopes, selectors, versions and representations: whatever a user asks of a real cluster with RBAC, the
//! proxy answers as the cluster answers that user itself, whether memory holds it or not. And decisions about users, or about
//! objects, that are nearly the same are never taken for one another.

mod ask;
mod kinds;
mod live;
mod mixing;
mod no_credential;
mod reads;
mod rights;
mod throw_away;
mod tunnels;
mod users;
mod world;

use std::collections::BTreeMap;

use fleetcache_e2e::client::Answer;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use http::StatusCode;

use ask::{Asked, From, Row, ask};
use kinds::KINDS;
use reads::Facts;
use world::{Subject, WARM, World};

/// How many rows are asked at a time; of watches, which wait for most of it, and of others.
const WATCHES_AT_A_TIME: usize = 32;
const AT_A_TIME: usize = 4;

const NOT_ALLOWED: &str = "fleetcache; fwd=bypass; detail=not-allowed";

/// What came of the cells so far.
#[derive(Default)]
struct Outcome {
    /// By what was asked for: each cell once, whatever it was asked in.
    cells: usize,
    failures: Vec<String>,
    /// Answers of the proxy, by the state it was in and what `Cache-Status` said.
    said: BTreeMap<String, usize>,
}

impl Outcome {
    fn count(&mut self, state: &str, answer: &Answer) {
        let status = answer.status.as_u16();
        let said = answer.cache_status().trim_start_matches("fleetcache; ");
        *self
            .said
            .entry(format!("{state} {status} {said}"))
            .or_default() += 1;
    }

    fn add(&mut self, state: &str, asked: &Asked) {
        self.count(state, &asked.proxied);
        self.failures.extend(asked.failures.iter().cloned());
    }

    fn merge(&mut self, other: Self) {
        self.cells += other.cells;
        self.failures.extend(other.failures);
        for (said, count) in other.said {
            *self.said.entry(said).or_default() += count;
        }
    }

    /// Fails with every cell that differs.
    fn tell(&self) {
        println!("{} cells", self.cells);
        for (said, count) in &self.said {
            println!("{count:6} {said}");
        }
        let failures = &self.failures;
        assert!(
            failures.is_empty(),
            "{} cells differ:\n{}",
            failures.len(),
            failures.join("\n\n")
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_user_is_answered_as_by_the_server() {
    // What is read before it is known how many rows there are says only versions.
    let rows = reads::all(&Facts::default()).len();
    let world = World::start(users::all(), rows).await;
    let facts = Facts::of(&world.admin).await;
    for kind in KINDS {
        world.warm(WARM, kind).await;
    }
    let rows: Vec<Row> = reads::all(&facts);
    let mut outcome = Outcome::default();
    let known = cold(&world, &rows, &mut outcome).await;
    for pass in ["warm", "warm again"] {
        warm(pass, &known, &mut outcome).await;
    }
    let live = live::all();
    always_live(&world, &live, &mut outcome).await;
    outcome.merge(tunnels::open_all(&world).await);
    outcome.merge(throw_away::writes(&world).await);
    outcome.merge(no_credential::refused(&world).await);
    let expected = (rows.len() + live.len()) * world.subjects.len();
    assert!(outcome.cells > expected, "{} of {expected}", outcome.cells);
    assert!(outcome.cells >= 500, "only {} cells", outcome.cells);
    outcome.tell();
}

/// A cell, and what the server answered.
struct Known<'a> {
    subject: &'a Subject,
    row: &'a Row,
    direct: Answer,
}

/// Asks for each row under a name of its own, under which nobody has asked for anything: first those whom the server refuses,
/// then the others, each time in another order. So one of these is the first whom the proxy knows to be allowed anything there,
/// and the rest come while the informer that he started lists.
async fn cold<'a>(world: &'a World, rows: &'a [Row], outcome: &mut Outcome) -> Vec<Known<'a>> {
    let (watches, others): (Vec<_>, Vec<_>) =
        rows.iter().enumerate().partition(|(_, row)| row.is_watch());
    let mut known = Vec::new();
    for (rows, at_a_time) in [(others, AT_A_TIME), (watches, WATCHES_AT_A_TIME)] {
        let asked = futures_util::stream::iter(rows)
            .map(|(n, row)| cold_row(world, n, row))
            .buffer_unordered(at_a_time);
        for (cells, came) in asked.collect::<Vec<_>>().await {
            known.extend(cells);
            outcome.merge(came);
        }
    }
    known
}

async fn cold_row<'a>(world: &'a World, n: usize, row: &'a Row) -> (Vec<Known<'a>>, Outcome) {
    let subjects = &world.subjects;
    let directly = subjects.iter().map(|subject| row.ask(&subject.direct, ""));
    let answers = join_all(directly).await;
    let mut cells: Vec<_> = subjects.iter().zip(answers).collect();
    let count = cells.len();
    cells.rotate_left(n % count);
    cells.sort_by_key(|(_, direct)| direct.status.is_success());

    let prefix = format!("/clusters/cold-{n}");
    let mut outcome = Outcome {
        cells: count,
        ..Outcome::default()
    };
    let mut known = Vec::new();
    let mut nobody_yet = true;
    for (subject, direct) in cells {
        let mut asked = ask(subject, row, &prefix, direct).await;
        let said = asked.proxied.cache_status();
        let is_first = nobody_yet && row.from == From::Memory;
        if is_first && asked.is_known() && !said.ends_with("; detail=not-started") {
            asked
                .failures
                .push(format!("{}: {row} was cold: {said}", subject.name));
        }
        nobody_yet &= !asked.direct.status.is_success();
        outcome.add("cold", &asked);
        let direct = asked.direct;
        known.push(Known {
            subject,
            row,
            direct,
        });
    }
    (known, outcome)
}

/// Asks for each cell under a name whose informers have synced: all users and all rows mixed, so that what is decided about
/// one would be there to be taken for what is to be decided about another.
async fn warm(pass: &str, known: &[Known<'_>], outcome: &mut Outcome) {
    let prefix = format!("/clusters/{WARM}");
    let mut cells: Vec<_> = known.iter().collect();
    if pass == "warm again" {
        cells.reverse();
    }
    let (watches, others): (Vec<_>, Vec<_>) =
        cells.into_iter().partition(|cell| cell.row.is_watch());
    for (cells, at_a_time) in [(others, 4 * AT_A_TIME), (watches, 2 * WATCHES_AT_A_TIME)] {
        let asked = futures_util::stream::iter(cells)
            .map(|cell| ask_warm(&prefix, cell.subject, cell.row, cell.direct.clone()))
            .buffer_unordered(at_a_time);
        for asked in asked.collect::<Vec<_>>().await {
            outcome.add(pass, &asked);
        }
    }
}

/// Asks for a cell whose kind's informer has synced, and looks where the answer is from.
async fn ask_warm(prefix: &str, subject: &Subject, row: &Row, direct: Answer) -> Asked {
    let mut asked = ask(subject, row, prefix, direct.clone()).await;
    // Others were told live of something newer, and a busy machine may not bring an informer there within the 200 ms that a
    // read waits.
    let is_late = |asked: &Asked| {
        let said = asked.proxied.cache_status();
        row.from != From::Any && said.starts_with("fleetcache; fwd=stale")
    };
    if is_late(&asked) {
        let what = row.to_string();
        let in_time = wait_for(&what, PATIENCE, async || {
            let asked = ask(subject, row, prefix, direct.clone()).await;
            let said = asked.proxied.cache_status().to_owned();
            if is_late(&asked) {
                Err(said)
            } else {
                Ok(asked)
            }
        });
        asked = in_time.await.unwrap();
    }
    if let Some(wrong) = asked.is_from_elsewhere(row.from) {
        asked
            .failures
            .push(format!("{}: {row} {wrong}", subject.name));
    }
    asked
}

impl Asked {
    /// Whether the proxy had to look further than at the credential.
    fn is_known(&self) -> bool {
        self.direct.status != StatusCode::UNAUTHORIZED
    }

    /// Where a warm answer came from, if that is not where it should.
    fn is_from_elsewhere(&self, from: From) -> Option<String> {
        let said = self.proxied.cache_status();
        let is_hit = self.proxied.is_hit();
        let is_right = match (self.direct.status, from) {
            // The proxy's own error has no such header.
            (StatusCode::UNAUTHORIZED, _) => said.is_empty(),
            (StatusCode::FORBIDDEN, From::Memory | From::Absent) => said == NOT_ALLOWED,
            (StatusCode::NOT_FOUND, From::Absent) => said.ends_with("detail=absent"),
            (status, From::Memory) => status.is_success() && is_hit,
            (_, From::Absent) => false,
            (_, From::Live) => !is_hit,
            (status, From::Any) => status.is_success() || !is_hit,
        };
        let status = self.direct.status;
        (!is_right).then(|| format!("is {status} and should be from {from:?}: {said}"))
    }
}

/// Asks for what no state of memory has to do with, twice.
async fn always_live(world: &World, rows: &[Row], outcome: &mut Outcome) {
    let cells = rows.iter().flat_map(|row| {
        let subjects = world.subjects.iter();
        subjects.map(move |subject| (subject, row))
    });
    let asked = futures_util::stream::iter(cells)
        .map(async |(subject, row)| {
            let prefix = format!("/clusters/{WARM}");
            let direct = row.ask(&subject.direct, "").await;
            let mut first = ask(subject, row, &prefix, direct).await;
            let second = ask(subject, row, &prefix, first.direct.clone()).await;
            first.failures.extend(second.failures);
            first
        })
        .buffer_unordered(4 * AT_A_TIME);
    for asked in asked.collect::<Vec<_>>().await {
        outcome.cells += 1;
        outcome.add("live", &asked);
    }
}
