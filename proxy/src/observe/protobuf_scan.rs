//! The few fields of Kubernetes' protobuf that the floor needs, found while the bytes pass, however they are cut.
//!
//! A body is `k8s\0` and a `runtime.Unknown`, whose raw bytes are the object or list. An event of a watch is a length in
//! four bytes and a `WatchEvent`, whose `RawExtension` holds such a body. Field numbers are those of `generated.proto`
//! in apimachinery; `ObjectMeta` is field 1 of every kind, and the items are field 2 of every list.

use super::json_scan::Unreadable;
use super::seen::{Findings, INITIAL_EVENTS_END, Seen, Text, TextField};

const MAGIC: &[u8] = b"k8s\0";

/// Bytes of the magic, and of the length before an event.
const PREFIX_BYTES: usize = 4;

/// Which message an open one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Event,
    RawExtension,
    Unknown,
    TypeMeta,
    Object,
    List,
    ListMeta,
    Item,
    ObjectMeta,
    Annotation,
}

#[derive(Debug, PartialEq, Eq)]
enum Lex {
    /// In the four bytes before a body, an event, or the body in an event.
    Prefix,
    Tag,
    Length(u64),
    Number,
    /// In bytes that do not matter.
    Skipped(u64),
    /// In a text that does.
    Text(u64, TextField),
    /// Behind the only body.
    Ended,
}

/// Reads a body, or events one after the other.
#[derive(Debug)]
pub(super) struct ProtobufScan {
    of_watch: bool,
    /// Each with the offset of its end.
    stack: Vec<(Message, u64)>,
    offset: u64,
    lex: Lex,
    /// The bytes of a prefix so far.
    prefix: Vec<u8>,
    /// The varint under way, and its bits so far.
    number: (u64, u32),
    skips_event: bool,
    text: Text,
    /// The annotation under way is the one that is looked for.
    is_initial_events_end: bool,
    findings: Findings,
}

impl ProtobufScan {
    /// Of one object or list.
    pub(super) fn of_body() -> Self {
        Self::new(false)
    }

    /// Of the events of a watch.
    pub(super) fn of_watch() -> Self {
        Self::new(true)
    }

    fn new(of_watch: bool) -> Self {
        Self {
            of_watch,
            stack: Vec::new(),
            offset: 0,
            lex: Lex::Prefix,
            prefix: Vec::new(),
            number: (0, 0),
            skips_event: false,
            text: Text::default(),
            is_initial_events_end: false,
            findings: Findings::default(),
        }
    }

    /// Whether no document is under way.
    pub(super) fn is_between_documents(&self) -> bool {
        self.stack.is_empty() && self.lex == Lex::Prefix && self.prefix.is_empty()
    }

    /// Reads none of the event that follows.
    pub(super) fn skip_document(&mut self) {
        self.skips_event = true;
    }

