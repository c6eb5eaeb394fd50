//! Reads from memory: which state of an informer may be shown, and what becomes of a read while there is none.

use std::sync::Arc;
use std::time::Duration;

use fleetcache_cache::connection::Connection;
use fleetcache_cache::gvr::Gvr;
use fleetcache_cache::informer::{Informer, NotServable, Scope};
use fleetcache_cache::informers::Informers;
use fleetcache_cache::resource_version::ResourceVersion;
use fleetcache_cache::store::Snapshot;
use http::header::WARNING;
use http::{HeaderMap, Response};

use crate::authorization::{self, Access, Verdict};
use crate::body::Body;
use crate::cached;
use crate::decision::watch::CachedWatch;
use crate::decision::{self, CachedRead, Freshness, LiveReason};
use crate::error::Error;
use crate::handler::ClusterSettings;
use crate::read_settings::{OnMissingInformer, ReadSettings, WhenDisconnected};
use crate::request_info::{RequestInfo, ResourcePath, Verb};
use crate::writing::{Writing, Written};
use crate::{question, status, watch};

/// A request that an informer could answer.
enum Asked<'r> {
    Read(&'r ResourcePath<'r>, CachedRead),
    Watch(&'r ResourcePath<'r>, CachedWatch),
}

impl<'r> Asked<'r> {
    fn of(
        info: &'r RequestInfo<'_>,
        headers: &HeaderMap,
        settings: &ReadSettings,
    ) -> Result<Self, LiveReason> {
        if info.verb == Verb::Watch {
            let (resource, watch) = decision::watch::watchable(info, headers, settings)?;
            return Ok(Self::Watch(resource, watch));
        }
        let (resource, read) = decision::cacheable(info, headers, settings)?;
        Ok(Self::Read(resource, read))
    }

    fn writing(&self) -> Writing {
        match self {
            Self::Read(_, read) => read.writing,
            Self::Watch(_, watch) => watch.writing,
        }
    }

    fn resource(&self) -> &'r ResourcePath<'r> {
        match self {
            Self::Read(resource, _) | Self::Watch(resource, _) => resource,
        }
    }

    async fn answer(
        &self,
        reader: &Reader<'_>,
        settings: &ClusterSettings,
    ) -> Result<Result<Response<Body>, LiveReason>, Error> {
        match self {
            Self::Read(resource, read) => from_informer(reader, resource, read).await,
            Self::Watch(resource, asked) => {
                let grace = settings.watch_disconnect_grace;
                Ok(watch::answer(reader, resource, asked, grace).await)
            }
        }
    }

    /// Whether an informer that starts now could answer it: it holds no state of before.
    fn may_wait(&self) -> bool {
        match self {
            Self::Read(_, read) => !matches!(read.freshness, Freshness::Exact(_)),
            Self::Watch(..) => true,
        }
    }
}

/// Who reads what, and where.
pub(crate) struct Reader<'a> {
    /// The user, and what is known of what it may see.
    pub(crate) access: &'a Access,
    /// The cluster's connection.
    pub(crate) connection: &'a Arc<Connection>,
    /// The request.
    pub(crate) info: &'a RequestInfo<'a>,
}

impl Reader<'_> {
    /// Whether the user may see it. Asked before memory is looked at: what is shown is no older than what is known of the
    /// user.
    ///
    /// # Errors
    /// It goes live: the cluster has the words for who may not.
    pub(crate) async fn may_see(&self, resource: &ResourcePath<'_>) -> Result<(), LiveReason> {
        let verdict = if self.access.asks_nobody() {
            self.access.verdict_on_nobody()
        } else {
            let question = question::of_read(self.info, resource);
            if authorization::is_too_long(&question) {
                return Err(LiveReason::TooLong);
            }
            self.access.verdict(self.connection, || question).await
        };
        match verdict {
            Verdict::Denied | Verdict::Unknown => Err(LiveReason::NotAllowed),
            Verdict::Allowed { .. } => Ok(()),
        }
    }
}

