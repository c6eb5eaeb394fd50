use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::observe::seen::{Document, Meta};

/// All that is seen in a stream of pieces, and how many bytes had been read when it was.
fn scan(mut scan: JsonScan, pieces: &[&[u8]]) -> Result<Vec<(Seen, usize)>, Unreadable> {
    let (mut seen, mut read) = (Vec::new(), 0);
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let (taken, found) = scan.next(rest)?;
            read += taken;
            rest = &rest[taken..];
            seen.extend(found.map(|found| (found, read)));
        }
    }
    Ok(seen)
}

fn meta(namespace: &str, name: &str, resource_version: &str) -> Meta {
    Meta {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        resource_version: resource_version.to_owned(),
        ..Meta::default()
    }
}

fn document(event_type: &str, api_version: &str, kind: &str, meta: Meta) -> Seen {
    Seen::Document(Document {
        event_type: event_type.to_owned(),
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        meta,
    })
}

/// The same wherever the bytes are cut.
#[track_caller]
fn check(new: fn() -> JsonScan, text: &str, expected: &[Seen]) {
    let bytes = text.as_bytes();
    for cut in 0..bytes.len() {
        let (one, two) = bytes.split_at(cut);
        let seen = scan(new(), &[one, two]).unwrap();
        let seen: Vec<Seen> = seen.into_iter().map(|(seen, _)| seen).collect();
        assert_eq!(seen, expected, "cut at {cut}: {text}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    let seen = scan(new(), &single).unwrap();
    assert!(seen.iter().map(|(seen, _)| seen).eq(expected));
}

#[test]
fn an_objects_version_is_found() {
    check(
        JsonScan::of_body,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","resourceVersion":"5","labels":{"name":"no"},"ownerReferences":[{"name":"no","uid":"no"}],"managedFields":[{"fieldsV1":{"f:metadata":{"name":"no"}}}]},"spec":{"metadata":{"name":"no","resourceVersion":"9"},"n":-1.5e3,"t":true,"z":null}}"#,
        &[document("", "v1", "Pod", meta("ns", "a", "5"))],
    );
}

#[test]
fn the_items_of_both_orders_of_lists_are_found() {
    let items = r#"[{"metadata":{"name":"a","namespace":"ns","resourceVersion":"5"},"items":[{"metadata":{"name":"no"}}]},{"spec":{},"metadata":{"resourceVersion":"6","name":"b"}}]"#;
    let page = Meta {
        continues: true,
        ..meta("", "", "9")
    };
    let seen = |api_version, kind, meta| {
        [
            Seen::Item(self::meta("ns", "a", "5")),
            Seen::Item(self::meta("", "b", "6")),
            document("", api_version, kind, meta),
        ]
    };
    check(
        JsonScan::of_body,
        &format!(
            "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"9\",\"continue\":\"t\"}},\"items\":{items}}}\n"
        ),
        &seen("v1", "PodList", page),
    );
    check(
        JsonScan::of_body,
        &format!(
            "{{\"apiVersion\":\"ex.io/v1\",\"items\":{items},\"kind\":\"WList\",\"metadata\":{{\"continue\":\"\",\"resourceVersion\":\"9\"}}}}\n"
        ),
        &seen("ex.io/v1", "WList", meta("", "", "9")),
    );
}

#[test]
fn the_rows_of_a_table_are_found() {
    check(
        JsonScan::of_body,
        r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"columnDefinitions":[{"name":"Name"}],"rows":[{"cells":["a",{"metadata":{"name":"no"}}],"object":{"kind":"PartialObjectMetadata","metadata":{"name":"a","namespace":"ns","resourceVersion":"5"}}},{"cells":["b"],"object":null}]}"#,
        &[
            Seen::Item(meta("ns", "a", "5")),
            Seen::Item(Meta::default()),
            document("", "meta.k8s.io/v1", "Table", meta("", "", "9")),
        ],
    );
}

const EVENTS: &str = concat!(
    r#"{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"5"}}}"#,
    "\n",
    r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"annotations":{"a":"b","k8s.io/initial-events-end":"true"},"resourceVersion":"8"}}}"#,
    "\n",
);

fn bookmark() -> Seen {
    let end = Meta {
        initial_events_end: true,
        ..meta("", "", "8")
    };
    document("BOOKMARK", "v1", "Pod", end)
}

#[test]
fn the_events_of_a_watch_are_found() {
    let added = document("ADDED", "v1", "Pod", meta("", "a", "5"));
    check(JsonScan::of_watch, EVENTS, &[added, bookmark()]);
}

/// A reader has an event when its last brace has come, with or without the newline.
#[test]
fn an_event_is_seen_with_the_brace_that_completes_it() {
    let seen = scan(JsonScan::of_watch(), &[EVENTS.as_bytes()]).unwrap();
    let ends: Vec<usize> = seen.iter().map(|(_, end)| *end).collect();
    let newline = EVENTS.find('\n').unwrap();
    assert_eq!(ends, [newline, EVENTS.len() - 1]);
}

