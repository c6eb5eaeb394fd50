//! What the demo prints: lines to try, then how the clusters do as the proxy sees them.

use std::io::{IsTerminal as _, Stdout, Write as _, stdout};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use fleetcache::app::App;
use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::kubeconfig::{Context, Credential};
use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::fleet::{DOWN, Fleet, UP};

/// Where no terminal shows a line that changes, one is printed this often.
const PRINT_EVERY: Duration = Duration::from_secs(10);

/// How often the clusters are asked, and for how many more clusters it is less often.
const ASK_EVERY: Duration = Duration::from_secs(1);
const CLUSTERS_A_SECOND: u32 = 50;

/// How many clusters are asked at a time.
const AT_A_TIME: usize = 2;

/// Kept small in every cluster, so that asking costs little however many objects there are.
const ASKED: &str = "api/v1/namespaces";

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

/// How all clusters did at one time.
#[derive(Default)]
struct Round {
    /// From memory, in this time each.
    cached: Vec<Duration>,
    /// Answered by the cluster itself.
    live: usize,
    /// Not answered, with the reason and the time that the proxy took to say so.
    down: Vec<(String, String, Duration)>,
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

    /// Says what runs, and what to try.
    pub(crate) fn introduce(&mut self, down: usize) -> anyhow::Result<()> {
        let Self {
            proxy,
            admin,
            state_dir,
            kubeconfig,
            ..
        } = self;
        let names = self.fleet.names();
        let (clusters, objects) = (
            plural(names.len(), "simulated cluster"),
            self.fleet.objects(),
        );
        let name = names.first().map_or("oslo", String::as_str);
        let outages = outages(down);
        let try_outage = if down == 0 {
            String::new()
        } else {
            format!(
                "  time kubectl --context {name} get nodes      # when {name} is down: an answer at once\n"
            )
        };
        let text = format!(
            "{clusters} of {objects} objects each, behind {proxy}\n\
             The clusters are simulated: no logs, exec, explain or server-side apply.\n\
             {outages}\n\
             In another terminal:\n\n  \
             export KUBECONFIG={kubeconfig}\n  \
             kubectl config get-contexts\n\n  \
             # the first read fills the cache, the next are answered from it; plain tables (no -o) go live for now\n  \
             kubectl --context {name} get pods -A -o json | head\n  \
             kubectl --context {name} get pods -A -o yaml | head\n  \
             kubectl --context {name} get pods -A -o name\n  \
             kubectl --context {name} get pods -A -o name -v=8 2>&1 | grep -i cache-status      # hit: from memory\n\n  \
             kubectl --context {name} -n shop get pods --watch -o name      # from memory too; goes on through an outage\n  \
             kubectl --context {name} create configmap hello --from-literal=it=works\n  \
             kubectl --context {name} get configmap hello -o yaml\n\
             {try_outage}\n  \
             # the headers tell whether an answer came from memory, and how old it is\n  \
             curl -sS -A demo -o /dev/null -D - --cacert {state_dir}/ca.crt -H \"Authorization: Bearer $(cat {state_dir}/token)\" {proxy}/clusters/{name}/{ASKED}\n  \
             curl http://{admin}/metrics\n\n\
             Ctrl-C ends it all. FLEETCACHE_LOG=fleetcache::access=debug cargo demo 2>demo.log logs a line per request, with its reason.\n\n"
        );
        self.print(&text)
    }

    /// Shows how the clusters do, until printing fails.
    pub(crate) async fn follow(&mut self) -> anyhow::Result<()> {
        let names = self.fleet.names();
        let pause = ASK_EVERY * (u32::try_from(names.len())? / CLUSTERS_A_SECOND).max(1);
        let live = self.out.is_terminal();
        let (mut shown, mut printed) = (Vec::new(), None::<Instant>);
        // The proxy has just begun to connect to them.
        tokio::time::sleep(ASK_EVERY).await;
        loop {
            let round = self.ask(&names).await;
            let line = round.line(names.len(), self.fleet.changes());
            let down = round
                .down
                .into_iter()
                .map(|(name, ..)| name)
                .collect::<Vec<_>>();
            let news = down != shown || printed.is_none();
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
                tokio::time::sleep(pause).await;
                continue;
            }
            (shown, printed) = (down, Some(Instant::now()));
            tokio::time::sleep(pause).await;
        }
    }

    async fn ask(&self, names: &[String]) -> Round {
        let asked = stream::iter(names).map(async |name| {
            let answer = self.client.get(&format!("/clusters/{name}/{ASKED}")).await;
            (name.clone(), answer)
        });
        // Few at a time: the time that is shown shall be the proxy's, not that of waiting for one another.
        let mut answers = asked.buffered(AT_A_TIME);
        let mut round = Round::default();
        while let Some((name, answer)) = answers.next().await {
            match answer {
                Ok(it) if it.status == StatusCode::OK && from_memory(&it) => {
                    round.cached.push(it.elapsed);
                }
                Ok(it) if it.status == StatusCode::OK => round.live += 1,
                Ok(it) => round
                    .down
                    .push((name, it.status.as_str().to_owned(), it.elapsed)),
                Err(error) => {
                    let cause = error.root_cause().to_string();
                    round.down.push((name, cause, Duration::ZERO));
                }
            }
        }
        round.cached.sort_unstable();
        round
    }

    fn print(&mut self, text: &str) -> anyhow::Result<()> {
        self.out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush())
            .context("cannot print")
    }
}

impl Round {
    fn line(&self, clusters: usize, changes: u64) -> String {
        let time = Timestamp::now().strftime("%H:%M:%S");
        let mut parts = vec![format!(
            "{time}  {} of {clusters} up",
            clusters - self.down.len()
        )];
        if let Some(median) = self.cached.get(self.cached.len() / 2) {
            parts.push(format!(
                "{} answered from memory in {}",
                self.cached.len(),
                milliseconds(*median)
            ));
        }
        if self.live > 0 {
            parts.push(format!("{} live", self.live));
        }
        // Of many, the first few stand for all.
        for (name, what, elapsed) in self.down.iter().take(3) {
            parts.push(format!("{name}: {what} in {}", milliseconds(*elapsed)));
        }
        if self.down.len() > 3 {
            parts.push(format!("{} more down", self.down.len() - 3));
        }
        parts.push(format!("{changes} changes"));
        parts.join(" · ")
    }
}

/// How clusters will fail, as a line; nothing where none will.
fn outages(down: usize) -> String {
    let (up, down_for) = (UP.as_secs(), DOWN.as_secs());
    let failing = match down {
        0 => return String::new(),
        1 => "cluster fails".to_owned(),
        _ => format!("{down} clusters fail"),
    };
    format!("Every {up} s the next {failing} for {down_for} s.\n")
}

fn plural(count: usize, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
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
