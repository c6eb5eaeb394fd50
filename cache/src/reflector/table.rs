//! What a server tells of objects in Tables: beside each object the cells that `kubectl get` shows of it.
//!
//! With `includeObject=Object` each row has the very bytes of the object, so one list and one watch bring both. A server
//! without Tables answers the same question with plain objects, and so may one of several servers; what came is told by its
//! kind.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::list::Page;
use super::requests::{self, fetch_with_headers};
use super::{Reflector, ReflectorError, taken_in};
use crate::connection::{Connection, InformerShard};
use crate::envelope::Envelope;
use crate::gvr::Gvr;
use crate::object::{ListMeta, ObjectHead};
use crate::resource_version::ResourceVersion;
use crate::table::{Columns, Row};

/// What is asked for where the cells count too.
pub(super) const ACCEPT: &str = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json";

/// Each row is to have its object.
const INCLUDE: &str = "&includeObject=Object";

/// How often the columns may turn out to be others than those that were told before, until the kind is kept without.
const OTHER_COLUMNS: u32 = 2;

/// Whether a kind's cells are asked for.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// How often since the last list its columns were others than those that were told before.
    other_columns: u32,
    /// A row was no object.
    no_rows: bool,
}

impl Tables {
    /// The kind was listed to the end.
    pub(super) fn listed(&mut self) {
        self.other_columns = 0;
    }

    /// What was told is no Table as it was expected; false where it was something else that failed.
    pub(super) fn failed(&mut self, error: &ReflectorError) -> bool {
        match error {
            ReflectorError::OtherColumns => self.other_columns += 1,
            ReflectorError::NotARowEach => self.no_rows = true,
            _ => return false,
        }
        true
    }

    fn are_wanted(&self) -> bool {
        !self.no_rows && self.other_columns < OTHER_COLUMNS
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Table<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    metadata: ListMeta<'a>,
    #[serde(borrow, default)]
    column_definitions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    rows: Option<Vec<TableRow<'a>>>,
}

#[derive(Deserialize)]
struct TableRow<'a> {
    #[serde(borrow)]
    cells: &'a RawValue,
    #[serde(borrow, default)]
    conditions: Option<&'a RawValue>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// An object as it was told, and its row.
pub(super) struct Shown<'a> {
    /// The object's bytes.
    pub(super) object: &'a [u8],
    /// `None` where it was told without, or its cells are not understood.
    pub(super) row: Option<Row>,
    /// Whether it came in a Table.
    pub(super) in_table: bool,
}

impl<'a> Shown<'a> {
    /// From what an event of a watch has as its object.
    pub(super) fn of_event(
        envelope: &Envelope,
        object: &'a RawValue,
    ) -> Result<Self, ReflectorError> {
        let object = object.get();
        let columns = envelope.columns().filter(|_| is_table(object.as_bytes()));
        let Some(columns) = columns else {
            return Ok(Self {
                object: object.as_bytes(),
                row: None,
                in_table: false,
            });
        };
        let table: Table<'_> = serde_json::from_str(object).map_err(ReflectorError::BadBytes)?;
        table.check(columns)?;
        match table.rows.as_deref() {
            Some([row]) => Ok(row.shown(columns)),
            _ => Err(ReflectorError::NotARowEach),
        }
    }
}

impl Table<'_> {
    /// The definitions come with the first event of a watch, and with each page of a list.
    fn check(&self, columns: &Columns) -> Result<(), ReflectorError> {
        let told = self.column_definitions.map(RawValue::get);
        match told {
            Some(told) if told != columns.definitions() => Err(ReflectorError::OtherColumns),
            _ => Ok(()),
        }
    }
}

impl<'a> TableRow<'a> {
    fn shown(&self, columns: &Columns) -> Shown<'a> {
        let object = self.object.get().as_bytes();
        let conditions = self.conditions.map(RawValue::get);
        Shown {
            object,
            row: columns.row(self.cells.get(), conditions, object),
            in_table: true,
        }
    }
}