#[test]
fn a_skipped_document_ends_where_the_next_line_begins() {
    let indented = format!("{{\n  \"a\": {{\n  }}\n}}\n{EVENTS}");
    for text in [EVENTS, &indented] {
        let expected: &[Seen] = &[bookmark()];
        for cut in 0..text.len() {
            let mut skipping = JsonScan::of_watch();
            skipping.skip_document();
            let (one, two) = text.as_bytes().split_at(cut);
            let seen = scan(skipping, &[one, two]).unwrap();
            let last = seen.last().map(|(seen, _)| seen);
            assert_eq!(last, expected.first(), "cut at {cut}");
            assert_eq!(seen.len(), if text == EVENTS { 1 } else { 2 });
        }
    }
}

#[test]
fn escapes_are_read_and_long_texts_are_none() {
    check(
        JsonScan::of_body,
        r#"{"m\u0065tadata":{"name":"\u003c\"\\\n","resourceVersion":"5"}}"#,
        &[document("", "", "", meta("", "<\"\\\n", "5"))],
    );
    let long = "x".repeat(5000);
    let text = format!(r#"{{"metadata":{{"name":"{long}","{long}":"","continue":"{long}"}}}}"#);
    let expected = Meta {
        continues: true,
        ..Meta::default()
    };
    let seen = scan(JsonScan::of_body(), &[text.as_bytes()]).unwrap();
    assert_eq!(seen[0].0, document("", "", "", expected));
}

#[test]
fn what_is_no_document_is_unreadable() {
    for text in [
        "[]",
        "7",
        "\"a\"",
        "kind: Pod",
        "{]",
        "{\"a\":[}",
        "}",
        "null",
    ] {
        let seen = scan(JsonScan::of_body(), &[text.as_bytes()]);
        assert_eq!(seen, Err(Unreadable), "{text}");
    }
    let deep = "{\"a\":".repeat(DEPTH + 1);
    assert_eq!(
        scan(JsonScan::of_body(), &[deep.as_bytes()]),
        Err(Unreadable)
    );
}

/// Texts and keys that are hard to tell from structure, or are looked for.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "metadata",
            "items",
            "rows",
            "object",
            "name",
            "namespace",
            "resourceVersion",
            "continue",
            "kind",
            "apiVersion",
            "annotations",
            "Table",
            "",
        ])
        .prop_map(String::from),
        "[\"\\\\{}\\[\\],:a\n\u{e9}\u{1f600}]{0,6}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(text(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn text_at(object: &Value, key: &str) -> String {
    object[key].as_str().unwrap_or_default().to_owned()
}

/// What the scanner should see, by a full parse.
fn model_meta(object: &Value) -> Meta {
    let meta = &object["metadata"];
    Meta {
        continues: !text_at(meta, "continue").is_empty(),
        ..self::meta(
            &text_at(meta, "namespace"),
            &text_at(meta, "name"),
            &text_at(meta, "resourceVersion"),
        )
    }
}

fn model(document: &Map<String, Value>) -> Vec<Seen> {
    let mut seen = Vec::new();
    for (key, value) in document {
        let Value::Array(elements) = value else {
            continue;
        };
        let objects = elements.iter().filter(|element| element.is_object());
        match key.as_str() {
            "items" => seen.extend(objects.map(|item| Seen::Item(model_meta(item)))),
            "rows" => seen.extend(objects.map(|row| Seen::Item(model_meta(&row["object"])))),
            _ => {}
        }
    }
    let whole = Value::Object(document.clone());
    seen.push(self::document(
        "",
        &text_at(&whole, "apiVersion"),
        &text_at(&whole, "kind"),
        model_meta(&whole),
    ));
    seen
}

proptest! {
    /// The scanner agrees with serde_json on any object, however it is cut and indented.
    #[test]
    fn any_object_is_read_as_by_a_full_parse(
        members in prop::collection::btree_map(text(), value(), 0..8),
        items in prop::collection::vec(value(), 0..4),
        meta in prop::collection::btree_map(text(), value(), 0..6),
        cuts in prop::collection::vec(1_usize..9, 1..20),
        indented in any::<bool>(),
    ) {
        let mut whole: Map<String, Value> = members.into_iter().collect();
        whole.insert("rows".to_owned(), json!(items.iter().map(|item| json!({"object": item})).collect::<Vec<_>>()));
        whole.insert("items".to_owned(), json!(items));
        whole.insert("metadata".to_owned(), Value::Object(meta.into_iter().collect()));
        let text = if indented { serde_json::to_string_pretty(&whole) } else { serde_json::to_string(&whole) }.unwrap();
        let (mut pieces, mut rest) = (Vec::new(), text.as_bytes());
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            pieces.push(piece);
            rest = tail;
        }
        let seen = scan(JsonScan::of_body(), &pieces).unwrap();
        let seen: Vec<Seen> = seen.into_iter().map(|(seen, _)| seen).collect();
        prop_assert_eq!(seen, model(&whole));
    }
}
