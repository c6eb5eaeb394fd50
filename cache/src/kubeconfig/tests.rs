//! What files give and what is refused, word for word.

mod refused;
mod single;

use secrecy::ExposeSecret;

use super::*;
use crate::upstream::fake::Authority;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// What the sentences say, with the folder's name left out.
    fn told(&self, loaded: &Loaded) -> Vec<String> {
        let folder = format!("{}/", self.0.path().display());
        let sentences = loaded.rejected.iter();
        sentences
            .map(|said| said.reason.replace(&folder, ""))
            .collect()
    }
}

fn read(paths: &[PathBuf], contexts: &[&str]) -> Loaded {
    let contexts: Vec<_> = contexts.iter().map(|&name| name.to_owned()).collect();
    let timing = ConnectionTiming::default();
    load_with(
        paths,
        &contexts,
        &timing,
        None,
        &HashMap::new(),
        &ProxyEnv::default(),
    )
}

/// A file with one context, `c`.
fn one(cluster: &str, user: &str) -> String {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "k", "cluster": serde_json::from_str::<serde_json::Value>(cluster).unwrap() }],
        "users": [{ "name": "u", "user": serde_json::from_str::<serde_json::Value>(user).unwrap() }],
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
    })
    .to_string()
}

const SERVER: &str = r#"{"server": "https://k.example:6443", "insecure-skip-tls-verify": true}"#;

fn load_one(cluster: &str, user: &str) -> Result<ClusterConfig, Vec<String>> {
    let folder = Folder::new();
    let path = folder.write("config", &one(cluster, user));
    let mut loaded = read(&[path], &[]);
    match loaded.clusters.pop() {
        Some(cluster) if loaded.rejected.is_empty() => Ok(cluster),
        _ => Err(folder.told(&loaded)),
    }
}

fn credential(user: &str) -> CredentialConfig {
    load_one(SERVER, user).unwrap().credential
}

