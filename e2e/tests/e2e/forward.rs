//! What anybody was told of each object through a proxy, and the rule that nobody is told less afterwards.
//!
//! A reader notes what is known before it asks ([`View::begin`]) and compares its answer with that: versions of a storage
//! never decrease, an object that is known to be deleted is not shown again, and one that is known to be there is not missing
//! unless somebody tried to delete it meanwhile.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

/// A storage, and `namespace/name` in it.
pub(crate) type Key = (&'static str, String);

/// What is known of all objects.
#[derive(Default)]
pub(crate) struct View(Mutex<Known>);

#[derive(Default)]
struct Known {
    objects: BTreeMap<Key, Object>,
    /// When it was told that an object of this uid is deleted, counted in deletions, and by what.
    deleted: HashMap<String, (u64, String)>,
    deletions: u64,
    /// The version of the newest list from memory, by collection: what an informer is complete through.
    complete: HashMap<String, u64>,
}

/// What is known of one name.
#[derive(Clone, Debug, Default)]
struct Object {
    uid: String,
    version: u64,
    /// What told this version.
    by: String,
    /// Attempts to delete it that were begun, and those that have no answer yet.
    attempts: u64,
    in_flight: u64,
    /// Attempts whose effect may show at any time after their answer: made past the proxy, or answered by an error.
    unsettled: u64,
    /// The number of attempts at which it was there, with none in flight.
    alive_at: Option<u64>,
}

/// What was known when a reader asked.
pub(crate) struct Begun {
    objects: BTreeMap<Key, Object>,
    deletions: u64,
    complete: HashMap<String, u64>,
}

/// An object as an answer shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: u64,
}

impl Shown {
    pub(crate) fn key(&self, storage: &'static str) -> Key {
        (storage, format!("{}/{}", self.namespace, self.name))
    }
}

impl View {
    /// What is known now, for a request that is about to be sent.
    pub(crate) fn begin(&self) -> Begun {
        let known = self.0.lock();
        Begun {
            objects: known.objects.clone(),
            deletions: known.deletions,
            complete: known.complete.clone(),
        }
    }

    /// The newest version of a storage that anybody was told.
    pub(crate) fn newest(&self, storage: &'static str) -> u64 {
        let known = self.0.lock();
        let of_storage = known.objects.iter().filter(|((of, _), _)| *of == storage);
        of_storage
            .map(|(_, object)| object.version)
            .max()
            .unwrap_or(0)
    }

    /// Whether something of that name was told of last and not known to be deleted.
    pub(crate) fn exists(&self, key: &Key) -> bool {
        let known = self.0.lock();
        let object = known.objects.get(key);
        object.is_some_and(|object| {
            !object.uid.is_empty() && !known.deleted.contains_key(&object.uid)
        })
    }

    /// A list came from memory that says to be complete through this version. An informer only moves forward.
    pub(crate) fn complete(
        &self,
        begun: &Begun,
        collection: &str,
        version: u64,
    ) -> Result<(), String> {
        let mut known = self.0.lock();
        let newest = known.complete.entry(collection.to_owned()).or_default();
        *newest = version.max(*newest);
        match begun.complete.get(collection) {
            Some(before) if version < *before => Err(format!(
                "a list from memory at {version}, after one at {before}"
            )),
            _ => Ok(()),
        }
    }

    /// A reader that may be told nothing older was shown this.
    pub(crate) fn saw(
        &self,
        begun: &Begun,
        storage: &'static str,
        shown: &Shown,
        by: &str,
    ) -> Result<(), String> {
        let before = begun.objects.get(&shown.key(storage));
        let deleted = self.0.lock().deleted.get(&shown.uid).cloned();
        let deleted = deleted.filter(|(at, _)| *at <= begun.deletions);
        let outcome = match before {
            Some(before) if shown.version < before.version => {
                Err(format!("{shown:?} goes back behind {before:?}"))
            }
            _ => match deleted {
                Some((_, by)) => Err(format!("{shown:?} is known to be deleted, by {by}")),
                None => Ok(()),
            },
        };
        self.told(storage, shown, by);
        self.alive(begun, storage, shown, false);
        outcome
    }

    /// Somebody made this through the proxy.
    pub(crate) fn created(&self, begun: &Begun, storage: &'static str, shown: &Shown, by: &str) {
        self.told(storage, shown, by);
        self.alive(begun, storage, shown, true);
    }

    /// Notes that an object was there while nothing could delete it. One that was just made outlived all attempts before.
    fn alive(&self, begun: &Begun, storage: &'static str, shown: &Shown, made: bool) {
        let key = shown.key(storage);
        let before = begun.objects.get(&key).cloned().unwrap_or_default();
        let mut known = self.0.lock();
        let Some(object) = known.objects.get_mut(&key) else {
            return;
        };
        let quiet = before.in_flight == 0 && before.attempts == object.attempts;
        if made && quiet {
            object.unsettled = 0;
        }
        if quiet && object.unsettled == 0 && object.version == shown.version {
            object.alive_at = Some(object.attempts);
        }
    }

