//! An established connection: its probes and its credential, until it ends.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, OptionFuture};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::attempt;
use super::health::{Health, Probe, Verdict};
use super::owner::{Next, Owner};
use crate::cluster_config::ConnectionTiming;
use crate::connection::{Connection, Raised};
use crate::credential::{Credential, CredentialError};

/// Least time between two probes that requests ask for.
const MIN_PROBE_GAP: Duration = Duration::from_millis(250);

/// Least time between two loads that requests ask for: an API behind an aggregator may answer 401 for reasons of its own.
const MIN_RELOAD_GAP: Duration = Duration::from_secs(10);

/// What is known of the published connection. It outlives a step that is cut short, so that a cluster whose configuration
/// changes every second is probed as any other.
pub(super) struct Kept {
    pub(super) connection: Arc<Connection>,
    opened: Instant,
    health: Health,
    probe_at: Instant,
    last_probe: Instant,
    probing: Option<BoxFuture<'static, Probe>>,
    loading: Option<BoxFuture<'static, Result<Credential, CredentialError>>>,
    probe_after_load: bool,
    /// A request was answered 401: the next probe asks about the credential too.
    doubted: bool,
    /// That a request was answered 401 for reasons of its own was told.
    told: bool,
    last_reload: Option<Instant>,
    load_at: Option<Instant>,
    replacement: Replacement,
}

/// Whether another connection is to take the place of one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replacement {
    None,
    InFlight,
    /// An attempt has failed; the next one is made then.
    At(Instant),
}

impl Kept {
    pub(super) fn new(
        connection: Arc<Connection>,
        timing: &ConnectionTiming,
        load_at: Option<Instant>,
    ) -> Self {
        let now = Instant::now();
        Self {
            connection,
            opened: now,
            health: Health::new(timing.probe_failure_threshold),
            probe_at: now + drifting(timing.probe_interval),
            last_probe: now,
            probing: None,
            loading: None,
            probe_after_load: false,
            doubted: false,
            told: false,
            last_reload: None,
            load_at,
            replacement: Replacement::None,
        }
    }

    /// Other timings hold now.
    pub(super) fn reconfigure(&mut self, timing: &ConnectionTiming) {
        self.health.set_threshold(timing.probe_failure_threshold);
        let latest = self.last_probe + timing.probe_interval;
        self.probe_at = self.probe_at.min(latest.max(Instant::now()));
    }

    /// Another connection is being made.
    pub(super) fn is_being_replaced(&mut self) {
        self.replacement = Replacement::InFlight;
    }

    /// The next attempt to make another connection comes then.
    pub(super) fn is_replaced_at(&mut self, at: Instant) {
        self.replacement = Replacement::At(at);
    }

    /// The next probe is not waited for.
    pub(super) fn is_probed_now(&mut self) {
        self.probe_at = Instant::now();
    }

    /// It stays, and other timings hold now. Another credential is loaded at once and put in the place of the old one if it
    /// differs; while it was to go it missed what became of its own.
    pub(super) fn stays(&mut self, timing: &ConnectionTiming, other_credential: bool) {
        self.reconfigure(timing);
        let was_to_go = std::mem::replace(&mut self.replacement, Replacement::None);
        if other_credential || was_to_go != Replacement::None {
            // What is being loaded is the old one.
            self.loading = None;
            self.load_at = Some(Instant::now());
        }
    }

    fn replace_at(&self) -> Option<Instant> {
        match self.replacement {
            Replacement::At(at) => Some(at),
            Replacement::None | Replacement::InFlight => None,
        }
    }

    /// Whether another credential may be loaded for it. Where its server is not the one that is configured now, the
    /// credential may not be meant for it either, and the one that it has stays. A fresh start changes nothing of that.
    fn may_load(&self, owner: &Owner) -> bool {
        let now = &owner.config;
        self.replacement == Replacement::None
            || self
                .connection
                .dials(&now.endpoint, now.timing.connect_timeout)
    }

    fn reload(&mut self, owner: &Owner) {
        self.probe_after_load = true;
        // A plugin may take long. Whether the server is there at all is asked meanwhile.
        self.probe_at = Instant::now() + drifting(owner.config.timing.probe_interval);
        self.last_reload = Some(Instant::now());
        self.loading = Some(owner.load(true));
    }

    fn raised(&mut self, raised: Raised, owner: &Owner) {
        if raised.silent() {
            // A probe in flight may hang on the old connections too.
            self.health.silent();
            owner.dial_anew(&self.connection);
            self.probing = None;
            self.probe_at = Instant::now();
        }
        if raised.suspect() || raised.credential_rejected() {
            self.probe_at = self.probe_at.min(self.last_probe + MIN_PROBE_GAP);
        }
        let reloaded = self
            .last_reload
            .is_some_and(|at| at.elapsed() < MIN_RELOAD_GAP);
        if raised.credential_rejected() && !self.may_load(owner) {
            // No other is loaded for it: the next probe tells whether it is lost, and one in flight may not.
            if !std::mem::replace(&mut self.doubted, true) {
                self.probing = None;
            }
        } else if raised.credential_rejected() && !self.probe_after_load && !reloaded {
            // A probe in flight would still speak for the credential from before.
            self.probing = None;
            self.health.rejected();
            self.doubted = true;
            self.reload(owner);
        }
    }
}

