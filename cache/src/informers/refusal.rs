//! Kinds that are not kept in memory, or not in one encoding, and why.

use std::convert::Infallible;
use std::sync::Arc;

use crate::facts::Facts;
use crate::gvr::Gvr;
use crate::holding::Holding;

/// What the names of refused kinds may take, of all clusters together. Names come from requests. The least recently asked
/// for are forgotten first: to forget one costs no more than to try it again.
const REFUSED_BYTES: u64 = 16 << 20;

/// Kinds that are not kept in memory, for a while.
pub(crate) type Refused = Facts<(Gvr, Holding), Refusal, Infallible>;

/// None refused yet, in any cluster.
pub(crate) fn none_refused() -> Arc<Refused> {
    Facts::new(REFUSED_BYTES, |(gvr, _), _| {
        let names = gvr.group.len() + gvr.version.len() + gvr.resource.len();
        u32::try_from(names + 256).unwrap_or(u32::MAX)
    })
}

/// Why a kind is not kept in memory, where trying again at once would not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The credential may not list or watch it.
    Forbidden,
    /// It is not served, or not with list and watch.
    NotListable,
    /// It has more objects than `maxObjectsPerKind`.
    TooManyObjects,
    /// The memory limit is reached.
    MemoryLimit,
    /// Its lists are written in a form that would not be given back byte for byte.
    UnknownForm,
    /// The server does not write it in protobuf: it is a custom resource, or of an extension server without.
    NoProtobuf,
}

impl Refusal {
    /// The reason as written in logs and headers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::NotListable => "not-listable",
            Self::TooManyObjects => "too-many-objects",
            Self::MemoryLimit => "memory-limit",
            Self::UnknownForm => "unknown-form",
            Self::NoProtobuf => "no-protobuf",
        }
    }
}
