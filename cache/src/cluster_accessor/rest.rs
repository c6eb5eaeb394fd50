//! The wait for the next connect, and what ends it sooner.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, OptionFuture};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};

use super::attempt;
use super::owner::{Next, Owner, State};
use super::view::Trouble;

/// A wait. It outlives a step that is cut short, as do the looks for what may end it.
pub(super) struct Rest {
    until: Instant,
    /// Ends when the files hold another credential, where that may help.
    other_credential: Option<BoxFuture<'static, ()>>,
    /// Ends at the first sign of a server of which nothing was heard.
    answered: Option<BoxFuture<'static, ()>>,
}

impl Owner {
    /// There is no connection from now on; the next connect waits until then.
    pub(super) fn disconnected(&mut self, trouble: Trouble, until: Instant) -> State {
        let reason = trouble.reason;
        // Where somebody has to ask, there is no time to tell.
        self.publish_disconnected(trouble, (!self.is_idle()).then_some(until));
        // A server that shakes hands and says nothing more would be asked without a pause.
        let listens = reason.is_silence() && !std::mem::take(&mut self.answered);
        let looks = reason.is_about_credential() && self.credentials.is_in_files();
        State::Disconnected(Rest {
            until,
            other_credential: looks.then(|| {
                let (source, last) = (Arc::clone(&self.credentials), self.credential.clone());
                async move { source.another_in_files(&last).await }.boxed()
            }),
            answered: listens.then(|| {
                attempt::answered(Arc::clone(&self.endpoint), self.limit.clone(), until).boxed()
            }),
        })
    }

    pub(super) async fn rest(&mut self, rest: &mut Rest) -> Next {
        tokio::select! {
            () = sleep_until(rest.until) => {}
            Some(()) = OptionFuture::from(rest.other_credential.as_mut()) => {
                info!(cluster = self.config.name, "credential changed");
                self.logged.clear();
                return Next::Connect;
            }
            Some(()) = OptionFuture::from(rest.answered.as_mut()) => {
                self.answered = true;
                debug!(cluster = self.config.name, "the server answers");
                return Next::Connect;
            }
        }
        if self.is_idle() {
            (rest.other_credential, rest.answered) = (None, None);
            self.publish_idle();
            self.asked.demand.notified().await;
        }
        Next::Connect
    }
}
