//! docs/CONFIG.md says what the code does.

use std::collections::BTreeSet;

use clap::CommandFactory as _;

use super::*;
use crate::args::Args;

const DOCS: &str = include_str!("../../../../docs/CONFIG.md");

/// The text between two others, the first time.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap();
    rest.split_once(end).unwrap().0
}

/// The document of the section "The file".
fn example() -> Value {
    let text = between(
        between(DOCS, "\n## The file\n", "\n## "),
        "```yaml\n",
        "```",
    );
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn the_example_holds_the_defaults() {
    let mut document = example();
    let said = file::parse(document.clone(), Path::new("/")).unwrap();
    assert_eq!(said.listen, Some(ListenAddress::listen()));
    assert_eq!(said.admin_listen, Some(ListenAddress::admin_listen()));
    let defaults = ClusterDefaults {
        // It shows how users are known.
        identity: Identity::Impersonate,
        broad_questions: Some(true),
        ..ClusterDefaults::default()
    };
    assert_eq!(said.defaults, defaults);
    let settings = AuthorizationSettings::default();
    assert_eq!(said.authorization.settings, settings);
    assert_eq!(said.connections, ConnectionsConfig::default());
    assert_eq!(said.cache, CacheConfig::default());

    // A key that is not taken over by the parser's result would go unnoticed: the schema knows its default too.
    fn compare(written: &Value, schema: &Value, path: &str) {
        for (key, written) in written.as_object().into_iter().flatten() {
            let path = format!("{path}.{key}");
            let schema = &schema["properties"][key];
            if let Some(default) = schema.get("default") {
                assert_eq!(written, default, "{path}");
            }
            compare(written, schema, &path);
        }
    }
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    validator.validate(&document).unwrap();
    // Overrides are there to differ.
    document["overrides"] = Value::Null;
    compare(&document, &schema(), "");
}

#[test]
fn the_example_has_every_key() {
    fn of_document(value: &Value, path: &str, keys: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let path = format!("{path}.{key}");
                    keys.insert(path.clone());
                    of_document(value, &path, keys);
                }
            }
            Value::Array(items) => items.iter().for_each(|it| of_document(it, path, keys)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    fn of_schema(schema: &Value, path: &str, keys: &mut BTreeSet<String>) {
        for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{key}");
            keys.insert(path.clone());
            of_schema(schema, &path, keys);
            of_schema(&schema["items"], &path, keys);
        }
    }
    let (mut written, mut known) = (BTreeSet::new(), BTreeSet::new());
    let mut document = example();
    // They take the keys of `defaults`, which are there already.
    document["overrides"] = serde_json::json!([{"cluster": "*"}]);
    of_document(&document, "", &mut written);
    of_schema(&schema(), "", &mut known);
    known.retain(|key| !key.starts_with(".overrides.") || key == ".overrides.cluster");
    assert_eq!(written, known);
}

#[test]
fn every_flag_is_in_the_table_with_its_variable_and_its_default() {
    let command = Args::command();
    let command = command.find_subcommand("serve").unwrap();
    let flags = command
        .get_arguments()
        .filter(|it| it.get_long() != Some("help"));
    let known: Vec<_> = flags
        .map(|it| {
            let env = it.get_env().unwrap().to_str().unwrap().to_owned();
            (it.get_long().unwrap().to_owned(), env)
        })
        .collect();
    let rows = DOCS.lines().filter_map(|line| line.strip_prefix("| `--"));
    let rows: Vec<Vec<_>> = rows
        .map(|row| row.split('|').map(str::trim).collect())
        .collect();
    let written: Vec<_> = rows
        .iter()
        .map(|row| {
            let flag = row[0].split([' ', '`']).next().unwrap();
            (flag.to_owned(), between(row[1], "`", "`").to_owned())
        })
        .collect();
    assert_eq!(written, known);

    let default = |flag: &str| rows.iter().find(|row| row[0].starts_with(flag)).unwrap()[2];
    let quoted = |address: ListenAddress| format!("`{address}`");
    assert_eq!(default("listen "), quoted(ListenAddress::listen()));
    assert_eq!(
        default("admin-listen "),
        quoted(ListenAddress::admin_listen())
    );
    let help = command.clone().render_help().to_string();
    for address in [ListenAddress::listen(), ListenAddress::admin_listen()] {
        assert!(help.contains(&format!("[default: {address}]")), "{help}");
    }
}

#[test]
fn every_command_is_in_the_synopsis_with_its_flags() {
    fn walk(command: &clap::Command, words: &str, known: &mut BTreeSet<String>) {
        if !command.has_subcommands() {
            for argument in command.get_arguments() {
                match argument.get_long() {
                    Some("help") => {}
                    Some(long) => drop(known.insert(format!("{words} --{long}"))),
                    None if argument.get_short().is_some() => {
                        known.insert(format!("{words} -{}", argument.get_short().unwrap()));
                    }
                    None => {}
                }
            }
            known.insert(words.to_owned());
        }
        for command in command.get_subcommands() {
            walk(command, &format!("{words} {}", command.get_name()), known);
        }
    }
    let mut known = BTreeSet::new();
    walk(&Args::command(), "fleetcache", &mut known);

    let mut written = BTreeSet::new();
    for line in between(DOCS, "```\n", "```").lines() {
        let words = line.split_whitespace();
        let is_name = |word: &&str| word.bytes().all(|b| b.is_ascii_lowercase());
        let command: Vec<_> = words.clone().take_while(is_name).collect();
        let command = command.join(" ");
        let flags = words.filter_map(|word| word.strip_prefix('[')?.strip_prefix('-'));
        for flag in flags {
            let flag = flag.split(']').next().unwrap_or_default();
            written.insert(format!("{command} -{flag}"));
        }
        written.insert(command);
    }
    assert_eq!(written, known);
}
