//! What the server would choose, by `Accept`, query and agent.

use http::{HeaderName, HeaderValue};

use super::*;

const COMPACT: Option<Representation> = json(Form::Object, false);
const PRETTY: Option<Representation> = json(Form::Object, true);

const fn json(form: Form, pretty: bool) -> Option<Representation> {
    Some(Representation {
        form,
        encoding: Encoding::Json { pretty },
    })
}

const fn other(form: Form, encoding: Encoding) -> Option<Representation> {
    Some(Representation { form, encoding })
}

fn check(offer: Offer, query: &str, headers: &[(HeaderName, &str)]) -> Option<Representation> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(name, HeaderValue::from_str(value).unwrap());
    }
    negotiate(offer, query, &map).ok()
}

#[test]
fn accept_is_read_as_the_server_reads_it() {
    const YAML: Option<Representation> = other(Form::Object, Encoding::Yaml);
    const PROTOBUF: Option<Representation> = other(Form::Object, Encoding::Protobuf);
    for (accept, expected) in [
        ("application/json", COMPACT),
        ("application/json, */*", COMPACT),
        ("*/*", COMPACT),
        ("*/*;q=0.8", COMPACT),
        ("*/*, *", COMPACT),
        ("", COMPACT),
        (" ", COMPACT),
        ("application/json;charset=utf-8", COMPACT),
        ("application/json; charset=\"utf-8\"; odd", COMPACT),
        ("application/json;pretty=1", PRETTY),
        ("application/json; pretty = 1 ", PRETTY),
        ("application/json;pretty=true", COMPACT),
        ("application/json;pretty=1;pretty=0", COMPACT),
        ("application/json;export=1;profile=x", COMPACT),
        ("application/json;q=0.9,application/yaml;q=0.1", COMPACT),
        ("application/yaml;q=0.1,application/json;q=0.9", COMPACT),
        ("application/json;q=0.1, application/yaml;q=0.9", YAML),
        // A name is before a wildcard, whatever they weigh.
        ("*/*;q=0.9,application/yaml;q=0.1", YAML),
        ("*/*;q=0.9,application/json;pretty=1;q=0.1", PRETTY),
        ("*/*,application/*;pretty=1", PRETTY),
        ("application/*", None),
        ("application/*,application/json", COMPACT),
        ("*", None),
        ("text/html", None),
        ("text/html,*/*;q=0.8", COMPACT),
        (
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
            COMPACT,
        ),
        (
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
            COMPACT,
        ),
        ("application/json;as=Nonsense,application/json", COMPACT),
        ("application/json;stream=watch", None),
        (
            "application/vnd.kubernetes.protobuf,application/json",
            PROTOBUF,
        ),
        (
            "application/json,application/vnd.kubernetes.protobuf",
            COMPACT,
        ),
        ("application/cbor,application/json", None),
        ("application/yaml", YAML),
        ("application/json;q=1e0", None),
        ("application/json;q= 1", None),
        ("application/json;q=.", None),
        ("application / json,*/*", COMPACT),
        ("application / json", None),
        ("application/json/x, */*;pretty=1", PRETTY),
        ("APPLICATION/JSON", None),
        (",,", None),
        ("*/, */*;q=0.1", COMPACT),
        ("application/json/;q=1=, x/y//;pretty=1, */*;q=0.1", COMPACT),
        ("application/json;pretty==1,*/*", COMPACT),
        (
            "a/a,a/b,a/c,a/d,a/e,a/f,a/g,a/h,a/i,a/j,a/k,application/json",
            COMPACT,
        ),
        (
            "a/a,a/b,a/c,a/d,a/e,a/f,a/g,a/h,a/i,a/j,a/k,a/l,application/json",
            None,
        ),
    ] {
        let headers = [(ACCEPT, accept)];
        let negotiated = check(Offer::BuiltIn, "", &headers);
        assert_eq!(negotiated, expected, "{accept}");
    }
    // The first of several headers counts.
    let two = [(ACCEPT, "application/json"), (ACCEPT, "text/html")];
    assert_eq!(check(Offer::BuiltIn, "", &two), COMPACT);
    let two = [(ACCEPT, "text/html"), (ACCEPT, "application/json")];
    assert_eq!(check(Offer::BuiltIn, "", &two), None);
    let mut bytes = HeaderMap::new();
    bytes.insert(ACCEPT, HeaderValue::from_bytes(b"*/*;x=\xff").unwrap());
    let unclear = Err(Unusable::Unclear);
    assert_eq!(negotiate(Offer::BuiltIn, "", &bytes), unclear);
}