fn is_table(object: &[u8]) -> bool {
    object.starts_with(b"{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/")
}

/// The page of a list, where it is a Table.
pub(super) fn page(body: &[u8], envelope: &Envelope) -> Option<Result<Page, ReflectorError>> {
    let columns = envelope.columns().filter(|_| is_table(body))?;
    let page = || {
        let table: Table<'_> = serde_json::from_slice(body).map_err(ReflectorError::BadBytes)?;
        table.check(columns)?;
        let element = |row: &TableRow<'_>| {
            let shown = row.shown(columns);
            let object = shown.object;
            let head = ObjectHead::parse(object).map_err(ReflectorError::BadBytes)?;
            let item = envelope.item_from_object(object)?;
            let element = taken_in::element(envelope, &head.metadata, object, item)?;
            let element = element.with_values(envelope.fields(), object);
            Ok(element.with_row(shown.row))
        };
        let rows = table.rows.iter().flatten();
        let elements = rows.map(element).collect::<Result<_, ReflectorError>>()?;
        Ok(Page {
            elements,
            continue_token: table.metadata.continue_token.into_owned(),
            resource_version: ResourceVersion::parse(&table.metadata.resource_version),
        })
    };
    Some(page())
}

impl Reflector {
    /// What is asked for, and what the query says of it.
    pub(super) fn asks_for(&self) -> Result<(&'static str, &'static str), ReflectorError> {
        let envelope = self.envelope()?;
        Ok(match envelope.columns() {
            Some(_) => (ACCEPT, INCLUDE),
            None => (requests::accept(self.informer.holding), ""),
        })
    }

    /// The envelope of a kind with its columns; without, where the server has no Tables, or their cells would not stay true.
    pub(super) async fn with_columns(
        &self,
        connection: &Connection,
        shard: &InformerShard,
        envelope: Envelope,
    ) -> Result<Envelope, ReflectorError> {
        let is_custom = envelope.is_unstructured();
        let columns = self.learn_columns(connection, shard, is_custom).await?;
        Ok(match columns {
            Some(columns) => envelope.with_columns(columns, Arc::clone(connection.clock())),
            None => envelope,
        })
    }

    async fn learn_columns(
        &self,
        connection: &Connection,
        shard: &InformerShard,
        is_custom: bool,
    ) -> Result<Option<Columns>, ReflectorError> {
        if !self.informer.keeps.tables || !self.tables.are_wanted() {
            return Ok(None);
        }
        let gvr = &self.informer.gvr;
        let path = requests::list_path(gvr, "limit=1&includeObject=None");
        let table = fetch_with_headers(connection, shard, &path, ACCEPT).await;
        let Some((_, table)) = answer(table)? else {
            return Ok(None);
        };
        let table = serde_json::from_slice(&table).map_err(ReflectorError::BadBytes)?;
        let Table {
            kind,
            column_definitions: Some(definitions),
            ..
        } = table
        else {
            return Ok(None);
        };
        if kind != "Table" {
            return Ok(None);
        }
        let definition = if Columns::needs_definition(is_custom, definitions.get()) {
            let path = definition_path(gvr);
            answer(requests::fetch(connection, shard, &path).await)?
        } else {
            None
        };
        let columns = Columns::learn(gvr, is_custom, definitions.get(), definition.as_deref());
        Ok(columns
            .inspect_err(|why| tracing::info!(%why, "Tables of the kind go live"))
            .ok())
    }
}

fn definition_path(gvr: &Gvr) -> String {
    format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}.{}",
        gvr.resource, gvr.group
    )
}

/// `None` where the server refuses it, or has no such thing.
fn answer<T>(answer: Result<T, ReflectorError>) -> Result<Option<T>, ReflectorError> {
    match answer {
        Err(ReflectorError::Status { code, .. }) if code < 500 && code != 401 => Ok(None),
        answer => answer.map(Some),
    }
}
