//! Events and answers in, clusters out.

use k8s_openapi::ByteString;
use kube::core::metadata::PartialObjectMeta;
use kube::runtime::watcher::Event;
use serde_json::json;

use super::*;

fn object(namespace: &str, name: &str, uid: &str, version: u32) -> PartialObjectMeta {
    let object = json!({
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadata",
        "metadata": {
            "namespace": namespace, "name": name, "uid": uid, "resourceVersion": version.to_string(),
            "labels": {"version": version.to_string()},
        },
    });
    serde_json::from_value(object).unwrap()
}

fn secret(kubeconfig: &str) -> Secret {
    let data = BTreeMap::from([("value".to_owned(), ByteString(kubeconfig.into()))]);
    Secret {
        data: Some(data),
        type_: Some(SECRET_TYPE.to_owned()),
        ..Secret::default()
    }
}

fn kubeconfig(token: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "k", "cluster": {"server": "https://k:6443"}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    })
    .to_string()
}

impl View {
    fn tell(&mut self, kind: Kind, event: Event<PartialObjectMeta>) {
        self.list(kind, 0).unwrap().apply(event);
    }

    fn tell_all(&mut self, kind: Kind, objects: Vec<PartialObjectMeta>) {
        self.tell(kind, Event::Init);
        for object in objects {
            self.tell(kind, Event::InitApply(object));
        }
        self.tell(kind, Event::InitDone);
    }

    /// What is due is answered with this.
    fn answer(&mut self, found: &Secret) -> Vec<String> {
        let due = self.due();
        let names = due.iter().map(|(name, _)| name.to_string()).collect();
        for (name, version) in due {
            self.answered(&name, version, Some(found));
        }
        names
    }

    /// Each cluster with its identity, and what it is connected with.
    fn told(&self) -> Vec<(String, String, String)> {
        let clusters = self.known().clusters.unwrap();
        let told = |it: Candidate| {
            let credential = |cluster: &ClusterConfig| match &cluster.credential {
                CredentialConfig::Missing(why) => why.clone(),
                _ => "connected".to_owned(),
            };
            let how = match &it.cluster {
                Ok(cluster) => credential(cluster),
                Err(Unusable {
                    reason,
                    rejection,
                    instead,
                }) => {
                    let instead = instead
                        .as_ref()
                        .map_or_else(|| "pending".to_owned(), |it| credential(it));
                    assert!(reason.is_none() || instead != "pending");
                    assert_eq!(rejection.is_some(), instead != "pending");
                    instead
                }
            };
            (it.name, it.identity, how)
        };
        clusters.into_iter().map(told).collect()
    }

    fn expect(&self, expect: &[(&str, &str, &str)]) {
        let expect: Vec<_> = expect
            .iter()
            .map(|(name, uid, how)| ((*name).to_owned(), (*uid).to_owned(), (*how).to_owned()))
            .collect();
        assert_eq!(self.told(), expect);
    }
}

const NO_SECRET: &str = "there is no Secret ns/a-kubeconfig of type cluster.x-k8s.io/secret with the label \
                         cluster.x-k8s.io/cluster-name";

#[test]
fn a_secret_is_asked_for_when_its_cluster_is_wanted_and_it_has_changed() {
    let mut view = View::new(SourceKind::ClusterApi, &[]);
    assert!(view.known().clusters.is_none(), "nobody has told");
    view.tell_all(
        Kind::Secrets,
        vec![
            object("ns", "a-kubeconfig", "s", 1),
            object("ns", "b-kubeconfig", "t", 1),
        ],
    );
    assert!(view.known().clusters.is_none() && view.due().is_empty());
    view.tell_all(Kind::Clusters, vec![object("ns", "a", "uid", 1)]);
    view.expect(&[("ns.a", "uid", "pending")]);
    assert_eq!(view.answer(&secret(&kubeconfig("t"))), ["ns/a-kubeconfig"]);
    view.expect(&[("ns.a", "uid", "connected")]);
    assert!(view.due().is_empty());

    // Once for each version; while it is asked for, not again.
    view.tell(
        Kind::Secrets,
        Event::Apply(object("ns", "a-kubeconfig", "s", 2)),
    );
    let due = view.due();
    assert_eq!(due.len(), 1);
    view.tell(
        Kind::Secrets,
        Event::Apply(object("ns", "a-kubeconfig", "s", 3)),
    );
    assert!(view.due().is_empty());
    view.answered(&due[0].0, due[0].1.clone(), Some(&secret(&kubeconfig("t"))));
    assert_eq!(view.answer(&secret(&kubeconfig("t"))), ["ns/a-kubeconfig"]);
    assert!(view.due().is_empty());
    // One that was never answered is asked for on the next connection.
    view.tell(
        Kind::Secrets,
        Event::Apply(object("ns", "a-kubeconfig", "s", 4)),
    );
    assert_eq!(view.due().len(), 1);
    view.interrupted();
    assert_eq!(view.due().len(), 1);
}

