//! The keys of `clusters`: where clusters come from.

use std::path::Path;

use fleetcache_cache::cluster_config::ConnectPolicy;
use fleetcache_cache::label_selector::LabelSelector;

use super::non_empty;
use crate::config::section::{Key, NON_EMPTY, Section, key};
use crate::config::{KubeconfigOrigin, KubeconfigSource, ManagementSource, SourcesConfig, names};

/// What a file says of sources.
pub(super) fn clusters(mut section: Section<'_>, base: &Path) -> SourcesConfig {
    let mut kubeconfigs = Vec::new();
    let about = "Kubeconfig files, each context a cluster; the first to give a name keeps it.";
    for it in section.sections(key("kubeconfigs", about)) {
        kubeconfigs.extend(kubeconfig(it, base));
    }
    let about = "A directory of kubeconfigs: the file `<name>.kubeconfig` is the cluster `<name>`. Files may come, change and \
                 go.";
    let directory = section
        .optional(key("directory", about))
        .and_then(|mut it| {
            let path = key(
                "path",
                "The directory. A relative path starts at this file's directory.",
            );
            let path = it.text(path.required("a directory"), NON_EMPTY, non_empty);
            it.end();
            Some(base.join(path?))
        });
    let about = "The Clusters of a Cluster API management cluster, each `<namespace>.<name>`, with their kubeconfig Secrets.";
    let cluster_api = section.optional(key("clusterAPI", about)).and_then(|mut it| {
        let chosen = "A label selector on Clusters, such as \"env=prod,tier in (a,b)\"; all where absent.";
        let management = management(&mut it, key("labelSelector", chosen), base);
        let opt_in = key(
            "useControlPlaneSecret",
            "That the Secret `<name>-kubeconfig` of each Cluster is used; Cluster API keeps it for itself otherwise.",
        );
        it.consent(
            opt_in.required(WHY_CONSENT),
            &format!("must be true: {WHY_CONSENT}"),
        );
        it.end();
        management
    });
    let about = "Secrets of a cluster, each `<namespace>.<name>`, that hold a kubeconfig under the key `kubeconfig` or `value`.";
    let secrets = section.optional(key("secrets", about)).and_then(|mut it| {
        let chosen = key(
            "labelSelector",
            "A label selector on Secrets, such as \"fleetcache=true\"; no other Secret is read.",
        );
        let chosen = chosen.required("a label selector; no Secret without a label is read");
        let management = management(&mut it, chosen, base);
        it.end();
        management
    });
    section.end();
    SourcesConfig {
        kubeconfigs,
        directory,
        cluster_api,
        secrets,
    }
}

const WHY_CONSENT: &str = "true says that the kubeconfig Secrets of control planes may be used, which Cluster API's contract keeps \
                           for its own controllers; there is no other credential for these clusters";

fn kubeconfig(mut it: Section<'_>, base: &Path) -> Option<KubeconfigSource> {
    let path = key(
        "path",
        "The file. A relative path starts at this file's directory.",
    );
    let path = it.text(
        path.required("the path of a kubeconfig"),
        NON_EMPTY,
        non_empty,
    );
    let contexts = it.texts(
        key("contexts", "The contexts to serve; all where absent."),
        &[],
        |text| Ok(text.to_owned()),
    );
    let connect = it.choice(
        key(
            "connect",
            "When their clusters are connected; where absent, contexts with an exec plugin on demand and all others always.",
        ),
        &[
            ("always", ConnectPolicy::Always),
            ("onDemand", ConnectPolicy::OnDemand),
        ],
    );
    it.end();
    Some(KubeconfigSource {
        paths: vec![base.join(path?)],
        contexts,
        connect,
        origin: KubeconfigOrigin::File,
    })
}

/// The keys by which a management cluster is reached and objects of it are chosen.
fn management(it: &mut Section<'_>, selector: Key, base: &Path) -> Option<ManagementSource> {
    let kubeconfig = key(
        "kubeconfig",
        "The kubeconfig of the cluster that holds them. A relative path starts at this file's directory.",
    );
    let kubeconfig = it.text(
        kubeconfig.required("the path of a kubeconfig"),
        NON_EMPTY,
        non_empty,
    );
    let context = key(
        "context",
        "The context in it; its current one where absent.",
    );
    let context = it.text(context, NON_EMPTY, non_empty);
    let namespaces = it.texts(
        key("namespaces", "Their namespaces; all where absent."),
        names::NAMESPACE_FORM,
        names::namespace,
    );
    let label_selector = it.text(selector, NON_EMPTY, |text| {
        match LabelSelector::parse(text) {
            Ok(selector) if !selector.is_empty() => Ok(text.to_owned()),
            Ok(_) if text.is_empty() => Err("must not be empty".to_owned()),
            Ok(_) | Err(_) => Err(format!(
                "{text:?} is not a label selector such as \"env=prod,tier in (a,b)\""
            )),
        }
    });
    Some(ManagementSource {
        kubeconfig: base.join(kubeconfig?),
        context,
        namespaces,
        label_selector,
    })
}
