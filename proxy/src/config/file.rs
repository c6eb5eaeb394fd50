//! The configuration file: YAML of kind `Configuration`, read whole so that every mistake is listed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::section::{Key, NON_EMPTY, Reader, Section, key};
use super::{
    AuditTarget, AuthenticationConfig, AuthorizationConfig, CacheConfig, ClusterDefaults,
    ClusterOverride, ConnectionsConfig, ListenAddress, Mistakes, ResourceRule, SourcesConfig,
    TlsConfig, glob, listen_address,
};

mod clusters;
mod grace;
mod identity;
mod sections;
mod users;

use clusters::clusters;
use sections::{cache, cluster, connections, resource};

/// What a file says; None and empty where it says nothing.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FileConfig {
    pub(super) listen: Option<ListenAddress>,
    pub(super) admin_listen: Option<ListenAddress>,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) sources: SourcesConfig,
    pub(super) defaults: ClusterDefaults,
    pub(super) overrides: Vec<ClusterOverride>,
    pub(super) connections: ConnectionsConfig,
    pub(super) cache: CacheConfig,
    pub(super) resources: Vec<ResourceRule>,
    pub(super) tls: TlsConfig,
    pub(super) authentication: AuthenticationConfig,
    pub(super) authorization: AuthorizationConfig,
    pub(super) audit: Option<AuditTarget>,
}

/// Reads a file. Relative paths in it start at its directory.
///
/// # Errors
/// Every mistake.
pub(super) fn read(path: &Path) -> Result<FileConfig, Mistakes> {
    let mut mistakes = Mistakes::default();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(err) => {
            mistakes.add(path.display().to_string(), format!("cannot be read: {err}"));
            return Err(mistakes);
        }
    };
    let base = path.parent().unwrap_or_else(|| Path::new(""));
    match serde_saphyr::from_str::<Value>(&text) {
        Ok(value) => parse(value, base).map_err(|mut mistakes| {
            for it in &mut mistakes.0 {
                it.path = format!("{}: {}", path.display(), it.path);
            }
            mistakes
        }),
        Err(err) => {
            mistakes.add(path.display().to_string(), not_yaml(err.without_snippet()));
            Err(mistakes)
        }
    }
}

fn not_yaml(err: &serde_saphyr::Error) -> String {
    match err {
        serde_saphyr::Error::DuplicateMappingKey {
            key: Some(key),
            location,
        } => format!("{key} is given twice, at last in line {}", location.line()),
        err => format!("not YAML: {err}"),
    }
}

/// The JSON Schema of a file, as the reader below asks for its keys.
pub(super) fn schema() -> Value {
    let reader = Reader::describing();
    read_document(reader.root(Value::Null), Path::new(""));
    let mut schema = reader.into_schema();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Configuration of fleetcache");
    schema
}

/// From the parsed document, with `base` as the directory where relative paths start.
pub(super) fn parse(document: Value, base: &Path) -> Result<FileConfig, Mistakes> {
    let reader = Reader::new();
    let config = read_document(reader.root(document), base);
    let mistakes = reader.into_mistakes();
    if mistakes.0.is_empty() {
        Ok(config)
    } else {
        Err(mistakes)
    }
}

fn read_document(mut root: Section<'_>, base: &Path) -> FileConfig {
    constant(
        &mut root,
        key("apiVersion", "The version of this format."),
        "fleetcache.dev/v1alpha1",
    );
    constant(
        &mut root,
        key("kind", "What this document is."),
        "Configuration",
    );
    let listen = key("listen", "Where HTTPS is served; port 0 is any.");
    let admin_listen = key(
        "adminListen",
        "Where plain HTTP without authentication is served to operators; port 0 is any.",
    );
    let state_dir = key(
        "stateDir",
        "Where the CA, the token and the kubeconfig are kept. A relative path starts at the file's directory.",
    );
    let mut config = FileConfig {
        listen: root.text(
            listen.default(ListenAddress::listen().to_string()),
            listen_address::FORM,
            str::parse,
        ),
        admin_listen: root.text(
            admin_listen.default(ListenAddress::admin_listen().to_string()),
            listen_address::FORM,
            str::parse,
        ),
        state_dir: root
            .text(state_dir, NON_EMPTY, non_empty)
            .map(|dir| base.join(dir)),
        sources: clusters(
            root.section(key("clusters", "Where clusters come from.")),
            base,
        ),
        connections: connections(root.section(key("connections", "How connections are made."))),
        cache: cache(root.section(key("cache", "How much is kept in memory."))),
        tls: users::tls(root.section(key("tls", "How HTTPS is served.")), base),
        authentication: users::authentication(
            root.section(key("authentication", "How users are known.")),
            base,
        ),
        authorization: users::authorization(
            root.section(key("authorization", "Who may read what is in memory.")),
        ),
        audit: root
            .optional(key("audit", "The audit log; none where absent."))
            .and_then(|section| audit(section, base)),
        ..FileConfig::default()
    };
    // The defaults are an override of everything that is not said: one reader for the same keys.
    let mut defaults = root.section(key("defaults", "What holds for every cluster."));
    let said = cluster(&mut defaults, Some(&ClusterDefaults::default()));
    config.defaults.identity = identity::default(&config.tls, &config.authentication);
    said.apply(&mut config.defaults);
    defaults.end();
    let overrides = "What holds for some clusters, with the keys of `defaults`; the last that says something wins.";
    for mut over in root.sections(key("overrides", overrides)) {
        let name = key(
            "cluster",
            "A cluster's name, or a glob with `*` for any text and `?` for any character.",
        );
        let name = name.required("a name or a glob such as \"edge-*\"");
        let name = over.text(name, glob::FORM, glob::parse);
        let mut it = cluster(&mut over, None);
        it.cluster = name.unwrap_or_default();
        over.end();
        config.overrides.push(it);
    }
    for (path, problem) in grace::mistakes(&said, &config.defaults, &config.overrides) {
        root.mistake(&path, problem);
    }
    let (tls, authentication) = (&config.tls, &config.authentication);
    for (path, problem) in identity::mistakes(tls, authentication, &said, &config.overrides) {
        root.mistake(&path, problem);
    }
    let resources = "Kinds that are kept otherwise than at the first read.";
    let mut known = HashMap::new();
    for rule in root.sections(key("resources", resources)) {
        config.resources.extend(resource(rule, &mut known));
    }
    if let (Some(listen), Some(admin)) = (&config.listen, &config.admin_listen)
        && listen.overlaps(admin)
    {
        root.mistake("adminListen", listen_address::overlap(admin, listen));
    }
    root.end();
    config
}

fn audit(mut section: Section<'_>, base: &Path) -> Option<AuditTarget> {
    let path = key(
        "path",
        "The file, or `-` for standard output. A relative path starts at this file's directory.",
    );
    let path = path.required("the path of a file, or \"-\" for standard output");
    let target = section.text(path, NON_EMPTY, |text| match text {
        "-" => Ok(AuditTarget::Stdout),
        text => non_empty(text).map(|path| AuditTarget::File(base.join(path))),
    });
    section.end();
    target
}

fn constant(section: &mut Section<'_>, key: Key, expect: &str) {
    section.choice(key.required(format!("must be {expect:?}")), &[(expect, ())]);
}

fn non_empty(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("must not be empty".to_owned())
    } else {
        Ok(text.to_owned())
    }
}