#[test]
fn a_list_that_comes_in_again_takes_nothing_away_before_it_is_complete() {
    let mut view = View::new(SourceKind::ClusterApi, &[]);
    view.tell_all(Kind::Secrets, vec![object("ns", "a-kubeconfig", "s", 1)]);
    view.tell_all(Kind::Clusters, vec![object("ns", "a", "uid", 1)]);
    view.answer(&secret(&kubeconfig("t")));
    for kind in [Kind::Clusters, Kind::Secrets] {
        view.tell(kind, Event::Init);
        view.expect(&[("ns.a", "uid", "connected")]);
    }
    // Half of it is lost, and it begins once more.
    view.tell(
        Kind::Clusters,
        Event::InitApply(object("ns", "b", "other", 1)),
    );
    view.tell(Kind::Clusters, Event::Init);
    view.tell(
        Kind::Clusters,
        Event::InitApply(object("ns", "a", "new", 2)),
    );
    view.expect(&[("ns.a", "uid", "connected")]);
    view.tell(Kind::Clusters, Event::InitDone);
    view.expect(&[("ns.a", "new", "connected")]);
    view.tell(Kind::Clusters, Event::Delete(object("ns", "a", "new", 3)));
    view.expect(&[]);
}

#[test]
fn a_cluster_without_its_secret_is_there_and_says_why() {
    let mut view = View::new(SourceKind::ClusterApi, &[]);
    view.tell_all(Kind::Clusters, vec![object("ns", "a", "uid", 1)]);
    view.expect(&[("ns.a", "uid", "pending")]);
    view.tell_all(Kind::Secrets, Vec::new());
    view.expect(&[("ns.a", "uid", NO_SECRET)]);
    view.tell(
        Kind::Secrets,
        Event::Apply(object("ns", "a-kubeconfig", "s", 1)),
    );
    view.answer(&secret(&kubeconfig("t")));
    let usable = view.known().clusters.unwrap()[0].cluster.clone().unwrap();
    assert_eq!(usable.labels["version"], "1");
    assert_eq!(
        (usable.source.kind, usable.source.name.as_str()),
        (SourceKind::ClusterApi, "ns/a")
    );

    // Where it was is remembered: it comes back without being taken for one that has moved.
    view.tell(
        Kind::Secrets,
        Event::Delete(object("ns", "a-kubeconfig", "s", 1)),
    );
    view.expect(&[("ns.a", "uid", NO_SECRET)]);
    let without = view.known().clusters.unwrap()[0].cluster.clone().unwrap();
    assert_eq!(without.endpoint, usable.endpoint);

    // Of another type it is none that is meant; what cannot be used is told.
    view.tell(
        Kind::Secrets,
        Event::Apply(object("ns", "a-kubeconfig", "s", 2)),
    );
    view.answer(&Secret {
        type_: Some("Opaque".to_owned()),
        ..secret(&kubeconfig("t"))
    });
    view.expect(&[(
        "ns.a",
        "uid",
        "there is no Secret ns/a-kubeconfig of type cluster.x-k8s.io/secret",
    )]);
    view.tell(
        Kind::Secrets,
        Event::Apply(object("ns", "a-kubeconfig", "s", 3)),
    );
    view.answer(&Secret {
        data: None,
        ..secret("")
    });
    let told = "Secret ns/a-kubeconfig: it has no key \"value\", which would hold the kubeconfig";
    view.expect(&[("ns.a", "uid", told)]);
    view.tell(
        Kind::Secrets,
        Event::Apply(object("ns", "a-kubeconfig", "s", 4)),
    );
    view.answer(&secret(
        &kubeconfig("t").replace("https://k", "ftp://10.0.0.1"),
    ));
    view.expect(&[(
        "ns.a",
        "uid",
        "Secret ns/a-kubeconfig: context \"c\": server is not a URL like https://host:6443; correct it",
    )]);
}