#[test]
fn users_become_credentials() {
    let CredentialConfig::Anonymous = credential("{}") else {
        panic!()
    };
    let CredentialConfig::Token(token) = credential(r#"{"token": "t\n"}"#) else {
        panic!()
    };
    assert_eq!(token.expose_secret(), "t");
    // A file is read again, so it comes first.
    let CredentialConfig::TokenFile(path) = credential(r#"{"token": "t", "tokenFile": "/run/t"}"#)
    else {
        panic!()
    };
    assert_eq!(path, Path::new("/run/t"));
    let CredentialConfig::Basic { username, password } =
        credential(r#"{"username": "n", "password": "p"}"#)
    else {
        panic!()
    };
    assert_eq!((&*username, password.expose_secret()), ("n", "p"));
    let CredentialConfig::ClientCertificateFiles { certificate, key } =
        credential(r#"{"client-certificate": "/crt", "client-key": "/key"}"#)
    else {
        panic!()
    };
    assert_eq!((certificate, key), ("/crt".into(), "/key".into()));
}

#[test]
fn client_certificates_are_decoded_and_checked() {
    let (certificate, key) = Authority::new().issue("me");
    let encoded = |text: &str| {
        use base64::Engine;
        let text = base64::engine::general_purpose::STANDARD.encode(text);
        // As some tools wrap it.
        text.replacen('L', "L\n", 1)
    };
    let user = serde_json::json!({
        "client-certificate-data": encoded(&certificate),
        "client-key-data": encoded(&key),
        "token": "t",
    });
    let CredentialConfig::Both {
        certificate: shown,
        authorization,
    } = credential(&user.to_string())
    else {
        panic!()
    };
    assert!(matches!(*authorization, CredentialConfig::Token(_)));
    let CredentialConfig::ClientCertificate {
        certificate: pem, ..
    } = *shown
    else {
        panic!()
    };
    assert_eq!(pem, certificate.as_bytes());

    let (_, another_key) = Authority::new().issue("me");
    let user = serde_json::json!({
        "client-certificate-data": encoded(&certificate),
        "client-key-data": encoded(&another_key),
    });
    let told = load_one(SERVER, &user.to_string()).unwrap_err();
    assert!(
        told[0].starts_with("config: context \"c\": the client certificate and its key do not fit"),
        "{told:?}"
    );
}

#[test]
fn exec_plugins_connect_on_demand_unless_told_otherwise() {
    let user = r#"{"exec": {
        "apiVersion": "client.authentication.k8s.io/v1beta1", "command": "aws", "args": ["get-token"],
        "env": [{"name": "A", "value": "b"}], "interactiveMode": "IfAvailable", "provideClusterInfo": true,
        "installHint": "install it"}}"#;
    let cluster = load_one(SERVER, user).unwrap();
    assert_eq!(cluster.connect, ConnectPolicy::OnDemand);
    let CredentialConfig::Exec(plugin) = cluster.credential else {
        panic!()
    };
    assert_eq!(plugin.command, Path::new("aws"));
    assert_eq!(plugin.args, ["get-token"]);
    assert_eq!(plugin.env, [("A".to_owned(), "b".to_owned())]);
    assert_eq!(plugin.install_hint.as_deref(), Some("install it"));
    assert_eq!(
        plugin.cluster_info.unwrap(),
        serde_json::json!({ "server": "https://k.example:6443", "insecure-skip-tls-verify": true })
    );

    let folder = Folder::new();
    let path = folder.write("config", &one(SERVER, user));
    let timing = ConnectionTiming::default();
    let always = Some(ConnectPolicy::Always);
    let loaded = load_with(
        &[path],
        &[],
        &timing,
        always,
        &HashMap::new(),
        &ProxyEnv::default(),
    );
    assert_eq!(loaded.clusters[0].connect, ConnectPolicy::Always);
}

#[test]
fn relative_paths_are_the_files_own() {
    let folder = Folder::new();
    std::fs::create_dir(folder.0.path().join("sub")).unwrap();
    folder.write("sub/ca.crt", &Authority::new().pem);
    let exec =
        r#"{"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}}"#;
    let cluster = r#"{"server": "https://k", "certificate-authority": "ca.crt"}"#;
    let token = folder.write("sub/token", &one(cluster, r#"{"tokenFile": "t"}"#));
    let loaded = read(&[token], &[]);
    let CredentialConfig::TokenFile(path) = &loaded.clusters[0].credential else {
        panic!("{:?}", loaded.rejected)
    };
    assert_eq!(*path, folder.0.path().join("sub/t"));
    let loaded = read(&[folder.write("sub/exec", &one(cluster, exec))], &[]);
    let CredentialConfig::Exec(plugin) = &loaded.clusters[0].credential else {
        panic!("{:?}", loaded.rejected)
    };
    assert_eq!(plugin.command, folder.0.path().join("sub/./plugin"));
}

#[test]
fn endpoints_are_read() {
    for (cluster, server) in [
        (
            r#"{"server": "https://k:6443/k8s/c1/", "insecure-skip-tls-verify": true}"#,
            "https://k:6443/k8s/c1/",
        ),
        (
            r#"{"server": "k:6443", "insecure-skip-tls-verify": true}"#,
            "https://k:6443/",
        ),
        (r#"{"server": "localhost:8080"}"#, "http://localhost:8080/"),
        (
            r#"{"server": "https://[::1]:6443", "api-version": "v1"}"#,
            "https://[::1]:6443/",
        ),
    ] {
        let read = load_one(cluster, "{}").unwrap();
        assert_eq!(read.endpoint.server.to_string(), server, "{cluster}");
    }
    let cluster = r#"{"server": "https://k", "insecure-skip-tls-verify": true,
        "tls-server-name": "other", "proxy-url": "socks5://p:1"}"#;
    let endpoint = load_one(cluster, "{}").unwrap().endpoint;
    assert_eq!(endpoint.tls_server_name.as_deref(), Some("other"));
    assert_eq!(endpoint.proxy_url.unwrap().to_string(), "socks5://p:1/");
}

#[test]
fn over_plain_http_there_is_no_credential() {
    let cluster = load_one(r#"{"server": "http://k"}"#, r#"{"token": "t"}"#).unwrap();
    assert!(matches!(cluster.credential, CredentialConfig::Anonymous));
    assert!(cluster.credential_withheld);
    for (server, user) in [("http://k", "{}"), ("https://k", r#"{"token": "t"}"#)] {
        let cluster = load_one(&format!(r#"{{"server": "{server}"}}"#), user).unwrap();
        assert!(!cluster.credential_withheld, "{server} {user}");
    }
}

#[test]
fn the_environments_proxy_is_used_where_the_file_names_none() {
    let folder = Folder::new();
    let path = folder.write("config", &one(SERVER, "{}"));
    let env = |url: &'static str| {
        ProxyEnv::from_lookup(move |name| (name == "HTTPS_PROXY").then(|| url.to_owned()))
    };
    let timing = ConnectionTiming::default();
    let paths = [path];
    let loaded = load_with(&paths, &[], &timing, None, &HashMap::new(), &env("p:3128"));
    let proxy = loaded.clusters[0].endpoint.proxy_url.clone();
    assert_eq!(proxy.unwrap().to_string(), "http://p:3128/");
    let loaded = load_with(
        &paths,
        &[],
        &timing,
        None,
        &HashMap::new(),
        &env("https://u:secret@p"),
    );
    assert_eq!(
        folder.told(&loaded),
        [
            r#"config: context "c": HTTPS_PROXY names an https proxy, which is not supported; use an http or socks5 proxy"#
        ]
    );
}

#[test]
fn files_are_merged_and_one_that_is_broken_stops_none() {
    let folder = Folder::new();
    let contexts = folder.write(
        "contexts",
        r#"{"contexts": [
            {"name": "a", "context": {"cluster": "k", "user": "u"}},
            {"name": "lost", "context": {"cluster": "gone", "user": "nobody"}},
            {"name": "empty"},
            {"name": "A", "context": {"cluster": "k"}}]}"#,
    );
    let rest = folder.write("rest", &one(SERVER, r#"{"token": "t"}"#));
    let again = folder.write("again", &one(r#"{"server": "https://later"}"#, "{}"));
    let broken = folder.write(
        "broken",
        "users:\n- name: u\n  user: {token: s3cret, token: s3cret}\n",
    );
    let kind = folder.write("kind", r#"{"kind": "Other"}"#);
    let missing = folder.0.path().join("missing");
    let empty = folder.write("nothing", "");
    let loaded = read(&[contexts, missing, broken, rest, again, kind, empty], &[]);
    let found: Vec<_> = loaded
        .clusters
        .iter()
        .map(|c| (&*c.name, &*c.context))
        .collect();
    assert_eq!(found, [("a", "a"), ("a-2", "A"), ("c", "c")]);
    for cluster in &loaded.clusters {
        assert_eq!(cluster.endpoint.server.host(), Some("k.example"));
    }
    assert_eq!(
        folder.told(&loaded),
        [
            "missing: it cannot be read: No such file or directory (os error 2); check the path and its permissions",
            "broken: it is not a kubeconfig: line 3, column 25 cannot be read; check it with kubectl config view",
            "kind: its kind or apiVersion differs from the files before it; kubeconfigs have kind Config and apiVersion v1",
            r#"contexts: context "lost": cluster "gone" is not defined; add it under clusters"#,
            r#"contexts: context "lost": user "nobody" is not defined; add it under users"#,
            r#"contexts: context "empty": it is empty; give it a cluster and a user"#,
        ]
    );
}

#[test]
fn contexts_are_chosen_by_name() {
    let folder = Folder::new();
    let path = folder.write(
        "config",
        r#"{"clusters": [{"name": "k", "cluster": {"server": "http://k"}}],
            "contexts": [
                {"name": "a", "context": {"cluster": "k"}},
                {"name": "b", "context": {"cluster": "k"}},
                {"name": "bad", "context": {"cluster": "gone"}}]}"#,
    );
    let loaded = read(&[path], &["b", "b", "x"]);
    assert_eq!(loaded.clusters.len(), 1);
    assert_eq!(loaded.clusters[0].name, "b");
    assert_eq!(
        folder.told(&loaded),
        [r#"context "x" is not in config; name one of ["a", "b", "bad"]"#]
    );
}
