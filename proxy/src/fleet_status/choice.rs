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

    /// Whether a cluster in that state is shown.
    pub(super) fn takes(&mut self, name: &str, state: &str, is_removed: bool) -> bool {
        if !self.only_broken {
            return true;
        }
        if matches!(state, "Degraded" | "Disconnected") && !is_removed {
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
            ("Pending", false, false),
            ("Connected", false, false),
            ("Disconnected", false, true),
            ("Disconnected", false, true),
            ("Connected", false, true),
            ("Connected", false, false),
            ("Degraded", false, true),
            ("Degraded", true, true),
            ("Degraded", true, false),
        ] {
            assert_eq!(choice.takes("a", state, is_removed), expected, "{state}");
        }
        assert!(Choice::new(false).takes("a", "Connected", false));
    }
}
