//! What the demo prints: what to try, then how the clusters do as the proxy sees them.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Stdout, Write as _, stdout};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use anyhow::Context as _;
use fleetcache::app::App;
use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::kubeconfig::{Context, Credential};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::fleet::Fleet;
use crate::lines::{self, Setup};
use crate::outages::{FEW, Outages};

/// Where no terminal shows a line that changes, one is printed this often.
const PRINT_EVERY: Duration = Duration::from_secs(10);

/// How often clusters are asked, and how many each time; of more, each is asked less often.
const ASK_EVERY: Duration = Duration::from_secs(1);
const CLUSTERS_A_SECOND: usize = 100;

/// How many clusters are asked at a time.
const AT_A_TIME: usize = 2;

/// Kept small in every cluster, so that asking costs little however many objects there are.
pub(crate) const ASKED: &str = "api/v1/namespaces";

/// The standard output, and what it shows.
pub(crate) struct Screen<'a> {
    fleet: &'a Fleet,
    client: Client,
    proxy: String,
    admin: SocketAddr,
    state_dir: String,
    kubeconfig: String,
    out: Stdout,
}

/// What a cluster answered when it was last asked.
#[derive(Clone)]
enum Outcome {
    /// From memory, in this time.
    Cached(Duration),
    /// By itself.
    Live,
    /// Nothing: the reason, and the time that the proxy took to say so.
    Down(String, Duration),
}

/// How all clusters did when they were last asked.
struct Seen<'a> {
    names: &'a [String],
    outcomes: Vec<Option<Outcome>>,
}

impl<'a> Screen<'a> {
    pub(crate) fn new(fleet: &'a Fleet, proxy: &App) -> anyhow::Result<Self> {
        let state_dir = proxy.state_dir();
        let read = |file: &str| {
            let path = state_dir.join(file);
            std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))
        };
        let server = format!("https://{}", proxy.proxy_addr());
        let client = Client::http2(&Context {
            name: "demo".to_owned(),
            server: server.clone(),
            ca_pem: read("ca.crt")?,
            credential: Credential::Token(read("token")?.trim().to_owned()),
        })?;
        Ok(Self {
            fleet,
            client,
            proxy: server,
            admin: proxy.admin_addr(),
            state_dir: state_dir.display().to_string(),
            kubeconfig: proxy.kubeconfig().display().to_string(),
            out: stdout(),
        })
    }

    /// Says what runs, and what to try, once the cluster that most lines name is connected.
    pub(crate) async fn introduce(&mut self, outages: &Outages) -> anyhow::Result<()> {
        let names = self.fleet.names();
        if outages.first_begins_up(names.len()) {
            let path = format!("/clusters/{}/{ASKED}", names[0]);
            let ask = async || self.client.get(&path).await?.ok();
            wait_for("the first cluster to be connected", PATIENCE, ask).await?;
        }
        let text = lines::introduction(&Setup {
            names: &names,
            objects: self.fleet.objects(),
            outages,
            proxy: &self.proxy,
            admin: self.admin,
            state_dir: &self.state_dir,
            kubeconfig: &self.kubeconfig,
        });
        self.print(&text)
    }

    /// Shows how the clusters do, until printing fails.
    pub(crate) async fn follow(&mut self) -> anyhow::Result<()> {
        let names = self.fleet.names();
        let live = self.out.is_terminal();
        let mut seen = Seen {
            names: &names,
            outcomes: vec![None; names.len()],
        };
        let (mut shown, mut printed) = (None, None::<Instant>);
        let mut next = 0;
        // The proxy has just begun to connect to them.
        tokio::time::sleep(ASK_EVERY).await;
        loop {
            let end = names.len().min(next + CLUSTERS_A_SECOND);
            self.ask(&mut seen, next..end).await;
            next = end % names.len();
            let line = seen.line(self.fleet.changes());
            // Of many, some come or go all the time.
            let down = (names.len() <= FEW).then(|| seen.down());
            let news = printed.is_none() || down != shown;
            if live {
                // Over the line before, unless that tells of something else.
                let start = if news && printed.is_some() {
                    "\n"
                } else {
                    "\r\x1b[2K"
                };
                self.print(&format!("{start}{line}"))?;
            } else if news || printed.is_some_and(|at| at.elapsed() >= PRINT_EVERY) {
                self.print(&format!("{line}\n"))?;
            } else {
                tokio::time::sleep(ASK_EVERY).await;
                continue;
            }
            (shown, printed) = (down, Some(Instant::now()));
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    async fn ask(&self, seen: &mut Seen<'_>, which: Range<usize>) {
        let names = seen.names;
        let asked = stream::iter(which).map(async |index| {
            let path = format!("/clusters/{}/{ASKED}", names[index]);
            (index, Outcome::of(self.client.get(&path).await))
        });
        // Few at a time: the time that is shown shall be the proxy's, not that of waiting for one another.
        let mut answers = asked.buffered(AT_A_TIME);
        while let Some((index, outcome)) = answers.next().await {
            seen.outcomes[index] = Some(outcome);
        }
    }

    fn print(&mut self, text: &str) -> anyhow::Result<()> {
        self.out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush())
            .context("cannot print")
    }
}

