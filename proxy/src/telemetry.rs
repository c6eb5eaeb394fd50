//! Logs: what is logged, how a line looks, and that a panic is one.

#[cfg(test)]
pub(crate) mod testing;

use std::io::IsTerminal as _;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use crate::config::{Environment, Mistakes};

/// Panics since the process started. A panic hook belongs to the process, so this does too.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Sets up logging to stderr from `FLEETCACHE_LOG` (`info` where absent) and `FLEETCACHE_LOG_FORMAT` (`text` or `json`).
///
/// # Errors
/// A variable holds what cannot be read.
pub fn start(env: Environment<'_>) -> Result<(), Mistakes> {
    let value = |name: &str| env(name).and_then(|it| it.into_string().ok());
    let filter = filter(&value("FLEETCACHE_LOG").unwrap_or_default())
        .map_err(|problem| Mistakes::one("FLEETCACHE_LOG", problem))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match value("FLEETCACHE_LOG_FORMAT").as_deref() {
        None | Some("" | "text") => lines.with_ansi(std::io::stderr().is_terminal()).init(),
        Some("json") => lines.json().flatten_event(true).init(),
        Some(other) => {
            let problem = format!("{other:?} is not \"text\" or \"json\"");
            return Err(Mistakes::one("FLEETCACHE_LOG_FORMAT", problem));
        }
    }
    Ok(())
}

/// What is logged. A level alone is meant for the proxy: what its libraries say at `debug` drowns its own lines.
fn filter(text: &str) -> Result<EnvFilter, String> {
    let text = match text.trim() {
        "" => "info",
        text => text,
    };
    let wrong = || {
        format!(
            "{text:?} is not a level (\"off\", \"error\", \"warn\", \"info\", \"debug\" or \"trace\") nor a list such as \
             \"info,fleetcache::access=debug\""
        )
    };
    let directives = match text.parse::<LevelFilter>() {
        Ok(own) => {
            let others = own.min(LevelFilter::WARN);
            format!("{others},fleetcache={own},fleetcache_cache={own},fleetcache_auth={own}")
        }
        // To the filter a lone word is a target of which everything is logged, and so nothing else: a mistyped level
        // would silence the proxy.
        Err(_) if !text.contains(['=', ',', '[']) => return Err(wrong()),
        Err(_) => text.to_owned(),
    };
    // The verifier logs each certificate that it refuses as an error and without the cluster's name; the proxy's own
    // line about the failed connect has both. kube tells each attempt at what a management cluster refuses, and may quote
    // answers; the proxy tells the trouble once.
    let silent = "rustls_platform_verifier=off,kube_client=off,kube_runtime=off";
    EnvFilter::try_new(format!("{silent},{directives}")).map_err(|_| wrong())
}

/// Counts and logs every panic of the process, then does what was done before.
pub fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            let payload = info.payload();
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            let location = info.location().map(ToString::to_string).unwrap_or_default();
            tracing::error!(error = text.unwrap_or("(no text)"), location, "panicked");
            before(info);
        }));
    });
}

/// Panics since the process started, as far as [`watch_panics`] saw them.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use tracing::{debug, error, info, warn};

    use super::testing::Lines;
    use super::*;

    /// What is logged of a few lines, as one character each.
    fn logged(text: &str) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter(text).unwrap())
            .with_writer(move || writer.clone())
            .without_time()
            .with_level(false)
            .with_target(false)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            info!(target: "fleetcache::app", "a");
            debug!(target: "fleetcache::access", "b");
            debug!(target: "fleetcache_cache::informer", "c");
            debug!(target: "fleetcache_auth", "d");
            info!(target: "hyper", "e");
            warn!(target: "hyper", "f");
            error!(target: "hyper", "g");
            error!(target: "rustls_platform_verifier::verification::others", "h");
            error!(target: "kube_client::client", "h");
            error!(target: "kube_runtime::watcher", "h");
        });
        lines.text().split_whitespace().collect()
    }

    #[test]
    fn what_is_logged() {
        let check = |text: &str, expect: &str| assert_eq!(logged(text), expect, "{text:?}");
        check("", "afg");
        check("info", "afg");
        check(" DEBUG ", "abcdfg");
        check("error", "g");
        check("off", "");
        check("fleetcache::access=debug", "b");
        check("info,fleetcache::access=debug", "abefg");
        check("debug,hyper=off", "abcd");
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        for wrong in ["foo", "debgu", "fleetcache=loud"] {
            let err = filter(wrong).unwrap_err();
            let expect = format!("{wrong:?} is not a level (\"off\", ");
            assert!(err.starts_with(&expect), "{err}");
        }
    }
}
