//! Who may come in, and as whom.

use super::*;
use crate::authorization::AuthorizationMode;

#[test]
fn every_key_of_users_is_read() {
    let file = parse(&document(
        r#"
tls: { certFile: tls.crt, keyFile: /tls.key, clientCAFile: clients.crt }
authentication:
  tokenFile: tokens.csv
  configFile: issuers.yaml
  tokenReview: { cluster: mgmt, audiences: [a, b], targetCluster: true }
  anonymous: true
  allowSystemNames: ["system:masters", "system:serviceaccount:ns:name"]
authorization:
  mode: AlwaysAllow
  allowTTL: 20s
  denyTTL: 5s
  staleAllowTTL: 0s
  broadQuestions: false
  fleetReaders: { users: [alice], groups: ["system:authenticated"] }
defaults: { identity: token }
overrides: [ { cluster: "edge-*", identity: impersonate, broadQuestions: true } ]
"#,
    ))
    .unwrap();
    let at = |name: &str| Path::new("/etc/fleetcache").join(name);
    let serving = file.tls.serving.unwrap();
    assert_eq!(serving.certificate, at("tls.crt"));
    assert_eq!(serving.key, Path::new("/tls.key"));
    assert_eq!(file.tls.client_ca, Some(at("clients.crt")));
    let names = |them: &[&str]| them.iter().map(|&it| it.to_owned()).collect();
    let expect = AuthenticationConfig {
        token_file: Some(at("tokens.csv")),
        config_file: Some(at("issuers.yaml")),
        token_review: Some(TokenReviewConfig {
            cluster: Some("mgmt".to_owned()),
            audiences: vec!["a".to_owned(), "b".to_owned()],
            target_cluster: true,
        }),
        anonymous: true,
        allow_system_names: names(&["system:masters", "system:serviceaccount:ns:name"]),
        disabled: false,
    };
    assert_eq!(file.authentication, expect);
    let expect = AuthorizationSettings {
        mode: AuthorizationMode::AlwaysAllow,
        allow_ttl: Duration::from_secs(20),
        deny_ttl: Duration::from_secs(5),
        stale_allow_ttl: Duration::ZERO,
        broad_questions: false,
    };
    assert_eq!(file.authorization.settings, expect);
    let readers = FleetReaders {
        users: names(&["alice"]),
        groups: names(&["system:authenticated"]),
    };
    assert_eq!(file.authorization.fleet_readers, Some(readers));
    let readers = |rest: &str| parse(&document(rest)).unwrap().authorization.fleet_readers;
    assert_eq!(readers(""), None);
    let named = readers("authorization: { fleetReaders: { users: [alice] } }");
    assert!(named.unwrap().groups.is_empty(), "and nobody else");
    assert_eq!(file.defaults.identity, Identity::Token);
}

/// What a file at `path` says of the cluster of that name.
fn settings(path: &Path, name: &str) -> (Identity, bool) {
    let args = ServeArgs {
        config: Some(path.to_owned()),
        state_dir: Some("/s".into()),
        kubeconfig: vec!["k".into()],
        ..ServeArgs::default()
    };
    let settings = from_args(&args, &[]).unwrap().settings(name);
    (settings.identity, settings.authorization.broad_questions)
}

#[test]
fn how_users_are_known_decides_as_whom_requests_go() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("config.yaml");
    let of = |rest: &str, name: &str| {
        std::fs::write(&path, document(rest)).unwrap();
        settings(&path, name)
    };
    assert_eq!(of("", "a"), (Identity::Proxy, true));
    let local = "authentication: { disabled: true }";
    assert_eq!(of(local, "a"), (Identity::Proxy, true));
    for known_by in [
        "tls: { clientCAFile: a }",
        "authentication: { tokenFile: a }",
        "authentication: { configFile: a }",
        "authentication: { tokenReview: { cluster: a } }",
        "authentication: { tokenReview: { targetCluster: true } }",
    ] {
        assert_eq!(of(known_by, "a"), (Identity::Impersonate, true));
    }
    let rest = "authentication: { tokenFile: a }\nauthorization: { broadQuestions: false }\noverrides: [ { cluster: b, \
                identity: token, broadQuestions: true } ]";
    assert_eq!(of(rest, "a"), (Identity::Impersonate, false));
    assert_eq!(of(rest, "b"), (Identity::Token, true));
    let rest = format!("{rest}\ndefaults: {{ broadQuestions: true }}");
    assert_eq!(of(&rest, "a"), (Identity::Impersonate, true));
}

#[test]
fn the_proxys_own_rights_are_for_its_own_token() {
    const GIVES: &str = "\"proxy\" would give every user the rights of the cluster's credential, and users are known by";
    const INSTEAD: &str = "make it \"impersonate\" or \"token\"";
    check(
        "tls: { clientCAFile: a }\nauthentication: { tokenFile: a, disabled: true }\ndefaults: { identity: proxy }\n\
         overrides: [ { cluster: b, identity: token }, { cluster: c, identity: proxy } ]",
        &[
            &format!(
                "defaults.identity: {GIVES} tls.clientCAFile, authentication.tokenFile; {INSTEAD}"
            ),
            &format!(
                "overrides[1].identity: {GIVES} tls.clientCAFile, authentication.tokenFile; {INSTEAD}"
            ),
            "authentication.disabled: true, and users are known by tls.clientCAFile, authentication.tokenFile",
        ],
    );
    let needs = |word: &str| {
        format!(
            "{word:?} needs users, and only the proxy's own token is known: configure tls.clientCAFile, \
             authentication.tokenFile, authentication.configFile or authentication.tokenReview, or make it \"proxy\""
        )
    };
    check(
        "tls: { certFile: a, keyFile: b }\nauthentication: { anonymous: true }\ndefaults: { identity: impersonate }\n\
         overrides: [ { cluster: b, identity: token } ]",
        &[
            &format!("defaults.identity: {}", needs("impersonate")),
            &format!("overrides[0].identity: {}", needs("token")),
            "authentication.anonymous: true is for requests beside those of known users, and none are: configure \
             tls.clientCAFile, authentication.tokenFile, authentication.configFile or authentication.tokenReview",
        ],
    );
}

