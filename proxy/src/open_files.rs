//! Descriptors: a connected cluster takes one, and another while anything of it is in memory. Many shells and service
//! managers allow 1024, of which a thousand clusters leave none for clients.

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one, as every Go program does at its start: the low soft limit is there for
/// programs that use `select`, which nothing here does.
///
/// # Errors
/// The kernel refuses it; the soft limit stays.
pub fn raise_limit() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// How many may be open at once; none where there is no limit, or it cannot be told.
pub fn limit() -> Option<usize> {
    usize::try_from(getrlimit(Resource::Nofile).current?).ok()
}

#[cfg(test)]
mod tests {
    use rustix::process::Rlimit;

    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let maximum = getrlimit(Resource::Nofile).maximum;
        // Little less: other tests run meanwhile.
        let lower = Rlimit {
            current: Some(maximum.unwrap_or(1 << 20) - 1),
            maximum,
        };
        setrlimit(Resource::Nofile, lower).unwrap();
        raise_limit().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
