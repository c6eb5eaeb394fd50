//! Reads a tree of keys and values and notes every mistake with its path, instead of ending at the first.

use std::cell::RefCell;

use serde_json::{Map, Value};

use super::Mistake;
use crate::value_kind::value_kind;

/// The path of what is about the whole document.
pub(super) const DOCUMENT: &str = "(document)";

/// One mapping of the tree. Each key is taken out once; what is left at the end is unknown.
pub(super) struct Node<'a> {
    path: String,
    keys: Map<String, Value>,
    mistakes: &'a RefCell<Vec<Mistake>>,
}

impl<'a> Node<'a> {
    /// The mapping that is the whole document.
    pub(super) fn root(document: Value, mistakes: &'a RefCell<Vec<Mistake>>) -> Self {
        Self::new(String::new(), document, mistakes)
    }

    /// The mapping at `path`; a mistake, and empty, where the value is none. Null is an empty mapping.
    fn new(path: String, value: Value, mistakes: &'a RefCell<Vec<Mistake>>) -> Self {
        let mut node = Self {
            path,
            keys: Map::new(),
            mistakes,
        };
        match value {
            Value::Object(keys) => node.keys = keys,
            Value::Null => {}
            other => node.wrong(format!("expected a mapping, got {}", value_kind(&other))),
        }
        node
    }

    /// Notes a mistake at one of its keys.
    pub(super) fn mistake(&self, key: &str, problem: impl Into<String>) {
        self.note(self.path_of(key), problem.into());
    }

    /// Notes a mistake about the whole mapping.
    pub(super) fn wrong(&self, problem: impl Into<String>) {
        let path = Some(self.path.clone()).filter(|path| !path.is_empty());
        self.note(path.unwrap_or_else(|| DOCUMENT.to_owned()), problem.into());
    }

    /// Takes a key that must not be there.
    pub(super) fn refuse(&mut self, key: &str, problem: &str) {
        if self.take(key).is_some() {
            self.mistake(key, problem);
        }
    }

    /// A text that is not empty. None where it is absent, or empty, which is the same in Kubernetes' own files, or a mistake.
    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        self.any_text(key).filter(|text| !text.is_empty())
    }

    /// A text, empty or not. None where it is absent or a mistake.
    pub(super) fn any_text(&mut self, key: &str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            other => {
                self.mistake(
                    key,
                    format!("expected a string, got {}", value_kind(&other)),
                );
                None
            }
        }
    }

    /// The texts of a list, empty ones too; one that is none is a mistake and left out.
    pub(super) fn texts(&mut self, key: &str) -> Vec<String> {
        let mut texts = Vec::new();
        for (i, value) in self.list(key).into_iter().enumerate() {
            match value {
                Value::String(text) => texts.push(text),
                other => {
                    let problem = format!("expected a string, got {}", value_kind(&other));
                    self.mistake(&format!("{key}[{i}]"), problem);
                }
            }
        }
        texts
    }

    /// The mapping under a key; empty where absent.
    pub(super) fn node(&mut self, key: &str) -> Self {
        let value = self.take(key).unwrap_or_default();
        Self::new(self.path_of(key), value, self.mistakes)
    }

    /// The mappings of a list; none where absent.
    pub(super) fn nodes(&mut self, key: &str) -> Vec<Self> {
        let path = self.path_of(key);
        let values = self.list(key).into_iter().enumerate();
        values
            .map(|(i, value)| Self::new(format!("{path}[{i}]"), value, self.mistakes))
            .collect()
    }

    /// Ends the mapping: every key that nobody took is unknown.
    pub(super) fn end(self) {
        for key in self.keys.keys() {
            self.mistake(key, "unknown key; names are spelled exactly");
        }
    }

    fn list(&mut self, key: &str) -> Vec<Value> {
        match self.take(key) {
            None => Vec::new(),
            Some(Value::Array(values)) => values,
            Some(other) => {
                self.mistake(key, format!("expected a list, got {}", value_kind(&other)));
                Vec::new()
            }
        }
    }

    /// Takes a key's value out; null is absent.
    fn take(&mut self, key: &str) -> Option<Value> {
        self.keys.remove(key).filter(|value| !value.is_null())
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            return key.to_owned();
        }
        format!("{}.{key}", self.path)
    }

    fn note(&self, path: String, problem: String) {
        self.mistakes.borrow_mut().push(Mistake { path, problem });
    }
}
