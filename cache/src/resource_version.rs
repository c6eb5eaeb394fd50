//! resourceVersions, comparable within one storage of one cluster and one epoch (KEP-5504).

use std::fmt;

/// A resourceVersion: a decimal number without leading zeros, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(u64);

impl ResourceVersion {
    /// Reads a resourceVersion. `None` where it is empty, "0", has a leading zero or is not a number: such a server's
    /// versions cannot be compared and its objects are not cached.
    pub fn parse(text: &str) -> Option<Self> {
        if text.starts_with('0') || !text.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        text.parse().ok().map(Self)
    }

    /// The version as a number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// A version from its number; 0 means "none yet" and is below every version a server gives.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
