//! The fields of a kind that a field selector may name beside its metadata, and their values in an object's bytes.
//!
//! A server compares text, and a field that an object lacks with a default of its kind's. Built-in kinds have theirs in a
//! table (`built_in.rs`), custom resources in their definitions. The values are read once, when an object arrives.

use std::borrow::Cow;

use crate::gvr::Gvr;

mod built_in;
mod values;

use values::{Found, Paths};

/// Between the values of an object.
const SEPARATOR: char = '\0';

/// The fields of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Whether `metadata.namespace` may be named.
    namespace: bool,
    fields: Vec<Field>,
    paths: Paths,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    /// As a selector names it.
    name: Cow<'static, str>,
    /// The paths whose first value counts, by their number in `paths`.
    paths: Vec<usize>,
    /// What an object without any of them has.
    absent: &'static str,
}

/// A field that a kind lets a selector name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selectable {
    Name,
    Namespace,
    /// By its number among the kind's own.
    Own(usize),
}

impl Fields {
    /// Those of a kind that the server keeps in a Go type.
    pub fn built_in(gvr: &Gvr, namespaced: bool) -> Self {
        let Some(kind) = built_in::kind(gvr) else {
            return Self {
                namespace: namespaced,
                ..Self::default()
            };
        };
        let mut fields = Self {
            namespace: kind.namespace,
            ..Self::default()
        };
        for (name, paths, absent) in kind.fields(gvr) {
            fields.add(Cow::Borrowed(name), paths, absent);
        }
        fields
    }

    /// Those of a custom resource, by their paths without the leading dot. A path with anything in it but plain names is
    /// left out: selectors that name it go live.
    pub fn custom(paths: &[String], namespaced: bool) -> Self {
        let mut fields = Self {
            namespace: namespaced,
            ..Self::default()
        };
        for path in paths {
            let plain = |name: &str| {
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
                !name.is_empty() && name.bytes().all(is_plain)
            };
            if path.split('.').all(plain) {
                fields.add(Cow::Owned(path.clone()), &[path], "");
            }
        }
        fields
    }

    fn add(&mut self, name: Cow<'static, str>, paths: &[&str], absent: &'static str) {
        let paths = paths.iter().map(|path| self.paths.add(path)).collect();
        self.fields.push(Field {
            name,
            paths,
            absent,
        });
    }

    /// Without those of the kind's own.
    pub fn metadata_only(&self) -> Self {
        Self {
            namespace: self.namespace,
            ..Self::default()
        }
    }

    /// The names of the kind's own fields.
    pub fn own(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| &*field.name)
    }

    /// The field of a name; `None` where only the server can judge it.
    pub(crate) fn find(&self, name: &str) -> Option<Selectable> {
        match name {
            "metadata.name" => Some(Selectable::Name),
            "metadata.namespace" => self.namespace.then_some(Selectable::Namespace),
            _ => self.own().position(|own| own == name).map(Selectable::Own),
        }
    }

    /// The values of an object; `None` where one is not plain text, a boolean or an integer, as in an object that is
    /// older than its schema. How the server prints those is its own affair.
    pub fn read(&self, object: &[u8]) -> Option<Values> {
        if self.fields.is_empty() {
            return Some(Values::default());
        }
        let found = self.paths.read(object).ok()?;
        let mut text = String::new();
        for (at, field) in self.fields.iter().enumerate() {
            let mut value = field.absent;
            for path in &field.paths {
                match &found[*path] {
                    Found::Absent => {}
                    Found::Odd => return None,
                    Found::Plain(plain) if plain.contains(SEPARATOR) => return None,
                    Found::Plain(plain) if plain.is_empty() => {}
                    Found::Plain(plain) => {
                        value = plain;
                        break;
                    }
                }
            }
            if at > 0 {
                text.push(SEPARATOR);
            }
            text.push_str(value);
        }
        Some(Values(text.into()))
    }
}

/// The values of one object's fields, in one allocation, or none for a kind without any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values(Box<str>);

impl Values {
    /// The value of a field, by its number.
    pub(crate) fn get(&self, field: usize) -> &str {
        self.0.split(SEPARATOR).nth(field).unwrap_or_default()
    }

    /// Memory of the values, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests;
