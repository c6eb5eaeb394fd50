//! Who gets and who keeps a name.

use fleetcache_cache::cluster_config::{ClusterSource, EndpointConfig, RejectionReason};

use super::super::Unusable;
use super::*;
use crate::authorization::testing::idle;

use SourceKind::{ClusterApi, Directory, Kubeconfig, Secret};

fn cluster(kind: SourceKind, name: &str, origin: &str) -> ClusterConfig {
    let idle = idle(name);
    ClusterConfig {
        context: origin.to_owned(),
        source: ClusterSource {
            kind,
            name: origin.to_owned(),
        },
        endpoint: EndpointConfig {
            server: format!("https://{origin}").parse().unwrap(),
            ..idle.endpoint
        },
        ..idle
    }
}

fn candidate(kind: SourceKind, name: &str, origin: &str) -> Candidate {
    Candidate {
        name: name.to_owned(),
        origin: origin.to_owned(),
        identity: origin.to_owned(),
        cluster: Ok(cluster(kind, name, origin)),
    }
}

fn broken(kind: SourceKind, name: &str, origin: &str, instead: bool) -> Candidate {
    let mut stand_in = cluster(kind, name, origin);
    stand_in.credential = CredentialConfig::Missing("no Secret".to_owned());
    stand_in.labels.insert("l".to_owned(), "new".to_owned());
    Candidate {
        cluster: Err(Unusable {
            instead: instead.then_some(Box::new(stand_in)),
            ..Unusable::told(RejectionReason::Invalid, format!("{origin} is broken"))
        }),
        ..candidate(kind, name, origin)
    }
}

/// One of which there is yet to be read what it is.
fn pending(kind: SourceKind, name: &str, origin: &str) -> Candidate {
    Candidate {
        cluster: Err(Unusable {
            reason: None,
            rejection: None,
            instead: None,
        }),
        ..candidate(kind, name, origin)
    }
}

/// A source that knows these.
fn source(kind: SourceKind, clusters: &[(&str, &str)]) -> (SourceKind, Known) {
    let clusters = clusters.iter();
    of(
        kind,
        clusters
            .map(|(name, origin)| candidate(kind, name, origin))
            .collect(),
    )
}

fn of(kind: SourceKind, clusters: Vec<Candidate>) -> (SourceKind, Known) {
    let known = Known {
        clusters: Some(clusters),
        ..Known::default()
    };
    (kind, known)
}

/// What is served, were it not for what is told of its source.
fn accepted(merged: &Merged) -> BTreeMap<String, Entry> {
    let mut clusters = merged.clusters.clone();
    for entry in clusters.values_mut() {
        entry.cluster.rejected = None;
    }
    clusters
}

/// Why what a source says of a cluster is not in force.
fn rejection(merged: &Merged, name: &str) -> Option<String> {
    let rejected = merged.clusters[name].cluster.rejected.as_ref();
    rejected.map(|it| it.message.clone())
}

/// How many entries of a source stand where, in the order of [`Entries::by_state`].
fn entries(merged: &Merged, source: usize) -> [u64; 4] {
    merged.reports[source]
        .entries
        .by_state()
        .map(|(_, count)| count)
}

/// Names and whose they are.
fn owners(merged: &Merged) -> Vec<(&str, &str)> {
    let clusters = merged.clusters.iter();
    clusters
        .map(|(name, it)| (name.as_str(), it.identity.as_str()))
        .collect()
}

#[test]
fn the_first_source_to_give_a_name_has_it_and_the_next_gets_it_after() {
    let all = |kubeconfigs: &[(&str, &str)]| {
        vec![
            source(Kubeconfig, kubeconfigs),
            source(Directory, &[("a", "dir-a"), ("b", "dir-b")]),
            source(ClusterApi, &[("a", "capi-a"), ("c", "capi-c")]),
            source(Secret, &[("a", "secret-a"), ("c", "secret-c")]),
        ]
    };
    let first = merge(all(&[("a", "ctx")]), &BTreeMap::new());
    assert_eq!(
        owners(&first),
        [("a", "ctx"), ("b", "dir-b"), ("c", "capi-c")]
    );
    let told: Vec<_> = first.rejected.iter().map(String::as_str).collect();
    let served = "it is served when that one goes, or under another name";
    assert_eq!(
        told,
        [
            format!("capi-a: another source has a cluster \"a\" already, Kubeconfig ctx; {served}"),
            format!("dir-a: another source has a cluster \"a\" already, Kubeconfig ctx; {served}"),
            format!(
                "secret-a: another source has a cluster \"a\" already, Kubeconfig ctx; {served}"
            ),
            format!(
                "secret-c: another source has a cluster \"c\" already, ClusterAPI capi-c; {served}"
            ),
        ]
    );
    let second = merge(all(&[]), &first.clusters);
    assert_eq!(
        owners(&second),
        [("a", "dir-a"), ("b", "dir-b"), ("c", "capi-c")]
    );
    assert!(!second.clusters["a"].is_same(&first.clusters["a"]));
    // Who has it by now keeps it from one that would have come before.
    let third = merge(all(&[("a", "ctx")]), &second.clusters);
    assert_eq!(owners(&third), owners(&second));
    assert!(third.clusters["a"].is_same(&second.clusters["a"]));
}

