//! The faults of a simulated cluster, switched while it runs.

use std::time::Duration;

use tokio::sync::watch;

use super::status::Status;
use super::target::ResourcePath;

/// Something wrong with the cluster. Each stays until [`SimCluster::heal`](super::SimCluster::heal), several may
/// hold at once, and `Cut`, `EndWatches` and `Rebuild` happen once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// New connections are refused; existing ones go on.
    Refuse,
    /// Connections and requests are accepted and never answered, watches go silent. HTTP/2 pings on existing
    /// connections are still answered. Healing lets everything go on.
    Stall,
    /// Every request waits this long first.
    Slow(Duration),
    /// New connections are accepted, and wait this long for their handshake to begin.
    SlowHandshake(Duration),
    /// New connections are shown a certificate that another CA has signed.
    AnotherCa,
    /// Nothing is read or written any more on the connections open now, pings included; new ones work.
    HalfOpen,
    /// Every credential is refused: 401.
    Unauthorized,
    /// 403 for paths that begin with one of these.
    Forbidden(Vec<String>),
    /// Every watch that resumes from a revision is told that it is too old.
    ExpireWatches,
    /// All open watches end now, without a word, as when the watch cache of a real server starts over.
    EndWatches,
    /// Lists of this resource over all namespaces, and watches that begin with one, stop after their first pieces, as if
    /// there were no end to them. Healing lets them go on.
    HoldLists(String),
    /// `sendInitialEvents` is not known any more, as where a replica is older than the others.
    NoWatchList,
    /// This code for paths that begin with one of these; for all paths if there are none.
    Answer {
        /// The HTTP status code.
        code: u16,
        /// Prefixes of paths.
        paths: Vec<String>,
    },
    /// Lists and watches carry bytes that are no API answer.
    BadBytes(BadBytes),
    /// Open watches are told nothing of what happens while this holds, neither now nor later: they go on behind it.
    LoseEvents,
    /// All open connections are reset, now.
    Cut,
    /// The data is replaced by that of an empty cluster, now: no objects, other uids, revisions from the start.
    Rebuild,
}

/// How a list or the next event of a watch is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadBytes {
    /// Text that is no JSON, of which the stream says nothing.
    InvalidJson,
    /// Half of the JSON, then a clean end of the stream.
    Truncated,
    /// Half of the JSON, then the stream is reset.
    Reset,
    /// One object with a string of this many bytes in it.
    Huge(usize),
}

/// The faults in force.
#[derive(Clone, Debug, Default)]
pub(super) struct InForce {
    stall: bool,
    slow: Option<Duration>,
    slow_handshake: Option<Duration>,
    pub(super) another_ca: bool,
    unauthorized: bool,
    forbidden: Vec<String>,
    pub(super) expire_watches: bool,
    pub(super) no_watch_list: bool,
    held_lists: Option<String>,
    /// How often all watches were ended; it outlives the faults.
    ends: u64,
    answer: Option<(u16, Vec<String>)>,
    pub(super) bad_bytes: Option<BadBytes>,
    pub(super) lose_events: bool,
}

/// Where the faults are kept; everyone who serves asks here.
#[derive(Debug, Default)]
pub(super) struct Faults(watch::Sender<InForce>);

impl Faults {
    /// Puts a fault in force. Those of connections and data are not kept here.
    pub(super) fn set(&self, fault: Fault) {
        self.0.send_modify(|faults| match fault {
            Fault::Stall => faults.stall = true,
            Fault::Slow(delay) => faults.slow = Some(delay),
            Fault::SlowHandshake(delay) => faults.slow_handshake = Some(delay),
            Fault::AnotherCa => faults.another_ca = true,
            Fault::Unauthorized => faults.unauthorized = true,
            Fault::Forbidden(paths) => faults.forbidden = paths,
            Fault::ExpireWatches => faults.expire_watches = true,
            Fault::EndWatches => faults.ends += 1,
            Fault::HoldLists(resource) => faults.held_lists = Some(resource),
            Fault::NoWatchList => faults.no_watch_list = true,
            Fault::Answer { code, paths } => faults.answer = Some((code, paths)),
            Fault::BadBytes(bytes) => faults.bad_bytes = Some(bytes),
            Fault::LoseEvents => faults.lose_events = true,
            Fault::Refuse | Fault::HalfOpen | Fault::Cut | Fault::Rebuild => {}
        });
    }

    pub(super) fn clear(&self) {
        self.0.send_modify(|faults| {
            *faults = InForce {
                ends: faults.ends,
                ..InForce::default()
            };
        });
    }

    pub(super) fn in_force(&self) -> InForce {
        self.0.borrow().clone()
    }

    /// Ends when all watches that are open now shall end.
    pub(super) fn end_of_watches(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut faults = self.0.subscribe();
        let ends = faults.borrow().ends;
        async move { drop(faults.wait_for(|faults| faults.ends > ends).await) }
    }

    /// Waits as long as a stall holds.
    pub(super) async fn stalled(&self) {
        drop(self.0.subscribe().wait_for(|faults| !faults.stall).await);
    }

    /// Waits as long as lists of this resource over all namespaces are held up; nothing where they are not.
    pub(super) fn lists_go_on(
        &self,
        path: &ResourcePath,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let plural = path.resource.plural;
        let holds = move |faults: &InForce| faults.held_lists.as_deref() == Some(plural);
        let mut faults = self.0.subscribe();
        let held = path.namespace.is_empty() && holds(&faults.borrow());
        held.then_some(async move { drop(faults.wait_for(|faults| !holds(faults)).await) })
    }

    /// Holds a new connection up as the faults say.
    pub(super) async fn before_handshake(&self) {
        self.stalled().await;
        let slow = self.0.borrow().slow_handshake;
        if let Some(delay) = slow {
            tokio::time::sleep(delay).await;
        }
    }

    /// Holds a request up as the faults say.
    pub(super) async fn delay(&self) {
        self.stalled().await;
        let slow = self.0.borrow().slow;
        if let Some(delay) = slow {
            tokio::time::sleep(delay).await;
        }
    }
}

impl InForce {
    /// The answer that a fault gives to a request for `path`, before anyone looks at its credential.
    pub(super) fn answer(&self, path: &str) -> Option<Status> {
        let (code, _) = self
            .answer
            .as_ref()
            .filter(|(_, paths)| paths.is_empty() || begins_with_one(path, paths))?;
        Some(match code {
            401 => Status::unauthorized(),
            _ => Status::faulty(*code),
        })
    }

    pub(super) fn refuses_credentials(&self) -> bool {
        self.unauthorized
    }

    pub(super) fn forbids(&self, path: &str) -> bool {
        begins_with_one(path, &self.forbidden)
    }
}

fn begins_with_one(path: &str, prefixes: &[String]) -> bool {
    prefixes.iter().any(|prefix| path.starts_with(prefix))
}
