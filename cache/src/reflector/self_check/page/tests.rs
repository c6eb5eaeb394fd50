//! Pages beside snapshots.

use std::sync::Arc;

use super::*;
use crate::envelope::Envelope;
use crate::object::ObjectHead;
use crate::store::{Element, Event, Store};

fn rv(number: u64) -> ResourceVersion {
    ResourceVersion::from_number(number)
}

fn object((key, uid, at): (&str, &str, u64)) -> String {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    // managedFields have names of their own, which are nobody's.
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{at}","managedFields":[{{"fieldsV1":{{"name":"x"}}}}]}}}}"#
    )
}

fn snapshot(objects: &[(&str, &str, u64)], at: u64) -> Arc<Snapshot> {
    let body = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
    let envelope = Arc::new(Envelope::learn(body.as_bytes(), "Pod").unwrap().envelope);
    let mut store = Store::default();
    for it in objects {
        let object = object(*it);
        let head = ObjectHead::parse(object.as_bytes()).unwrap();
        let element = Element::new(&head.metadata, object.as_bytes(), object.clone().into());
        store.stage(element.unwrap());
    }
    store.apply(Event::Bookmark(rv(at)));
    store.snapshot(&envelope)
}

fn page(objects: &[(&str, &str, u64)], at: u64, token: &str) -> String {
    let items: Vec<_> = objects.iter().copied().map(object).collect();
    format!(
        "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{{\"resourceVersion\":\"{at}\",\"continue\":\"{token}\"}},\"items\":[{}]}}\n",
        items.join(",")
    )
}

const X: (&str, &str, u64) = ("a/x", "ux", 1);
const Y: (&str, &str, u64) = ("a/y", "uy", 2);
// Behind `zz-b` in the order of a LIST, though the namespace alone is before it.
const ZZ_B: (&str, &str, u64) = ("zz-b/a", "ub", 3);
const ZZ: (&str, &str, u64) = ("zz/a", "uz", 4);

/// All four are held, at 9.
#[track_caller]
fn check(
    what: &str,
    after: Option<&str>,
    objects: &[(&str, &str, u64)],
    token: &str,
    expected: &Compared,
) {
    let body = page(objects, 9, token);
    let held = snapshot(&[X, Y, ZZ_B, ZZ], 9);
    let compared = compare(body.as_bytes(), &held, after).unwrap();
    assert_eq!(&compared, expected, "{what}");
}

fn up_to(key: &str) -> Compared {
    Compared::EqualUpTo(Next {
        after: key.to_owned(),
        token: "t".to_owned(),
    })
}

#[test]
fn what_is_the_same_is_equal_on_every_page() {
    use Compared::Equal;
    check("all", None, &[X, Y, ZZ_B, ZZ], "", &Equal);
    check("a first page", None, &[X, Y], "t", &up_to("a/y"));
    check(
        "one between",
        Some("a/x"),
        &[Y, ZZ_B],
        "t",
        &up_to("zz-b/a"),
    );
    check("a last page", Some("zz-b/a"), &[ZZ], "", &Equal);
    check("an empty last page", Some("zz/a"), &[], "", &Equal);
    check(
        "behind a key that is gone",
        Some("b/b"),
        &[ZZ_B, ZZ],
        "",
        &Equal,
    );
    let none = page(&[], 9, "");
    assert_eq!(
        compare(none.as_bytes(), &snapshot(&[], 9), None).unwrap(),
        Equal
    );
    let nodes = [("n-1", "u1", 1), ("n1", "u2", 2)];
    let body = page(&nodes, 9, "");
    assert_eq!(
        compare(body.as_bytes(), &snapshot(&nodes, 9), None).unwrap(),
        Equal,
        "without namespaces"
    );
}

