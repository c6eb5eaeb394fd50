//! What an attempt to connect tells of itself while it is under way.

use std::sync::Arc;
use std::time::Duration;

use super::view::{SharedView, Trouble};

/// Where an attempt stands, told to whoever looks at the cluster.
pub(super) struct Progress {
    view: Arc<SharedView>,
    /// How long a request may wait for its outcome while it is on its way, and while it is not.
    grace: (Duration, Duration),
}

impl Progress {
    /// A request may wait for `grace` while the attempt is on its way, and for `grace_in_line` while it waits itself.
    pub(super) fn new(view: &Arc<SharedView>, grace: Duration, grace_in_line: Duration) -> Self {
        Self {
            view: Arc::clone(view),
            grace: (grace, grace_in_line),
        }
    }

    /// A plugin may take long; what is left of a first connect is short.
    pub(super) fn credential_loaded(&self) {
        self.view.tell_step(Trouble::starting());
    }

    /// Whether it is the attempt's turn to connect. In line nothing comes of waiting.
    pub(super) fn has_its_turn(&self, has: bool) {
        let grace = if has { self.grace.0 } else { self.grace.1 };
        self.view.change(|view| view.grace = grace);
    }
}
