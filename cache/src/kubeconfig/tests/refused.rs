//! Every sentence.

use super::*;

#[test]
fn what_cannot_be_used_is_told_with_its_remedy() {
    let plugin = |fields: &str| {
        format!(
            r#"{{"exec": {{"apiVersion": "client.authentication.k8s.io/v1", "command": "p"{fields}}}}}"#
        )
    };
    let always = plugin(r#", "interactiveMode": "Always""#);
    let nameless = plugin(r#", "env": [{"value": "v"}]"#);
    for (cluster, user, said) in [
        (
            SERVER,
            r#"{"auth-provider": {"name": "gcp"}}"#,
            r#"user "u" has the auth-provider "gcp", which Kubernetes removed in 1.26; use an exec plugin or a token"#,
        ),
        (
            SERVER,
            r#"{"tokne": "t"}"#,
            r#"user "u" has the unknown field "tokne"; remove it or correct its name"#,
        ),
        (
            SERVER,
            r#"{"token": "t", "as": "root"}"#,
            r#"user "u" impersonates with as, which is not supported; use a credential of that identity"#,
        ),
        (
            SERVER,
            r#"{"token": "t", "username": "n"}"#,
            r#"user "u" has both a token and a username; remove one of them"#,
        ),
        (
            SERVER,
            r#"{"client-certificate": "x"}"#,
            r#"user "u" has a client certificate without a key; set client-key or client-key-data"#,
        ),
        (
            SERVER,
            r#"{"client-key": "x"}"#,
            r#"user "u" has a client key without a certificate; set client-certificate or client-certificate-data"#,
        ),
        (
            SERVER,
            r#"{"client-certificate-data": "%", "client-key": "x"}"#,
            r#"user "u": client-certificate-data is not base64; encode it anew"#,
        ),
        (
            SERVER,
            r#"{"client-certificate-data": "eA==", "client-key-data": "eA=="}"#,
            "there is no certificate in PEM form in the client certificate",
        ),
        (
            SERVER,
            r#"{"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}"#,
            r#"user "u": exec has no command; set it"#,
        ),
        (
            SERVER,
            r#"{"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "p"}}"#,
            r#"user "u": exec has apiVersion "client.authentication.k8s.io/v1alpha1", which is not supported; use client.authentication.k8s.io/v1"#,
        ),
        (
            SERVER,
            &always,
            r#"user "u": exec has interactiveMode Always, but there is nobody to ask; use a plugin that works without a terminal"#,
        ),
        (
            SERVER,
            &nameless,
            r#"user "u": an entry of exec.env lacks its name or value; set both"#,
        ),
        (
            "{}",
            "{}",
            "the cluster has no server; set it to the URL of the kube-apiserver",
        ),
        (
            r#"{"server": "ftp://k"}"#,
            "{}",
            "server is not a URL like https://host:6443; correct it",
        ),
        (
            r#"{"server": "https://u:p@k"}"#,
            "{}",
            "server holds a user name or password; move them to the user's username and password",
        ),
        (
            r#"{"server": "https://k?x=1"}"#,
            "{}",
            "server has a query or fragment; remove it",
        ),
        (
            r#"{"server": "https://k", "certificate-authority": "/no/ca"}"#,
            "{}",
            "certificate-authority /no/ca cannot be read: No such file or directory (os error 2); check the path and its permissions",
        ),
        (
            r#"{"server": "https://k", "certificate-authority-data": "%"}"#,
            "{}",
            "certificate-authority-data is not base64; encode it anew",
        ),
        (
            r#"{"server": "https://k", "certificate-authority-data": "eA=="}"#,
            "{}",
            "certificate-authority-data: the CA bundle holds no certificate in PEM form; set it to the CA that signs the server's certificate",
        ),
        (
            r#"{"server": "https://k", "certificate-authority": "/dev/null"}"#,
            "{}",
            "certificate-authority /dev/null cannot be read: it is not a file; check the path and its permissions",
        ),
        (
            r#"{"server": "https://k", "certificate-authority-data": "eA==", "insecure-skip-tls-verify": true}"#,
            "{}",
            "certificate-authority and insecure-skip-tls-verify are both set; remove one of them",
        ),
        (
            r#"{"server": "https://k", "tls-server-name": "a b"}"#,
            "{}",
            "tls-server-name is no DNS name or IP address; correct it",
        ),
        (
            r#"{"server": "https://k", "proxy-url": "https://u:secret@p"}"#,
            "{}",
            "proxy-url names an https proxy, which is not supported; use an http or socks5 proxy",
        ),
        (
            r#"{"server": "https://k", "proxy-url": "p:3128"}"#,
            "{}",
            "proxy-url must start with http:// or socks5://; correct it",
        ),
        (
            r#"{"server": "https://k", "tls-servername": "x"}"#,
            "{}",
            r#"the cluster has the unknown field "tls-servername"; remove it or correct its name"#,
        ),
    ] {
        let told = load_one(cluster, user).unwrap_err();
        assert_eq!(
            told,
            [format!("config: context \"c\": {said}")],
            "{cluster} {user}"
        );
    }
}

#[test]
fn all_problems_of_a_context_are_told() {
    let told = load_one(r#"{"sever": "x"}"#, r#"{"as": "a", "tokn": "t"}"#).unwrap_err();
    assert_eq!(told.len(), 4, "{told:?}");
}
