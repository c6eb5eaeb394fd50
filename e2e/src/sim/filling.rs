//! What a simulated cluster holds once somebody looks: of a thousand clusters few are ever looked into.

use std::fmt;
use std::sync::Arc;

use super::Store;

/// Fills a store before the first request for anything but namespaces is answered: these are asked for at each connect.
#[derive(Clone)]
pub struct Filling(Arc<dyn Fn(&Store) + Send + Sync>);

impl Filling {
    /// To be filled by `fill`, once.
    pub fn new(fill: impl Fn(&Store) + Send + Sync + 'static) -> Self {
        Self(Arc::new(fill))
    }

    pub(super) fn fill(&self, store: &Store) {
        (self.0)(store);
    }
}

impl fmt::Debug for Filling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filling")
    }
}