#[test]
fn the_first_difference_is_told() {
    use What::{Extra, Missing, Uid, Version};
    let more = ("a/xx", "u", 8);
    let uid = |held: &str, told: &str| Uid {
        held: held.to_owned(),
        told: told.to_owned(),
    };
    for (what, after, objects, token, key, expected) in [
        (
            "one more",
            None,
            &[X, more, Y, ZZ_B, ZZ][..],
            "",
            "a/xx",
            Missing,
        ),
        (
            "one more at the end",
            None,
            &[X, Y, ZZ_B, ZZ, ("zzz/a", "u", 8)],
            "",
            "zzz/a",
            Missing,
        ),
        (
            "one more at the start",
            None,
            &[("a/a", "u", 8), X, Y, ZZ_B, ZZ],
            "",
            "a/a",
            Missing,
        ),
        (
            "one more at the end of a page",
            None,
            &[X, more],
            "t",
            "a/xx",
            Missing,
        ),
        ("one less", None, &[X, ZZ_B, ZZ], "", "a/y", Extra),
        (
            "one less at the start",
            None,
            &[Y, ZZ_B, ZZ],
            "",
            "a/x",
            Extra,
        ),
        (
            "one less at the end",
            None,
            &[X, Y, ZZ_B],
            "",
            "zz/a",
            Extra,
        ),
        (
            "one less at the start of a page",
            Some("a/x"),
            &[ZZ_B],
            "t",
            "a/y",
            Extra,
        ),
        ("none at all", None, &[], "", "a/x", Extra),
        (
            "another object",
            None,
            &[X, ("a/y", "v", 2), ZZ_B, ZZ],
            "",
            "a/y",
            uid("uy", "v"),
        ),
        (
            "another version",
            None,
            &[X, ("a/y", "uy", 8), ZZ_B, ZZ],
            "",
            "a/y",
            Version {
                held: rv(2),
                told: rv(8),
            },
        ),
        (
            "an older version",
            None,
            &[X, Y, ZZ_B, ("zz/a", "uz", 1)],
            "",
            "zz/a",
            Version {
                held: rv(4),
                told: rv(1),
            },
        ),
        (
            "two differences",
            None,
            &[X, more, Y, ("zz/a", "uz", 5)],
            "",
            "a/xx",
            Missing,
        ),
    ] {
        let expected = Compared::Different(Difference {
            key: key.to_owned(),
            what: expected,
        });
        check(what, after, objects, token, &expected);
    }
}

#[test]
fn an_answer_to_another_question_says_nothing() {
    let held = snapshot(&[X, Y, ZZ_B, ZZ], 9);
    for (what, after, body) in [
        ("a newer list", None, page(&[X, Y], 10, "")),
        ("an older list", None, page(&[X, Y], 8, "")),
        (
            "no version",
            None,
            r#"{"metadata":{},"items":[]}"#.to_owned(),
        ),
        (
            "an object of the future",
            None,
            page(&[X, ("a/y", "uy", 10)], 9, ""),
        ),
        (
            "no version of an object",
            None,
            page(&[("a/y", "uy", 0)], 9, ""),
        ),
        // By namespace and then by name, as a server may order that is no apiserver.
        ("another order", None, page(&[X, Y, ZZ, ZZ_B], 9, "")),
        ("one twice", None, page(&[X, X], 9, "")),
        (
            "a token that was not heeded",
            Some("a/x"),
            page(&[X, Y, ZZ_B, ZZ], 9, ""),
        ),
        ("an empty page with more behind it", None, page(&[], 9, "t")),
    ] {
        let compared = compare(body.as_bytes(), &held, after).unwrap();
        assert!(
            matches!(compared, Compared::Nothing(_)),
            "{what}: {compared:?}"
        );
    }
    for body in [
        "",
        "{}",
        "[]",
        "404 page not found",
        r#"{"metadata":{"resourceVersion":"9"},"items":[{}]}"#,
    ] {
        assert!(compare(body.as_bytes(), &held, None).is_err(), "{body}");
    }
}

#[test]
fn tokens_are_the_servers_own() {
    // Taken from a kube-apiserver 1.36.
    let real = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjM1LCJzdGFydCI6Ii9kZWZhdWx0XHUwMDAwIn0";
    assert_eq!(Next::behind("default", rv(235)).token, real);
}
