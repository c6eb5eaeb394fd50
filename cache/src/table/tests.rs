//! Rows against what the printers of Kubernetes print.

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::*;

mod servers;

/// What kube-apiserver v1.36.3's printers, and its convertor for custom resources, print of an object a quarter of a second after noon of
/// 2026-06-01, and later.
const PRINTED: &str = include_str!("testdata/printed.jsonl");

/// All kinds with printers of their own, with the number of their cells and the names of their columns.
const KINDS: &str = include_str!("testdata/kinds.txt");

#[derive(Deserialize)]
struct Printed<'a> {
    name: String,
    gvr: [String; 3],
    #[serde(default)]
    custom: bool,
    #[serde(borrow)]
    definitions: &'a RawValue,
    #[serde(borrow)]
    definition: Option<&'a RawValue>,
    #[serde(borrow)]
    object: &'a RawValue,
    #[serde(borrow)]
    cells: &'a RawValue,
    #[serde(borrow)]
    conditions: Option<&'a RawValue>,
    later: Vec<Later>,
}

#[derive(Deserialize)]
struct Later {
    at: jiff::Timestamp,
    cells: Value,
}

impl Printed<'_> {
    fn columns(&self) -> Columns {
        let [group, version, resource] = &self.gvr;
        let gvr = Gvr::new(group, version, resource);
        let definition = self.definition.map(|it| it.get().as_bytes());
        Columns::learn(&gvr, self.custom, self.definitions.get(), definition)
            .unwrap_or_else(|why| panic!("{}: {why}", self.name))
    }
}

fn printed() -> impl Iterator<Item = Printed<'static>> {
    PRINTED
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
}

fn written(row: &Row, at: jiff::Timestamp) -> Value {
    let mut text = bytes::BytesMut::new();
    row.write(&mut text, at);
    text.extend_from_slice(b"\"object\":null}");
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn rows_say_what_the_servers_printers_say_then_and_later() {
    let noon = "2026-06-01T12:00:00.25Z".parse().unwrap();
    let mut count = 0;
    for printed in printed() {
        let columns = printed.columns();
        let conditions = printed.conditions.map(RawValue::get);
        let object = printed.object.get().as_bytes();
        let row = columns.row(printed.cells.get(), conditions, object);
        let row = row.unwrap_or_else(|| panic!("{}: not understood", printed.name));
        let first = written(&row, noon);
        let cells: Value = serde_json::from_str(printed.cells.get()).unwrap();
        assert_eq!(first["cells"], cells, "{}", printed.name);
        let conditions: Value =
            conditions.map_or(Value::Null, |it| serde_json::from_str(it).unwrap());
        assert_eq!(first["conditions"], conditions, "{}", printed.name);
        for later in &printed.later {
            let now = written(&row, later.at);
            assert_eq!(
                now["cells"], later.cells,
                "{} at {}",
                printed.name, later.at
            );
            // What a server prints then is the same row.
            let cells = later.cells.to_string();
            let again = columns.row(&cells, printed.conditions.map(RawValue::get), object);
            assert_eq!(
                again.as_ref(),
                Some(&row),
                "{} at {}",
                printed.name,
                later.at
            );
        }
        count += 1;
    }
    assert!(count > 50, "{count}");
}

#[test]
fn cells_that_are_not_as_expected_are_not_understood() {
    let mut looked_at = 0;
    for printed in printed() {
        let columns = printed.columns();
        let object = printed.object.get().as_bytes();
        for (age, other) in [
            ("60m", "an hour"),
            ("60m", "60m0s"),
            ("60m", ""),
            ("5m", "<none>"),
        ] {
            let cells = printed.cells.get();
            let changed = cells.replace(&format!("\"{age}\""), &format!("\"{other}\""));
            if changed != cells {
                let row = columns.row(&changed, None, object);
                looked_at += 1;
                assert!(row.is_none(), "{}: {changed}", printed.name);
            }
        }
    }
    assert!(looked_at > 50, "{looked_at}");
}

#[test]
fn all_kinds_with_printers_are_known() {
    // Never listed: an answer to reviews and the like.
    let never = ["componentstatuses", "scales"];
    for line in KINDS.lines() {
        let (resource, columns) = line.split_once(' ').unwrap();
        let (group, resource) = resource.rsplit_once('/').unwrap();
        let columns: Vec<&str> = columns.split('|').skip(1).collect();
        // Served by no server that has these printers.
        if resource == "flowschemas" {
            let learned = Columns::learn(
                &Gvr::new(group, "v1", resource),
                false,
                "[{\"name\":\"Name\",\"type\":\"string\"}]",
                None,
            );
            assert_eq!(learned, Err(NotPrintable::Sorted));
            continue;
        }
        if never.contains(&resource) || (group == "extensions" && resource != "ingresses") {
            continue;
        }
        let gvr = Gvr::new(group, "v1", resource);
        let definition = |name: &&str| serde_json::json!({"name": name, "type": "string"});
        let definitions = Value::from_iter(columns.iter().map(definition)).to_string();
        let learned = Columns::learn(&gvr, false, &definitions, None);
        assert!(learned.is_ok(), "{line}: {learned:?}");
    }
}

#[test]
fn what_is_not_known_is_not_printable() {
    let names = |names: &[&str], kind: &str| {
        let definition = |name: &&str| serde_json::json!({"name": name, "type": kind});
        Value::from_iter(names.iter().map(definition)).to_string()
    };
    let learn = |group: &str, resource: &str, is_custom, definitions: &str| {
        let gvr = Gvr::new(group, "v1", resource);
        Columns::learn(&gvr, is_custom, definitions, None).map(|_| ())
    };
    let pods = names(&["Name", "Uptime"], "string");
    let column = |name: &str| NotPrintable::UnknownColumn(name.to_owned());
    assert_eq!(learn("", "pods", false, &pods), Err(column("Uptime")));
    assert_eq!(
        learn("metrics.k8s.io", "pods", false, &pods),
        Err(NotPrintable::UnknownKind)
    );
    for definitions in ["", "[]", "{}", "[1]", "null", "[{}]"] {
        assert_eq!(
            learn("", "pods", false, definitions),
            Err(NotPrintable::NoColumns),
            "{definitions}"
        );
    }
    let dates = names(&["Name", "When"], "date").replacen("date", "string", 1);
    let why = learn("ex.io", "widgets", true, &dates);
    assert_eq!(why, Err(NotPrintable::NoDefinition("When".to_owned())));
    // Any kind that is printed by default: a time that stays.
    let default = r#"[{"name":"Name","type":"string"},{"name":"Created At","type":"date"}]"#;
    assert_eq!(learn("example.com", "flunders", false, default), Ok(()));
}

proptest! {
    #[test]
    fn any_bytes_can_be_looked_at(
        definitions in ".{0,40}",
        cells in prop_oneof![r#"\[("[a-z0-9\\"]{0,4}",?){0,3}\]"#, ".{0,40}"],
        object in prop_oneof![prop::collection::vec(any::<u8>(), 0..60), Just(vec![b'['; 100_000])],
        at in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let gvr = Gvr::new("", "v1", "pods");
        let _ = Columns::learn(&gvr, true, &definitions, Some(&object));
        let all: Vec<_> = printed().collect();
        let printed = &all[at.index(all.len())];
        let columns = printed.columns();
        let _ = columns.row(&cells, None, printed.object.get().as_bytes());
        let _ = columns.row(printed.cells.get(), Some(&cells), &object);
        let whole = printed.object.get().as_bytes();
        let _ = columns.row(printed.cells.get(), None, &whole[..cut.index(whole.len())]);
    }
}
