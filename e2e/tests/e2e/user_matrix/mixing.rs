//! Users that are nearly the same: one may, the other may not, in either order, while the kind is in memory.

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};

use super::ask::{From, Row};
use super::kinds::{CONFIGMAPS, KINDS};
use super::live::who_am_i;
use super::users::{Grant, Shows, bind, of_rbac};
use super::world::{Subject, World};
use super::{NOT_ALLOWED, ask_warm};

/// Two names of the cluster: in the first whoever may asks first, in the other whoever may not.
pub(super) const ORDERS: [&str; 2] = ["/clusters/cold-0", "/clusters/cold-1"];

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

/// What whoever may may.
fn reading() -> Value {
    json!([{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps"]}])
}

pub(super) fn here(rules: Value) -> Grant {
    Grant {
        namespace: "here",
        rules,
    }
}

pub(super) async fn start() -> World {
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
pub(super) async fn interleaved(
    prefix: &str,
    cells: &[(&Subject, &Row, StatusCode)],
) -> Vec<String> {
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
pub(super) fn assert_none(wrong: &[String]) {
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
}

/// Gives one of two users a right, and asks as both; returns what is wrong.
async fn told_apart(world: &World, n: usize, case: &Alike) -> Vec<String> {
    use StatusCode as Is;
    bind(
        &world.admin,
        &format!("alike-{n}"),
        &here(reading()),
        &case.subject,
    )
    .await;
    let subject = async |what, shows| {
        let name = format!("{}, who {what}", case.what);
        world.subject(&name, shows).await
    };
    let (may, may_not) = (
        subject("may", &case.may).await,
        subject("may not", &case.may_not).await,
    );
    world.answers(&may, &reads()[0]).await;
    let mut wrong = Vec::new();
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
    wrong
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_that_are_nearly_the_same_are_told_apart() {
    let world = start().await;
    let cases = alike();
    // In each case one is asked for after the other; the cases have nothing to do with each other.
    let asked = cases.iter().enumerate();
    let asked = asked.map(|(n, case)| told_apart(&world, n, case));
    assert_none(&join_all(asked).await.concat());
}

/// Both may; but they are not told of each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_of_one_name_are_each_themselves() {
    use StatusCode as Is;
    let world = start().await;
    let twin = of_rbac("User", "twin");
    bind(&world.admin, "twins", &here(reading()), &twin).await;
    let who = who_am_i();
    let mut wrong = Vec::new();
    for (what, one, other) in twins() {
        let one = world.subject(what, &Shows::Jwt(one)).await;
        let other = world.subject(what, &Shows::Jwt(other)).await;
        world.answers(&one, &reads()[0]).await;
        for row in &reads() {
            let cells = [(&one, row, Is::OK), (&other, row, Is::OK)];
            wrong.extend(interleaved(ORDERS[0], &cells).await);
        }
        let cells = [(&one, &who, Is::CREATED), (&other, &who, Is::CREATED)];
        wrong.extend(interleaved(ORDERS[0], &cells).await);
        let mut told = Vec::new();
        for subject in [&one, &other] {
            let answer = who.ask(&subject.proxied, ORDERS[0]).await;
            told.push(answer.json().unwrap()["status"]["userInfo"].take());
        }
        assert_ne!(told[0], told[1], "{what}");
    }
    assert_none(&wrong);
}

/// Where the proxy is stricter, and says so in docs/API.md: whoever may sign tokens is not the cluster's own.
#[tokio::test]
async fn names_of_the_system_are_given_to_nobody_from_outside() {
    let world = start().await;
    let [_, list, _] = reads();
    let name = "system:serviceaccount:here:default";
    bind(
        &world.admin,
        "system",
        &here(reading()),
        &of_rbac("User", name),
    )
    .await;
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
