//! Reads a tree of keys and values and notes every mistake with its path, instead of ending at the first.

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

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
    pub(super) fn add(&mut self, path: impl Into<String>, problem: impl Into<String>) {
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

/// One mapping of the tree. Each key is taken out once; what is left at the end is unknown.
pub(super) struct Section<'a> {
    path: String,
    keys: Map<String, Value>,
    mistakes: &'a RefCell<Mistakes>,
}

impl<'a> Section<'a> {
    /// The mapping at `path`; a mistake, and empty, where the value is none. Null is an empty mapping.
    pub(super) fn new(path: String, value: Value, mistakes: &'a RefCell<Mistakes>) -> Self {
        let keys = match value {
            Value::Object(keys) => keys,
            Value::Null => Map::new(),
            other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                let what = format!("expected a mapping, got {}", name_of(&other));
                mistakes.borrow_mut().add(path_or_root(&path), what);
                Map::new()
            }
        };
        Self {
            path,
            keys,
            mistakes,
        }
    }

    /// The path of one of its keys.
    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            return key.to_owned();
        }
        format!("{}.{key}", self.path)
    }

    /// Notes a mistake at one of its keys.
    pub(super) fn mistake(&self, key: &str, problem: impl Into<String>) {
        self.mistakes.borrow_mut().add(self.path_of(key), problem);
    }

    /// A text value, read by `parse`. None where it is absent or a mistake.
    pub(super) fn text<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let parsed = match self.keys.remove(key)? {
            Value::Null => return None,
            Value::String(text) => parse(&text),
            other => Err(format!("expected a string, got {}", name_of(&other))),
        };
        parsed.map_err(|problem| self.mistake(key, problem)).ok()
    }

    /// A duration, read by `parse`. None where it is absent or a mistake.
    pub(super) fn duration(
        &mut self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<Duration, String>,
    ) -> Option<Duration> {
        // Without its unit it is a number to YAML; that it is "no string" would help nobody.
        if let Some(Value::Number(number)) = self.keys.get(key) {
            let problem = format!("{number} is not a duration such as \"10s\"");
            self.keys.remove(key);
            self.mistake(key, problem);
        }
        self.text(key, parse)
    }

    /// A text value that must be there; `hint` says what it is.
    pub(super) fn required_text<T>(
        &mut self,
        key: &str,
        hint: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        if self.keys.get(key).is_none_or(Value::is_null) {
            self.mistake(key, format!("missing; {hint}"));
        }
        self.text(key, parse)
    }

    /// A whole number of at least `min`.
    pub(super) fn number(&mut self, key: &str, min: u64) -> Option<u64> {
        match self.keys.remove(key)? {
            Value::Null => return None,
            Value::Number(number) => {
                if let Some(number) = number.as_u64().filter(|number| *number >= min) {
                    return Some(number);
                }
                self.mistake(
                    key,
                    format!("expected a whole number of at least {min}, got {number}"),
                );
            }
            other => {
                self.mistake(key, format!("expected a number, got {}", name_of(&other)));
            }
        }
        None
    }

    /// A list of text values; empty where absent.
    pub(super) fn texts(&mut self, key: &str) -> Vec<String> {
        let mut texts = Vec::new();
        for (i, value) in self.list(key).into_iter().enumerate() {
            match value {
                Value::String(text) => texts.push(text),
                other => self.mistake(
                    &format!("{key}[{i}]"),
                    format!("expected a string, got {}", name_of(&other)),
                ),
            }
        }
        texts
    }

    /// The mapping under a key; empty where absent.
    pub(super) fn section(&mut self, key: &str) -> Self {
        let value = self.keys.remove(key).unwrap_or(Value::Null);
        Self::new(self.path_of(key), value, self.mistakes)
    }

    /// The mappings of a list; none where absent.
    pub(super) fn sections(&mut self, key: &str) -> Vec<Self> {
        let path = self.path_of(key);
        let mut sections = Vec::new();
        for (i, value) in self.list(key).into_iter().enumerate() {
            let is_mapping = value.is_object();
            let section = Self::new(format!("{path}[{i}]"), value, self.mistakes);
            // What is no mapping has been noted; that its keys are missing need not be.
            sections.extend(is_mapping.then_some(section));
        }
        sections
    }

    fn list(&mut self, key: &str) -> Vec<Value> {
        match self.keys.remove(key) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(values)) => values,
            Some(other) => {
                self.mistake(key, format!("expected a list, got {}", name_of(&other)));
                Vec::new()
            }
        }
    }

    /// Refuses keys that a later version will have: taking one in silence would leave its reader believing in it.
    pub(super) fn unavailable(&mut self, keys: &[&str]) {
        for key in keys {
            if self.keys.remove(*key).is_some() {
                self.mistake(key, "not available in this version");
            }
        }
    }

    /// Ends the mapping: every key that nobody took is unknown.
    pub(super) fn end(self) {
        for key in self.keys.keys() {
            self.mistake(key, "unknown key");
        }
    }
}

fn path_or_root(path: &str) -> &str {
    if path.is_empty() { "(document)" } else { path }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
