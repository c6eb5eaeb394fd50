//! Rows as servers printed them, kept and written at the moment of printing.
//!
//! `kinds.jsonl` holds what the printers of kubernetes v1.36.3 (`pkg/printers/internalversion`) gave: an object of each kind
//! that has one, with the columns, then those with more of time in them, and objects of a kube-apiserver and its bookmarks,
//! which are empty. `custom.jsonl` is a LIST of a kube-apiserver of
//! the same version, for a CustomResourceDefinition with a column of type `date` for each of its paths.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::*;
use crate::table::json_path::JsonPath;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Printed<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    columns: Option<Vec<(String, String)>>,
    #[serde(borrow)]
    cells: &'a RawValue,
    #[serde(borrow)]
    object: &'a RawValue,
    printed_at: &'a str,
}

fn learn(gvr: &Gvr, columns: &[(String, String)]) -> Result<Columns, NotPrintable> {
    let columns = columns
        .iter()
        .map(|(name, kind)| json!({"name": name, "type": kind}));
    Columns::learn(gvr, false, &Value::from_iter(columns).to_string(), None)
}

fn gvr() -> Gvr {
    Gvr::new("ex.io", "v1", "widgets")
}

fn crd_with(columns: &Value) -> Vec<u8> {
    let versions = json!([
        {"name": "v0", "additionalPrinterColumns": [{"name": "Other", "type": "string", "jsonPath": ".x"}]},
        {"name": "v1", "additionalPrinterColumns": columns},
    ]);
    json!({"spec": {"versions": versions}})
        .to_string()
        .into_bytes()
}

fn written(row: &Row, now: &str) -> String {
    let mut to = bytes::BytesMut::new();
    row.write(&mut to, now.parse().unwrap());
    String::from_utf8(to.to_vec()).unwrap()
}

fn printed() -> impl Iterator<Item = Printed<'static>> {
    let lines = include_str!("../testdata/kinds.jsonl").lines();
    let all = lines.map(|line| serde_json::from_str(line).unwrap());
    // Whose rows stand in another order.
    all.filter(|it: &Printed<'_>| it.resource != "flowschemas")
}

/// The columns of each kind, by those of its first line.
fn columns_of(printed: &Printed<'_>) -> Columns {
    let is_same = |it: &Printed<'_>| (it.group, it.resource) == (printed.group, printed.resource);
    let first = self::printed().find(is_same).unwrap();
    let columns: Vec<_> = first.columns.unwrap().into_iter().collect();
    let gvr = Gvr::new(printed.group, printed.version, printed.resource);
    learn(&gvr, &columns).unwrap_or_else(|error| panic!("{gvr}: {error}"))
}

#[test]
fn what_a_printer_wrote_is_written_again() {
    for printed in printed() {
        let columns = columns_of(&printed);
        let row = columns.row(printed.cells.get(), None, printed.object.get().as_bytes());
        let row = row.unwrap_or_else(|| panic!("{} {}", printed.resource, printed.object));
        let expected = format!("{{\"cells\":{},", printed.cells);
        assert_eq!(written(&row, printed.printed_at), expected);
    }
}

/// A row would not notice that a moment was not found: each age has to change with the time.
#[test]
fn no_age_stays_as_it_is() {
    let ages = |cells: &str| {
        let cells: Vec<Value> = serde_json::from_str(cells).unwrap();
        let cells = cells.into_iter();
        cells
            .map(|cell| cell.as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    for printed in printed() {
        let columns = columns_of(&printed);
        let row = columns.row(printed.cells.get(), None, printed.object.get().as_bytes());
        let later = written(&row.unwrap(), "2050-01-01T00:00:00Z");
        let later = later.strip_prefix("{\"cells\":").unwrap();
        let later = ages(later.strip_suffix(',').unwrap());
        for (before, later) in ages(printed.cells.get()).iter().zip(&later) {
            let is_age = before.contains(" ago)") || age::span(before).is_some();
            // How long a job took, and how long a certificate is to be valid, is no age.
            let is_over = matches!(before.as_str(), "3h30m" | "60m");
            assert_eq!(
                before != later,
                is_age && !is_over,
                "{} {before}",
                printed.object
            );
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    paths: Vec<String>,
    printed_at: String,
}

#[derive(Deserialize)]
struct CustomRow<'a> {
    #[serde(borrow)]
    cells: &'a RawValue,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[test]
fn the_dates_of_custom_resources_are_found_as_the_server_finds_them() {
    let mut lines = include_str!("../testdata/custom.jsonl").lines();
    let head: Head = serde_json::from_str(lines.next().unwrap()).unwrap();
    // Those that are not understood have no row at all.
    let is_understood = |path: &String| JsonPath::parse(path).is_some();
    let understood: Vec<bool> = head.paths.iter().map(is_understood).collect();
    let paths: Vec<&String> = head
        .paths
        .iter()
        .filter(|path| is_understood(path))
        .collect();
    assert!(paths.len() + 2 >= head.paths.len(), "{paths:?}");
    let column = |path: &&String| json!({"name": path, "type": "date", "format": "", "description": format!("At: {path}"), "priority": 0});
    let mut columns: Vec<Value> = paths.iter().map(column).collect();
    let defined = columns.iter().zip(&paths).map(|(column, path)| {
        let mut column = column.clone();
        column["jsonPath"] = json!(path);
        column
    });
    let definition = crd_with(&Value::from_iter(defined));
    columns.insert(0, json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}));
    let columns = Value::from(columns).to_string();
    let columns = Columns::learn(&gvr(), true, &columns, Some(&definition)).unwrap();
    for line in lines {
        let printed: CustomRow<'_> = serde_json::from_str(line).unwrap();
        let cells: Vec<&RawValue> = serde_json::from_str(printed.cells.get()).unwrap();
        let dates = cells[1..]
            .iter()
            .zip(&understood)
            .filter(|(_, is_understood)| **is_understood);
        let cells: Vec<&str> = [cells[0].get()]
            .into_iter()
            .chain(dates.map(|(cell, _)| cell.get()))
            .collect();
        let cells = format!("[{}]", cells.join(","));
        let row = columns.row(&cells, None, printed.object.get().as_bytes());
        let row = row.unwrap_or_else(|| panic!("{line}"));
        assert_eq!(
            written(&row, &head.printed_at),
            format!("{{\"cells\":{cells},")
        );
    }
}
