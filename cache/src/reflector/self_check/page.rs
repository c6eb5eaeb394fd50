//! A page of what the server holds at a version, compared with a snapshot of that version.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde::Deserialize;

use crate::continue_token::{ContinueToken, Style};
use crate::key_range::KeyRange;
use crate::object::ListMeta;
use crate::resource_version::ResourceVersion;
use crate::store::{Snapshot, key};

/// What a page says of a snapshot.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// The same objects, up to the end.
    Equal,
    /// The same objects, and more follow.
    EqualUpTo(Next),
    /// Not the same.
    Different(Difference),
    /// Nothing: the page is not about the snapshot's version, or not in the order of keys.
    Nothing(&'static str),
}

/// Where the next page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// The last key of the page before.
    pub(super) after: String,
    /// The server's token for it.
    pub(super) token: String,
}

impl Next {
    /// What comes behind a key at a version. A server whose tokens have another form answers 400.
    pub(super) fn behind(after: &str, at: ResourceVersion) -> Self {
        Self {
            after: after.to_owned(),
            token: ContinueToken::after(at, after, Style::WatchCache).to_string(),
        }
    }
}

/// The first key at which a cluster and an informer differ at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::reflector) struct Difference {
    /// `namespace/name`, or the name alone.
    pub(super) key: String,
    /// How.
    pub(super) what: What,
}

/// How a cluster and an informer differ at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Only the cluster has the object.
    Missing,
    /// Only the informer has it.
    Extra,
    /// They have two objects of that name.
    Uid { held: String, told: String },
    /// They have it at two versions.
    Version {
        held: ResourceVersion,
        told: ResourceVersion,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the cluster has it, memory has not"),
            Self::Extra => f.write_str("memory has it, the cluster has not"),
            Self::Uid { held, told } => {
                write!(f, "memory has uid {held:?}, the cluster {told:?}")
            }
            Self::Version { held, told } => {
                write!(f, "memory has resourceVersion {held}, the cluster {told}")
            }
        }
    }
}

/// Compares the page that begins behind the key `after` with a snapshot.
///
/// # Errors
/// The bytes are no list.
pub(super) fn compare(
    body: &[u8],
    snapshot: &Snapshot,
    after: Option<&str>,
) -> Result<Compared, serde_json::Error> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        metadata: ListMeta<'a>,
        #[serde(borrow)]
        items: Option<Vec<Item<'a>>>,
    }
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(borrow)]
        metadata: Meta<'a>,
    }
    /// No more of an object is of interest; the rest of its metadata is skipped.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(borrow, default)]
        namespace: Cow<'a, str>,
        #[serde(borrow, default)]
        uid: Cow<'a, str>,
        #[serde(borrow, default)]
        resource_version: Cow<'a, str>,
    }

    let list: List<'_> = serde_json::from_slice(body)?;
    let version = snapshot.resource_version;
    // An older server may not know `Exact`, and then says so by its version alone.
    if ResourceVersion::parse(&list.metadata.resource_version) != Some(version) {
        return Ok(Compared::Nothing("another version was listed"));
    }
    let mut told = Vec::new();
    for Item { metadata } in list.items.iter().flatten() {
        let at = ResourceVersion::parse(&metadata.resource_version);
        let Some(at) = at.filter(|at| *at <= version) else {
            return Ok(Compared::Nothing("an object of another version was listed"));
        };
        told.push((key(&metadata.namespace, &metadata.name), &*metadata.uid, at));
    }
    let in_order = told.is_sorted_by(|(one, ..), (other, ..)| one < other);
    let behind =
        |(first, ..): &(String, &str, ResourceVersion)| after.is_none_or(|after| &**first > after);
    if !in_order || !told.first().is_none_or(behind) {
        return Ok(Compared::Nothing("the list is not in the order of keys"));
    }

    let mut keys = KeyRange::of_namespace(None);
    if let Some(after) = after {
        keys = keys.starting_at(format!("{after}\0"));
    }
    let token = list.metadata.continue_token;
    let next = match told.last() {
        _ if token.is_empty() => None,
        None => return Ok(Compared::Nothing("an empty page in the middle")),
        Some((last, ..)) => {
            keys = keys.ending_with(last.clone());
            Some(Next {
                after: last.clone(),
                token: token.into_owned(),
            })
        }
    };
    let mut told = told.into_iter();
    // Ends at the first difference, so it takes no more steps than the page has objects.
    for held in snapshot.between(&keys) {
        let Some((key, uid, at)) = told.next() else {
            return Ok(different(&held.key, What::Extra));
        };
        let what = match (*key).cmp(&held.key) {
            Ordering::Less => return Ok(different(&key, What::Missing)),
            Ordering::Greater => return Ok(different(&held.key, What::Extra)),
            Ordering::Equal if *uid != *held.uid => What::Uid {
                held: held.uid.to_string(),
                told: uid.to_owned(),
            },
            Ordering::Equal if at != held.resource_version => What::Version {
                held: held.resource_version,
                told: at,
            },
            Ordering::Equal => continue,
        };
        return Ok(different(&key, what));
    }
    Ok(match (told.next(), next) {
        (Some((key, ..)), _) => different(&key, What::Missing),
        (None, Some(next)) => Compared::EqualUpTo(next),
        (None, None) => Compared::Equal,
    })
}

fn different(key: &str, what: What) -> Compared {
    Compared::Different(Difference {
        key: key.to_owned(),
        what,
    })
}

#[cfg(test)]
mod tests;
