//! There is no place for one request more.

use http::StatusCode;

use super::{Details, Failure};
use crate::shares::Full;

pub(super) fn in_flight(cluster: &str, of_user: bool) -> Failure {
    let whose = if of_user { " of this user" } else { "" };
    too_many(
        cluster,
        &format!("requests in flight{whose} to cluster {cluster:?}"),
    )
}

pub(super) fn long_running(cluster: &str, full: Full) -> Failure {
    let whose = match full {
        Full::All => String::new(),
        Full::User => " of this user".to_owned(),
        Full::Cluster => format!(" to cluster {cluster:?}"),
    };
    too_many(cluster, &format!("open watches, logs and tunnels{whose}"))
}

fn too_many(cluster: &str, what: &str) -> Failure {
    Failure {
        code: StatusCode::TOO_MANY_REQUESTS,
        reason: "TooManyRequests",
        message: format!("too many {what}, please try again later"),
        details: Some(Details {
            retry_after_seconds: Some(1),
            ..Details::of(cluster)
        }),
    }
}
