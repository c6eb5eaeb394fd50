use super::*;

/// The values of an object by the names of its kind's fields.
#[track_caller]
fn check(kind: (&str, &str, &str), object: &str, expected: &[(&str, &str)]) {
    let (group, version, resource) = kind;
    let fields = Fields::built_in(&Gvr::new(group, version, resource), true);
    check_fields(&fields, object, expected);
}

#[track_caller]
fn check_fields(fields: &Fields, object: &str, expected: &[(&str, &str)]) {
    let values = fields.read(object.as_bytes()).unwrap();
    let read: Vec<(&str, &str)> = fields
        .own()
        .enumerate()
        .map(|(at, name)| (name, values.get(at)))
        .collect();
    assert_eq!(read, expected, "{object}");
}

#[test]
fn pods() {
    let pods = ("", "v1", "pods");
    let object = r#"{"kind":"Pod","metadata":{"spec":{"nodeName":"no"}},"spec":{"nodeName":"n1","hostNetwork":true,"restartPolicy":"Never","schedulerName":"s","serviceAccountName":"sa","containers":[{"nodeName":"no"}]},"status":{"phase":"Running","podIP":"no","podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}],"nominatedNodeName":"n2"}}"#;
    check(
        pods,
        object,
        &[
            ("spec.nodeName", "n1"),
            ("spec.host", "n1"),
            ("spec.restartPolicy", "Never"),
            ("spec.schedulerName", "s"),
            ("spec.serviceAccountName", "sa"),
            ("spec.hostNetwork", "true"),
            ("status.phase", "Running"),
            ("status.podIP", "10.0.0.1"),
            ("status.podIPs", ""),
            ("status.nominatedNodeName", "n2"),
        ],
    );
    for object in [
        "{}",
        r#"{"spec":null,"status":{"podIPs":[]}}"#,
        r#"{"spec":{"securityContext":{}},"status":{"podIP":"10.0.0.1","podIPs":null}}"#,
    ] {
        check(
            pods,
            object,
            &[
                ("spec.nodeName", ""),
                ("spec.host", ""),
                ("spec.restartPolicy", ""),
                ("spec.schedulerName", ""),
                ("spec.serviceAccountName", ""),
                ("spec.hostNetwork", "false"),
                ("status.phase", ""),
                ("status.podIP", ""),
                ("status.podIPs", ""),
                ("status.nominatedNodeName", ""),
            ],
        );
    }
}