impl Owner {
    /// Probes until the connection ends, or it is time to replace it.
    pub(super) async fn keep(&mut self, kept: &mut Kept) -> Next {
        loop {
            let connection = Arc::clone(&kept.connection);
            let replace_at = kept.replace_at();
            tokio::select! {
                raised = connection.signals().raised() => {
                    if raised.epoch_ended() {
                        return Next::EpochEnded(kept.opened);
                    }
                    kept.raised(raised, self);
                }
                () = sleep_until(kept.probe_at), if kept.probing.is_none() => {
                    kept.probing = Some(self.probe(&connection, kept.doubted));
                }
                Some(probe) = OptionFuture::from(kept.probing.as_mut()) => {
                    kept.probing = None;
                    kept.last_probe = Instant::now();
                    if kept.probe_after_load && !probe.is_unanswered() {
                        // It spoke for the credential that was refused.
                        kept.probe_at = kept.last_probe + drifting(self.config.timing.probe_interval);
                        continue;
                    }
                    if probe.is_reachable() && std::mem::take(&mut kept.doubted) {
                        self.log_accepted(std::mem::replace(&mut kept.told, true));
                    }
                    let verdict = kept.health.record(&probe);
                    self.probed(&probe, &kept.health, &connection);
                    match verdict {
                        Verdict::Fine => {
                            kept.probe_at = kept.last_probe + drifting(self.config.timing.probe_interval);
                        }
                        Verdict::AskAgain(pause) => kept.probe_at = kept.last_probe + pause,
                        Verdict::ReloadCredential if kept.may_load(self) => kept.reload(self),
                        Verdict::ReloadCredential | Verdict::Disconnect => return Next::Lost(probe),
                    }
                }
                Some(loaded) = OptionFuture::from(kept.loading.as_mut()) => {
                    kept.loading = None;
                    let refused = connection.credential_number();
                    kept.load_at = self.loaded(loaded, &connection);
                    if connection.credential_number() != refused {
                        // It was about the credential, and so may be the next refusal, which is the first of this one.
                        kept.last_reload = None;
                        kept.doubted = false;
                        kept.health.renewed();
                    }
                    if std::mem::take(&mut kept.probe_after_load) {
                        kept.probing = None;
                        kept.probe_at = Instant::now();
                    }
                }
                () = at(kept.load_at), if kept.loading.is_none() && kept.may_load(self) => {
                    kept.load_at = None;
                    kept.loading = Some(self.load(kept.probe_after_load));
                }
                () = at(replace_at) => return Next::Connect,
            }
        }
    }

    fn probe(&self, connection: &Arc<Connection>, doubted: bool) -> BoxFuture<'static, Probe> {
        let connection = Arc::clone(connection);
        let path = self.config.timing.probe_path.clone();
        let limit = self.config.timing.probe_timeout;
        async move {
            if doubted {
                attempt::probe_credential(&connection, &path, limit).await.0
            } else {
                attempt::probe(&connection, &path, limit).await
            }
        }
        .boxed()
    }

    fn load(&self, rejected: bool) -> BoxFuture<'static, Result<Credential, CredentialError>> {
        let credentials = Arc::clone(&self.credentials);
        let refused = rejected.then(|| self.credential.clone());
        async move {
            match refused {
                Some(refused) => credentials.renew(&refused).await,
                None => credentials.load(false).await,
            }
        }
        .boxed()
    }

    /// Uses a loaded credential and tells when to load the next one. One that could not be renewed is good until the server
    /// says otherwise.
    fn loaded(
        &mut self,
        loaded: Result<Credential, CredentialError>,
        connection: &Connection,
    ) -> Option<Instant> {
        let fresh = match loaded {
            Ok(fresh) => fresh,
            Err(error) => {
                let retry_in = self.credentials.retry_in();
                self.log_not_renewed(&error, retry_in);
                return Some(Instant::now() + retry_in);
            }
        };
        if !fresh.same(&self.credential) {
            if let Err(error) = connection.rotate(&self.credential, &fresh) {
                warn!(cluster = self.config.name, error, "credential not usable");
                return Some(Instant::now() + self.credentials.retry_in());
            }
            info!(cluster = self.config.name, "credential rotated");
        }
        let next = fresh.refresh_at;
        self.credential = fresh;
        next
    }
}

/// Up to a tenth shorter than configured, so that clusters which connected together drift apart.
fn drifting(interval: Duration) -> Duration {
    interval.mul_f64(rand::random_range(0.9..=1.0))
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