    /// Reads up to the next thing seen. Gives how many bytes that took; all of them where nothing has ended in them.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<(usize, Option<Seen>), Unreadable> {
        let mut at = 0;
        loop {
            if let Some(seen) = self.close_ended()? {
                return Ok((at, Some(seen)));
            }
            // Nothing is open but the end of a skipped event; who asks may want to skip the next one too.
            if at > 0 && self.is_between_documents() {
                return Ok((at, None));
            }
            let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) else {
                return Ok((at, None));
            };
            let taken = self.take(rest)?;
            at += taken;
            self.offset += taken as u64;
        }
    }

    /// Reads some of the bytes, at least one.
    fn take(&mut self, bytes: &[u8]) -> Result<usize, Unreadable> {
        match self.lex {
            Lex::Prefix => {
                let taken = (PREFIX_BYTES - self.prefix.len()).min(bytes.len());
                self.prefix.extend_from_slice(&bytes[..taken]);
                if self.prefix.len() == PREFIX_BYTES {
                    self.end_prefix(self.offset + taken as u64)?;
                }
                Ok(taken)
            }
            Lex::Tag | Lex::Length(_) | Lex::Number => {
                if let Some(number) = self.varint(bytes[0])? {
                    self.end_number(number, self.offset + 1)?;
                }
                Ok(1)
            }
            Lex::Skipped(left) => {
                let taken = at_most(bytes.len(), left);
                self.lex = match left - taken as u64 {
                    0 if self.stack.is_empty() => Lex::Prefix,
                    0 => Lex::Tag,
                    left => Lex::Skipped(left),
                };
                Ok(taken)
            }
            Lex::Text(left, field) => {
                let taken = at_most(bytes.len(), left);
                self.text.push(&bytes[..taken]);
                if left == taken as u64 {
                    self.end_text(field);
                } else {
                    self.lex = Lex::Text(left - taken as u64, field);
                }
                Ok(taken)
            }
            Lex::Ended => Ok(bytes.len()),
        }
    }

    /// Four bytes are there; what follows begins at `start`.
    fn end_prefix(&mut self, start: u64) -> Result<(), Unreadable> {
        let prefix = std::mem::take(&mut self.prefix);
        self.lex = Lex::Tag;
        if self.of_watch && self.stack.is_empty() {
            let length = prefix
                .iter()
                .fold(0, |length, byte| length << 8 | u64::from(*byte));
            if !std::mem::take(&mut self.skips_event) {
                self.stack.push((Message::Event, start + length));
            } else if length == 0 {
                self.lex = Lex::Prefix;
            } else {
                self.lex = Lex::Skipped(length);
            }
            return Ok(());
        }
        if prefix != MAGIC {
            return Err(Unreadable);
        }
        if self.stack.is_empty() {
            self.stack.push((Message::Unknown, u64::MAX));
        }
        Ok(())
    }

    /// Goes on in a varint; gives it at its end.
    fn varint(&mut self, byte: u8) -> Result<Option<u64>, Unreadable> {
        let (number, bits) = self.number;
        if bits >= 64 {
            return Err(Unreadable);
        }
        let number = number | u64::from(byte & 0x7f) << bits;
        if byte & 0x80 != 0 {
            self.number = (number, bits + 7);
            return Ok(None);
        }
        self.number = (0, 0);
        Ok(Some(number))
    }

    /// A tag, a length or a number is there; what follows begins at `start`.
    fn end_number(&mut self, number: u64, start: u64) -> Result<(), Unreadable> {
        self.lex = match self.lex {
            Lex::Tag => match number & 7 {
                0 => Lex::Number,
                1 => Lex::Skipped(8),
                2 => Lex::Length(number >> 3),
                5 => Lex::Skipped(4),
                _ => return Err(Unreadable),
            },
            Lex::Length(field) => return self.begin(field, number, start),
            _ => Lex::Tag,
        };
        Ok(())
    }

    /// Begins the value of a field that has a length.
    fn begin(&mut self, field: u64, length: u64, start: u64) -> Result<(), Unreadable> {
        let (message, end) = *self.stack.last().ok_or(Unreadable)?;
        let ends = start.checked_add(length).filter(|ends| *ends <= end);
        let ends = ends.ok_or(Unreadable)?;
        self.lex = Lex::Tag;
        match self.meaning(message, field) {
            Some(Meaning::Message(inner)) => {
                if inner == Message::Item {
                    self.findings.begin_item();
                }
                if inner == Message::Unknown {
                    self.lex = Lex::Prefix;
                }
                self.is_initial_events_end = false;
                self.stack.push((inner, ends));
            }
            Some(Meaning::Text(text)) => {
                self.text.clear();
                self.lex = Lex::Text(length, text);
                if length == 0 {
                    self.end_text(text);
                }
            }
            None if length > 0 => self.lex = Lex::Skipped(length),
            None => {}
        }
        Ok(())
    }

    fn meaning(&self, message: Message, field: u64) -> Option<Meaning> {
        let meaning = match (message, field) {
            (Message::Event, 1) => Meaning::Text(TextField::EventType),
            (Message::Event, 2) => Meaning::Message(Message::RawExtension),
            (Message::RawExtension, 1) => Meaning::Message(Message::Unknown),
            (Message::Unknown, 1) => Meaning::Message(Message::TypeMeta),
            // The kind comes before what is of that kind.
            (Message::Unknown, 2) if self.findings.document.kind.ends_with("List") => {
                Meaning::Message(Message::List)
            }
            (Message::Unknown, 2) => Meaning::Message(Message::Object),
            (Message::TypeMeta, 1) => Meaning::Text(TextField::ApiVersion),
            (Message::TypeMeta, 2) => Meaning::Text(TextField::Kind),
            (Message::List, 1) => Meaning::Message(Message::ListMeta),
            (Message::List, 2) => Meaning::Message(Message::Item),
            (Message::ListMeta, 2) => Meaning::Text(TextField::ResourceVersion),
            (Message::ListMeta, 3) => Meaning::Text(TextField::Continue),
            (Message::Object | Message::Item, 1) => Meaning::Message(Message::ObjectMeta),
            (Message::ObjectMeta, 1) => Meaning::Text(TextField::Name),
            (Message::ObjectMeta, 3) => Meaning::Text(TextField::Namespace),
            (Message::ObjectMeta, 6) => Meaning::Text(TextField::ResourceVersion),
            (Message::ObjectMeta, 12) => Meaning::Message(Message::Annotation),
            (Message::Annotation, 1) => Meaning::Text(TextField::AnnotationKey),
            (Message::Annotation, 2) if self.is_initial_events_end => {
                Meaning::Text(TextField::InitialEventsEnd)
            }
            _ => return None,
        };
        Some(meaning)
    }

    fn end_text(&mut self, field: TextField) {
        self.lex = Lex::Tag;
        if field == TextField::AnnotationKey {
            self.is_initial_events_end = self.text.whole() == Some(INITIAL_EVENTS_END.as_bytes());
            return;
        }
        let text = self.text.whole();
        let text = text.and_then(|text| std::str::from_utf8(text).ok());
        self.findings.set(field, text.map(str::to_owned));
    }

    /// Closes the innermost message whose end is reached, if any; gives what it was where that matters.
    fn close_ended(&mut self) -> Result<Option<Seen>, Unreadable> {
        while let Some((message, end)) = self.stack.last()
            && *end <= self.offset
        {
            // What began within it has ended with it.
            if *end < self.offset || self.lex != Lex::Tag || self.number != (0, 0) {
                return Err(Unreadable);
            }
            let message = *message;
            self.stack.pop();
            match message {
                Message::Item => return Ok(Some(self.findings.end_item())),
                Message::Event => {
                    self.lex = Lex::Prefix;
                    return Ok(Some(self.findings.end_document()));
                }
                Message::Object | Message::List if !self.of_watch => {
                    self.lex = Lex::Ended;
                    self.stack.clear();
                    return Ok(Some(self.findings.end_document()));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// What a field is.
enum Meaning {
    Message(Message),
    Text(TextField),
}

/// How many of these bytes are within so many.
fn at_most(bytes: usize, left: u64) -> usize {
    usize::try_from(left).map_or(bytes, |left| left.min(bytes))
}

#[cfg(test)]
mod tests;
