//! Which resource names may be labels.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::RwLock;

/// Far more than clusters serve together; a cluster that says yes to every name must not fill the memory either.
const MAX_NAMES: usize = 1000;

/// The names that some cluster has answered for with success. A path is what a client wrote, token or not: a series for each
/// would let anybody fill the memory.
#[derive(Debug)]
pub(super) struct Resources {
    // Held for one look-up or insertion.
    known: RwLock<HashSet<Arc<str>>>,
    other: Arc<str>,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            // No resource in the path is a label too.
            known: RwLock::new(HashSet::from([Arc::from("")])),
            other: Arc::from("other"),
        }
    }
}

impl Resources {
    /// The label for a name; `served` says that a cluster has just answered for it with success.
    pub(super) fn label(&self, name: &str, served: bool) -> Arc<str> {
        if let Some(known) = self.known.read().get(name) {
            return Arc::clone(known);
        }
        if !served {
            return Arc::clone(&self.other);
        }
        let mut known = self.known.write();
        if known.len() >= MAX_NAMES {
            return Arc::clone(&self.other);
        }
        let name = Arc::from(name);
        known.insert(Arc::clone(&name));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_label_once_it_was_served() {
        let resources = Resources::default();
        let check = |name: &str, served: bool, expect: &str| {
            assert_eq!(&*resources.label(name, served), expect);
        };
        check("", false, "");
        check("pods", false, "other");
        check("pods", true, "pods");
        check("pods", false, "pods");
        for i in 0..2 * MAX_NAMES {
            resources.label(&format!("name-{i}"), true);
        }
        check("late", true, "other");
        check("pods", true, "pods");
        assert_eq!(resources.known.read().len(), MAX_NAMES);
    }
}
