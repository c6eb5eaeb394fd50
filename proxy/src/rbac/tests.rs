use super::*;

fn parse(given: &[&str]) -> Result<Resources, String> {
    let given: Vec<_> = given.iter().map(|&it| it.to_owned()).collect();
    Resources::parse(&given).map_err(|error| error.to_string())
}

fn rules_of(given: &[&str], identity: Identity, token_review: bool) -> Vec<String> {
    let role = cluster_role(&Needs {
        resources: parse(given).unwrap(),
        identity,
        token_review,
    });
    let (_, rules) = role.split_once("rules:\n").unwrap();
    rules
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.trim().to_owned())
        .collect()
}

#[test]
fn a_role_for_everything() {
    assert_eq!(
        rules_of(&["*"], Identity::Impersonate, false),
        [
            r#"- apiGroups: ["*"]"#,
            r#"resources: ["*"]"#,
            r#"verbs: ["list", "watch"]"#,
            r#"- apiGroups: [""]"#,
            r#"resources: ["namespaces"]"#,
            r#"resourceNames: ["kube-system"]"#,
            r#"verbs: ["get"]"#,
            r#"- nonResourceURLs: ["/readyz", "/version", "/api", "/apis", "/api/v1", "/apis/*", "/openapi/v3/apis/*"]"#,
            r#"verbs: ["get"]"#,
            r#"- apiGroups: ["authorization.k8s.io"]"#,
            r#"resources: ["subjectaccessreviews"]"#,
            r#"verbs: ["create"]"#,
            r#"- apiGroups: [""]"#,
            r#"resources: ["users", "groups"]"#,
            r#"verbs: ["impersonate"]"#,
            r#"- apiGroups: ["authentication.k8s.io"]"#,
            r#"resources: ["*"]"#,
            r#"verbs: ["impersonate"]"#,
        ]
    );
}

#[test]
fn a_role_for_some_resources_has_no_others() {
    let rules = rules_of(
        &["pods", "deployments.apps", "configmaps", "pods"],
        Identity::Token,
        true,
    );
    assert_eq!(
        rules,
        [
            r#"- apiGroups: [""]"#,
            r#"resources: ["configmaps", "pods"]"#,
            r#"verbs: ["list", "watch"]"#,
            r#"- apiGroups: ["apps"]"#,
            r#"resources: ["deployments"]"#,
            r#"verbs: ["list", "watch"]"#,
            r#"- apiGroups: [""]"#,
            r#"resources: ["namespaces"]"#,
            r#"resourceNames: ["kube-system"]"#,
            r#"verbs: ["get"]"#,
            r#"- nonResourceURLs: ["/readyz", "/version", "/api", "/apis", "/api/v1", "/apis/*", "/.well-known/openid-configuration"]"#,
            r#"verbs: ["get"]"#,
            r#"- apiGroups: ["authorization.k8s.io"]"#,
            r#"resources: ["subjectaccessreviews"]"#,
            r#"verbs: ["create"]"#,
            r#"- apiGroups: ["authentication.k8s.io"]"#,
            r#"resources: ["tokenreviews"]"#,
            r#"verbs: ["create"]"#,
        ]
    );
}

#[test]
fn every_rule_says_why_and_power_is_named() {
    for identity in [Identity::Impersonate, Identity::Token] {
        let needs = Needs {
            resources: Resources::All,
            identity,
            token_review: true,
        };
        let role = cluster_role(&needs);
        let lines: Vec<_> = role.lines().collect();
        for (before, line) in lines.iter().zip(&lines[1..]) {
            assert!(!line.starts_with('-') || before.starts_with('#'), "{line}");
        }
        let warns = role.contains("AS GOOD AS cluster-admin");
        assert_eq!(warns, identity == Identity::Impersonate);
    }
}

#[test]
fn what_is_no_resource_is_told() {
    let check = |given: &[&str], expect: &str| {
        let error = parse(given).unwrap_err();
        let error = error.strip_prefix("--resources: ").unwrap();
        assert!(error.starts_with(expect), "{given:?}: {error}");
    };
    check(&[], "names no resource");
    check(&[""], "names no resource");
    check(&["pods", ""], "names an empty resource");
    check(&["*", "pods"], "\"*\" is everything");
    check(&["Pods"], "\"Pods\" is not the plural name of a resource");
    check(&["pod"], "\"pod\" is no resource of the core group");
    check(
        &["deployments"],
        "\"deployments\" is no resource of the core group that can be watched. One of another group is written with it, as in \"deployments.apps\"",
    );
    check(&["pods/log"], "\"pods/log\" is a subresource");
    check(
        &["deployments.apps/scale"],
        "\"deployments.apps/scale\" is a subresource, of which none is kept in memory: \"deployments.apps\" is enough",
    );
    check(
        &["apps/deployments"],
        "\"apps/deployments\" has a slash: write resource.group without a version, such as \"deployments.apps\"",
    );
    check(
        &["apps/v1"],
        "\"apps/v1\" has a slash: write resource.group without a version, such as \"deployments.apps\"",
    );
    check(
        &["deployments.v1.apps"],
        "\"deployments.v1.apps\" has a version, but a role holds for all of them: write \"deployments.apps\"",
    );
    check(
        &["pods.v1"],
        "\"pods.v1\" has a version, but a role holds for all of them: write \"pods\"",
    );
    check(&["pods."], "\"pods.\" ends with a dot");
    check(
        &["widgets.Example.com"],
        "\"Example.com\" is not an API group",
    );
    check(&["*.apps"], "\"*\" is not the plural name of a resource");
    check(&[" pods"], "\" pods\" is not the plural name of a resource");
}
