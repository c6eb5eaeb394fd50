//! Bodies by the hash of their content: a thousand clusters of one version hold one copy of what they all say.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// Entries below which nobody looks for dead ones.
const FEW: usize = 64;

/// The bodies of all clusters' documents. They belong to those who hold them and end with the last.
#[derive(Debug, Default)]
pub struct Bodies {
    /// Held for a look-up, never across an await.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_hash: HashMap<[u8; 32], Weak<[u8]>>,
    /// Entries at which the dead ones are cleared out.
    clear_at: usize,
}

/// A body, perhaps shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body(Arc<[u8]>);

impl Body {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Bodies {
    /// The one copy of a body.
    pub(super) fn share(&self, body: &[u8]) -> Body {
        let hash = Sha256::digest(body).into();
        let known = self.known.lock().by_hash.get(&hash).and_then(Weak::upgrade);
        if let Some(known) = known {
            return Body(known);
        }
        // Copied without the lock; of two that do so at once the later entry counts, and both are right.
        let body: Arc<[u8]> = body.into();
        let mut known = self.known.lock();
        known.by_hash.insert(hash, Arc::downgrade(&body));
        if known.by_hash.len() >= known.clear_at.max(FEW) {
            known.by_hash.retain(|_, body| body.strong_count() > 0);
            known.clear_at = 2 * known.by_hash.len();
        }
        Body(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bodies_are_one_and_end_with_their_last_holder() {
        let bodies = Bodies::default();
        let (one, other) = (bodies.share(b"same"), bodies.share(b"same"));
        assert!(Arc::ptr_eq(&one.0, &other.0));
        assert!(!Arc::ptr_eq(&one.0, &bodies.share(b"else").0));
        let passing = one.bytes();
        assert_eq!(passing.as_ptr(), one.0.as_ptr(), "copied");
        let gone = Arc::downgrade(&one.0);
        drop((one, other));
        assert_eq!(passing, "same");
        drop(passing);
        assert!(gone.upgrade().is_none());
    }

    #[test]
    fn what_is_gone_leaves_no_entries() {
        let bodies = Bodies::default();
        let held: Vec<_> = (0..10u32).map(|n| bodies.share(&n.to_be_bytes())).collect();
        for n in 10..10_000u32 {
            bodies.share(&n.to_be_bytes());
        }
        assert!(bodies.known.lock().by_hash.len() <= FEW);
        let again = bodies.share(&3u32.to_be_bytes());
        assert!(Arc::ptr_eq(&held[3].0, &again.0));
    }
}
