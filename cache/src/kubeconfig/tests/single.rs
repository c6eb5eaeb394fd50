//! One cluster from one kubeconfig: which context, and what a Secret may not say.

use super::super::single::with_proxies;
use super::*;
use crate::upstream::fake::Authority;
use serde_json::{Value, json};

/// A kubeconfig with contexts, all of the same cluster and user, which may be used from a Secret.
fn several(contexts: &[&str], current: &str) -> Value {
    use base64::Engine;
    let ca = base64::engine::general_purpose::STANDARD.encode(Authority::new().pem);
    let contexts: Vec<_> = contexts
        .iter()
        .map(|name| json!({ "name": name, "context": { "cluster": "k", "user": "u" } }))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "k", "cluster": { "server": "https://k:6443", "certificate-authority-data": ca } }],
        "users": [{ "name": "u", "user": { "token": "t" } }],
        "contexts": contexts,
        "current-context": current,
    })
}

fn from_text(kubeconfig: &Value, data: &[(&str, &str)]) -> Result<ClusterConfig, String> {
    let data = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_owned()))
        .collect();
    let text = kubeconfig.to_string();
    let source = ClusterSource {
        kind: SourceKind::Secret,
        name: "ns/s".to_owned(),
    };
    with_proxies(
        "Secret ns/s",
        &text,
        &data,
        "ns.s",
        source,
        &ProxyEnv::default(),
    )
}

#[test]
fn the_current_context_is_used_or_the_only_one() {
    let folder = Folder::new();
    let load = |contexts: &[&str], current: &str, context: Option<&str>| {
        let path = folder.write("a.kubeconfig", &several(contexts, current).to_string());
        let found = from_file(&path, context, "a").map(|it| (it.name, it.context));
        let prefix = format!("{}: ", path.display());
        found.map_err(|told| told.replace(&prefix, ""))
    };
    let ok = |context: &str| Ok(("a".to_owned(), context.to_owned()));
    assert_eq!(load(&["x", "y"], "y", None), ok("y"));
    assert_eq!(load(&["x"], "", None), ok("x"));
    assert_eq!(load(&["x", "y"], "y", Some("x")), ok("x"));
    for (contexts, current, context, told) in [
        (
            &["x", "y"][..],
            "",
            None,
            r#"it has several contexts and no current-context; set it to one of ["x", "y"]"#,
        ),
        (
            &["x"],
            "z",
            None,
            r#"its current-context "z" is not there; name one of ["x"]"#,
        ),
        (&[], "", None, "it has no contexts"),
        (
            &["x"],
            "x",
            Some("z"),
            r#"it has no context "z"; name one of ["x"]"#,
        ),
    ] {
        assert_eq!(load(contexts, current, context), Err(told.to_owned()));
    }
    let missing = from_file(Path::new("/no/file"), None, "a").unwrap_err();
    assert!(
        missing.starts_with("/no/file: it cannot be read: "),
        "{missing}"
    );
}

