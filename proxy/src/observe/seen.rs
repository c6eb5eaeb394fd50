//! What a scanner finds in an answer's bytes, whichever representation they are in.

use fleetcache_cache::resource_version::ResourceVersion;
use fleetcache_cache::store::key;

/// A longer text is none that is looked for: names have 253 bytes, versions 20.
const TEXT_BYTES: usize = 1024;

/// Something that has just ended in the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// An item of a list, or a row of a Table.
    Item(Meta),
    /// A whole object, list, Table or event of a watch.
    Document(Document),
}

/// An object, list or Table, or the event of a watch that holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Document {
    /// The `type` of an event.
    pub(super) event_type: String,
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) meta: Meta,
}

/// What is read of `ObjectMeta` and `ListMeta`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) resource_version: String,
    /// `continue` says that more pages follow.
    pub(super) continues: bool,
    /// The annotation of the bookmark that ends the initial events of a watch.
    pub(super) initial_events_end: bool,
}

/// The fields that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextField {
    EventType,
    ApiVersion,
    Kind,
    Namespace,
    Name,
    ResourceVersion,
    Continue,
    /// The key of an annotation, in protobuf.
    AnnotationKey,
    /// The value of `k8s.io/initial-events-end`.
    InitialEventsEnd,
}

/// The annotation of the bookmark that ends initial events.
pub(super) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The bytes of one text, and whether they are all of it.
#[derive(Debug, Default)]
pub(super) struct Text {
    bytes: Vec<u8>,
    cut: bool,
}

impl Document {
    /// Whether it is a Table of the API's own, and not a custom resource that is called so.
    pub(super) fn is_table(&self) -> bool {
        self.kind == "Table" && self.api_version.starts_with("meta.k8s.io/")
    }
}

impl Meta {
    /// The version, where it can be compared.
    pub(super) fn version(&self) -> Option<ResourceVersion> {
        ResourceVersion::parse(&self.resource_version)
    }

    /// The key of a named object.
    pub(super) fn key(&self) -> Option<String> {
        (!self.name.is_empty()).then(|| key(&self.namespace, &self.name))
    }

    fn set(&mut self, field: TextField, text: Option<String>) {
        match field {
            TextField::Namespace => self.namespace = text.unwrap_or_default(),
            TextField::Name => self.name = text.unwrap_or_default(),
            TextField::ResourceVersion => self.resource_version = text.unwrap_or_default(),
            // A token may be longer than what is kept of it.
            TextField::Continue => self.continues = text.is_none_or(|token| !token.is_empty()),
            TextField::InitialEventsEnd => {
                self.initial_events_end = text.as_deref() == Some("true")
            }
            TextField::EventType
            | TextField::ApiVersion
            | TextField::Kind
            | TextField::AnnotationKey => {}
        }
    }
}

/// What is read of the document under way.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) document: Document,
    pub(super) item: Meta,
    /// An item is under way.
    pub(super) in_item: bool,
}

impl Findings {
    /// Takes a text, `None` where it is too long or malformed.
    pub(super) fn set(&mut self, field: TextField, text: Option<String>) {
        match field {
            TextField::EventType => self.document.event_type = text.unwrap_or_default(),
            TextField::ApiVersion => self.document.api_version = text.unwrap_or_default(),
            TextField::Kind => self.document.kind = text.unwrap_or_default(),
            _ if self.in_item => self.item.set(field, text),
            _ => self.document.meta.set(field, text),
        }
    }

    pub(super) fn begin_item(&mut self) {
        self.item = Meta::default();
        self.in_item = true;
    }

    pub(super) fn end_item(&mut self) -> Seen {
        self.in_item = false;
        Seen::Item(std::mem::take(&mut self.item))
    }

    pub(super) fn end_document(&mut self) -> Seen {
        let findings = std::mem::take(self);
        Seen::Document(findings.document)
    }
}

impl Text {
    /// Begins another text.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.cut = false;
    }

    /// Adds bytes; what is too long is not kept.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = TEXT_BYTES.saturating_sub(self.bytes.len());
        self.cut |= bytes.len() > room;
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// The bytes, if they are all.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        (!self.cut).then_some(&*self.bytes)
    }
}