    /// Somebody was told this, whether or not it may have been older.
    pub(crate) fn told(&self, storage: &'static str, shown: &Shown, by: &str) {
        let mut known = self.0.lock();
        let object = known.objects.entry(shown.key(storage)).or_default();
        if shown.version < object.version {
            return;
        }
        let replaced = std::mem::replace(&mut object.uid, shown.uid.clone());
        object.version = shown.version;
        by.clone_into(&mut object.by);
        if !replaced.is_empty() && replaced != shown.uid {
            object.alive_at = None;
            known.deletions += 1;
            let at = known.deletions;
            let by = format!("another uid in {by}");
            known.deleted.entry(replaced).or_insert((at, by));
        }
    }

    /// A reader that may be told nothing older did not find this.
    pub(crate) fn missed(&self, begun: &Begun, key: &Key, by: &str) -> Result<(), String> {
        let Some(before) = begun.objects.get(key) else {
            return Ok(());
        };
        let attempts = self.0.lock().objects.get(key).map(|object| object.attempts);
        if before.alive_at == Some(before.attempts) && attempts == Some(before.attempts) {
            return Err(format!(
                "{key:?} is missing, and nobody deleted it: {before:?}"
            ));
        }
        if !before.uid.is_empty() {
            self.deleted(key, &before.uid, by);
        }
        Ok(())
    }

    /// Somebody was told that the object of this uid is deleted.
    pub(crate) fn deleted(&self, key: &Key, uid: &str, by: &str) {
        let mut known = self.0.lock();
        if let Some(object) = known.objects.get_mut(key)
            && object.uid == uid
        {
            object.alive_at = None;
        }
        known.deletions += 1;
        let at = known.deletions;
        let deleted = known.deleted.entry(uid.to_owned());
        deleted.or_insert_with(|| (at, by.to_owned()));
    }

    /// Somebody is about to try to delete these, by whatever way.
    pub(crate) fn deleting(&self, keys: &[Key]) {
        let mut known = self.0.lock();
        for key in keys {
            let object = known.objects.entry(key.clone()).or_default();
            object.attempts += 1;
            object.in_flight += 1;
        }
    }

    /// The attempt was answered; `settled`: whoever reads from now on is told what came of it.
    pub(crate) fn deletion_answered(&self, keys: &[Key], settled: bool) {
        let mut known = self.0.lock();
        for key in keys {
            if let Some(object) = known.objects.get_mut(key) {
                object.in_flight -= 1;
                object.unsettled += u64::from(!settled);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(uid: &str, version: u64) -> Shown {
        Shown {
            namespace: "n".to_owned(),
            name: "a".to_owned(),
            uid: uid.to_owned(),
            version,
        }
    }

    fn key() -> Key {
        ("pods", "n/a".to_owned())
    }

    #[test]
    fn nobody_goes_back() {
        let view = View::default();
        let early = view.begin();
        view.told("pods", &shown("u1", 5), "test");
        let begun = view.begin();
        view.saw(&begun, "pods", &shown("u1", 4), "test")
            .unwrap_err();
        view.saw(&early, "pods", &shown("u1", 4), "test").unwrap();
        view.saw(&begun, "pods", &shown("u2", 6), "test").unwrap();
        view.saw(&view.begin(), "pods", &shown("u1", 7), "test")
            .unwrap_err();
    }

    #[test]
    fn what_nobody_deletes_is_not_missing() {
        let view = View::default();
        view.created(&view.begin(), "pods", &shown("u1", 5), "test");
        let begun = view.begin();
        view.missed(&begun, &key(), "test").unwrap_err();
        view.deleting(&[key()]);
        view.missed(&begun, &key(), "test").unwrap();
        view.deletion_answered(&[key()], true);
        view.saw(&begun, "pods", &shown("u1", 5), "test").unwrap();
        view.saw(&view.begin(), "pods", &shown("u1", 5), "test")
            .unwrap_err();
    }

    #[test]
    fn what_was_deleted_past_the_proxy_may_go_missing_later() {
        let view = View::default();
        view.created(&view.begin(), "pods", &shown("u1", 5), "test");
        view.deleting(&[key()]);
        view.deletion_answered(&[key()], false);
        view.saw(&view.begin(), "pods", &shown("u1", 5), "test")
            .unwrap();
        view.missed(&view.begin(), &key(), "test").unwrap();
        view.created(&view.begin(), "pods", &shown("u2", 7), "test");
        view.missed(&view.begin(), &key(), "test").unwrap_err();
    }
}
