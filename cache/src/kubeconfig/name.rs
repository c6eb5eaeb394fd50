//! Names for clusters out of names of contexts.

use std::collections::{HashMap, HashSet};

/// Kubernetes' bound on a DNS-1123 subdomain.
const MAX: usize = 253;

/// Whether a name can be a cluster's: a DNS-1123 subdomain.
pub fn is_valid(name: &str) -> bool {
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        bytes.first().is_some_and(alphanumeric)
            && bytes.last().is_some_and(alphanumeric)
            && bytes.iter().all(|b| alphanumeric(b) || *b == b'-')
    };
    name.len() <= MAX && name.split('.').all(label)
}

/// A name for each context, in their order: the one it holds already (in `held`, by context); else its own where that is
/// valid; else a sanitised one that no other has.
///
/// A valid name is never taken from its context by another one that comes out the same, and a name that is held by none at
/// all: who goes on asking for it must not be led to another cluster.
pub(super) fn unique<'a>(
    contexts: impl Iterator<Item = &'a str> + Clone,
    held: &HashMap<String, String>,
) -> Vec<String> {
    let mut taken: HashSet<String> = contexts
        .clone()
        .filter_map(|context| held.get(context).cloned())
        .collect();
    let own: HashSet<&str> = contexts
        .clone()
        .filter(|context| !held.contains_key(*context))
        .filter(|context| is_valid(context) && !taken.contains(*context))
        .collect();
    taken.extend(own.iter().map(|name| (*name).to_owned()));
    contexts
        .map(|context| {
            if let Some(name) = held.get(context) {
                return name.clone();
            }
            if own.contains(context) {
                return context.to_owned();
            }
            let plain = sanitised(context);
            let mut name = plain.clone();
            let mut number = 2_u64;
            while !taken.insert(name.clone()) {
                let suffix = format!("-{number}");
                name = format!("{}{suffix}", cut(&plain, MAX - suffix.len()));
                number += 1;
            }
            name
        })
        .collect()
}

/// `arn:aws:eks:eu-west-1:1:cluster/Prod` becomes `arn-aws-eks-eu-west-1-1-cluster-prod`.
fn sanitised(context: &str) -> String {
    let mut name = String::with_capacity(context.len());
    for c in context.chars() {
        match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => name.push(c),
            // A label neither begins nor ends with a dash.
            '.' => {
                let end = name.trim_end_matches(['-', '.']).len();
                name.truncate(end);
                if !name.is_empty() {
                    name.push('.');
                }
            }
            _ if name.is_empty() || name.ends_with(['-', '.']) => {}
            _ => name.push('-'),
        }
    }
    let name = cut(&name, MAX);
    if name.is_empty() {
        "cluster".to_owned()
    } else {
        name.to_owned()
    }
}

/// At most `max` bytes (the name is ASCII), not ending in a dash or dot.
fn cut(name: &str, max: usize) -> &str {
    name[..name.len().min(max)].trim_end_matches(['-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_sanitised_and_unique() {
        let contexts = [
            "arn:aws:eks:eu-west-1:1:cluster/Prod",
            "admin@kind",
            "a_b",
            "a-b",
            "a@b",
            "-.x-.-y.",
            "☃",
            "ok.name",
        ];
        assert_eq!(
            unique(contexts.into_iter(), &HashMap::new()),
            [
                "arn-aws-eks-eu-west-1-1-cluster-prod",
                "admin-kind",
                "a-b-2",
                "a-b",
                "a-b-3",
                "x.y",
                "cluster",
                "ok.name",
            ]
        );
    }

    #[test]
    fn a_name_that_is_held_stays() {
        let held = HashMap::from([
            ("a@b".to_owned(), "a-b".to_owned()),
            ("gone".to_owned(), "c-d".to_owned()),
        ]);
        for (contexts, expect) in [
            // Whoever comes before, with a name that is its own or one made the same way.
            (vec!["a_b", "a@b"], vec!["a-b-2", "a-b"]),
            (vec!["a-b", "a@b"], vec!["a-b-2", "a-b"]),
            (vec!["a-b", "a-b-2", "a@b"], vec!["a-b-3", "a-b-2", "a-b"]),
            // A name whose holder is gone is free.
            (vec!["c@d", "a@b"], vec!["c-d", "a-b"]),
            (vec!["a-b"], vec!["a-b"]),
        ] {
            assert_eq!(
                unique(contexts.iter().copied(), &held),
                expect,
                "{contexts:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn every_name_is_valid_and_no_two_are_one(
            contexts in prop::collection::vec("[a-cA-C.@_/:-]{0,6}|.{250,260}", 0..8),
            before in prop::collection::vec("[a-cA-C.@_/:-]{0,6}", 0..8),
        ) {
            let mut before = before;
            before.sort();
            before.dedup();
            let names = unique(before.iter().map(String::as_str), &HashMap::new());
            let held: HashMap<_, _> = before.into_iter().zip(names).collect();
            let mut contexts = contexts;
            contexts.sort();
            contexts.dedup();
            contexts.extend(held.keys().filter(|it| !contexts.contains(it)).take(2).cloned().collect::<Vec<_>>());
            let names = unique(contexts.iter().map(String::as_str), &held);
            for (context, name) in contexts.iter().zip(&names) {
                prop_assert!(is_valid(name), "{name:?}");
                prop_assert!(held.get(context).is_none_or(|it| it == name), "{context:?} {name:?}");
            }
            let distinct: HashSet<_> = names.iter().collect();
            prop_assert_eq!(distinct.len(), names.len());
        }
    }
}