#[test]
fn a_secret_may_name_no_program_and_no_file_and_trusts_nobody() {
    let told = |cluster: Value, user: Value| {
        let mut kubeconfig = several(&["c"], "c");
        if let Some(cluster) = cluster.as_object() {
            let entry = &mut kubeconfig["clusters"][0]["cluster"];
            entry.as_object_mut().unwrap().extend(cluster.clone());
        }
        if user.is_object() {
            kubeconfig["users"][0]["user"] = user;
        }
        let told = from_text(
            &kubeconfig,
            &[("token-file", " of-the-secret\n"), ("empty", "")],
        );
        told.map(|it| it.credential)
            .map_err(|told| told.replace("Secret ns/s: context \"c\": ", ""))
    };
    for (cluster, user, expect) in [
        (
            Value::Null,
            json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}}),
            r#"user "u" names the exec plugin "aws", which a Secret may not: it would run in the proxy; use a token or a client certificate"#,
        ),
        (
            Value::Null,
            json!({"auth-provider": {"name": "gcp"}}),
            r#"user "u" has the auth-provider "gcp", which Kubernetes removed in 1.26; use an exec plugin or a token"#,
        ),
        (
            Value::Null,
            json!({"client-certificate": "/etc/crt", "client-key": "key"}),
            r#"user "u": client-certificate names the file "/etc/crt", which a Secret may not; put it into client-certificate-data; user "u": client-key names the file "key", which a Secret may not; put it into client-key-data"#,
        ),
        (
            Value::Null,
            json!({"tokenFile": "/var/run/token"}),
            r#"user "u": tokenFile names the file "/var/run/token", which a Secret may not; put it into token, or into a key of the Secret and name that"#,
        ),
        (
            Value::Null,
            json!({"tokenFile": "../token-file"}),
            r#"user "u": tokenFile names the file "../token-file", which a Secret may not; put it into token, or into a key of the Secret and name that"#,
        ),
        (
            Value::Null,
            json!({"tokenFile": "./other"}),
            r#"user "u": tokenFile names "./other", but the Secret has no such key; add it"#,
        ),
        (
            Value::Null,
            json!({"tokenFile": "empty"}),
            r#"user "u": tokenFile names the key "empty", which is empty"#,
        ),
        (
            json!({"certificate-authority-data": null, "certificate-authority": "/etc/ca"}),
            Value::Null,
            r#"certificate-authority names the file "/etc/ca", which a Secret may not; put it into certificate-authority-data"#,
        ),
        (
            json!({"certificate-authority-data": null, "insecure-skip-tls-verify": true}),
            Value::Null,
            "insecure-skip-tls-verify is set, which a Secret may not: the credential would go to whoever answers; set certificate-authority-data",
        ),
        (
            json!({"certificate-authority-data": null, "server": "http://k"}),
            Value::Null,
            "its server is reached over plain http, where nobody knows who answers; give it an https URL",
        ),
        (
            json!({"server": "https://169.254.169.254"}),
            Value::Null,
            "server is a link-local address, which a Secret may not name: it is of the proxy's own machine, where clouds keep credentials",
        ),
        (
            json!({"server": "https://[fe80::1]:6443/x"}),
            Value::Null,
            "server is a link-local address, which a Secret may not name: it is of the proxy's own machine, where clouds keep credentials",
        ),
        (
            json!({"proxy-url": "socks5://[::ffff:169.254.169.254]:80"}),
            Value::Null,
            "proxy-url is a link-local address, which a Secret may not name: it is of the proxy's own machine, where clouds keep credentials",
        ),
    ] {
        let said = told(cluster, user).unwrap_err();
        let said = said.replace("; Secret ns/s: context \"c\": ", "; ");
        assert_eq!(said, expect);
    }
    // A file that other fields make meaningless is not looked at; one that the Secret itself holds is used.
    let (certificate, key) = Authority::new().issue("me");
    let encoded = |text: &str| {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(text)
    };
    let harmless = told(
        json!({"certificate-authority": "/etc/ca"}),
        json!({
            "client-certificate-data": encoded(&certificate), "client-certificate": "/etc/crt",
            "client-key-data": encoded(&key), "client-key": "/etc/key",
        }),
    );
    assert!(matches!(
        harmless.unwrap(),
        CredentialConfig::ClientCertificate { .. }
    ));
    for user in [
        json!({"tokenFile": "./token-file"}),
        json!({"tokenFile": "token-file", "token": "stale"}),
    ] {
        let CredentialConfig::Token(token) = told(Value::Null, user).unwrap() else {
            panic!("no token")
        };
        assert_eq!(token.expose_secret(), "of-the-secret");
    }
}

#[test]
fn what_a_secret_says_elsewhere_in_its_kubeconfig_harms_nobody() {
    let mut kubeconfig = several(&["c"], "c");
    let exec = json!({ "name": "other", "user": { "exec": { "command": "rm" } } });
    kubeconfig["users"].as_array_mut().unwrap().push(exec);
    let found = from_text(&kubeconfig, &[]).unwrap();
    assert!(matches!(found.credential, CredentialConfig::Token(_)));
    assert!(found.endpoint.refuse_link_local, "by its name too");
    let broken = from_text(&json!(["no kubeconfig"]), &[]).unwrap_err();
    assert!(
        broken.starts_with("Secret ns/s: it is not a kubeconfig"),
        "{broken}"
    );
}
