//! The few fields of JSON that the floor needs, found while the bytes pass, however they are cut.
//!
//! Where in a document the scanner is decides what a key means; everything else is only followed to its end:
//! ```text
//! Event ─object─► Top ─metadata─► Meta ─annotations─► Annotations
//!                  ├─items─► Items ──► Item ─metadata─► Meta …
//!                  └─rows──► Rows ───► Row ─object─► Item
//! ```

use memchr::{memchr, memchr2};

use super::seen::{Findings, INITIAL_EVENTS_END, Seen, Text, TextField};

/// Deeper documents are not read on: the server itself reads no deeper ones.
const DEPTH: usize = 10_000;

/// Where an open object or array stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Event,
    Top,
    Meta,
    Annotations,
    Items,
    Item,
    Rows,
    Row,
    OtherObject,
    OtherArray,
}

/// What the next value is, by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Text(TextField),
    Object,
    Metadata,
    Items,
    Rows,
    Annotations,
    Other,
}

#[derive(Debug, PartialEq, Eq)]
enum Lex {
    /// Between tokens.
    Between,
    /// In a string, perhaps right behind a backslash.
    String { escaped: bool },
    /// In a line that is not read.
    Skipped { at_newline: bool },
}

/// Reads documents one after the other.
#[derive(Debug)]
pub(super) struct JsonScan {
    /// What the outermost object is.
    root: Place,
    stack: Vec<Place>,
    lex: Lex,
    /// The next string is a key.
    at_key: bool,
    field: Field,
    /// The string under way, where it matters.
    text: Text,
    captures: bool,
    has_escapes: bool,
    findings: Findings,
}

/// The bytes are not JSON, or too deep.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

impl JsonScan {
    /// Of one object, list or Table.
    pub(super) fn of_body() -> Self {
        Self::new(Place::Top)
    }

    /// Of the events of a watch.
    pub(super) fn of_watch() -> Self {
        Self::new(Place::Event)
    }

    fn new(root: Place) -> Self {
        Self {
            root,
            stack: Vec::new(),
            lex: Lex::Between,
            at_key: false,
            field: Field::Other,
            text: Text::default(),
            captures: false,
            has_escapes: false,
            findings: Findings::default(),
        }
    }

    /// Whether no document is under way.
    pub(super) fn is_between_documents(&self) -> bool {
        self.stack.is_empty() && self.lex == Lex::Between
    }

    /// Reads none of the document that follows.
    pub(super) fn skip_document(&mut self) {
        self.lex = Lex::Skipped { at_newline: false };
    }