#[test]
fn both_kinds_of_events() {
    let reference = r#"{"kind":"Pod","namespace":"ns","name":"p","uid":"u","apiVersion":"v1","resourceVersion":"7","fieldPath":"spec.containers{c}"}"#;
    let core = |source: &str| {
        format!(
            r#"{{"involvedObject":{reference},"reason":"R","type":"Normal","reportingComponent":"rc"{source}}}"#
        )
    };
    let expected = |source| {
        [
            ("involvedObject.kind", "Pod"),
            ("involvedObject.namespace", "ns"),
            ("involvedObject.name", "p"),
            ("involvedObject.uid", "u"),
            ("involvedObject.apiVersion", "v1"),
            ("involvedObject.resourceVersion", "7"),
            ("involvedObject.fieldPath", "spec.containers{c}"),
            ("reason", "R"),
            ("reportingComponent", "rc"),
            ("source", source),
            ("type", "Normal"),
        ]
    };
    let events = ("", "v1", "events");
    check(
        events,
        &core(r#","source":{"component":"c"}"#),
        &expected("c"),
    );
    check(events, &core(r#","source":{}"#), &expected("rc"));
    check(events, &core(""), &expected("rc"));
    let object = format!(
        r#"{{"regarding":{reference},"reason":"R","type":"Normal","reportingController":"rc","deprecatedSource":{{"component":"c"}}}}"#
    );
    check(
        ("events.k8s.io", "v1", "events"),
        &object,
        &[
            ("regarding.kind", "Pod"),
            ("regarding.namespace", "ns"),
            ("regarding.name", "p"),
            ("regarding.uid", "u"),
            ("regarding.apiVersion", "v1"),
            ("regarding.resourceVersion", "7"),
            ("regarding.fieldPath", "spec.containers{c}"),
            ("reason", "R"),
            ("reportingController", "rc"),
            ("type", "Normal"),
        ],
    );
}

#[test]
fn the_other_kinds() {
    let nodes = ("", "v1", "nodes");
    let unschedulable = "spec.unschedulable";
    check(nodes, r#"{"spec":{}}"#, &[(unschedulable, "false")]);
    let object = r#"{"spec":{"unschedulable":true}}"#;
    check(nodes, object, &[(unschedulable, "true")]);
    let namespaces = ("", "v1", "namespaces");
    let object = r#"{"status":{"phase":"Active"}}"#;
    check(namespaces, object, &[("status.phase", "Active")]);
    let secrets = ("", "v1", "secrets");
    check(secrets, r#"{"type":"Opaque"}"#, &[("type", "Opaque")]);
    let object = r#"{"spec":{"clusterIP":"None","type":"ClusterIP"}}"#;
    let expected = [("spec.clusterIP", "None"), ("spec.type", "ClusterIP")];
    check(("", "v1", "services"), object, &expected);
    let controllers = ("", "v1", "replicationcontrollers");
    let object = r#"{"spec":{"replicas":3},"status":{"replicas":2}}"#;
    check(controllers, object, &[("status.replicas", "2")]);
    check(controllers, r#"{"status":{}}"#, &[("status.replicas", "0")]);
    let jobs = ("batch", "v1", "jobs");
    let object = r#"{"status":{"succeeded":12}}"#;
    check(jobs, object, &[("status.successful", "12")]);
    check(jobs, r#"{"status":{}}"#, &[("status.successful", "0")]);
    let object = r#"{"spec":{"signerName":"a/b","podName":"p","nodeName":"n","driver":"d"}}"#;
    let signer = ("spec.signerName", "a/b");
    for (version, resource) in [
        ("v1", "certificatesigningrequests"),
        ("v1beta1", "clustertrustbundles"),
    ] {
        check(
            ("certificates.k8s.io", version, resource),
            object,
            &[signer],
        );
    }
    let requests = ("certificates.k8s.io", "v1beta1", "podcertificaterequests");
    let expected = [signer, ("spec.podName", "p"), ("spec.nodeName", "n")];
    check(requests, object, &expected);
    let slices = ("resource.k8s.io", "v1", "resourceslices");
    let expected = [("spec.nodeName", "n"), ("spec.driver", "d")];
    check(slices, object, &expected);
    check(
        slices,
        r#"{"spec":{"driver":"d"}}"#,
        &[("spec.nodeName", ""), ("spec.driver", "d")],
    );
    check(("", "v1", "configmaps"), "no JSON at all", &[]);
}

#[test]
fn kinds_with_a_function_of_their_own_may_refuse_the_namespace() {
    for (group, version, resource, namespaced, expected) in [
        ("", "v1", "configmaps", true, true),
        ("", "v1", "persistentvolumes", false, false),
        ("apps", "v1", "replicasets", true, true),
        ("", "v1", "pods", true, true),
        ("", "v1", "nodes", false, false),
        (
            "certificates.k8s.io",
            "v1beta1",
            "podcertificaterequests",
            true,
            false,
        ),
        // A version that is not known: only the name is sure.
        (
            "certificates.k8s.io",
            "v2",
            "podcertificaterequests",
            true,
            false,
        ),
    ] {
        let fields = Fields::built_in(&Gvr::new(group, version, resource), namespaced);
        let namespace = fields.find("metadata.namespace").is_some();
        assert_eq!(namespace, expected, "{resource}");
        assert_eq!(fields.find("metadata.name"), Some(Selectable::Name));
        assert_eq!(fields.find("metadata.uid"), None);
    }
    let unknown = Fields::built_in(
        &Gvr::new("resource.k8s.io", "v1alpha2", "resourceslices"),
        false,
    );
    assert_eq!(unknown.own().count(), 0);
    let replica_sets = Fields::built_in(&Gvr::new("apps", "v1", "replicasets"), true);
    assert_eq!(replica_sets.find("status.replicas"), None);
}

fn custom(paths: &[&str]) -> Fields {
    let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
    Fields::custom(&paths, true)
}

#[test]
fn custom_resources_print_their_values_plainly() {
    let fields = custom(&["spec.color", "spec.n", "spec.on", "spec.deep.odd-name"]);
    let names = ["spec.color", "spec.n", "spec.on", "spec.deep.odd-name"];
    for (object, values) in [
        (
            r#"{"spec":{"color":"r\"\u00fc\n","deep":{"odd-name":"x"},"n":-2,"on":true}}"#,
            ["r\"\u{fc}\n", "-2", "true", "x"],
        ),
        (
            r#"{"spec":{"color":"","n":9007199254740993,"on":false,"deep":null}}"#,
            ["", "9007199254740993", "false", ""],
        ),
        (r#"{"spec":{"color":null,"deep":"x"}}"#, ["", "", "", ""]),
        (r#"{"spec":[{"color":"x"}]}"#, ["", "", "", ""]),
        (r#"{"metadata":{"name":"a"}}"#, ["", "", "", ""]),
    ] {
        let expected: Vec<(&str, &str)> = names.into_iter().zip(values).collect();
        check_fields(&fields, object, &expected);
    }
}

#[test]
fn values_that_go_prints_its_own_way_are_not_told() {
    let fields = custom(&["spec.a"]);
    for value in [
        "1.5",
        "1e3",
        "-0",
        "9223372036854775808",
        "{}",
        r#"{"a":1}"#,
        "[]",
        r#""\u0000""#,
    ] {
        let object = format!(r#"{{"spec":{{"a":{value}}}}}"#);
        assert_eq!(fields.read(object.as_bytes()), None, "{value}");
    }
    assert_eq!(fields.read(b"{"), None);
}

#[test]
fn paths_that_are_not_plain_names_are_left_out() {
    let fields = custom(&[
        "spec.a",
        "spec['a']",
        "spec..a",
        ".spec.a",
        "spec.*",
        "",
        "spec.a[0]",
    ]);
    assert_eq!(fields.own().collect::<Vec<_>>(), ["spec.a"]);
}