/// A Cluster, before its Secret is there, while that is read, and with it: the log has that its name is taken once.
#[test]
fn that_a_name_is_taken_is_told_whatever_is_known_of_who_wants_it() {
    let wants = |wanted: Candidate| {
        let holder = source(Directory, &[("a", "dir-a")]);
        merge(vec![holder, of(ClusterApi, vec![wanted])], &BTreeMap::new())
    };
    let known = wants(candidate(ClusterApi, "a", "capi-a"));
    assert_eq!(known.rejected.len(), 1, "{:?}", known.rejected);
    let unread = wants(pending(ClusterApi, "a", "capi-a"));
    assert_eq!(unread.rejected, known.rejected);
    assert_eq!(unread.reports, known.reports);
    assert_eq!(owners(&unread), [("a", "dir-a")]);
    let broken = wants(broken(ClusterApi, "a", "capi-a", true));
    assert!(broken.rejected.is_superset(&known.rejected));
}

#[test]
fn a_source_that_knows_nothing_yet_leaves_its_clusters_as_they_were() {
    let both = vec![
        source(Directory, &[("a", "dir-a")]),
        source(ClusterApi, &[("b", "capi-b")]),
    ];
    let before = merge(both, &BTreeMap::new()).clusters;
    let quiet = (ClusterApi, Known::default());
    let after = merge(vec![source(Directory, &[("b", "dir-b")]), quiet], &before);
    assert_eq!(owners(&after), [("b", "capi-b")]);
    // One that is not asked any more has none.
    let after = merge(vec![source(Directory, &[("b", "dir-b")])], &before);
    assert_eq!(owners(&after), [("b", "dir-b")]);
}

#[test]
fn another_identity_under_a_name_is_another_cluster() {
    let before = merge(
        vec![source(ClusterApi, &[("a", "uid-1")])],
        &BTreeMap::new(),
    )
    .clusters;
    let after = merge(vec![source(ClusterApi, &[("a", "uid-2")])], &before).clusters;
    assert_eq!(after["a"].cluster.context, "uid-2");
    assert!(!before["a"].is_same(&after["a"]));
    // A Secret that has what a Cluster had, by chance.
    let secret = merge(vec![source(Secret, &[("a", "uid-1")])], &before).clusters;
    assert!(!before["a"].is_same(&secret["a"]));
}

#[test]
fn one_that_breaks_is_served_as_before_and_one_that_never_worked_is_told_of() {
    let good = merge(vec![source(Directory, &[("a", "a")])], &BTreeMap::new()).clusters;
    let both = || {
        vec![of(
            Directory,
            vec![
                broken(Directory, "a", "a", false),
                broken(Directory, "b", "b", false),
            ],
        )]
    };
    let merged = merge(both(), &good);
    assert_eq!(accepted(&merged), good);
    assert_eq!(merged.kept["a"], "a is broken");
    assert_eq!(merged.rejected.iter().collect::<Vec<_>>(), ["b is broken"]);

    // Where something stands in for it, that is served; but not in the place of what worked.
    let one = |instead| vec![of(ClusterApi, vec![broken(ClusterApi, "a", "a", instead)])];
    let stand_in = merge(one(true), &BTreeMap::new());
    assert!(matches!(
        stand_in.clusters["a"].cluster.credential,
        CredentialConfig::Missing(_)
    ));
    assert_eq!(stand_in.rejected.len(), 1);
    let still = merge(one(true), &stand_in.clusters);
    assert_eq!(still.clusters, stand_in.clusters);
    assert!(still.kept.is_empty());
    let good = merge(vec![source(ClusterApi, &[("a", "a")])], &stand_in.clusters).clusters;
    assert!(good["a"].is_same(&stand_in.clusters["a"]));
    let kept = merge(one(true), &good);
    assert_eq!(
        kept.clusters["a"].cluster.credential,
        CredentialConfig::Anonymous
    );
    assert_eq!(kept.clusters["a"].cluster.labels["l"], "new");
    assert_eq!(kept.kept["a"], "a is broken");
}