    /// Reads up to the next thing seen. Gives how many bytes that took; all of them where nothing has ended in them.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<(usize, Option<Seen>), Unreadable> {
        let mut at = 0;
        while at < bytes.len() {
            match self.lex {
                Lex::String { .. } => at = self.string(bytes, at)?,
                Lex::Between => {
                    let seen = self.token(bytes[at])?;
                    at += 1;
                    if seen.is_some() {
                        return Ok((at, seen));
                    }
                }
                Lex::Skipped { at_newline } => {
                    // A document begins at the beginning of a line, and inside of an indented one no line begins so.
                    if at_newline && bytes[at] == b'{' {
                        self.lex = Lex::Between;
                        return Ok((at, None));
                    }
                    let newline = memchr(b'\n', &bytes[at..]);
                    self.lex = Lex::Skipped {
                        at_newline: newline.is_some(),
                    };
                    at = newline.map_or(bytes.len(), |newline| at + newline + 1);
                }
            }
        }
        Ok((at, None))
    }

    /// Goes on in a string; gives where it stopped.
    fn string(&mut self, bytes: &[u8], from: usize) -> Result<usize, Unreadable> {
        let mut at = from;
        if self.lex == (Lex::String { escaped: true }) {
            self.lex = Lex::String { escaped: false };
            if self.captures {
                self.text.push(&bytes[at..=at]);
            }
            at += 1;
        }
        let end = memchr2(b'"', b'\\', &bytes[at..]).map(|end| at + end);
        if self.captures {
            self.text.push(&bytes[at..end.unwrap_or(bytes.len())]);
        }
        let Some(end) = end else {
            return Ok(bytes.len());
        };
        if bytes[end] == b'\\' {
            self.has_escapes = true;
            self.lex = Lex::String { escaped: true };
            if self.captures {
                self.text.push(b"\\");
            }
        } else {
            self.lex = Lex::Between;
            self.end_string()?;
        }
        Ok(end + 1)
    }

    fn end_string(&mut self) -> Result<(), Unreadable> {
        let place = *self.stack.last().ok_or(Unreadable)?;
        if self.at_key {
            self.at_key = false;
            self.field = if self.captures {
                self.decoded()
                    .map_or(Field::Other, |key| field_of(place, &key))
            } else {
                Field::Other
            };
        } else if let (true, Field::Text(field)) = (self.captures, self.field) {
            let text = self.decoded();
            self.findings.set(field, text);
        }
        Ok(())
    }

    /// The string that has just ended; `None` where it is too long or malformed.
    fn decoded(&self) -> Option<String> {
        let text = std::str::from_utf8(self.text.whole()?).ok()?;
        if self.has_escapes {
            return serde_json::from_str(&format!("\"{text}\"")).ok();
        }
        Some(text.to_owned())
    }

    fn token(&mut self, byte: u8) -> Result<Option<Seen>, Unreadable> {
        match byte {
            b'"' => {
                let place = *self.stack.last().ok_or(Unreadable)?;
                let is_text = matches!(self.field, Field::Text(_));
                self.captures = !is_other(place) && (self.at_key || is_text);
                self.has_escapes = false;
                self.text.clear();
                self.lex = Lex::String { escaped: false };
            }
            b'{' => self.open_object()?,
            b'[' => self.open_array()?,
            b'}' | b']' => return self.close(byte),
            b',' => {
                self.field = Field::Other;
                self.at_key = self.stack.last().is_some_and(|place| !is_array(*place));
            }
            // Numbers and words are of no interest.
            _ => {
                if self.stack.is_empty() && !byte.is_ascii_whitespace() {
                    return Err(Unreadable);
                }
            }
        }
        Ok(None)
    }

    fn open_object(&mut self) -> Result<(), Unreadable> {
        let place = match (self.stack.last(), self.field) {
            (None, _) => self.root,
            (Some(Place::Event), Field::Object) => Place::Top,
            (Some(Place::Top | Place::Item), Field::Metadata) => Place::Meta,
            (Some(Place::Meta), Field::Annotations) => Place::Annotations,
            (Some(Place::Items), _) => Place::Item,
            (Some(Place::Rows), _) => Place::Row,
            (Some(Place::Row), Field::Object) => Place::Item,
            _ => Place::OtherObject,
        };
        let begins_item = match place {
            Place::Item => self.stack.last() == Some(&Place::Items),
            Place::Row => true,
            _ => false,
        };
        if begins_item {
            self.findings.begin_item();
        }
        self.at_key = true;
        self.open(place)
    }

    fn open_array(&mut self) -> Result<(), Unreadable> {
        let place = match (self.stack.last(), self.field) {
            // No document is one.
            (None, _) => return Err(Unreadable),
            (Some(Place::Top), Field::Items) => Place::Items,
            (Some(Place::Top), Field::Rows) => Place::Rows,
            _ => Place::OtherArray,
        };
        self.at_key = false;
        self.open(place)
    }

    fn open(&mut self, place: Place) -> Result<(), Unreadable> {
        if self.stack.len() == DEPTH {
            return Err(Unreadable);
        }
        self.field = Field::Other;
        self.stack.push(place);
        Ok(())
    }

    fn close(&mut self, byte: u8) -> Result<Option<Seen>, Unreadable> {
        let closed = self.stack.pop().ok_or(Unreadable)?;
        if is_array(closed) != (byte == b']') {
            return Err(Unreadable);
        }
        self.at_key = false;
        self.field = Field::Other;
        let ends_item = match closed {
            Place::Item => self.stack.last() == Some(&Place::Items),
            Place::Row => true,
            _ => false,
        };
        Ok(if ends_item {
            Some(self.findings.end_item())
        } else if self.stack.is_empty() {
            Some(self.findings.end_document())
        } else {
            None
        })
    }
}

fn is_other(place: Place) -> bool {
    matches!(place, Place::OtherObject | Place::OtherArray)
}

fn is_array(place: Place) -> bool {
    matches!(place, Place::Items | Place::Rows | Place::OtherArray)
}

fn field_of(place: Place, key: &str) -> Field {
    match (place, key) {
        (Place::Event, "type") => Field::Text(TextField::EventType),
        (Place::Event | Place::Row, "object") => Field::Object,
        (Place::Top, "apiVersion") => Field::Text(TextField::ApiVersion),
        (Place::Top, "kind") => Field::Text(TextField::Kind),
        (Place::Top, "items") => Field::Items,
        (Place::Top, "rows") => Field::Rows,
        (Place::Top | Place::Item, "metadata") => Field::Metadata,
        (Place::Meta, "namespace") => Field::Text(TextField::Namespace),
        (Place::Meta, "name") => Field::Text(TextField::Name),
        (Place::Meta, "resourceVersion") => Field::Text(TextField::ResourceVersion),
        (Place::Meta, "continue") => Field::Text(TextField::Continue),
        (Place::Meta, "annotations") => Field::Annotations,
        (Place::Annotations, INITIAL_EVENTS_END) => Field::Text(TextField::InitialEventsEnd),
        _ => Field::Other,
    }
}

#[cfg(test)]
mod tests;
