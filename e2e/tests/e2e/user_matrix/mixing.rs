//! Users and objects that are nearly the same: one may, the other may not, in either order, while the kind is in memory.

use http::StatusCode;
use serde_json::{Value, json};

use super::ask::{From, Row};
use super::kinds::{CONFIGMAPS, EVENTS, KINDS, NAMESPACES, NEW_EVENTS, OTHER_SECRETS, SECRETS};
use super::live::who_am_i;
use super::users::{Grant, Shows, bind, of_rbac};
use super::world::{Subject, World};
use super::{NOT_ALLOWED, ask_warm};

/// Two names of the cluster: in the first whoever may asks first, in the other whoever may not.
const ORDERS: [&str; 2] = ["/clusters/cold-0", "/clusters/cold-1"];

/// A right of the first that the second has not, though it is called nearly the same.
struct Alike {
    what: &'static str,
    may: Shows,
    may_not: Shows,
    /// To whom the right is given.
    subject: Value,
}

fn user(claims: Value) -> Shows {
    Shows::Jwt(claims)
}

fn of_groups(sub: &str, groups: &[&str]) -> Shows {
    user(json!({"sub": sub, "groups": groups}))
}

fn alike() -> Vec<Alike> {
    let case = |what, may, may_not, subject| Alike {
        what,
        may,
        may_not,
        subject,
    };
    let names = |what, may: &str, may_not: &str| {
        let shows = [may, may_not].map(|name| user(json!({"sub": name})));
        let [one, other] = shows;
        case(what, one, other, of_rbac("User", may))
    };
    let groups = |what, may: &[&str], may_not: &[&str], group: &str| {
        // The same name, so that nothing else tells them apart.
        let [one, other] = [may, may_not].map(|groups| of_groups(what, groups));
        case(what, one, other, of_rbac("Group", group))
    };
    let account = |namespace, name| Shows::ServiceAccount(namespace, name);
    let of_account =
        |namespace, name| json!({"kind": "ServiceAccount", "namespace": namespace, "name": name});
    vec![
        groups("one group with a comma", &["a,b"], &["a", "b"], "a,b"),
        groups("two groups", &["c", "d"], &["c,d"], "d"),
        groups("a comma at the end", &["e,"], &["e", ""], "e,"),
        groups("a group that is a part", &["fg"], &["f", "g"], "fg"),
        groups("a group of two words", &["h i"], &["h", "i"], "h i"),
        groups("one group more", &["j", "k"], &["j"], "k"),
        groups(
            "a composed group",
            &["gr\u{fc}n"],
            &["gru\u{308}n"],
            "gr\u{fc}n",
        ),
        groups("a group in upper case", &["Ops"], &["ops"], "Ops"),
        groups("a group in quotes", &["\"q\""], &["q"], "\"q\""),
        groups("an escaped group", &["r%2Cs"], &["r,s"], "r%2Cs"),
        names("a composed name", "j\u{f6}rg", "jo\u{308}rg"),
        names("a decomposed name", "zoe\u{308}", "zo\u{eb}"),
        names("a wide letter", "\u{ff41}nn", "ann"),
        names("another alphabet", "m\u{430}x", "max"),
        names("a name in upper case", "Otto", "otto"),
        names("a name with a comma", "p,q", "p"),
        names("a name with a colon", "ns:name", "ns"),
        names("an address", "eve@example.com", "eve@example.org"),
        names("an escaped name", "u%2Fv", "u/v"),
        names("a name with a slash", "w/x", "w"),
        case(
            "a group called as a user",
            user(json!({"sub": "team-y"})),
            of_groups("another", &["team-y"]),
            of_rbac("User", "team-y"),
        ),
        case(
            "a user called as a group",
            of_groups("still-another", &["team-z"]),
            user(json!({"sub": "team-z"})),
            of_rbac("Group", "team-z"),
        ),
        case(
            "a user with the other's group for a name",
            of_groups("s1", &["s2"]),
            of_groups("s2", &["s1"]),
            of_rbac("Group", "s2"),
        ),
        case(
            "the same account of another namespace",
            account("here", "default"),
            account("there", "default"),
            of_account("here", "default"),
        ),
        case(
            "the other way round",
            account("there", "app"),
            account("here", "app"),
            of_account("there", "app"),
        ),
        case(
            "an account and its namespace, cut elsewhere",
            account("written-direct", "x"),
            account("one", "written-direct-x"),
            of_account("written-direct", "x"),
        ),
        case(
            "all accounts of a namespace",
            account("written-proxied", "any"),
            account("one", "written-proxied"),
            of_rbac("Group", "system:serviceaccounts:written-proxied"),
        ),
    ]
}