impl Outcome {
    fn of(answer: anyhow::Result<Answer>) -> Self {
        match answer {
            Ok(it) if it.status == StatusCode::OK && from_memory(&it) => Self::Cached(it.elapsed),
            Ok(it) if it.status == StatusCode::OK => Self::Live,
            Ok(it) => Self::Down(reason(&it), it.elapsed),
            Err(error) => Self::Down(error.root_cause().to_string(), Duration::ZERO),
        }
    }
}

impl Seen<'_> {
    /// The names of those that are down.
    fn down(&self) -> Vec<String> {
        let each = self.names.iter().zip(&self.outcomes);
        let down = each.filter(|(_, outcome)| matches!(outcome, Some(Outcome::Down(..))));
        down.map(|(name, _)| name.clone()).collect()
    }

    fn line(&self, changes: u64) -> String {
        let (mut cached, mut live, mut asked) = (Vec::new(), 0, 0);
        let mut down: BTreeMap<&str, Vec<(&str, Duration)>> = BTreeMap::new();
        for (name, outcome) in self.names.iter().zip(&self.outcomes) {
            asked += usize::from(outcome.is_some());
            match outcome {
                Some(Outcome::Cached(elapsed)) => cached.push(*elapsed),
                Some(Outcome::Live) => live += 1,
                Some(Outcome::Down(reason, elapsed)) => {
                    down.entry(reason).or_default().push((name, *elapsed));
                }
                None => {}
            }
        }
        let time = Timestamp::now().strftime("%H:%M:%S");
        let of = if asked == self.names.len() {
            ""
        } else {
            " asked so far"
        };
        let mut parts = vec![format!("{time}  {} of {asked}{of} up", cached.len() + live)];
        cached.sort_unstable();
        if let Some(median) = cached.get(cached.len() / 2) {
            parts.push(format!(
                "{} answered from memory in {}",
                cached.len(),
                milliseconds(*median)
            ));
        }
        if live > 0 {
            parts.push(format!("{live} live"));
        }
        for (reason, mut clusters) in down {
            if self.names.len() <= FEW {
                let each = clusters.iter();
                parts.extend(each.map(|(name, elapsed)| {
                    format!("{name}: {reason} in {}", milliseconds(*elapsed))
                }));
            } else {
                clusters.sort_unstable_by_key(|(_, elapsed)| *elapsed);
                let (_, median) = clusters[clusters.len() / 2];
                let (count, median) = (clusters.len(), milliseconds(median));
                parts.push(format!("{count} down: {reason} in {median}"));
            }
        }
        parts.push(format!("{changes} changes"));
        parts.join(" · ")
    }
}

/// The code, and the word for machines that says why.
fn reason(answer: &Answer) -> String {
    let cause = answer.json().ok().and_then(|status| {
        let cause = &status["details"]["causes"][0]["reason"];
        cause.as_str().map(str::to_owned)
    });
    let code = answer.status.as_u16();
    cause.map_or_else(|| code.to_string(), |cause| format!("{code} {cause}"))
}

fn from_memory(answer: &Answer) -> bool {
    let status = answer
        .headers
        .get("cache-status")
        .and_then(|status| status.to_str().ok());
    status.is_some_and(|status| status.contains("; hit"))
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}
