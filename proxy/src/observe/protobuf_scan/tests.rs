use super::*;
use crate::observe::seen::{Document, Meta};

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(byte);
            return bytes;
        }
        bytes.push(byte | 0x80);
    }
}

fn field(number: u8, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [vec![number << 3 | 2], varint(bytes.len()), bytes.to_vec()].concat()
}

fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, "v1"), field(2, kind)].concat();
    // The server writes both strings of the content empty.
    [
        MAGIC,
        &field(1, type_meta),
        &field(2, raw),
        &[0x1a, 0, 0x22, 0],
    ]
    .concat()
}

fn object_meta(namespace: &str, name: &str, resource_version: &str) -> Vec<u8> {
    [
        field(1, name),
        field(2, ""),
        field(3, namespace),
        field(5, "uid"),
        field(6, resource_version),
        vec![7 << 3, 0x83, 1],
        field(
            11,
            [field(1, "k8s.io/initial-events-end"), field(2, "true")].concat(),
        ),
        vec![0x79, 1, 2, 3, 4, 5, 6, 7, 8],
    ]
    .concat()
}

/// An object with a spec that could be mistaken for metadata, and is long enough for a length of two bytes.
fn object(namespace: &str, name: &str, resource_version: &str) -> Vec<u8> {
    let spec = [object_meta("no", "no", "9"), field(3, "x".repeat(200))].concat();
    [
        field(1, object_meta(namespace, name, resource_version)),
        field(2, spec),
    ]
    .concat()
}

fn event(event_type: &str, body: &[u8]) -> Vec<u8> {
    let event = [field(1, event_type), field(2, field(1, body))].concat();
    [&(event.len() as u32).to_be_bytes(), &event[..]].concat()
}

fn meta(namespace: &str, name: &str, resource_version: &str) -> Meta {
    Meta {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        resource_version: resource_version.to_owned(),
        ..Meta::default()
    }
}

fn document(event_type: &str, kind: &str, meta: Meta) -> Seen {
    Seen::Document(Document {
        event_type: event_type.to_owned(),
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        meta,
    })
}

fn scan(mut scan: ProtobufScan, pieces: &[&[u8]]) -> Result<Vec<Seen>, Unreadable> {
    let mut seen = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let (taken, found) = scan.next(rest)?;
            rest = &rest[taken..];
            seen.extend(found);
        }
    }
    Ok(seen)
}

/// The same wherever the bytes are cut.
#[track_caller]
fn check(new: fn() -> ProtobufScan, bytes: &[u8], expected: &[Seen]) {
    for cut in 0..bytes.len() {
        let (one, two) = bytes.split_at(cut);
        assert_eq!(scan(new(), &[one, two]).unwrap(), expected, "cut at {cut}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(scan(new(), &single).unwrap(), expected);
}

#[test]
fn an_objects_version_is_found() {
    check(
        ProtobufScan::of_body,
        &body("Pod", &object("ns", "a", "5")),
        &[document("", "Pod", meta("ns", "a", "5"))],
    );
}

#[test]
fn the_items_of_a_list_are_found() {
    let list_meta = [
        field(1, ""),
        field(2, "9"),
        field(3, "token"),
        vec![4 << 3, 7],
    ]
    .concat();
    let items = [object("ns", "a", "5"), object("", "b", "6")];
    let raw = [
        field(1, list_meta),
        field(2, &items[0]),
        field(2, &items[1]),
    ]
    .concat();
    let page = Meta {
        continues: true,
        ..meta("", "", "9")
    };
    check(
        ProtobufScan::of_body,
        &body("PodList", &raw),
        &[
            Seen::Item(meta("ns", "a", "5")),
            Seen::Item(meta("", "b", "6")),
            document("", "PodList", page),
        ],
    );
}

/// Two events; the second is the bookmark that ends the initial events.
fn events() -> (Vec<u8>, Seen, Seen) {
    let annotation = |key: &str, value: &str| field(12, [field(1, key), field(2, value)].concat());
    let bookmark = [
        field(6, "8"),
        annotation("a", "b"),
        annotation(INITIAL_EVENTS_END, "true"),
        annotation("z", "false"),
    ]
    .concat();
    let end = Meta {
        initial_events_end: true,
        ..meta("", "", "8")
    };
    (
        [
            event("ADDED", &body("Pod", &object("ns", "a", "5"))),
            event("BOOKMARK", &body("Pod", &field(1, bookmark))),
        ]
        .concat(),
        document("ADDED", "Pod", meta("ns", "a", "5")),
        document("BOOKMARK", "Pod", end),
    )
}

#[test]
fn the_events_of_a_watch_are_found() {
    let (bytes, added, bookmark) = events();
    check(ProtobufScan::of_watch, &bytes, &[added, bookmark]);
}

#[test]
fn a_skipped_event_ends_at_its_length() {
    let (bytes, _, bookmark) = events();
    for cut in 0..bytes.len() {
        let mut skipping = ProtobufScan::of_watch();
        skipping.skip_document();
        let (one, two) = bytes.split_at(cut);
        let seen = scan(skipping, &[one, two]).unwrap();
        assert_eq!(seen, std::slice::from_ref(&bookmark), "cut at {cut}");
    }
    let mut skipping = ProtobufScan::of_watch();
    skipping.skip_document();
    let (taken, _) = skipping.next(&bytes).unwrap();
    assert!(
        skipping.is_between_documents(),
        "who looks at each event gets a chance to"
    );
    assert!(taken < bytes.len());
}

#[test]
fn malformed_bytes_are_unreadable() {
    let whole = body("Pod", &object("ns", "a", "5"));
    let mut too_long = whole.clone();
    // The length of the metadata, behind the tags and lengths around it.
    let at = whole.windows(2).position(|pair| pair == [1 << 3 | 2, 0x6d]);
    let _ = at;
    too_long[4 + 1] = 0x7f;
    for bytes in [
        b"{\"kind\":\"Pod\"}".to_vec(),
        too_long,
        [MAGIC, &[0xff; 12]].concat(),
        [MAGIC, &[1 << 3 | 3]].concat(),
    ] {
        assert_eq!(scan(ProtobufScan::of_body(), &[&bytes]), Err(Unreadable));
    }
    let (bytes, ..) = events();
    let cut_short = [&7_u32.to_be_bytes(), &bytes[4..]].concat();
    assert_eq!(
        scan(ProtobufScan::of_watch(), &[&cut_short]),
        Err(Unreadable)
    );
}