#[test]
fn mistakes_of_users_are_told() {
    check(
        "tls: { certFile: a, clientCAFile: '' }\nauthentication: { tokenReview: {}, anonymous: yes please, \
         allowSystemNames: [alice, 'system:', 1] }\nauthorization: { mode: RBAC, allowTTL: 100ms, denyTTL: 0s, fleetReaders: { \
         users: [''], names: [] } }",
        &[
            "tls.keyFile: missing beside certFile",
            "tls.clientCAFile: must not be empty",
            "authentication.tokenReview.cluster: no cluster is asked: name one, or make targetCluster true",
            "authentication.anonymous: expected a boolean, got a string",
            "authentication.allowSystemNames[0]: \"alice\" does not begin with \"system:\"; other names are allowed anyway",
            "authentication.allowSystemNames[1]: \"system:\" does not begin with \"system:\"; other names are allowed anyway",
            "authentication.allowSystemNames[2]: expected a string, got a number",
            "authorization.mode: \"RBAC\" is not \"SubjectAccessReview\" or \"AlwaysAllow\"",
            "authorization.allowTTL: 100ms is too short; make it 1s at least",
            "authorization.denyTTL: must be more than zero",
            "authorization.fleetReaders.users[0]: must not be empty",
            "authorization.fleetReaders.names: unknown key",
        ],
    );
    check(
        "tls: { keyFile: a }\nauthentication: { tokenReview: { targetCluster: true, audiences: [a] } }\n\
         authorization: { fleetReaders: {} }",
        &[
            "tls.certFile: missing beside keyFile",
            "authentication.tokenReview.audiences: they are about tokens of cluster alone",
            "authorization.fleetReaders.users: nobody is named, by users or groups",
        ],
    );
}

#[test]
fn nobody_needs_a_credential_only_where_nobody_else_comes() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("config.yaml");
    let text = document("authentication: { disabled: true }");
    std::fs::write(&path, text).unwrap();
    let on = |listen: &str| {
        let args = ServeArgs {
            config: Some(path.clone()),
            listen: Some(listen.to_owned()),
            state_dir: Some("/s".into()),
            ..ServeArgs::default()
        };
        from_args(&args, &[]).map_err(|mistakes| mistakes.to_string())
    };
    for listen in ["127.0.0.1:0", "127.8.0.1:8443", "[::1]:8443", "localhost:0"] {
        assert!(!on(listen).unwrap().counts_own_token());
    }
    for listen in [
        "0.0.0.0:8443",
        "[::]:8443",
        "10.0.0.1:8443",
        "proxy.example.com:8443",
    ] {
        let expect = format!(
            "{}: authentication.disabled: true is for a loopback address alone, and the proxy listens on {listen}: whoever \
             reaches it would be an administrator of every cluster",
            path.display()
        );
        assert_eq!(on(listen).unwrap_err(), expect);
    }
}

#[test]
fn what_may_not_be_meant_is_told() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("config.yaml");
    let check = |rest: &str, expect: &[(&str, &str)]| {
        std::fs::write(&path, document(rest)).unwrap();
        let args = ServeArgs {
            config: Some(path.clone()),
            state_dir: Some("/s".into()),
            ..ServeArgs::default()
        };
        let warnings = from_args(&args, &[("HOME", "/home/a")]).unwrap().warnings();
        let told = |(warning, (key, text)): (&String, &(&str, &str))| {
            warning.starts_with(&format!("{}: {key}: ", path.display())) && warning.contains(text)
        };
        let are_told = warnings.iter().zip(expect).all(told);
        assert!(
            are_told && warnings.len() == expect.len(),
            "{rest}: {warnings:?}"
        );
    };
    const TOKENS: &str = "authentication: { tokenFile: t }\n";
    let with_tokens = |rest: &str| format!("{TOKENS}{rest}");
    check(TOKENS, &[]);
    check("authorization: { mode: AlwaysAllow }", &[]);
    check(
        &with_tokens("authorization: { mode: AlwaysAllow }"),
        &[(
            "authorization.mode",
            "every user may read all that is in memory",
        )],
    );
    check(
        "authentication: { configFile: c }\ndefaults: { identity: token }",
        &[],
    );
    check(
        &with_tokens(
            "defaults: { identity: token }\noverrides: [ { cluster: a }, { cluster: b, identity: token } ]",
        ),
        &[
            ("defaults.identity", "is refused all else (401)"),
            ("overrides[1].identity", "is refused all else (401)"),
        ],
    );
    check(
        "tls: { clientCAFile: c }\ndefaults: { identity: token }",
        &[("defaults.identity", "TokenNeeded")],
    );
}
