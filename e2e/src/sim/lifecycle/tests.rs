//! The rules of writes, one by one.

use serde_json::json;

use super::*;

const NOW: &str = "2026-01-02T03:04:05Z";

fn resource(plural: &str) -> &'static Resource {
    Resource::named(plural).unwrap()
}

fn stored(plural: &str, object: Value) -> Object {
    let complete = complete(resource(plural), "ns", object, NOW).unwrap();
    Object::new(resource(plural), complete, 7)
}

#[test]
fn an_update_that_changes_nothing_writes_nothing() {
    let current = stored(
        "configmaps",
        json!({"metadata": {"name": "a"}, "data": {"k": "v"}}),
    );
    let same = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    assert_eq!(
        update(resource("configmaps"), &current, same, Part::Main).unwrap(),
        Plan::default()
    );
}

#[test]
fn the_main_path_leaves_status_alone_and_the_other_way_round() {
    let current = stored(
        "widgets",
        json!({"metadata": {"name": "a"}, "spec": {"n": 1}, "status": {"ok": true}}),
    );
    let changed = json!({"metadata": {"name": "a"}, "spec": {"n": 2}, "status": {"ok": false}});
    let put = |part| match update(resource("widgets"), &current, changed.clone(), part)
        .unwrap()
        .changes
        .remove(0)
    {
        Change::Put(value) => value,
        Change::Remove(_) => panic!("nothing is deleted here"),
    };
    let main = put(Part::Main);
    assert_eq!(
        (&main["spec"]["n"], &main["status"]["ok"]),
        (&json!(2), &json!(true))
    );
    assert_eq!(main["metadata"]["generation"], 2);
    let status = put(Part::Status);
    assert_eq!(
        (&status["spec"]["n"], &status["status"]["ok"]),
        (&json!(1), &json!(false))
    );
    assert_eq!(status["metadata"]["generation"], 1);
}

#[test]
fn a_stale_resource_version_or_another_uid_conflicts() {
    let current = stored("configmaps", json!({"metadata": {"name": "a"}}));
    for metadata in [
        json!({"name": "a", "resourceVersion": "6"}),
        json!({"name": "a", "uid": "x"}),
    ] {
        let object = json!({ "metadata": metadata });
        let error = update(resource("configmaps"), &current, object, Part::Main).unwrap_err();
        assert_eq!(error.code, 409);
    }
}

#[test]
fn finalizers_hold_an_object_until_they_are_taken_away() {
    let held = stored(
        "configmaps",
        json!({"metadata": {"name": "a", "finalizers": ["x/y"]}}),
    );
    let mut plan = delete(
        resource("configmaps"),
        &held,
        &DeleteOptions::default(),
        NOW,
    )
    .unwrap();
    let Change::Put(marked) = plan.changes.remove(0) else {
        panic!("it must stay")
    };
    assert_eq!(marked["metadata"]["deletionTimestamp"], NOW);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);

    let marked = Object::new(resource("configmaps"), marked, 8);
    let again = delete(
        resource("configmaps"),
        &marked,
        &DeleteOptions::default(),
        NOW,
    )
    .unwrap();
    assert_eq!(again, Plan::default());

    let released = json!({"metadata": {"name": "a"}});
    let plan = update(resource("configmaps"), &marked, released, Part::Main).unwrap();
    assert!(matches!(plan.changes.as_slice(), [Change::Remove(_)]));
    assert_eq!(plan.answer.unwrap()["metadata"]["resourceVersion"], "8");
}

#[test]
fn a_pod_is_marked_before_it_goes() {
    let pod = stored("pods", json!({"metadata": {"name": "a"}}));
    let plan = delete(resource("pods"), &pod, &DeleteOptions::default(), NOW).unwrap();
    assert!(matches!(
        plan.changes.as_slice(),
        [Change::Put(_), Change::Remove(_)]
    ));
}

#[test]
fn a_new_object_needs_a_name_and_the_right_namespace() {
    let refuse = |object: Value| {
        complete(resource("configmaps"), "ns", object, NOW)
            .unwrap_err()
            .code
    };
    assert_eq!(refuse(json!({"metadata": {}})), 422);
    assert_eq!(
        refuse(json!({"metadata": {"name": "a", "namespace": "other"}})),
        400
    );
    let named = complete(
        resource("configmaps"),
        "ns",
        json!({"metadata": {"generateName": "a-"}}),
        NOW,
    )
    .unwrap();
    assert!(
        named["metadata"]["name"]
            .as_str()
            .unwrap()
            .starts_with("a-")
    );
}
