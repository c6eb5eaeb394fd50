//! A page of what the server holds at a version, compared with a snapshot of that version.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use crate::object::ListMeta;
use crate::resource_version::ResourceVersion;
use crate::store::{Snapshot, key};
use crate::told_list::KeyRange;

/// What a page says of a snapshot.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// The same objects, up to the end.
    Equal,
    /// The same objects, and more follow.
    EqualUpTo(Next),
    /// Not the same.
    Different(Difference),
    /// Nothing: the page is not about the snapshot's version, or not in the order of keys.
    Nothing(&'static str),
}

/// Where the next page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// The last key of the page before.
    pub(super) after: String,
    /// The server's token for it.
    pub(super) token: String,
}

/// The first key at which a cluster and an informer differ at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::reflector) struct Difference {
    /// `namespace/name`, or the name alone.
    pub(super) key: String,
    /// How.
    pub(super) what: What,
}

/// How a cluster and an informer differ at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Only the cluster has the object.
    Missing,
    /// Only the informer has it.
    Extra,
    /// They have two objects of that name.
    Uid { held: String, told: String },
    /// They have it at two versions.
    Version {
        held: ResourceVersion,
        told: ResourceVersion,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the cluster has it, memory has not"),
            Self::Extra => f.write_str("memory has it, the cluster has not"),
            Self::Uid { held, told } => {
                write!(f, "memory has uid {held:?}, the cluster {told:?}")
            }
            Self::Version { held, told } => {
                write!(f, "memory has resourceVersion {held}, the cluster {told}")
            }
        }
    }
}

/// The API's own continue token for what comes behind a key at a version. Its form is frozen; a server whose tokens are
/// others answers 400.
pub(super) fn token(at: ResourceVersion, after: &str) -> String {
    let json =
        serde_json::json!({"v": "meta.k8s.io/v1", "rv": at.get(), "start": format!("/{after}\0")});
    URL_SAFE_NO_PAD.encode(json.to_string())
}

/// Compares the page that begins behind the key `after` with a snapshot.
///
/// # Errors
/// The bytes are no list.
pub(super) fn compare(
    body: &[u8],
    snapshot: &Snapshot,
    after: Option<&str>,
) -> Result<Compared, serde_json::Error> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        metadata: ListMeta<'a>,
        #[serde(borrow)]
        items: Option<Vec<Item<'a>>>,
    }
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(borrow)]
        metadata: Meta<'a>,
    }
    /// No more of an object is of interest; the rest of its metadata is skipped.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(borrow, default)]
        namespace: Cow<'a, str>,
        #[serde(borrow, default)]
        uid: Cow<'a, str>,
        #[serde(borrow, default)]
        resource_version: Cow<'a, str>,
    }

    let list: List<'_> = serde_json::from_slice(body)?;
    let version = snapshot.resource_version;
    // An older server may not know `Exact`, and then says so by its version alone.
    if ResourceVersion::parse(&list.metadata.resource_version) != Some(version) {
        return Ok(Compared::Nothing("another version was listed"));
    }
    let mut told = Vec::new();
    for Item { metadata } in list.items.iter().flatten() {
        let at = ResourceVersion::parse(&metadata.resource_version);
        let Some(at) = at.filter(|at| *at <= version) else {
            return Ok(Compared::Nothing("an object of another version was listed"));
        };
        told.push((key(&metadata.namespace, &metadata.name), &*metadata.uid, at));
    }
    let in_order = told.is_sorted_by(|(one, ..), (other, ..)| one < other);
    let behind =
        |(first, ..): &(String, &str, ResourceVersion)| after.is_none_or(|after| &**first > after);
    if !in_order || !told.first().is_none_or(behind) {
        return Ok(Compared::Nothing("the list is not in the order of keys"));
    }

    let mut keys = KeyRange::of_namespace(None);
    if let Some(after) = after {
        keys = keys.starting_at(format!("{after}\0"));
    }
    let token = list.metadata.continue_token;
    let next = match told.last() {
        _ if token.is_empty() => None,
        None => return Ok(Compared::Nothing("an empty page in the middle")),
        Some((last, ..)) => {
            keys = keys.ending_with(last.clone());
            Some(Next {
                after: last.clone(),
                token: token.into_owned(),
            })
        }
    };
    let mut told = told.into_iter();
    // Ends at the first difference, so it takes no more steps than the page has objects.
    for held in snapshot.between(&keys) {
        let Some((key, uid, at)) = told.next() else {
            return Ok(different(&held.key, What::Extra));
        };
        let what = match (*key).cmp(&held.key) {
            Ordering::Less => return Ok(different(&key, What::Missing)),
            Ordering::Greater => return Ok(different(&held.key, What::Extra)),
            Ordering::Equal if *uid != *held.uid => What::Uid {
                held: held.uid.to_string(),
                told: uid.to_owned(),
            },
            Ordering::Equal if at != held.resource_version => What::Version {
                held: held.resource_version,
                told: at,
            },
            Ordering::Equal => continue,
        };
        return Ok(different(&key, what));
    }
    Ok(match (told.next(), next) {
        (Some((key, ..)), _) => different(&key, What::Missing),
        (None, Some(next)) => Compared::EqualUpTo(next),
        (None, None) => Compared::Equal,
    })
}

fn different(key: &str, what: What) -> Compared {
    Compared::Different(Difference {
        key: key.to_owned(),
        what,
    })
}

#[cfg(test)]
mod tests {
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
        let decode = |token: &str| {
            let json = URL_SAFE_NO_PAD.decode(token).unwrap();
            serde_json::from_slice::<serde_json::Value>(&json).unwrap()
        };
        assert_eq!(decode(&token(rv(235), "default")), decode(real));
    }
}
