//! The fleet, and what becomes of it, for as long as somebody looks: also after the proxy was away.

use std::io::Write;
use std::time::Duration;

use anyhow::anyhow;
use futures_util::{AsyncBufReadExt as _, TryStreamExt as _};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::{FleetStatus, Printer, Show, TIMEOUT, is_passing, is_there, request, selected};

/// A version that is known no more: the state is asked for anew.
const EXPIRED: u64 = 410;

/// Between two watches. A proxy that stops ends them, a moment before it is gone.
const PAUSE: Duration = Duration::from_secs(1);

/// Why a watch ended.
enum Ended {
    /// At its time; the next one goes on where it was.
    InTime,
    /// Its version is known no more.
    Expired,
    /// The proxy is away.
    Lost(anyhow::Error),
}

/// Who follows the fleet, and how far that has come.
struct Follower<'a> {
    show: &'a Show,
    printer: Printer,
    /// From here on nothing was told yet.
    version: Option<String>,
    /// The proxy is away since it answered last.
    is_lost: bool,
}

impl FleetStatus {
    /// Prints the fleet and what becomes of it, without end. While the proxy is away `notes` tells so, and it goes on when
    /// there is one again, by what the kubeconfig says then.
    ///
    /// # Errors
    /// The proxy cannot be asked in the beginning, or does not want to be, or nothing can be printed.
    pub async fn follow(
        mut self,
        show: &Show,
        to: &mut impl Write,
        notes: &mut impl Write,
    ) -> anyhow::Result<()> {
        let mut follower = Follower {
            show,
            printer: Printer::new(show),
            version: None,
            is_lost: false,
        };
        let list = self.list(show, follower.printer.accept()).await?;
        // Only now: that it is gone later is no mistake.
        is_there(show, &list)?;
        follower.begin(&list, to, notes)?;
        loop {
            match self.step(&mut follower, to, notes).await? {
                Ended::InTime => {}
                Ended::Expired => follower.version = None,
                Ended::Lost(error) => {
                    if !std::mem::replace(&mut follower.is_lost, true) {
                        writeln!(
                            notes,
                            "fleetcache: {error:#}; it is asked again until it answers"
                        )?;
                    }
                    // It may come back with another address.
                    if let Ok(again) = Self::new(&self.way.kubeconfig).await {
                        self = again;
                    }
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// One watch, and before it the state where that is not known.
    async fn step(
        &self,
        follower: &mut Follower<'_>,
        to: &mut impl Write,
        notes: &mut impl Write,
    ) -> anyhow::Result<Ended> {
        if follower.version.is_none() {
            match self.list(follower.show, follower.printer.accept()).await {
                Ok(list) => follower.begin(&list, to, notes)?,
                Err(error) if is_passing(&error) => return Ok(Ended::Lost(error)),
                Err(error) => return Err(error),
            }
        }
        let from = follower.version.as_deref().unwrap_or_default();
        let selected = selected(follower.show).map_or_else(String::new, |it| format!("&{it}"));
        let options = format!("?watch=1&allowWatchBookmarks=1&resourceVersion={from}{selected}");
        let stream = self
            .client
            .request_stream(request(&options, follower.printer.accept())?);
        let stream = match timeout(TIMEOUT, stream).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                let error = self.way.unanswered(error);
                return if is_passing(&error) {
                    Ok(Ended::Lost(error))
                } else {
                    Err(error)
                };
            }
            Err(_) => return Ok(Ended::Lost(self.too_late())),
        };
        if std::mem::take(&mut follower.is_lost) {
            writeln!(
                notes,
                "fleetcache: the proxy at {} answers again",
                self.way.url
            )?;
        }
        let mut lines = std::pin::pin!(stream.lines());
        loop {
            let line = match lines.try_next().await {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(Ended::InTime),
                Err(error) => {
                    let error = anyhow::Error::new(error);
                    return Ok(Ended::Lost(
                        error.context(format!("the proxy at {} went away", self.way.url)),
                    ));
                }
            };
            // It may be cut off.
            let Ok(event) = serde_json::from_str::<Value>(&line) else {
                return Ok(Ended::Lost(anyhow!(
                    "the proxy at {} broke off",
                    self.way.url
                )));
            };
            let object = &event["object"];
            match event["type"].as_str() {
                Some("ERROR") if object["code"] == EXPIRED => return Ok(Ended::Expired),
                Some("ERROR") => return Err(anyhow!("the proxy says: {}", object["message"])),
                Some("BOOKMARK") => {}
                _ => {
                    follower.printer.print_event(&event, &line, to)?;
                    to.flush()?;
                }
            }
            follower.version = version_of(object).or_else(|| follower.version.take());
        }
    }
}

impl Follower<'_> {
    fn begin(
        &mut self,
        list: &Value,
        to: &mut impl Write,
        notes: &mut impl Write,
    ) -> anyhow::Result<()> {
        self.printer.print_state(list, to, notes)?;
        to.flush()?;
        self.version = version_of(list);
        Ok(())
    }
}

fn version_of(object: &Value) -> Option<String> {
    object["metadata"]["resourceVersion"]
        .as_str()
        .map(str::to_owned)
}
