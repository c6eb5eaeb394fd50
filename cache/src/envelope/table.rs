//! Objects as rows of a Table.

use std::sync::Arc;

use bytes::{BufMut as _, BytesMut};

use super::Envelope;
use crate::clock::Clock;
use crate::form::{Form, IncludeObject, Table, Unwritable};
use crate::store::Element;
use crate::table::Columns;

/// What is known of the Tables of a kind: its columns, and the clock that ages are counted by.
#[derive(Clone, Debug)]
pub(super) struct Printed {
    columns: Columns,
    clock: Arc<Clock>,
}

/// The clock makes no other kind of it.
impl PartialEq for Printed {
    fn eq(&self, other: &Self) -> bool {
        self.columns == other.columns
    }
}

impl Eq for Printed {}

impl Envelope {
    /// The same kind with columns: its objects can be written as rows.
    #[must_use]
    pub(crate) fn with_columns(self, columns: Columns, clock: Arc<Clock>) -> Self {
        Self {
            printed: Some(Printed { columns, clock }),
            ..self
        }
    }

    /// Its columns, where its objects can be written as rows.
    pub(crate) fn columns(&self) -> Option<&Columns> {
        self.printed.as_ref().map(|printed| &printed.columns)
    }

    /// What stands before the rows of a Table, and after them; `metadata` is the one of the list, or of the only object.
    pub(crate) fn around_rows(
        &self,
        table: Table,
        metadata: &str,
    ) -> Result<(String, &'static str), Unwritable> {
        let columns = match table.has_columns {
            true => self.columns().ok_or(Unwritable)?.definitions(),
            false => "null",
        };
        let version = table.version.as_str();
        let head = format!(
            r#"{{"kind":"Table","apiVersion":"meta.k8s.io/{version}","metadata":{metadata},"columnDefinitions":{columns},"rows":["#
        );
        Ok((head, "]}"))
    }

    /// Writes an object as the only row of a Table.
    pub(super) fn write_table(
        &self,
        to: &mut BytesMut,
        table: Table,
        element: &Element,
    ) -> Result<(), Unwritable> {
        let metadata = format!(r#"{{"resourceVersion":"{}"}}"#, element.resource_version);
        let (head, tail) = self.around_rows(table, &metadata)?;
        to.put_slice(head.as_bytes());
        self.write_row(to, table, element)?;
        to.put_slice(tail.as_bytes());
        Ok(())
    }

    /// Writes an object as a row.
    pub(super) fn write_row(
        &self,
        to: &mut BytesMut,
        table: Table,
        element: &Element,
    ) -> Result<(), Unwritable> {
        let printed = self.printed.as_ref().ok_or(Unwritable)?;
        let row = element.row.as_ref().ok_or(Unwritable)?;
        row.write(to, printed.clock.now());
        to.put_slice(b"\"object\":");
        match table.include {
            IncludeObject::None => to.put_slice(b"null"),
            IncludeObject::Metadata => {
                self.write_object(to, Form::Metadata(table.version), element)?;
            }
            IncludeObject::Object => self.write_object(to, Form::Object, element)?,
        }
        to.put_slice(b"}");
        Ok(())
    }
}
