//! What requests and informers tell the owner of a connection.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

const SUSPECT: u8 = 1;
const CREDENTIAL_REJECTED: u8 = 2;
const EPOCH_ENDED: u8 = 4;
const SILENT: u8 = 8;

/// The owner's mailbox: levels, not messages. A thousand refused requests are one question for a probe, nothing that is
/// told gets lost, and telling never waits.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    raised: AtomicU8,
    notify: Notify,
}

/// What was raised since the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raised(u8);

impl Raised {
    pub(crate) fn suspect(self) -> bool {
        self.0 & SUSPECT != 0
    }

    pub(crate) fn silent(self) -> bool {
        self.0 & SILENT != 0
    }

    pub(crate) fn credential_rejected(self) -> bool {
        self.0 & CREDENTIAL_REJECTED != 0
    }

    pub(crate) fn epoch_ended(self) -> bool {
        self.0 & EPOCH_ENDED != 0
    }
}

impl Signals {
    pub(crate) fn suspect(&self) {
        self.raise(SUSPECT);
    }

    /// Pings went unanswered: more than a suspicion.
    pub(crate) fn silent(&self) {
        self.raise(SILENT);
    }

    pub(crate) fn credential_rejected(&self) {
        self.raise(CREDENTIAL_REJECTED);
    }

    pub(crate) fn epoch_ended(&self) {
        self.raise(EPOCH_ENDED);
    }

    fn raise(&self, bit: u8) {
        // Raise, then wake: the owner clears all bits after it woke, so a bit raised later wakes it again.
        if self.raised.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            self.notify.notify_one();
        }
    }

    /// Waits until something is raised and lowers it. May be dropped at any await.
    pub(crate) async fn raised(&self) -> Raised {
        loop {
            let raised = self.raised.swap(0, Ordering::AcqRel);
            if raised != 0 {
                return Raised(raised);
            }
            self.notify.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn signals_coalesce_and_none_is_lost() {
        let signals = Signals::default();
        assert!(signals.raised().now_or_never().is_none());
        signals.suspect();
        signals.suspect();
        signals.epoch_ended();
        let raised = signals.raised().now_or_never().unwrap();
        assert!(raised.suspect() && raised.epoch_ended() && !raised.credential_rejected());
        assert!(signals.raised().now_or_never().is_none());
        signals.credential_rejected();
        assert!(signals.raised().await.credential_rejected());
    }
}
