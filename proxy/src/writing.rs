//! How memory writes what was asked for, where it can: objects and their metadata alone, in JSON or protobuf, and Tables.

use fleetcache_cache::form::{Form, Table};
use fleetcache_cache::gvr::Gvr;
use fleetcache_cache::informers::Informers;
use http::HeaderMap;

use crate::decision::LiveReason;
use crate::gzip;
use crate::negotiation::{self, Encoding, Offer, include_object, negotiate};
use crate::request_info::Verb;

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";

/// How an answer from memory is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// What is written of objects.
    pub form: Form,
    /// Indented, for people.
    pub pretty: bool,
    /// Compressed, where it is long and no watch.
    pub gzip: bool,
}

impl Written {
    /// The media type of a read's answer.
    pub(crate) fn media_type(self) -> &'static str {
        match self.form.is_protobuf() {
            true => "application/vnd.kubernetes.protobuf",
            false => JSON,
        }
    }

    /// The media type of a watch.
    pub(crate) fn media_type_of_stream(self) -> &'static str {
        match self.form.is_protobuf() {
            true => "application/vnd.kubernetes.protobuf;stream=watch",
            false => JSON,
        }
    }
}

/// How a request's answer is written. The server negotiates about built-in kinds in another way than about custom resources,
/// and which of them a kind is, is known when it is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writing {
    built_in: Option<Written>,
    custom: Option<Written>,
}

impl Default for Writing {
    /// Objects, whatever the kind.
    fn default() -> Self {
        Self {
            built_in: Some(Written::default()),
            custom: Some(Written::default()),
        }
    }
}

impl Writing {
    /// Written so, whatever the kind.
    #[cfg(test)]
    pub(crate) fn always(written: Written) -> Self {
        Self {
            built_in: Some(written),
            custom: Some(written),
        }
    }

    /// What a read or watch asks for.
    pub fn of(verb: Verb, query: &str, headers: &HeaderMap) -> Self {
        let of = |offer| in_memory(offer, verb, query, headers);
        Self {
            built_in: of(Offer::BuiltIn),
            custom: of(Offer::Custom),
        }
    }

    /// Whether there are kinds that memory can write so.
    ///
    /// # Errors
    /// There are none.
    pub fn of_some_kind(self) -> Result<(), LiveReason> {
        match self.built_in.or(self.custom) {
            Some(_) => Ok(()),
            None => Err(LiveReason::Representation),
        }
    }

    /// How a kind is written, as far as is known which sort it is of. Where no informer has found out, only groups of custom
    /// resources are known by their names.
    ///
    /// # Errors
    /// Memory cannot write it.
    pub fn of_gvr(self, gvr: &Gvr, informers: &Informers) -> Result<Written, LiveReason> {
        // What no informer of the kind will have starts none.
        match self.needs_tables_that_are_off(gvr, informers) {
            true => Err(LiveReason::Representation),
            false => self.of_sort(gvr, informers),
        }
    }

    /// Whether it is a Table, and the configuration says that those of the kind go live.
    pub fn needs_tables_that_are_off(self, gvr: &Gvr, informers: &Informers) -> bool {
        let written = self.of_sort(gvr, informers);
        let is_table = written.is_ok_and(|written| matches!(written.form, Form::Table(_)));
        is_table && !informers.keeps(gvr).tables
    }

    fn of_sort(self, gvr: &Gvr, informers: &Informers) -> Result<Written, LiveReason> {
        // Mostly it makes no difference.
        let is_custom = self.built_in != self.custom
            && informers
                .is_custom(gvr)
                .unwrap_or_else(|| gvr.group.contains('.') && !gvr.group.ends_with(".k8s.io"));
        self.of_kind(is_custom)
    }

    /// How a kind is written; `is_unstructured` of custom resources.
    ///
    /// # Errors
    /// Memory cannot write it.
    pub fn of_kind(self, is_unstructured: bool) -> Result<Written, LiveReason> {
        let written = if is_unstructured {
            self.custom
        } else {
            self.built_in
        };
        written.ok_or(LiveReason::Representation)
    }
}

fn in_memory(offer: Offer, verb: Verb, query: &str, headers: &HeaderMap) -> Option<Written> {
    let negotiated = negotiate(offer, query, headers).ok()?;
    let (is_protobuf, pretty) = match negotiated.encoding {
        Encoding::Json { pretty } => (false, pretty),
        Encoding::Protobuf => (true, false),
        Encoding::Yaml => return None,
    };
    let form = match (negotiated.form, verb) {
        (negotiation::Form::Object, _) if is_protobuf => Form::Protobuf,
        (negotiation::Form::Object, _) => Form::Object,
        (negotiation::Form::Metadata(version), Verb::Get | Verb::Watch)
        | (negotiation::Form::MetadataList(version), Verb::List) => match is_protobuf {
            true => Form::ProtobufMetadata(version),
            false => Form::Metadata(version),
        },
        // A list that is asked for as one object, or the other way round, is refused.
        (negotiation::Form::Metadata(_) | negotiation::Form::MetadataList(_), _) => return None,
        (negotiation::Form::Table(version), _) => Form::Table(Table {
            version,
            include: include_object(query).ok()?,
            has_columns: true,
        }),
    };
    let gzip = gzip::is_accepted(headers);
    Some(Written { form, pretty, gzip })
}
