//! Whether the content of files has changed.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;

use fleetcache_cache::bounded_file;

use crate::config::Config;

/// What files hold: a hash of each, none where it cannot be read. By content, since a swapped symbolic link and a file
/// that is written anew with what it had keep or change times that tell nothing.
pub(super) type Contents = BTreeMap<PathBuf, Option<u64>>;

/// The files of a configuration, as they were looked at.
#[derive(Debug)]
pub struct Watched {
    /// What the configuration in force, or the last attempt at one, was read from.
    read: Contents,
    /// What was there at the last look.
    seen: Contents,
}

impl Watched {
    /// Of a configuration that was read just now; made before the other files are read, lest a change between is missed.
    pub fn new(config: &Config) -> Self {
        let read = contents(config);
        Self {
            seen: read.clone(),
            read,
        }
    }

    /// Looks at the files; tells whether they are to be read again. With `now` they are in any case.
    pub(super) fn look(&mut self, config: &Config, now: bool) -> bool {
        self.found(contents(config), now)
    }

    /// After an attempt at reading them: those that the configuration names now are watched, and what is not any more what
    /// the look saw will be read again.
    pub(super) fn attempted(&mut self, config: &Config) {
        let now = contents(config);
        let moved = |(path, content): (&PathBuf, &Option<u64>)| {
            self.seen.get(path).is_some_and(|seen| seen != content)
        };
        self.read = if now.iter().any(moved) {
            Contents::new()
        } else {
            now.clone()
        };
        self.seen = now;
    }

    /// The rule alone: a change counts when two looks have seen it.
    fn found(&mut self, contents: Contents, now: bool) -> bool {
        let is_stable = self.seen == contents;
        let is_new = self.read != contents;
        self.seen = contents;
        let due = now || (is_stable && is_new);
        if due {
            self.read.clone_from(&self.seen);
        }
        due
    }
}

pub(super) fn contents(config: &Config) -> Contents {
    let hashed = |path: &std::path::Path| {
        // Never a pipe: it gives its content once, to who reads it and not to who looks, or holds up the looks for good.
        let content = bounded_file::read(path, bounded_file::LARGE).ok()?;
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        Some(hasher.finish())
    };
    config
        .files()
        .map(|path| (path.to_owned(), hashed(path)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_when_it_has_been_seen_twice() {
        let of = |content: Option<u64>| Contents::from([(PathBuf::from("a"), content)]);
        let mut watched = Watched {
            read: of(Some(1)),
            seen: of(Some(1)),
        };
        let mut look = |content| watched.found(of(content), false);
        assert!(!look(Some(1)), "as it was");
        assert!(!look(Some(2)), "it may be written still");
        assert!(look(Some(2)));
        assert!(!look(Some(2)), "only once");
        // A rename over it, and a symbolic link that is swapped.
        assert!(!look(None));
        assert!(!look(Some(2)));
        assert!(!look(None));
        assert!(!look(Some(3)));
        assert!(look(Some(3)));
        // It is away for good.
        assert!(!look(None));
        assert!(look(None));
        assert!(!look(None));
        // And back as it was: what was said of its absence is over.
        assert!(!look(Some(3)));
        assert!(look(Some(3)));
        assert!(watched.found(of(Some(3)), true), "when asked, always");
    }
}
