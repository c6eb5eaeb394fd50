//! Which clusters are shown.

use std::collections::BTreeSet;

/// All, or those that are not as they should be.
#[derive(Debug, Default)]
pub(super) struct Choice {
    only_broken: bool,
    /// The broken ones that were shown: that one is well again is shown too.
    shown: BTreeSet<String>,
}

impl Choice {
    pub(super) fn new(only_broken: bool) -> Self {
        Self {
            only_broken,
            shown: BTreeSet::new(),
        }
    }

    /// Whether a cluster in that state, for that reason, is shown.
    pub(super) fn takes(
        &mut self,
        name: &str,
        (state, reason): (&str, &str),
        is_removed: bool,
    ) -> bool {
        if !self.only_broken {
            return true;
        }
        // Of a connected one a reason tells why it cannot be connected as its source says now.
        let is_broken = matches!(state, "Degraded" | "Disconnected")
            || (state == "Connected" && !reason.is_empty());
        if is_broken && !is_removed {
            self.shown.insert(name.to_owned());
            return true;
        }
        self.shown.remove(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_broken_is_shown_once_more() {
        let mut choice = Choice::new(true);
        for (state, is_removed, expected) in [
            (("Pending", "OnDemand"), false, false),
            (("Connected", ""), false, false),
            (("Disconnected", "DNS"), false, true),
            (("Disconnected", "DNS"), false, true),
            (("Connected", ""), false, true),
            (("Connected", ""), false, false),
            (("Degraded", "ServerError"), false, true),
            (("Degraded", "ServerError"), true, true),
            (("Degraded", "ServerError"), true, false),
            (("Connected", "TLSFailed"), false, true),
        ] {
            assert_eq!(choice.takes("a", state, is_removed), expected, "{state:?}");
        }
        assert!(Choice::new(false).takes("a", ("Connected", ""), false));
    }
}
