//! All metric names.

/// The proxy's metrics.
#[derive(Debug, Default)]
pub struct Metrics {}
