//! One table of watch requests, asked of the apiserver and of the proxy, whose informers have synced or do not exist, over
//! HTTP/1.1 and HTTP/2, while one script of writes runs: the same bytes and the same end.

mod rows;
mod script;
mod world;

use std::fmt;
use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use serde_json::Value;

use super::stream::{End, Stream};
use crate::pair::{Comparable, compare};
use rows::{Row, While};
use world::World;

/// The script's last word in the kind that open-ended rows are about.
const LAST: &str = "zz-last-word";

/// How many rows are asked at a time where each is asked for itself.
const AT_A_TIME: usize = 16;

/// Attempts at a row that is asked for itself.
const ATTEMPTS: usize = 4;

/// One row, asked in every way.
struct Asked {
    row: Row,
    direct: Stream,
    proxied: Vec<(&'static str, Stream)>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_watch_is_the_servers() {
    let world = World::start().await;
    let (quiet, script): (Vec<Row>, Vec<Row>) = rows::all()
        .into_iter()
        .partition(|row| row.during == While::Quiet);
    let mut failures = Vec::new();
    let mut tally = Tally::default();
    let quiet = futures_util::stream::iter(quiet.into_iter().enumerate())
        .map(|(n, row)| hold_still(&world, n, row))
        .buffer_unordered(AT_A_TIME);
    for (asked, differences) in quiet.collect::<Vec<_>>().await {
        tally.count(&asked);
        failures.extend(differences);
    }

    // The watches must outlast the script, however slow the machine.
    let mut seconds = 12;
    let asked = loop {
        let rows = script.iter().cloned().enumerate();
        let asked = join_all(rows.map(|(n, row)| ask(&world, n, row, seconds))).await;
        script::run(&world.direct, &format!("r{seconds}")).await;
        let first = asked.iter().map(|asked| asked.direct.opened).min();
        if first.unwrap().elapsed() < Duration::from_secs(seconds - 3) {
            break asked;
        }
        println!("the script took too long for watches of {seconds} s");
        seconds *= 3;
    };
    for asked in &asked {
        asked.end().await;
        tally.count(asked);
        failures.extend(asked.differences(&world, seconds));
    }
    println!("{tally}");
    assert!(
        failures.is_empty(),
        "{} differences:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
    assert!(tally.events > 1000, "only {} events", tally.events);
}

/// Asks once more where the answers differ: a deadline of a second may pass on a busy machine before anything was told.
async fn hold_still(world: &World, n: usize, row: Row) -> (Asked, Vec<String>) {
    let mut attempt = 1;
    loop {
        let asked = ask(world, n, row.clone(), 1).await;
        asked.end().await;
        let differences = asked.differences(world, 1);
        if differences.is_empty() || attempt == ATTEMPTS {
            return (asked, differences);
        }
        attempt += 1;
    }
}

/// Returns when all of them are open.
async fn ask(world: &World, n: usize, row: Row, seconds: u64) -> Asked {
    let path = world.fill_in(&row.path, seconds);
    let warm = format!("/clusters/warm{path}");
    let (direct, warm1, warm2) = tokio::join!(
        row.ask(&world.direct, &path),
        row.ask(&world.proxied, &warm),
        row.ask(&world.http2, &warm),
    );
    let mut proxied = vec![("warm", warm1), ("warm, HTTP/2", warm2)];
    if n.is_multiple_of(4) {
        let cold = format!("{}{path}", world.cold());
        proxied.push(("cold", row.ask(&world.proxied, &cold).await));
    }
    Asked {
        row,
        direct,
        proxied,
    }
}

impl Asked {
    /// Waits until all of it has been answered.
    async fn end(&self) {
        let row = &self.row;
        let proxied = self.proxied.iter().map(|(_, stream)| stream);
        for stream in proxied.chain([&self.direct]) {
            if row.during != While::OpenEnded {
                stream.ended().await;
                continue;
            }
            let what = format!("{row} to tell the last word");
            wait_for(&what, PATIENCE, async || {
                let text = stream.text();
                let told = text.contains(LAST) && text.ends_with('\n');
                told.then_some(()).ok_or(text.len())
            })
            .await
            .unwrap();
            assert_eq!(stream.end(), None, "{row}");
        }
    }

    /// Where the proxy's answers are not the server's.
    fn differences(&self, world: &World, seconds: u64) -> Vec<String> {
        let row = &self.row;
        let mut all = Vec::new();
        for (way, stream) in &self.proxied {
            let mut found = differences(world, row, way, &self.direct, stream);
            let hit = stream.cache_status().starts_with("fleetcache; hit");
            if way.starts_with("warm") && hit != row.hit {
                found.push(format!("says {}", stream.cache_status()));
            }
            if !found.is_empty() {
                let path = world.fill_in(&row.path, seconds);
                let status = stream.cache_status();
                let found = found.join("; ");
                all.push(format!("{row} ({way}, {path}, {status}): {found}"));
            }
        }
        all
    }
}

impl Row {
    async fn ask(&self, client: &Client, path: &str) -> Stream {
        Stream::request(client, self.method.clone(), path, &self.headers).await
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {} {}", self.case, self.method, self.path)?;
        for (name, value) in &self.headers {
            write!(f, " {name}: {value}")?;
        }
        Ok(())
    }
}

/// A body in the form in which two watches are compared.
#[derive(Debug, Default)]
struct Told {
    /// Everything but bookmarks, byte for byte; the bookmark that ends the initial events without its version.
    body: String,
    /// The other bookmarks, without their versions.
    bookmarks: Vec<String>,
    /// The highest version of an event.
    newest: u64,
    events: usize,
    /// The version of the last bookmark.
    bookmarked: u64,
    /// Whether it is one event a line, or nothing.
    is_json: bool,
}

impl Told {
    /// When a bookmark comes, and of which version, is up to the server; what else is in it is not.
    fn by(stream: &Stream) -> Self {
        let bytes = stream.bytes();
        // Not one object a line: protobuf, indented, or an error.
        let Ok(text) = std::str::from_utf8(&bytes) else {
            let body = format!("{bytes:?}");
            return Self {
                body,
                ..Self::default()
            };
        };
        let parse = |line| serde_json::from_str::<Value>(line).ok();
        let events: Option<Vec<(&str, Value)>> = text
            .split_inclusive('\n')
            .map(|line| Some((line, parse(line)?)))
            .collect();
        let Some(events) = events else {
            return Self {
                body: text.to_owned(),
                ..Self::default()
            };
        };
        let mut told = Self {
            is_json: events.iter().all(|(_, event)| event["type"].is_string()),
            ..Self::default()
        };
        for (line, event) in events {
            // A deadline that is past is found before or after the watch has begun.
            if line.contains(r#""message":"context deadline exceeded""#) {
                continue;
            }
            let version = &event["object"]["metadata"]["resourceVersion"];
            let annotations = &event["object"]["metadata"]["annotations"];
            let without_version = || line.replace(&format!(r#""resourceVersion":{version}"#), "?");
            let number = version.as_str().and_then(|version| version.parse().ok());
            if event["type"] == "BOOKMARK" {
                told.bookmarked = number.unwrap();
                if annotations.is_null() {
                    told.bookmarks.push(without_version());
                } else {
                    told.body += &without_version();
                }
            } else {
                told.newest = told.newest.max(number.unwrap_or(0));
                told.events += usize::from(event["type"].is_string());
                told.body += &without_current(line);
            }
        }
        told
    }
}

impl Told {
    /// Whether a bookmark was of the last event or of a later version.
    fn end_is_told(&self) -> bool {
        self.bookmarked >= self.newest
    }
}

/// The version that the server was at is in the message of a version that it has not reached.
fn without_current(line: &str) -> String {
    let Some((before, after)) = line.split_once(", current: ") else {
        return line.to_owned();
    };
    let rest = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
    format!("{before}, current: ?{rest}")
}

#[derive(Default)]
struct Tally {
    rows: usize,
    hits: usize,
    events: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, hits, events } = self;
        write!(
            f,
            "{rows} rows, {hits} answers from memory, {events} events"
        )
    }
}

impl Tally {
    fn count(&mut self, asked: &Asked) {
        self.rows += 1;
        for (_, stream) in &asked.proxied {
            self.hits += usize::from(stream.cache_status().starts_with("fleetcache; hit"));
            self.events += Told::by(stream).events;
        }
    }
}

fn differences(
    world: &World,
    row: &Row,
    way: &str,
    direct: &Stream,
    proxied: &Stream,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut expect = |what: &str, same: bool, values: String| {
        if !same {
            found.push(format!("{what}: {values}"));
        }
    };
    let (server, proxy) = (Told::by(direct), Told::by(proxied));
    let comparable = |stream: &Stream, told: &Told| {
        let mut comparable = Comparable::from(&stream.answer());
        comparable.headers.retain(|(name, _)| name != "connection");
        if told.is_json {
            comparable.body.clone_from(&told.body);
        }
        comparable
    };
    let same = compare(&comparable(direct, &server), &comparable(proxied, &proxy));
    expect("answer", same.is_ok(), same.err().unwrap_or_default());
    if server.is_json {
        for header in ["content-length", "transfer-encoding"] {
            let of = |stream: &Stream| stream.headers.get(header).cloned();
            let (of_server, of_proxy) = (of(direct), of(proxied));
            // HTTP/2 has no transfer-encoding.
            let same = of_server == of_proxy || (way.ends_with("HTTP/2") && of_proxy.is_none());
            expect(header, same, format!("{of_server:?} and {of_proxy:?}"));
        }
    }
    let ends = (direct.end(), proxied.end());
    let clean = !matches!(ends.1, Some(End::Broken(_)));
    expect("end", clean && ends.0 == ends.1, format!("{ends:?}"));
    let lasted = (direct.lasted(), proxied.lasted());
    let apart = lasted.0.abs_diff(lasted.1);
    expect(
        "time",
        apart < Duration::from_secs(10),
        format!("{lasted:?}"),
    );
    if let [first, ..] = server.bookmarks.as_slice() {
        let alike = proxy.bookmarks.iter().all(|bookmark| bookmark == first);
        expect(
            "bookmarks",
            alike,
            format!("{first} and {:?}", proxy.bookmarks),
        );
        // What has moved only by questions of others may be known to the one and not to the other.
        let moved = server.newest > world.now && server.end_is_told();
        expect(
            "last bookmark",
            !moved || proxy.end_is_told(),
            format!("{} after {}", proxy.bookmarked, proxy.newest),
        );
    } else {
        let asked = row.path.contains("allowWatchBookmarks");
        expect(
            "bookmarks",
            asked || proxy.bookmarks.is_empty(),
            format!("{:?}", proxy.bookmarks),
        );
    }
    found
}
