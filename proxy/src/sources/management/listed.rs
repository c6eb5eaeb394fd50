//! The metadata of the objects of one list, kept by its watch.

use std::collections::BTreeMap;
use std::fmt;

use kube::core::metadata::PartialObjectMeta;
use kube::runtime::watcher::Event;

/// The place of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectName {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What of an object's metadata counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) labels: BTreeMap<String, String>,
}

/// The objects of one list.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// None before the first list was complete.
    objects: Option<BTreeMap<ObjectName, Metadata>>,
    /// Of a list that is coming in. It replaces the others when it is complete, so that nothing seems gone until then.
    arriving: BTreeMap<ObjectName, Metadata>,
    /// Why the server does not give the list, or the watch.
    refused: Option<String>,
}

impl Listed {
    /// Takes an event; whether the objects are other ones now.
    pub(super) fn apply(&mut self, event: Event<PartialObjectMeta>) -> bool {
        match event {
            Event::Init => {
                self.arriving.clear();
                return false;
            }
            Event::InitApply(object) => {
                self.arriving.extend(read(object));
                return false;
            }
            Event::InitDone => self.objects = Some(std::mem::take(&mut self.arriving)),
            Event::Apply(object) => self.objects.get_or_insert_default().extend(read(object)),
            Event::Delete(object) => {
                if let (Some(objects), Some((name, _))) = (&mut self.objects, read(object)) {
                    objects.remove(&name);
                }
            }
        }
        self.refused = None;
        true
    }

    /// The server refuses. What was known stays; whether it is news.
    pub(super) fn refuse(&mut self, why: String) -> bool {
        let is_news = self.refused.as_ref() != Some(&why);
        self.refused = Some(why);
        is_news
    }

    /// Why the server does not give it.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Whether it has been told which objects there are, or that it will not be.
    pub(super) fn has_told(&self) -> bool {
        self.objects.is_some() || self.refused.is_some()
    }

    /// The objects; none where they are not known.
    pub(super) fn objects(&self) -> Option<&BTreeMap<ObjectName, Metadata>> {
        self.objects.as_ref()
    }
}

fn read(object: PartialObjectMeta) -> Option<(ObjectName, Metadata)> {
    let metadata = object.metadata;
    let name = ObjectName {
        namespace: metadata.namespace?,
        name: metadata.name?,
    };
    let metadata = Metadata {
        uid: metadata.uid?,
        resource_version: metadata.resource_version.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default(),
    };
    Some((name, metadata))
}
