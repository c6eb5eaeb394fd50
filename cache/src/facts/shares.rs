//! Room that many share, so that no one of them has all.

use std::collections::HashMap;

use parking_lot::Mutex;

/// How much of the room each holder has, whose part has an end.
pub(super) struct Shares<K> {
    pub(super) most: u64,
    pub(super) holder: fn(&K) -> u64,
    /// Held for a look.
    pub(super) held: Mutex<HashMap<u64, u64>>,
}

impl<K> Shares<K> {
    /// Whether there is so much room for this; then it is taken.
    pub(super) fn take(&self, key: &K, weight: u32) -> bool {
        let holder = (self.holder)(key);
        let mut held = self.held.lock();
        let before = held.get(&holder).copied().unwrap_or_default();
        let after = before + u64::from(weight);
        let is_room = after <= self.most;
        if is_room {
            held.insert(holder, after);
        }
        is_room
    }

    /// What was taken for this is free again.
    pub(super) fn give_back(&self, key: &K, weight: u32) {
        let holder = (self.holder)(key);
        let mut held = self.held.lock();
        let before = held.get(&holder).copied().unwrap_or_default();
        let after = before.saturating_sub(u64::from(weight));
        // Those who are gone are not kept.
        match after {
            0 => held.remove(&holder),
            _ => held.insert(holder, after),
        };
    }
}
