//! The columns of custom resources: those of a CustomResourceDefinition's version, or the one that the server has for a
//! version without any.

use serde::Deserialize;

use super::json_path::JsonPath;
use super::rule::Rule;
use super::{Definition, NotPrintable};

/// What a server says of a column that its definition does not describe: the path is behind it.
const NOT_DESCRIBED: &str = "Custom resource definition column (in JSONPath format): ";

/// How it describes the time of creation in the column that a version without any has.
const OF_CREATION: &str =
    "CreationTimestamp is a timestamp representing the server time when this object was created.";

/// Where all of them have it.
const CREATION: &str = ".metadata.creationTimestamp";

#[derive(Deserialize)]
struct CustomResourceDefinition {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    versions: Vec<Version>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    name: String,
    #[serde(default)]
    additional_printer_columns: Option<Vec<Column>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Column {
    json_path: String,
    #[serde(flatten)]
    definition: Definition,
}

impl Column {
    /// What a server says of it in a Table.
    fn defines(mut self, column: &Definition) -> bool {
        if self.definition.description.is_empty() {
            self.definition.description = format!("{NOT_DESCRIBED}{}", self.json_path);
        }
        self.definition == *column
    }
}

/// Whether there are dates whose paths a Table does not tell.
pub(super) fn needs_definition(columns: &[Definition]) -> bool {
    let is_default = is_default(columns);
    let mut dates = columns.iter().filter(|it| it.is_date());
    !is_default && dates.any(|it| told_path(it).is_none())
}

/// How the cells are made, by the definition where it was read.
pub(super) fn rules(
    version: &str,
    columns: &[Definition],
    definition: Option<&[u8]>,
) -> Result<Vec<Rule>, NotPrintable> {
    let Some((name, own)) = columns.split_first() else {
        return Err(NotPrintable::NoColumns);
    };
    if name.is_date() {
        return Err(NotPrintable::UnknownColumn(name.name.clone()));
    }
    let rules: Result<Vec<Rule>, NotPrintable> = if is_default(columns) {
        Ok(vec![date(&own[0], CREATION)?])
    } else if let Some(definition) = definition.filter(|_| own.iter().any(Definition::is_date)) {
        let defined = defined(version, definition).filter(|it| it.len() == own.len());
        let defined = defined.ok_or(NotPrintable::OtherColumns)?;
        let rule = |(column, defined): (&Definition, Column)| {
            let path = defined.json_path.clone();
            match defined.defines(column) {
                true if column.is_date() => date(column, &path),
                true => Ok(Rule::Timeless),
                false => Err(NotPrintable::OtherColumns),
            }
        };
        own.iter().zip(defined).map(rule).collect()
    } else {
        let rule = |column: &Definition| match told_path(column) {
            _ if !column.is_date() => Ok(Rule::Timeless),
            Some(path) => date(column, path),
            None => Err(NotPrintable::NoDefinition(column.name.clone())),
        };
        own.iter().map(rule).collect()
    };
    let mut all = vec![Rule::Timeless];
    all.extend(rules?);
    Ok(all)
}

/// The columns of a version; `None` where the definition cannot be read or has no such version.
fn defined(version: &str, definition: &[u8]) -> Option<Vec<Column>> {
    let definition: CustomResourceDefinition = serde_json::from_slice(definition).ok()?;
    let mut versions = definition.spec.versions.into_iter();
    let version = versions.find(|it| it.name == version)?;
    version.additional_printer_columns
}

fn date(column: &Definition, path: &str) -> Result<Rule, NotPrintable> {
    match JsonPath::parse(path) {
        Some(path) => Ok(Rule::Date(path)),
        None => Err(NotPrintable::Path {
            column: column.name.clone(),
            path: path.to_owned(),
        }),
    }
}

fn told_path(column: &Definition) -> Option<&str> {
    column.description.strip_prefix(NOT_DESCRIBED)
}

/// Whether the columns are those of a version without any.
fn is_default(columns: &[Definition]) -> bool {
    let [_, age] = columns else { return false };
    age.name == "Age" && age.is_date() && age.description.starts_with(OF_CREATION)
}
