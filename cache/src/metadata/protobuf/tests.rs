use bytes::BufMut as _;

use super::*;

fn raw(json: &str) -> &RawValue {
    serde_json::from_str(json).unwrap()
}

/// The message of a `PartialObjectMetadata`.
fn written(metadata: &str) -> Result<BytesMut, Unwritable> {
    let mut to = BytesMut::new();
    ObjectMeta::parse(raw(metadata))?.write(&mut to);
    Ok(to)
}

/// Fields of texts, in order.
fn texts(texts: &[(u32, &str)]) -> BytesMut {
    let mut to = BytesMut::new();
    for (field, value) in texts {
        text(&mut to, *field, value);
    }
    to
}

/// What stands in every metadata: texts by their fields, those that are not given empty; the generation, no time.
fn required(given: &[(u32, &str)]) -> BytesMut {
    let mut to = BytesMut::new();
    for field in 1..=6 {
        let value = given.iter().find(|(at, _)| *at == field);
        text(&mut to, field, value.map_or("", |(_, value)| value));
    }
    to.put_slice(&[7 << 3, 0, 8 << 3 | 2, 0]);
    to
}

#[test]
fn what_is_required_is_written_even_if_it_is_empty() {
    assert_eq!(written("{}"), Ok(required(&[])));
    let metadata = r#"{"name":"a","generateName":"b","namespace":"c","selfLink":"d","uid":"e","resourceVersion":"7","creationTimestamp":null}"#;
    let expected = [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e"), (6, "7")];
    assert_eq!(written(metadata), Ok(required(&expected)));
}

#[test]
fn all_of_it_is_written_in_the_order_of_its_fields() {
    let metadata = concat!(
        r#"{"annotations":{"a":"\u003c\"\n\ud83d\ude00ü","Z":""},"creationTimestamp":"1970-01-01T00:05:00Z","#,
        r#""deletionGracePeriodSeconds":0,"deletionTimestamp":"1970-01-01T00:00:01Z","finalizers":["f","e"],"#,
        r#""generation":3,"labels":{"b":"2","a":"1"},"managedFields":[{"manager":"m","operation":"Apply","#,
        r#""apiVersion":"v1","time":"1970-01-01T00:00:02Z","fieldsType":"FieldsV1","fieldsV1":{"f:a":{"k:{\"n\":\"x\"}":{}}},"#,
        r#""subresource":"status"},{}],"name":"x","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u","#,
        r#""controller":true,"blockOwnerDeletion":false},{"kind":"Node"}]}"#
    );
    let mut expected = texts(&[(1, "x"), (2, ""), (3, ""), (4, ""), (5, ""), (6, "")]);
    expected.put_slice(&[7 << 3, 3]);
    let time = |seconds: &[u8]| [&[8], seconds, &[16, 0]].concat();
    text(&mut expected, 8, time(&[0xac, 2]));
    text(&mut expected, 9, time(&[1]));
    expected.put_slice(&[10 << 3, 0]);
    for (field, key, value) in [
        (11, "a", "1"),
        (11, "b", "2"),
        (12, "Z", ""),
        (12, "a", "<\"\n\u{1f600}ü"),
    ] {
        text(&mut expected, field, texts(&[(1, key), (2, value)]));
    }
    let mut owner = texts(&[(1, "Pod"), (3, "p"), (4, "u"), (5, "v1")]);
    owner.put_slice(&[6 << 3, 1, 7 << 3, 0]);
    text(&mut expected, 13, owner);
    let owner = texts(&[(1, "Node"), (3, ""), (4, ""), (5, "")]);
    text(&mut expected, 13, owner);
    text(&mut expected, 14, "f");
    text(&mut expected, 14, "e");
    let mut entry = texts(&[(1, "m"), (2, "Apply"), (3, "v1")]);
    text(&mut entry, 4, time(&[2]));
    text(&mut entry, 6, "FieldsV1");
    let fields = r#"{"f:a":{"k:{\"n\":\"x\"}":{}}}"#;
    text(&mut entry, 7, texts(&[(1, fields)]));
    text(&mut entry, 8, "status");
    text(&mut expected, 17, entry);
    let empty = texts(&[(1, ""), (2, ""), (3, ""), (6, ""), (8, "")]);
    text(&mut expected, 17, empty);
    assert_eq!(written(metadata), Ok(expected));
}

#[test]
fn what_json_does_not_tell_is_not_written() {
    for metadata in [
        "[]",
        "null",
        r#""a""#,
        // Of a newer server.
        r#"{"name":"a","new":""}"#,
        r#"{"ownerReferences":[{"new":""}]}"#,
        r#"{"managedFields":[{"new":""}]}"#,
        // Bytes that are no text.
        r#"{"annotations":{"a":"\ufffd"}}"#,
        // Escaped by whom?
        r#"{"managedFields":[{"fieldsV1":{"f:a\u003cb":{}}}]}"#,
        r#"{"managedFields":[{"fieldsV1":{"f:a\u003eb":{}}}]}"#,
        r#"{"managedFields":[{"fieldsV1":{"f:a\u0026b":{}}}]}"#,
        r#"{"managedFields":[{"fieldsV1":{"f:a\u2028b":{}}}]}"#,
        r#"{"managedFields":[{"fieldsV1":{"f:a\u2029b":{}}}]}"#,
        r#"{"managedFields":[{"fieldsV1":null}]}"#,
        // Not as the server has them.
        r#"{"creationTimestamp":"2026-01-01T00:00:00+00:00"}"#,
        r#"{"creationTimestamp":"2026-01-01T00:00:00.5Z"}"#,
        r#"{"creationTimestamp":"0001-01-01T00:00:00Z"}"#,
        r#"{"creationTimestamp":""}"#,
        r#"{"generation":1.5}"#,
        r#"{"labels":{"a":1}}"#,
        r#"{"labels":null}"#,
        r#"{"name":"a","name":"b"}"#,
    ] {
        assert_eq!(written(metadata), Err(Unwritable), "{metadata}");
    }
}

#[test]
fn a_list_is_its_items_and_what_is_around_them() {
    let metadata = [r#"{"name":"a"}"#, r#"{"name":"b"}"#];
    for (version, order) in [(MetaVersion::V1, [1, 2]), (MetaVersion::V1beta1, [2, 1])] {
        let mut items = BytesMut::new();
        for metadata in metadata {
            write_item(&mut items, version, raw(metadata)).unwrap();
        }
        let at = ResourceVersion::from_number(9);
        let (head, tail) = around_list(version, at, "token", Some(300), items.len() as u64);

        let [list, item] = order;
        let mut meta = texts(&[(1, ""), (2, "9"), (3, "token")]);
        meta.put_slice(&[4 << 3, 0xac, 2]);
        let mut fields = vec![(list, meta)];
        for name in ["a", "b"] {
            let mut partial = BytesMut::new();
            text(&mut partial, 1, required(&[(1, name)]));
            fields.push((item, partial));
        }
        fields.sort_by_key(|(field, _)| *field);
        let mut expected = BytesMut::new();
        let api_version = format!("meta.k8s.io/{}", version.as_str());
        object(
            &mut expected,
            &api_version,
            "PartialObjectMetadataList",
            |to| {
                for (field, message) in &fields {
                    text(to, *field, message);
                }
            },
        );
        assert_eq!([&head, &items[..], &tail].concat(), expected);
    }
}

#[test]
fn an_object_is_of_the_version_that_is_asked_for() {
    let mut to = BytesMut::new();
    write_object(&mut to, MetaVersion::V1beta1, raw(r#"{"name":"a"}"#)).unwrap();
    let mut expected = BytesMut::new();
    object(
        &mut expected,
        "meta.k8s.io/v1beta1",
        "PartialObjectMetadata",
        |to| {
            text(to, 1, required(&[(1, "a")]));
        },
    );
    assert_eq!(to, expected);
}
