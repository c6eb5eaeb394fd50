//! Reads from memory: which state of an informer may be shown, and what becomes of a read while there is none.

use std::sync::Arc;
use std::time::Duration;

use fleetcache_cache::cluster_accessor::ClusterAccessor;
use fleetcache_cache::connection::Connection;
use fleetcache_cache::informer::Scope;
use fleetcache_cache::informers::Lookup;
use fleetcache_cache::resource_version::ResourceVersion;
use fleetcache_cache::store::Snapshot;
use http::header::WARNING;
use http::{HeaderMap, Response};

use crate::body::Body;
use crate::cached;
use crate::decision::{self, CachedRead, Freshness, LiveReason};
use crate::error::Error;
use crate::read_settings::{OnMissingInformer, ReadSettings, WhenDisconnected};
use crate::request_info::{RequestInfo, ResourcePath};
use crate::status;

/// Answers from the kind's informer, or says why it cannot. Where the configuration says so, waits for an informer that
/// has not synced, `patience` at most.
///
/// # Errors
/// There is no informer yet, and the configuration says that this is an error.
pub async fn answer(
    cluster: &ClusterAccessor,
    connection: &Connection,
    resource: &ResourcePath<'_>,
    read: &CachedRead,
    on_missing: OnMissingInformer,
    patience: Duration,
) -> Result<Result<Response<Body>, LiveReason>, Error> {
    let now = from_informer(cluster, connection, resource, read).await;
    let missing = matches!(now, Err(LiveReason::NotStarted | LiveReason::NotSynced));
    if !missing || on_missing == OnMissingInformer::Live {
        return Ok(now);
    }
    let informers = cluster.informers();
    informers.demand(&resource.gvr);
    let Lookup::Informer(informer) = informers.lookup(&resource.gvr) else {
        // The kind is one that stays live, for a reason of its own.
        return Ok(from_informer(cluster, connection, resource, read).await);
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
    Ok(from_informer(cluster, connection, resource, read).await)
}

async fn from_informer(
    cluster: &ClusterAccessor,
    connection: &Connection,
    resource: &ResourcePath<'_>,
    read: &CachedRead,
) -> Result<Response<Body>, LiveReason> {
    let informer = decision::informer(cluster.informers().lookup(&resource.gvr))?;
    let (on, scope) = ((connection.generation, connection.epoch), scope(resource));
    let snapshot = match read.freshness {
        Freshness::Any => informer.read_any(on, scope)?,
        Freshness::Latest => informer.read_latest(on, scope).await?,
        Freshness::NotOlderThan(version) => informer.read_not_older(on, scope, version).await?,
        Freshness::Consistent { not_older_than } => {
            let snapshot = informer.read_consistent(on, scope).await?;
            not_older(snapshot, not_older_than)?
        }
    };
    let age = young_enough(read, informer.age())?;
    cached::answer(resource, read, &snapshot, age).await
}

/// Answers with what was known last of a cluster that is not connected, where the configuration says so and the request
/// does not forbid it. `None`: there is nothing to show.
pub async fn last_known(
    cluster: &ClusterAccessor,
    info: &RequestInfo<'_>,
    headers: &HeaderMap,
    settings: &ReadSettings,
) -> Option<Response<Body>> {
    if settings.when_disconnected == WhenDisconnected::Fail {
        return None;
    }
    let (resource, read) = decision::cacheable(info, headers, settings).ok()?;
    let lost = cluster.lost()?;
    let informer = decision::informer(cluster.informers().lookup(&resource.gvr)).ok()?;
    // The floor is not asked: what was told since the informer was last right cannot be had now.
    let snapshot = informer.read_last_known(lost.epoch, scope(resource)).ok()?;
    let snapshot = match read.freshness {
        Freshness::Any | Freshness::Latest => snapshot,
        Freshness::NotOlderThan(version) => not_older(snapshot, version).ok()?,
        Freshness::Consistent { .. } => return None,
    };
    let age = young_enough(&read, informer.age()).ok()?;
    let mut response = cached::answer(resource, &read, &snapshot, age).await.ok()?;
    if let Some(warning) = status::warning_last_known(cluster.name(), lost.at) {
        response.headers_mut().append(WARNING, warning);
    }
    Some(response)
}

fn scope(resource: &ResourcePath<'_>) -> Scope {
    Scope {
        namespace: resource.namespace.is_some(),
        name: resource.name.is_some(),
    }
}

fn not_older(snapshot: Arc<Snapshot>, than: ResourceVersion) -> Result<Arc<Snapshot>, LiveReason> {
    if snapshot.resource_version >= than {
        Ok(snapshot)
    } else {
        Err(LiveReason::ResourceVersion)
    }
}

fn young_enough(read: &CachedRead, age: Duration) -> Result<Duration, LiveReason> {
    match read.max_age {
        Some(max_age) if age > max_age => Err(LiveReason::MaxAge),
        _ => Ok(age),
    }
}
