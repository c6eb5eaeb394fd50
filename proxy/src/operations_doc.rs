//! docs/OPERATIONS.md has every reason, every cause and every line of the log.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fleetcache_cache::cluster_accessor::{NotConnectedReason, Right};

const DOC: &str = include_str!("../../docs/OPERATIONS.md");

/// The words in backticks in the first column of the table that has this head.
fn words(head: &str) -> BTreeSet<&'static str> {
    let (_, table) = DOC.split_once(&format!("\n| {head} |")).unwrap();
    let rows = table.lines().skip(2).map_while(|it| it.strip_prefix("| "));
    let first = rows.filter_map(|row| row.split(" |").next());
    first
        .flat_map(|it| it.split('`').skip(1).step_by(2))
        .collect()
}

#[test]
fn each_reason_is_in_the_table() {
    let known = NotConnectedReason::ALL.iter().map(|it| it.as_str());
    assert_eq!(words("reason | look at"), known.collect());
}

#[test]
fn each_cause_of_a_request_is_in_the_table() {
    let source = include_str!("error.rs");
    let (_, function) = source.split_once("\npub fn cause(").unwrap();
    let (function, _) = function.split_once("\n}\n").unwrap();
    let mut known: BTreeSet<_> = function.split('"').skip(1).step_by(2).collect();
    known.insert("OutcomeUnknown");
    assert_eq!(words("cause | look at"), known);
}

#[test]
fn each_line_of_the_log_is_in_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut messages = BTreeSet::new();
    for package in ["auth", "cache", "proxy"] {
        for file in sources(&root.join(package).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            for level in ["error!(", "info!(", "warn!("] {
                messages.extend(calls(code, level).filter_map(message));
            }
        }
    }
    // Those of a reload, notes on clusters and rights are made elsewhere.
    messages.retain(|it| !it.starts_with('{'));
    let made = [
        "configuration reloaded",
        "configuration reloaded: nothing is different",
        "clusters changed",
        "is reached over plain http, so its credential is not sent",
    ];
    messages.extend(made.map(str::to_owned));
    let rights = Right::ALL.map(|right| [right.refused(), right.granted()]);
    messages.extend(rights.into_iter().flatten().map(str::to_owned));
    assert!(
        messages.len() > 40,
        "the scan finds too little: {messages:?}"
    );
    let missing = messages.iter().filter(|it| {
        // A long one is there in its first words.
        let start = it.split(" by the cluster").next().unwrap_or_default();
        let start = start.split(", so that").next().unwrap_or_default();
        !DOC.contains(&format!("`{it}`")) && !DOC.contains(&format!("`{start} …`"))
    });
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&String>::new());
}

/// The source files that are not for tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    entries
        .flat_map(|path| match path.file_stem().and_then(|it| it.to_str()) {
            Some("tests" | "testing" | "fake" | "operations_doc") => Vec::new(),
            _ if path.is_dir() => sources(&path),
            _ => vec![path],
        })
        .collect()
}

/// What stands in the parentheses of each call of a macro.
fn calls<'a>(code: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    code.match_indices(name).filter_map(move |(at, _)| {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|it| it == '_' || it.is_alphanumeric()) {
            return None;
        }
        let arguments = &code[at + name.len()..];
        let (mut depth, mut in_text, mut escaped) = (1, false, false);
        let end = arguments.find(|character| {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = in_text,
                '"' => in_text = !in_text,
                '(' if !in_text => depth += 1,
                ')' if !in_text => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        Some(&arguments[..end?])
    })
}

/// The last text among the arguments.
fn message(arguments: &str) -> Option<String> {
    let (rest, _) = arguments.rsplit_once('"')?;
    Some(rest.rsplit_once('"')?.1.to_owned())
}
