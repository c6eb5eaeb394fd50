//! Neighbouring keys, in the order of a LIST.

use std::ops::Bound;

/// Neighbouring keys, such as those of a namespace.
#[derive(Clone, Debug)]
pub struct KeyRange {
    from: Bound<String>,
    to: Bound<String>,
}

impl KeyRange {
    /// All keys of a namespace, or all there are.
    pub fn of_namespace(namespace: Option<&str>) -> Self {
        match namespace {
            // '0' is the byte after '/'.
            Some(namespace) => Self {
                from: Bound::Included(format!("{namespace}/")),
                to: Bound::Excluded(format!("{namespace}0")),
            },
            None => Self {
                from: Bound::Unbounded,
                to: Bound::Unbounded,
            },
        }
    }

    /// Those from a key on.
    #[must_use]
    pub fn starting_at(self, key: String) -> Self {
        let from = Bound::Included(key);
        Self { from, ..self }
    }

    /// Those up to a key and with it.
    #[must_use]
    pub fn ending_with(self, key: String) -> Self {
        let to = Bound::Included(key);
        Self { to, ..self }
    }

    pub(crate) fn bounds(&self) -> (Bound<&str>, Bound<&str>) {
        let bound = |bound| -> Bound<&str> { Bound::map(bound, String::as_str) };
        (bound(self.from.as_ref()), bound(self.to.as_ref()))
    }
}