/// The same clauses for built-in kinds and for custom resources.
#[test]
fn other_forms_than_objects_are_negotiated_about_for_each_sort_of_kind() {
    const V1: MetaVersion = MetaVersion::V1;
    const V1BETA1: MetaVersion = MetaVersion::V1beta1;
    const TABLE: Option<Representation> = json(Form::Table(V1), false);
    let metadata = |encoding| other(Form::MetadataList(V1), encoding);
    for (accept, built_in, custom) in [
        // kubectl get.
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            TABLE,
            TABLE,
        ),
        (
            "application/json;as=Table;v=v2;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io;pretty=1",
            json(Form::Table(V1BETA1), true),
            json(Form::Table(V1BETA1), true),
        ),
        ("*/*;as=Table;v=v1;g=meta.k8s.io", TABLE, TABLE),
        ("application/*;as=Table;v=v1;g=meta.k8s.io", None, TABLE),
        ("application/json;as=Table;v=v1", None, None),
        ("application/json;as=Table;g=meta.k8s.io", None, None),
        ("application/json;v=v1;g=meta.k8s.io", None, None),
        ("application/json;v=v2,*/*", COMPACT, COMPACT),
        (
            "application/yaml;as=Table;v=v1;g=meta.k8s.io",
            other(Form::Table(V1), Encoding::Yaml),
            other(Form::Table(V1), Encoding::Yaml),
        ),
        (
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
            COMPACT,
            COMPACT,
        ),
        // The metadata client of client-go.
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            metadata(Encoding::Protobuf),
            metadata(Encoding::Protobuf),
        ),
        (
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            json(Form::Metadata(V1), false),
            json(Form::Metadata(V1), false),
        ),
        // The typed clients.
        (
            "application/vnd.kubernetes.protobuf,application/json",
            other(Form::Object, Encoding::Protobuf),
            COMPACT,
        ),
        (
            "application/vnd.kubernetes.protobuf",
            other(Form::Object, Encoding::Protobuf),
            None,
        ),
        ("application/*", None, COMPACT),
        ("text/html", None, None),
    ] {
        let headers = [(ACCEPT, accept)];
        let negotiated = check(Offer::BuiltIn, "", &headers);
        assert_eq!(negotiated, built_in, "{accept}");
        let negotiated = check(Offer::Custom, "", &headers);
        assert_eq!(negotiated, custom, "{accept}");
    }
}

#[test]
fn indentation_is_for_people_and_for_who_asks() {
    let curl = "curl/8.5.0";
    for (query, agent, expected) in [
        ("", "", COMPACT),
        ("", curl, PRETTY),
        ("", "Wget/1.21", PRETTY),
        ("", "Mozilla/5.0 (X11; Linux x86_64)", PRETTY),
        ("", "Mozilla/4.0", COMPACT),
        ("", "my-curl", COMPACT),
        ("", "kubectl/v1.36.3", COMPACT),
        ("pretty=true", "", PRETTY),
        ("pretty=True", "", PRETTY),
        ("pretty=1", "", PRETTY),
        ("pretty=t", "", PRETTY),
        ("pretty=tRUE", curl, COMPACT),
        ("pretty=yes", curl, COMPACT),
        ("pretty=false", curl, COMPACT),
        ("pretty=0", curl, COMPACT),
        ("pretty=", curl, PRETTY),
        ("pretty", curl, PRETTY),
        ("pretty=", "", COMPACT),
        ("pretty=&pretty=true", "", COMPACT),
        ("pretty=true&pretty=false", "", PRETTY),
        ("limit=5&pretty=%74rue", "", PRETTY),
        ("%70retty=true", "", COMPACT),
        ("%70retty=true&notpretty=1", "", PRETTY),
        ("pretty=+true", "", COMPACT),
        // What cannot be decoded is left out.
        ("pretty=%zz", curl, PRETTY),
        ("pretty=true%", "", COMPACT),
        ("pretty=%1&pretty=true", "", PRETTY),
    ] {
        let headers = [(USER_AGENT, agent)];
        let negotiated = check(Offer::BuiltIn, query, &headers);
        assert_eq!(negotiated, expected, "{query} {agent}");
    }
    let accept = "application/json;pretty=1";
    let negotiated = check(Offer::BuiltIn, "pretty=false", &[(ACCEPT, accept)]);
    assert_eq!(negotiated, PRETTY);
}
