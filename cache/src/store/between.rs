//! The objects of neighbouring keys.

use std::ops::Bound;
use std::sync::Arc;

use super::{Element, Snapshot};
use crate::key_range::KeyRange;

impl Snapshot {
    /// The objects of these keys, in the order of a LIST.
    pub(crate) fn between(
        &self,
        keys: &KeyRange,
    ) -> impl Iterator<Item = &Arc<Element>> + Send + use<'_> {
        let (from, to) = keys.bounds();
        let is_empty = match (from, to) {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from), Bound::Excluded(to)) => from >= to,
            _ => false,
        };
        let range = (!is_empty).then(|| self.objects.range::<_, str>((from, to)));
        range.into_iter().flatten().map(|(_, element)| element)
    }
}
