//! Rights to objects that are nearly the same: called alike, of another kind, group, namespace or verb.

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::json;

use super::ask::{From, Row};
use super::kinds::{CONFIGMAPS, EVENTS, NAMESPACES, NEW_EVENTS, OTHER_SECRETS, SECRETS};
use super::mixing::{ORDERS, assert_none, here, interleaved, start};
use super::users::{Grant, Shows, bind, of_rbac};
use super::world::World;

/// What a user may, and what it may not though it is nearly the same.
struct Rights {
    what: &'static str,
    grant: Grant,
    may: Vec<Row>,
    may_not: Vec<Row>,
}

fn rights() -> Vec<Rights> {
    let rule = |verbs: &[&str], group: &str, resource: &str, names: &[&str]| {
        let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": [resource]});
        if !names.is_empty() {
            rule["resourceNames"] = json!(names);
        }
        here(json!([rule]))
    };
    let get = |path: String| Row::get(path, From::Memory);
    let named = |path: &str, selector: &str| get(format!("{path}?fieldSelector={selector}"));
    let [configmaps, secrets, other_secrets] =
        [CONFIGMAPS, SECRETS, OTHER_SECRETS].map(|kind| kind.within("here"));
    let [events, new_events] = [EVENTS, NEW_EVENTS].map(|kind| kind.within("here"));
    let there = CONFIGMAPS.within("there");
    let one = |path: &str| get(format!("{path}/one"));
    let case = |what, grant, may: Vec<Row>, may_not: Vec<Row>| Rights {
        what,
        grant,
        may,
        may_not,
    };
    vec![
        case(
            "of-kind",
            rule(&["get", "list"], "", "configmaps", &[]),
            vec![one(&configmaps), get(configmaps.clone())],
            vec![
                one(&secrets),
                get(secrets.clone()),
                one(&there),
                get(CONFIGMAPS.all()),
            ],
        ),
        case(
            "of-group",
            rule(&["get", "list"], "ex.io", "secrets", &[]),
            vec![one(&other_secrets), get(other_secrets.clone())],
            vec![one(&secrets), get(secrets.clone())],
        ),
        case(
            "of-core-group",
            rule(&["get", "list"], "", "secrets", &[]),
            vec![one(&secrets), get(secrets.clone())],
            vec![one(&other_secrets), get(other_secrets.clone())],
        ),
        case(
            "of-old-events",
            rule(&["get", "list", "watch"], "", "events", &[]),
            vec![
                one(&events),
                get(events.clone()),
                Row::watch(&events, From::Memory),
            ],
            vec![
                one(&new_events),
                get(new_events.clone()),
                Row::watch(&new_events, From::Memory),
            ],
        ),
        case(
            "of-new-events",
            rule(&["get", "list", "watch"], "events.k8s.io", "events", &[]),
            vec![
                one(&new_events),
                get(new_events.clone()),
                Row::watch(&new_events, From::Memory),
            ],
            vec![
                one(&events),
                get(events.clone()),
                Row::watch(&events, From::Memory),
            ],
        ),
        case(
            "of-get",
            rule(&["get"], "", "configmaps", &[]),
            vec![one(&configmaps)],
            vec![
                get(configmaps.clone()),
                named(&configmaps, "metadata.name%3Done"),
                Row::watch(&configmaps, From::Memory),
            ],
        ),
        case(
            "of-list",
            rule(&["list"], "", "configmaps", &[]),
            vec![
                get(configmaps.clone()),
                named(&configmaps, "metadata.name%3Done"),
            ],
            vec![one(&configmaps), Row::watch(&configmaps, From::Memory)],
        ),
        case(
            "of-watch",
            rule(&["watch"], "", "configmaps", &[]),
            vec![Row::watch(&configmaps, From::Memory)],
            vec![one(&configmaps), get(configmaps.clone())],
        ),
        case(
            "of-name",
            rule(&["get", "list", "watch"], "", "configmaps", &["one"]),
            vec![
                one(&configmaps),
                named(&configmaps, "metadata.name%3Done"),
                Row::watch(
                    format!("{configmaps}?fieldSelector=metadata.name%3Done"),
                    From::Memory,
                ),
            ],
            vec![
                get(format!("{configmaps}/two")),
                get(configmaps.clone()),
                named(&configmaps, "metadata.name%3Dtwo"),
                named(&configmaps, "metadata.name!%3Done"),
                named(&configmaps, "metadata.name!%3Dtwo"),
                get(format!("{configmaps}?labelSelector=app%3Dx")),
                named(&there, "metadata.name%3Done"),
                named(&CONFIGMAPS.all(), "metadata.name%3Done"),
                Row::watch(&configmaps, From::Memory),
                Row::watch(
                    format!("{configmaps}?fieldSelector=metadata.name%3Dtwo"),
                    From::Memory,
                ),
            ],
        ),
        case(
            "of-namespace",
            rule(&["get"], "", "namespaces", &[]),
            vec![get(format!("{}/here", NAMESPACES.all()))],
            vec![
                get(format!("{}/there", NAMESPACES.all())),
                get(format!("{}/one", NAMESPACES.all())),
                get(NAMESPACES.all()),
                one(&configmaps),
            ],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_to_what_is_nearly_the_same_are_told_apart() {
    let world = start().await;
    let asked = rights().into_iter().map(|case| rights_apart(&world, case));
    assert_none(&join_all(asked).await.concat());
}

async fn rights_apart(world: &World, case: Rights) -> Vec<String> {
    let what = case.what;
    bind(&world.admin, what, &case.grant, &of_rbac("User", what)).await;
    let subject = world.subject(what, &Shows::Jwt(json!({"sub": what}))).await;
    world.answers(&subject, &case.may[0]).await;
    let may = case.may.iter().map(|row| (&subject, row, StatusCode::OK));
    let may_not = case.may_not.iter();
    let may_not = may_not.map(|row| (&subject, row, StatusCode::FORBIDDEN));
    let first: Vec<_> = may.clone().chain(may_not.clone()).collect();
    let last: Vec<_> = may_not.chain(may).collect();
    let mut wrong = interleaved(ORDERS[0], &first).await;
    wrong.extend(interleaved(ORDERS[1], &last).await);
    wrong
}
