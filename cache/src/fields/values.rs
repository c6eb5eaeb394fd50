//! Values at paths in an object's bytes, read in one pass that skips everything else.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found<'de> {
    Absent,
    /// Text, or a boolean or an integer as Go prints it.
    Plain(Cow<'de, str>),
    /// Anything else.
    Odd,
}

/// Numbered paths: names with dots between them, `[0]` behind one for the first element of its list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Paths {
    root: Node,
    known: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    /// The number of the path that ends here.
    path: Option<usize>,
    /// What follows by name; `[0]` is the first element.
    children: Vec<(String, Self)>,
}

impl Paths {
    /// The number of a path, new or known.
    pub(super) fn add(&mut self, path: &str) -> usize {
        if let Some(known) = self.known.iter().position(|known| known == path) {
            return known;
        }
        let mut node = &mut self.root;
        for name in path.replace('[', ".[").split('.') {
            let at = match node.children.iter().position(|(known, _)| known == name) {
                Some(at) => at,
                None => {
                    node.children.push((name.to_owned(), Node::default()));
                    node.children.len() - 1
                }
            };
            node = &mut node.children[at].1;
        }
        node.path = Some(self.known.len());
        self.known.push(path.to_owned());
        self.known.len() - 1
    }

    /// What each path leads to in an object.
    pub(super) fn read<'de>(
        &self,
        object: &'de [u8],
    ) -> Result<Vec<Found<'de>>, serde_json::Error> {
        let mut found = vec![Found::Absent; self.known.len()];
        let walk = Walk {
            node: &self.root,
            found: &mut found,
        };
        walk.deserialize(&mut serde_json::Deserializer::from_slice(object))?;
        Ok(found)
    }
}

impl Node {
    fn child(&self, name: &str) -> Option<&Self> {
        let mut children = self.children.iter();
        children
            .find(|(known, _)| known == name)
            .map(|(_, node)| node)
    }
}

/// A step on the way to what is looked for.
struct Walk<'w, 'de> {
    node: &'w Node,
    found: &'w mut Vec<Found<'de>>,
}

impl<'de> Walk<'_, 'de> {
    fn find(self, found: Found<'de>) {
        if let Some(path) = self.node.path {
            self.found[path] = found;
        }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(child) = map.next_key_seed(Key(self.node))? {
            match child {
                Some(node) => map.next_value_seed(Walk {
                    node,
                    found: self.found,
                })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        self.find(Found::Odd);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if let Some(node) = self.node.child("[0]") {
            seq.next_element_seed(Walk {
                node,
                found: self.found,
            })?;
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        self.find(Found::Odd);
        Ok(())
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<(), E> {
        self.find(Found::Plain(Cow::Borrowed(text)));
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.find(Found::Plain(Cow::Owned(text.to_owned())));
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.find(Found::Plain(Cow::Borrowed(if value {
            "true"
        } else {
            "false"
        })));
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.find(Found::Plain(Cow::Owned(value.to_string())));
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        // What is no int64 is a float to the server.
        self.find(match i64::try_from(value) {
            Ok(value) => Found::Plain(Cow::Owned(value.to_string())),
            Err(_) => Found::Odd,
        });
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.find(Found::Odd);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// The key of a map: the child that it leads to, if any.
struct Key<'w>(&'w Node);

impl<'de, 'w> DeserializeSeed<'de> for Key<'w> {
    type Value = Option<&'w Node>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'w> Visitor<'_> for Key<'w> {
    type Value = Option<&'w Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.child(key))
    }
}
