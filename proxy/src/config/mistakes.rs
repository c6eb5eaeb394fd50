//! What is wrong with a configuration, all of it.

use std::fmt;

/// One mistake: where, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The key's path, such as `defaults.probe.interval`, or the flag's name.
    pub path: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

/// Every mistake of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl Mistakes {
    /// A single one.
    pub(crate) fn one(path: &str, problem: String) -> Self {
        let mut it = Self::default();
        it.add(path, problem);
        it
    }

    /// Notes one more.
    pub(crate) fn add(&mut self, path: impl Into<String>, problem: impl Into<String>) {
        let (path, problem) = (path.into(), problem.into());
        self.0.push(Mistake { path, problem });
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Mistake { path, problem }) in self.0.iter().enumerate() {
            let line_break = if i == 0 { "" } else { "\n" };
            write!(f, "{line_break}{path}: {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}