#[test]
fn what_is_not_accepted_is_told_of_until_it_is() {
    let good = || vec![source(Directory, &[("a", "a")])];
    let bad = || {
        vec![of(
            Directory,
            vec![
                broken(Directory, "a", "a", false),
                broken(Directory, "b", "b", false),
            ],
        )]
    };
    let first = merge(good(), &BTreeMap::new());
    assert_eq!(
        (rejection(&first, "a"), entries(&first, 0)),
        (None, [1, 0, 0, 0])
    );
    let second = merge(bad(), &first.clusters);
    let told = "a is broken; it is served as before".to_owned();
    assert_eq!(rejection(&second, "a"), Some(told.clone()));
    assert_eq!(entries(&second, 0), [0, 1, 1, 0]);
    let report = &second.reports[0];
    assert_eq!((report.source, report.up), ("Directory", true));
    let reasons: Vec<_> = report.rejected.iter().map(String::as_str).collect();
    assert_eq!(reasons, [told.as_str(), "b is broken"]);
    // Once more, it is no other sentence.
    let third = merge(bad(), &second.clusters);
    assert_eq!(third.clusters, second.clusters);
    // While nothing is known of it, what was told of it holds.
    let quiet = || vec![(Directory, Known::default())];
    let silent = merge(quiet(), &third.clusters);
    assert_eq!(silent.clusters, second.clusters);
    assert_eq!(entries(&silent, 0), [0, 1, 0, 0]);
    assert_eq!(
        (silent.reports[0].up, silent.reports[0].message.as_str()),
        (
            false,
            "clusters.directory: it has not told yet which clusters there are"
        )
    );
    let last = merge(good(), &silent.clusters);
    assert_eq!(last.clusters, first.clusters);
    assert_eq!(entries(&last, 0), [1, 0, 0, 0]);
}

#[test]
fn entries_without_a_cluster_are_counted_where_they_come_from() {
    let known = |known: Known| {
        let clusters = vec![
            pending(ClusterApi, "p", "p"),
            broken(ClusterApi, "s", "s", true),
            candidate(ClusterApi, "a", "x"),
        ];
        (
            ClusterApi,
            Known {
                clusters: Some(clusters),
                ..known
            },
        )
    };
    let files = Known {
        clusters: Some(vec![candidate(Directory, "a", "a")]),
        rejected: vec!["B.kubeconfig: no name".to_owned()],
        ..Known::default()
    };
    let down = Known {
        troubles: vec!["forbidden".to_owned()],
        unreached: Some("not connected".to_owned()),
        ..Known::default()
    };
    let merged = merge(vec![(Directory, files), known(down)], &BTreeMap::new());
    assert_eq!(entries(&merged, 0), [1, 0, 1, 0]);
    // A name that is taken; one that stands there without a credential.
    assert_eq!(entries(&merged, 1), [0, 0, 2, 1]);
    let report = &merged.reports[1];
    assert!(!report.up);
    assert_eq!(report.message, "forbidden; not connected");
    assert_eq!(report.rejected.len(), 2, "{report:?}");
    assert!(rejection(&merged, "s").unwrap().contains("s is broken"));
    // What the log has from elsewhere is not told there again.
    assert!(merged.rejected.contains("forbidden"));
    assert!(!merged.rejected.contains("not connected"));
}

#[test]
fn a_credential_that_is_not_sent_is_noted_once_for_each_cluster() {
    let mut plain = candidate(Directory, "a", "a");
    plain.cluster.as_mut().unwrap().credential_withheld = true;
    let merged = merge(
        vec![of(Directory, vec![plain, candidate(Directory, "b", "b")])],
        &BTreeMap::new(),
    );
    let notes: Vec<_> = merged.notes.iter().map(String::as_str).collect();
    assert_eq!(
        notes,
        [
            "the server of the cluster \"a\" is reached over plain http, so its credential is not sent"
        ]
    );
}