#[test]
fn what_is_refused_is_told_and_leaves_what_was_known() {
    let namespaces = ["one".to_owned(), "two".to_owned()];
    let mut view = View::new(SourceKind::ClusterApi, &namespaces);
    view.tell_all(Kind::Clusters, vec![object("one", "a", "uid", 1)]);
    assert!(view.known().clusters.is_none(), "two has not told");
    assert!(
        view.list(Kind::Clusters, 1)
            .unwrap()
            .refuse("forbidden".to_owned())
    );
    assert!(
        !view
            .list(Kind::Clusters, 1)
            .unwrap()
            .refuse("forbidden".to_owned())
    );
    view.expect(&[("one.a", "uid", "pending")]);
    view.list(Kind::Secrets, 0)
        .unwrap()
        .refuse("forbidden too".to_owned());
    let why = "its Secret one/a-kubeconfig cannot be looked for; the log says why";
    view.expect(&[("one.a", "uid", why)]);
    assert_eq!(
        view.known().troubles,
        [
            "clusters.clusterAPI: Clusters in the namespace \"two\" cannot be followed: forbidden",
            "clusters.clusterAPI: Secrets in the namespace \"one\" cannot be followed: forbidden too",
        ]
    );
    view.tell_all(Kind::Secrets, vec![object("one", "a-kubeconfig", "s", 1)]);
    let (name, _) = view.due().remove(0);
    view.failed(&name, "not yours".to_owned());
    view.expect(&[(
        "one.a",
        "uid",
        "its Secret one/a-kubeconfig cannot be read; the log says why",
    )]);
    let unusable = || {
        view.known().clusters.unwrap()[0]
            .cluster
            .clone()
            .unwrap_err()
    };
    let logged = "clusters.clusterAPI: the Secret one/a-kubeconfig cannot be read: not yours";
    assert_eq!(unusable().reason.as_deref(), Some(logged));
    assert_eq!(
        unusable().rejection.unwrap().reason,
        RejectionReason::Unreadable
    );
    assert!(view.due().is_empty(), "it is asked for again after a while");
    view.may_be_asked(&name);
    view.answer(&secret(&kubeconfig("t")));
    view.expect(&[("one.a", "uid", "connected")]);
    // What it says now cannot be read: what it said before is what there is, and not called accepted.
    view.tell(
        Kind::Secrets,
        Event::Apply(object("one", "a-kubeconfig", "s", 2)),
    );
    let (name, _) = view.due().remove(0);
    view.failed(&name, "not yours".to_owned());
    let unusable = view.known().clusters.unwrap()[0]
        .cluster
        .clone()
        .unwrap_err();
    assert!(matches!(
        unusable.instead.unwrap().credential,
        CredentialConfig::Token(_)
    ));
    let rejection = unusable.rejection.unwrap();
    assert_eq!(
        rejection.message,
        "its Secret one/a-kubeconfig cannot be read; the log says why"
    );
    view.may_be_asked(&name);
    view.answer(&secret(&kubeconfig("t")));
    view.expect(&[("one.a", "uid", "connected")]);
    // What was read once outlives what is refused later.
    view.list(Kind::Clusters, 0)
        .unwrap()
        .refuse("gone".to_owned());
    view.list(Kind::Secrets, 0)
        .unwrap()
        .refuse("gone".to_owned());
    view.expect(&[("one.a", "uid", "connected")]);
}

#[test]
fn secrets_alone_are_clusters_of_their_own_name() {
    let mut view = View::new(SourceKind::Secret, &[]);
    let long = "x".repeat(251);
    view.tell_all(
        Kind::Secrets,
        vec![object("ns", "a", "uid", 1), object("ns", &long, "long", 1)],
    );
    let of_any_type = Secret {
        type_: None,
        ..secret(&kubeconfig("t"))
    };
    assert_eq!(view.answer(&of_any_type).len(), 2);
    let known = view.known().clusters.unwrap();
    assert_eq!(known[0].name, "ns.a");
    assert_eq!(known[0].cluster.as_ref().unwrap().source.name, "ns/a");
    let reason = known[1]
        .cluster
        .as_ref()
        .unwrap_err()
        .reason
        .clone()
        .unwrap();
    assert!(
        reason.ends_with("is too long a name for a cluster"),
        "{reason}"
    );
    view.tell(Kind::Secrets, Event::Delete(object("ns", &long, "long", 1)));
    view.tell(Kind::Secrets, Event::Delete(object("ns", "a", "uid", 1)));
    view.expect(&[]);
}
