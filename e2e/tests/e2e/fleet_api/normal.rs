//! Answers of the proxy and of a real server in a form in which they can be compared: keys stay in their order.

use std::fmt;

use fleetcache_e2e::client::Answer;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// JSON whose keys are in the order in which they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Object(Vec<(String, Self)>),
    Array(Vec<Self>),
    Leaf(Value),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Node;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Node::Object(entries))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Node, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = sequence.next_element()? {
                    items.push(item);
                }
                Ok(Node::Array(items))
            }
            fn visit_str<E>(self, text: &str) -> Result<Node, E> {
                Ok(Node::Leaf(text.into()))
            }
            fn visit_bool<E>(self, it: bool) -> Result<Node, E> {
                Ok(Node::Leaf(it.into()))
            }
            fn visit_u64<E>(self, it: u64) -> Result<Node, E> {
                Ok(Node::Leaf(it.into()))
            }
            fn visit_i64<E>(self, it: i64) -> Result<Node, E> {
                Ok(Node::Leaf(it.into()))
            }
            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Leaf(Value::Null))
            }
        }
        deserializer.deserialize_any(InOrder)
    }
}

/// What differs from one object to the next, or from one moment to the next.
const MOVING: [&str; 8] = [
    "continue",
    "creationTimestamp",
    "lastProbeSuccessTime",
    "lastProbeTime",
    "resourceVersion",
    "serverRelativeURL",
    "uid",
    "lastTransitionTime",
];

/// What only a server has that keeps who wrote what.
const OF_WRITERS: [&str; 2] = ["managedFields", "observedGeneration"];

impl Node {
    fn normal(self) -> Self {
        match self {
            Self::Object(entries) => Self::Object(
                entries
                    .into_iter()
                    .filter(|(key, _)| !OF_WRITERS.contains(&key.as_str()))
                    .map(|(key, value)| {
                        let value = match (key.as_str(), value) {
                            ("metadata", Self::Object(entries)) => {
                                // The server counts changes of `spec`; in metadata alone, that of a list has none.
                                let rest =
                                    entries.into_iter().filter(|(key, _)| key != "generation");
                                Self::Object(rest.collect()).normal()
                            }
                            (key, Self::Leaf(Value::String(text)))
                                if MOVING.contains(&key) && !text.is_empty() =>
                            {
                                Self::Leaf("?".into())
                            }
                            ("message", Self::Leaf(Value::String(text))) => {
                                Self::Leaf(message(&text).into())
                            }
                            // Times in words, and what they are counted from.
                            ("cells", Self::Array(cells)) => {
                                Self::Array(cells.into_iter().map(cell).collect())
                            }
                            (_, value) => value.normal(),
                        };
                        (key, value)
                    })
                    .collect(),
            ),
            Self::Array(items) => Self::Array(items.into_iter().map(Self::normal).collect()),
            Self::Leaf(leaf) => Self::Leaf(leaf),
        }
    }
}

fn message(text: &str) -> String {
    // The proxy offers JSON alone.
    if let Some((before, _)) = text.split_once("media types are accepted:") {
        return before.to_owned();
    }
    if !text.contains("esource version") {
        return text.to_owned();
    }
    let mut normal = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        normal += if digits.is_empty() { "" } else { "?" };
        normal += &part[digits.len()..];
    }
    normal
}

fn cell(cell: Node) -> Node {
    match &cell {
        Node::Leaf(Value::String(text))
            if text.ends_with(['s', 'm', 'h'])
                && text.starts_with(|c: char| c.is_ascii_digit()) =>
        {
            Node::Leaf("?".into())
        }
        _ => cell,
    }
}

/// Headers that say something to a client.
const HEADERS: [&str; 5] = [
    "cache-control",
    "content-type",
    "retry-after",
    "vary",
    "x-content-type-options",
];

/// An answer in that form: its code, its headers, whether it is indented, and each of its lines or its whole body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Normal {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) indented: bool,
    pub(crate) body: Vec<Result<Node, String>>,
}

impl From<&Answer> for Normal {
    fn from(answer: &Answer) -> Self {
        let text = answer.text();
        let read = |text: &str| match serde_json::from_str::<Node>(text) {
            Ok(node) => Ok(node.normal()),
            Err(_) => Err(text.to_owned()),
        };
        let whole = read(&text);
        let body = match whole {
            Ok(node) => vec![Ok(node)],
            Err(_) => text.lines().map(read).collect(),
        };
        let headers = HEADERS.iter().filter_map(|name| {
            let value = answer.headers.get(*name)?.to_str().ok()?;
            Some(((*name).to_owned(), value.to_owned()))
        });
        Self {
            status: answer.status.as_u16(),
            headers: headers.collect(),
            indented: text.starts_with("{\n"),
            body,
        }
    }
}