/// Users of one name who may the same, and differ in what RBAC does not look at.
fn twins() -> [(&'static str, Value, Value); 4] {
    let claims = |uid: &str, groups: &[&str], tenant: &Value| json!({"sub": "twin", "uid": uid, "groups": groups, "tenant": tenant});
    let (a, b) = (json!("a"), json!("b"));
    [
        ("uid", claims("1", &["x"], &a), claims("2", &["x"], &a)),
        ("extra", claims("1", &["x"], &a), claims("1", &["x"], &b)),
        (
            "extra with a comma",
            claims("1", &["x"], &json!(["a,b"])),
            claims("1", &["x"], &json!(["a", "b"])),
        ),
        (
            "order of groups",
            claims("1", &["x", "y"], &a),
            claims("1", &["y", "x"], &a),
        ),
    ]
}

fn reads() -> [Row; 3] {
    let here = CONFIGMAPS.within("here");
    [
        Row::get(format!("{here}/one"), From::Memory),
        Row::get(here.as_str(), From::Memory),
        Row::watch(here, From::Memory),
    ]
}

fn here(rules: Value) -> Grant {
    Grant {
        namespace: "here",
        rules,
    }
}

async fn start() -> World {
    let world = World::start(Vec::new(), ORDERS.len()).await;
    for kind in KINDS {
        for prefix in ORDERS {
            world
                .warm(prefix.trim_start_matches("/clusters/"), kind)
                .await;
        }
    }
    world
}

/// Asks twice, one after the other, and returns what is wrong.
async fn interleaved(prefix: &str, cells: &[(&Subject, &Row, StatusCode)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for _ in 0..2 {
        for (subject, row, status) in cells {
            let direct = row.ask(&subject.direct, "").await;
            let asked = ask_warm(prefix, subject, row, direct).await;
            let (name, said) = (&subject.name, asked.proxied.cache_status());
            let refused = asked.direct.status == StatusCode::FORBIDDEN && row.from == From::Memory;
            if asked.direct.status != *status || (refused && said != NOT_ALLOWED) {
                let status = asked.direct.status;
                wrong.push(format!("{name}: {row}: {status} ({said})"));
            }
            wrong.extend(asked.failures);
        }
    }
    wrong
}

#[track_caller]
fn assert_none(wrong: &[String]) {
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_that_are_nearly_the_same_are_told_apart() {
    use StatusCode as Is;
    let world = start().await;
    let rules = json!([{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps"]}]);
    let mut wrong = Vec::new();
    for (n, case) in alike().iter().enumerate() {
        let (name, grant) = (format!("alike-{n}"), here(rules.clone()));
        bind(&world.admin, &name, &grant, &case.subject).await;
        let [may, may_not] = [
            (format!("{}, may", case.what), &case.may),
            (format!("{}, may not", case.what), &case.may_not),
        ];
        let may = world.subject(&may.0, may.1).await;
        let may_not = world.subject(&may_not.0, may_not.1).await;
        world.answers(&may, &reads()[0]).await;
        for (prefix, may_first) in ORDERS.into_iter().zip([true, false]) {
            for row in &reads() {
                let mut cells = [(&may, row, Is::OK), (&may_not, row, Is::FORBIDDEN)];
                if !may_first {
                    cells.reverse();
                }
                wrong.extend(interleaved(prefix, &cells).await);
            }
        }
        let who = who_am_i();
        let cells = [(&may, &who, Is::CREATED), (&may_not, &who, Is::CREATED)];
        wrong.extend(interleaved(ORDERS[0], &cells).await);
    }

    bind(
        &world.admin,
        "twins",
        &here(rules),
        &of_rbac("User", "twin"),
    )
    .await;
    for (what, one, other) in twins() {
        let one = world.subject(what, &Shows::Jwt(one)).await;
        let other = world.subject(what, &Shows::Jwt(other)).await;
        world.answers(&one, &reads()[0]).await;
        for row in &reads() {
            let cells = [(&one, row, Is::OK), (&other, row, Is::OK)];
            wrong.extend(interleaved(ORDERS[0], &cells).await);
        }
        let who = who_am_i();
        let cells = [(&one, &who, Is::CREATED), (&other, &who, Is::CREATED)];
        wrong.extend(interleaved(ORDERS[0], &cells).await);
        let prefix = ORDERS[0];
        let told =
            [&one, &other].map(async |it| who.ask(&it.proxied, prefix).await.json().unwrap());
        let [one, other] = told.map(async |it| it.await["status"]["userInfo"].take());
        assert_ne!(one.await, other.await, "{what}");
    }
    assert_none(&wrong);
}

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
    let mut wrong = Vec::new();
    for case in rights() {
        let Rights {
            what,
            grant,
            may,
            may_not,
        } = case;
        bind(&world.admin, what, &grant, &of_rbac("User", what)).await;
        let subject = world.subject(what, &user(json!({"sub": what}))).await;
        let may = may.iter().map(|row| (&subject, row, StatusCode::OK));
        let may_not = may_not
            .iter()
            .map(|row| (&subject, row, StatusCode::FORBIDDEN));
        let first = may.clone().chain(may_not.clone()).collect::<Vec<_>>();
        let last = may_not.chain(may).collect::<Vec<_>>();
        let (_, row, _) = first[0];
        world.answers(&subject, row).await;
        wrong.extend(interleaved(ORDERS[0], &first).await);
        wrong.extend(interleaved(ORDERS[1], &last).await);
    }
    assert_none(&wrong);
}

/// Where the proxy is stricter, and says so in docs/API.md: whoever may sign tokens is not the cluster's own.
#[tokio::test]
async fn names_of_the_system_are_given_to_nobody_from_outside() {
    let world = start().await;
    let [_, list, _] = reads();
    let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]}]);
    let name = "system:serviceaccount:here:default";
    bind(&world.admin, "system", &here(rules), &of_rbac("User", name)).await;
    let claimed = world.subject(name, &user(json!({"sub": name}))).await;
    world.answers(&claimed, &list).await;
    let refused = list.ask(&claimed.proxied, ORDERS[0]).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);

    let masters = of_groups("mallory", &["system:masters", "plain"]);
    let mallory = world.subject("mallory", &masters).await;
    assert_eq!(list.ask(&mallory.direct, "").await.status, StatusCode::OK);
    let refused = list.ask(&mallory.proxied, ORDERS[0]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.text());
    assert_eq!(refused.cache_status(), NOT_ALLOWED);
    let who = who_am_i().ask(&mallory.proxied, ORDERS[0]).await;
    let groups = &who.json().unwrap()["status"]["userInfo"]["groups"];
    assert_eq!(groups, &json!(["plain", "system:authenticated"]));
    let account = world
        .subject("account", &Shows::ServiceAccount("here", "default"))
        .await;
    let [one, _, _] = reads();
    for row in [&list, &one] {
        let direct = row.ask(&account.direct, "").await;
        let asked = ask_warm(ORDERS[0], &account, row, direct).await;
        assert_none(&asked.failures);
    }
}