/// Answers from the kind's informer, or says why it cannot. Where `on_missing` says so, waits for an informer that has not
/// synced, for as long as a request may take.
///
/// # Errors
/// There is no informer yet, and `on_missing` says that this is an error; or the page is one of the cluster that was there
/// before.
pub async fn answer(
    access: &Access,
    connection: &Arc<Connection>,
    info: &RequestInfo<'_>,
    headers: &HeaderMap,
    settings: &ClusterSettings,
    on_missing: OnMissingInformer,
) -> Result<Result<Response<Body>, LiveReason>, Error> {
    let asked = match Asked::of(info, headers, &settings.reads) {
        Ok(asked) => asked,
        Err(reason) => return Ok(Err(reason)),
    };
    let reader = Reader {
        access,
        connection,
        info,
    };
    let now = asked.answer(&reader, settings).await?;
    let Err(reason) = now else { return Ok(now) };
    let missing = matches!(reason, LiveReason::NotStarted(_) | LiveReason::NotSynced);
    if !missing || !asked.may_wait() || on_missing == OnMissingInformer::Live {
        return Ok(now);
    }
    // Nobody makes the proxy list what it may not see.
    if let Err(reason) = reader.may_see(asked.resource()).await {
        return Ok(Err(reason));
    }
    wait_for_informer(&reader, &asked, on_missing, settings.request_timeout).await?;
    asked.answer(&reader, settings).await
}

/// Starts the informer that was the reason why there was no answer from memory, and waits for it. It may not be there yet
/// when this returns.
///
/// # Errors
/// There is no informer yet, and the configuration says that this is an error.
async fn wait_for_informer(
    reader: &Reader<'_>,
    asked: &Asked<'_>,
    on_missing: OnMissingInformer,
    patience: Duration,
) -> Result<(), Error> {
    let (cluster, connection) = (&reader.access.cluster, reader.connection);
    let (informers, resource) = (cluster.informers(), asked.resource());
    let look = || {
        informer_for(
            informers,
            &resource.gvr,
            asked.writing(),
            connection.generation,
        )
    };
    if let Err(LiveReason::NotStarted(holding)) = look() {
        informers.demand(&resource.gvr, holding);
    }
    let Ok((informer, _)) = look() else {
        // The kind is one that stays live, for a reason of its own.
        return Ok(());
    };
    if on_missing == OnMissingInformer::Fail {
        return Err(Error::InformerMissing {
            cluster: cluster.name().to_owned(),
            resource: resource.gvr.resource.to_string(),
        });
    }
    let synced = informer.synced(connection.generation);
    let synced = connection.closed().run_until_cancelled(synced);
    // In time, or refused, or the connection is lost: what stands then tells.
    let _ = tokio::time::timeout(patience, synced).await;
    Ok(())
}

/// The informer that can answer what is to be written so, and how it is written.
///
/// # Errors
/// Why there is none.
pub(crate) fn informer_for(
    informers: &Informers,
    gvr: &Gvr,
    writing: Writing,
    generation: u64,
) -> Result<(Arc<Informer>, Written), LiveReason> {
    let written = writing.of_gvr(gvr, informers)?;
    let found = informers.find(gvr, written.form, generation);
    Ok((decision::informer(found)?, written))
}

async fn from_informer(
    reader: &Reader<'_>,
    resource: &ResourcePath<'_>,
    read: &CachedRead,
) -> Result<Result<Response<Body>, LiveReason>, Error> {
    let (informers, connection) = (reader.access.cluster.informers(), reader.connection);
    let generation = connection.generation;
    let (informer, _) = match informer_for(informers, &resource.gvr, read.writing, generation) {
        Ok(found) => found,
        Err(reason) => return Ok(Err(reason)),
    };
    if let Err(reason) = reader.may_see(resource).await {
        return Ok(Err(reason));
    }
    let on = (connection.generation, connection.epoch);
    let held = snapshot(&informer, on, scope(resource), read.freshness).await;
    let snapshot = match (held, &read.from) {
        (Ok(snapshot), _) => snapshot,
        // What the token means to the cluster that is there now is another list.
        (Err(NotServable::FormerEpoch), Some(token)) => {
            return Err(Error::PageExpired {
                continue_token: token.clone().at_newest().to_string(),
            });
        }
        (Err(NotServable::NotHeld), Some(_)) => return Ok(Err(LiveReason::Continue)),
        (Err(why), _) => return Ok(Err(why.into())),
    };
    Ok(show(&informer, resource, read, &snapshot).await)
}

