//! Rows of a Table as a server printed them, kept so that they do not grow old.
//!
//! Most cells say the same until their object changes: they are kept as they came. Those that tell how long ago something was
//! are kept with the instant in their place, which the columns of the kind (`built_in.rs`, `custom.rs`) say where to find in the
//! object (`rule.rs`). A cell that is not what that would give is not understood, and then no row is kept.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::gvr::Gvr;

pub mod age;
mod built_in;
mod custom;
mod instant;
mod json_path;
mod restarts;
mod row;
mod rule;
#[cfg(test)]
mod tests;

pub(crate) use self::row::Row;
use self::rule::Rule;

/// Why the rows of a kind cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotPrintable {
    /// The server's definitions of its columns cannot be read, or there are none.
    #[error("the Table has no columns")]
    NoColumns,
    /// Neither a kind of Kubernetes' own that prints itself in a known way nor one that is printed by default: one of an
    /// aggregated API, or one that came later.
    #[error("it is not known how the server prints this kind")]
    UnknownKind,
    /// What is in its cells may depend on the time.
    #[error("it is not known what the column {0:?} says")]
    UnknownColumn(String),
    /// The path of a date is in the CustomResourceDefinition alone.
    #[error(
        "where the column {0:?} has its time from is in the CustomResourceDefinition, which was not read"
    )]
    NoDefinition(String),
    /// It was changed, or is read as it was before.
    #[error("the CustomResourceDefinition says other columns than the Table has")]
    OtherColumns,
    /// What a LIST holds stands in another order in its Table.
    #[error("the server sorts the rows of this kind by what they say")]
    Sorted,
    /// More than names, elements by number and elements by a text in them.
    #[error("the jsonPath {path:?} of the column {column:?} is not understood")]
    Path {
        /// Its name.
        column: String,
        /// Its path.
        path: String,
    },
}

/// What a Table says of a column.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Definition {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    format: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    priority: i64,
}

impl Definition {
    fn is_date(&self) -> bool {
        self.kind == "date"
    }
}

/// The columns of a kind, and which of its cells depend on the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    definitions: String,
    rules: Vec<Rule>,
    /// How a cell is made that may come behind those of the columns.
    unnamed: Option<Rule>,
    is_default: bool,
}

impl Columns {
    /// Reads the `columnDefinitions` of a Table: a JSON array. `definition` is the CustomResourceDefinition as JSON, where it
    /// is needed and was read.
    ///
    /// # Errors
    /// Why the rows of this kind cannot be kept.
    pub(crate) fn learn(
        gvr: &Gvr,
        is_custom: bool,
        definitions: &str,
        definition: Option<&[u8]>,
    ) -> Result<Self, NotPrintable> {
        let columns = parse(definitions).ok_or(NotPrintable::NoColumns)?;
        let is_default = !is_custom && is_printed_by_default(&columns);
        let (rules, unnamed) = if is_custom {
            (custom::rules(&gvr.version, &columns, definition)?, None)
        } else if is_default {
            (vec![Rule::Timeless, Rule::CreatedAt], None)
        } else if built_in::is_sorted(gvr) {
            return Err(NotPrintable::Sorted);
        } else if built_in::is_known(gvr) {
            let rule = |column: &Definition| {
                built_in::rule(gvr, &column.name)
                    .ok_or_else(|| NotPrintable::UnknownColumn(column.name.clone()))
            };
            let rules: Result<_, _> = columns.iter().map(rule).collect();
            (rules?, built_in::unnamed(gvr))
        } else {
            return Err(NotPrintable::UnknownKind);
        };
        Ok(Self {
            definitions: definitions.to_owned(),
            rules,
            unnamed,
            is_default,
        })
    }

    /// Whether learning needs the CustomResourceDefinition: a Table tells the path of a column only where it has no
    /// description of its own.
    pub(crate) fn needs_definition(is_custom: bool, definitions: &str) -> bool {
        is_custom && parse(definitions).is_some_and(|it| custom::needs_definition(&it))
    }

    /// The definitions, byte for byte as the server sent them.
    pub(crate) fn definitions(&self) -> &str {
        &self.definitions
    }

    /// Whether the kind is printed by what prints any: that writes no rows as `null`.
    pub(crate) fn are_default(&self) -> bool {
        self.is_default
    }

    /// A row as it is kept; `cells` and `conditions` are JSON arrays. `None` where a cell that depends on the time is not what the
    /// object and the rules say. Bookmarks, whose objects are empty, have rows like any other.
    pub(crate) fn row(&self, cells: &str, conditions: Option<&str>, object: &[u8]) -> Option<Row> {
        let cells: Vec<&RawValue> = serde_json::from_str(cells).ok()?;
        let object: &RawValue = serde_json::from_slice(object).ok()?;
        // An array would be read as fields in order.
        if !object.get().starts_with('{') {
            return None;
        }
        let behind = cells.len().checked_sub(self.rules.len())?;
        match &self.unnamed {
            _ if behind == 0 => Row::new(&self.rules, &cells, conditions, object),
            Some(rule) if behind == 1 => {
                let rules = [&self.rules[..], std::slice::from_ref(rule)].concat();
                Row::new(&rules, &cells, conditions, object)
            }
            _ => None,
        }
    }
}

fn parse(definitions: &str) -> Option<Vec<Definition>> {
    let columns: Vec<Definition> = serde_json::from_str(definitions).ok()?;
    (!columns.is_empty()).then_some(columns)
}

/// Whether these are the columns of a kind without any of its own.
fn is_printed_by_default(columns: &[Definition]) -> bool {
    let [name, created] = columns else {
        return false;
    };
    name.name == "Name" && created.name == "Created At" && created.is_date()
}
