//! Logs: what is logged, how a line looks, and that a panic is one.

use std::io::IsTerminal as _;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

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
    let filter = value("FLEETCACHE_LOG").filter(|it| !it.is_empty());
    let filter = filter.unwrap_or_else(|| "info".to_owned());
    let filter = EnvFilter::try_new(&filter).map_err(|err| {
        Mistakes::one(
            "FLEETCACHE_LOG",
            format!("{filter:?} cannot be read: {err}"),
        )
    })?;
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