/// What an informer holds, where it is new enough. `on` is the connection's generation and epoch.
pub(crate) async fn snapshot(
    informer: &Informer,
    on: (u64, u64),
    scope: Scope,
    freshness: Freshness,
) -> Result<Arc<Snapshot>, NotServable> {
    match freshness {
        Freshness::Any => informer.read_any(on, scope),
        Freshness::Latest => informer.read_latest(on, scope).await,
        Freshness::NotOlderThan(version) => informer.read_not_older(on, scope, version).await,
        Freshness::Exact(version) => informer.read_exact(on, scope, version),
        Freshness::Consistent { not_older_than } => {
            not_older(informer.read_consistent(on, scope).await?, not_older_than)
        }
    }
}

/// Answers with a snapshot, and keeps it for the next page where there is one.
async fn show(
    informer: &Informer,
    resource: &ResourcePath<'_>,
    read: &CachedRead,
    snapshot: &Arc<Snapshot>,
) -> Result<Response<Body>, LiveReason> {
    let age = young_enough(read.max_age, informer.age())?;
    let answer = cached::answer(resource, read, snapshot, age).await?;
    if answer.continues {
        informer.keep_for_pages(snapshot);
    }
    Ok(answer.response)
}

/// Answers with what was known last of a cluster that is not connected, where the configuration says so and the request
/// does not forbid it, to whom the cluster allowed it when it was last asked. `None`: there is nothing to show.
pub async fn last_known(
    access: &Access,
    info: &RequestInfo<'_>,
    headers: &HeaderMap,
    settings: &ReadSettings,
) -> Option<Response<Body>> {
    if settings.when_disconnected == WhenDisconnected::Fail {
        return None;
    }
    let (resource, read) = decision::cacheable(info, headers, settings).ok()?;
    let cluster = &access.cluster;
    let lost = cluster.lost()?;
    let allowed = access.was_allowed(lost.epoch, || question::of_read(info, resource));
    if !allowed {
        return None;
    }
    let (informers, gvr) = (cluster.informers(), &resource.gvr);
    let form = read.writing.of_gvr(gvr, informers).ok()?.form;
    let informer = decision::informer(informers.find_last_known(gvr, form)).ok()?;
    // The floor is not asked: what was told since the informer was last right cannot be had now.
    let (epoch, scope) = (lost.epoch, scope(resource));
    let held = || informer.read_last_known(epoch, scope);
    let snapshot = match read.freshness {
        Freshness::Any | Freshness::Latest => held(),
        Freshness::NotOlderThan(version) => held().and_then(|held| not_older(held, version)),
        Freshness::Exact(version) => informer.read_exact_last_known(epoch, scope, version),
        Freshness::Consistent { .. } => return None,
    };
    let snapshot = snapshot.ok()?;
    let shown = show(&informer, resource, &read, &snapshot).await;
    let mut response = shown.ok()?;
    if let Some(warning) = status::warning_last_known(cluster.name(), lost.at) {
        response.headers_mut().append(WARNING, warning);
    }
    Some(response)
}

pub(crate) fn scope(resource: &ResourcePath<'_>) -> Scope {
    Scope {
        namespace: resource.namespace.is_some(),
        name: resource.name.is_some(),
    }
}

fn not_older(snapshot: Arc<Snapshot>, than: ResourceVersion) -> Result<Arc<Snapshot>, NotServable> {
    if snapshot.resource_version >= than {
        Ok(snapshot)
    } else {
        Err(NotServable::TooOld)
    }
}

pub(crate) fn young_enough(
    max_age: Option<Duration>,
    age: Duration,
) -> Result<Duration, LiveReason> {
    match max_age {
        Some(max_age) if age > max_age => Err(LiveReason::MaxAge),
        _ => Ok(age),
    }
}
