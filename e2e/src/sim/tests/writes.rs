//! POST, PUT, PATCH, DELETE, reviews.

use super::*;

#[tokio::test]
async fn an_object_is_created_changed_and_deleted() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    let one = format!("{CONFIGMAPS}/a");
    let created = client
        .write(
            Method::POST,
            CONFIGMAPS,
            &json!({"metadata": {"name": "a"}}),
        )
        .await;
    assert_eq!(created.status, 201);
    let mut object = created.json();
    assert_eq!(object["metadata"]["namespace"], "default");

    object["data"] = json!({"k": "v"});
    let replaced = client.write(Method::PUT, &one, &object).await;
    assert_eq!(
        (replaced.status, &replaced.json()["data"]["k"]),
        (StatusCode::OK, &json!("v"))
    );
    let stale = client.write(Method::PUT, &one, &object).await;
    assert_eq!(
        (stale.status, &stale.json()["reason"]),
        (StatusCode::CONFLICT, &json!("Conflict"))
    );
    let patched = client
        .write(Method::PATCH, &one, &json!({"data": {"k": null, "l": "m"}}))
        .await;
    assert_eq!(patched.json()["data"], json!({"l": "m"}));

    let deleted = client.write(Method::DELETE, &one, &json!({})).await;
    let uid = object["metadata"]["uid"].as_str().unwrap();
    assert_eq!(
        deleted.text,
        format!(
            "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Success\",\"details\":{{\"name\":\"a\",\"kind\":\"configmaps\",\"uid\":\"{uid}\"}}}}\n"
        )
    );
    assert_eq!(client.get(&one).await.status, 404);
}

#[tokio::test]
async fn wrong_writes_are_refused_in_the_words_of_the_apiserver() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    cluster
        .store()
        .create("configmaps", configmap("a"))
        .unwrap();
    let check = async |method: Method, path: &str, body: Value, code: u16, message: &str| {
        let answer = client.write(method, path, &body).await;
        assert_eq!(answer.status, code, "{}", answer.text);
        assert_eq!(answer.json()["message"], message);
    };
    let one = format!("{CONFIGMAPS}/a");
    check(
        Method::POST,
        CONFIGMAPS,
        configmap("a"),
        409,
        "configmaps \"a\" already exists",
    )
    .await;
    check(
        Method::POST,
        "/api/v1/namespaces/no/configmaps",
        json!({}),
        404,
        "namespaces \"no\" not found",
    )
    .await;
    let message = "the name of the object (b) does not match the name on the URL (a)";
    check(Method::PUT, &one, configmap("b"), 400, message).await;
    check(
        Method::PUT,
        &format!("{CONFIGMAPS}/c"),
        configmap("c"),
        404,
        "configmaps \"c\" not found",
    )
    .await;
    let message = "the server does not allow this method on the requested resource";
    check(Method::POST, &one, json!({}), 405, message).await;
    check(Method::PUT, CONFIGMAPS, json!({}), 405, message).await;
    let message = "namespaces \"default\" is forbidden: this namespace may not be deleted";
    check(
        Method::DELETE,
        "/api/v1/namespaces/default",
        json!({}),
        403,
        message,
    )
    .await;
    let apply = [("content-type", "application/apply-patch+yaml")];
    assert_eq!(
        client
            .send(Method::PATCH, &one, &apply, "{}")
            .await
            .status(),
        415
    );
}

#[tokio::test]
async fn finalizers_are_honoured_over_the_api() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    let one = format!("{CONFIGMAPS}/a");
    client
        .write(
            Method::POST,
            CONFIGMAPS,
            &json!({"metadata": {"name": "a", "finalizers": ["x/y"]}}),
        )
        .await;
    let marked = client.write(Method::DELETE, &one, &json!({})).await.json();
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let released = client
        .write(
            Method::PATCH,
            &one,
            &json!({"metadata": {"finalizers": null}}),
        )
        .await;
    assert_eq!(released.status, 200);
    assert_eq!(
        released.json()["metadata"]["resourceVersion"],
        marked["metadata"]["resourceVersion"]
    );
    assert_eq!(client.get(&one).await.status, 404);
}

#[tokio::test]
async fn a_deleted_namespace_takes_its_content_along() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    client
        .write(
            Method::POST,
            "/api/v1/namespaces",
            &json!({"metadata": {"name": "ns"}}),
        )
        .await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["x/y"]}});
    client
        .write(Method::POST, "/api/v1/namespaces/ns/configmaps", &held)
        .await;
    client
        .write(
            Method::POST,
            "/api/v1/namespaces/ns/pods",
            &json!({"metadata": {"name": "p"}}),
        )
        .await;
    let answer = client
        .write(Method::DELETE, "/api/v1/namespaces/ns", &json!({}))
        .await
        .json();
    assert_eq!(answer["status"]["phase"], "Terminating");
    assert!(cluster.store().is_empty("pods"));
    assert_eq!(client.get("/api/v1/namespaces/ns").await.status, 200);
    let release = json!({"metadata": {"finalizers": null}});
    client
        .write(
            Method::PATCH,
            "/api/v1/namespaces/ns/configmaps/held",
            &release,
        )
        .await;
    assert_eq!(client.get("/api/v1/namespaces/ns").await.status, 404);
}

#[tokio::test]
async fn status_is_a_path_of_its_own() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    client
        .write(
            Method::POST,
            widgets,
            &json!({"metadata": {"name": "w"}, "status": {"a": 1}}),
        )
        .await;
    assert_eq!(
        client
            .get(&format!("{widgets}/w"))
            .await
            .json()
            .get("status"),
        None
    );
    let patch = json!({"spec": {"n": 1}, "status": {"a": 2}});
    let status = client
        .write(Method::PATCH, &format!("{widgets}/w/status"), &patch)
        .await
        .json();
    assert_eq!(
        (status.get("spec"), &status["status"]),
        (None, &json!({"a": 2}))
    );
    let main = client
        .write(
            Method::PATCH,
            &format!("{widgets}/w"),
            &json!({"spec": {"n": 1}, "status": null}),
        )
        .await;
    assert_eq!(
        (&main.json()["spec"]["n"], &main.json()["status"]),
        (&json!(1), &json!({"a": 2}))
    );
    assert_eq!(
        client.get(&format!("{CONFIGMAPS}/a/status")).await.status,
        404
    );
}

#[tokio::test]
async fn a_deployment_is_scaled() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    client
        .write(
            Method::POST,
            deployments,
            &json!({"metadata": {"name": "d"}}),
        )
        .await;
    let scale = format!("{deployments}/d/scale");
    assert_eq!(client.get(&scale).await.json()["spec"]["replicas"], 1);
    let scaled = client
        .write(Method::PATCH, &scale, &json!({"spec": {"replicas": 3}}))
        .await
        .json();
    assert_eq!(
        (&scaled["kind"], &scaled["spec"]["replicas"]),
        (&json!("Scale"), &json!(3))
    );
    let deployment = client.get(&format!("{deployments}/d")).await.json();
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(
        deployment["metadata"]["resourceVersion"],
        scaled["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn a_dry_run_leaves_no_trace() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    let dry = client
        .write(
            Method::POST,
            &format!("{CONFIGMAPS}?dryRun=All"),
            &configmap("a"),
        )
        .await;
    assert_eq!(dry.status, 201);
    assert_eq!(dry.json()["metadata"].get("resourceVersion"), None);
    assert_eq!(client.get(&format!("{CONFIGMAPS}/a")).await.status, 404);
    cluster
        .store()
        .create("configmaps", configmap("a"))
        .unwrap();
    client
        .write(
            Method::DELETE,
            &format!("{CONFIGMAPS}/a?dryRun=All"),
            &json!({}),
        )
        .await;
    assert_eq!(client.get(&format!("{CONFIGMAPS}/a")).await.status, 200);
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
        let mut object = configmap(name);
        object["metadata"]["labels"] = json!({ "app": app });
        cluster.store().create("configmaps", object).unwrap();
    }
    let path = format!("{CONFIGMAPS}?labelSelector=app%3Dweb");
    assert_eq!(
        client
            .write(Method::DELETE, &path, &json!({}))
            .await
            .names(),
        ["a", "c"]
    );
    assert_eq!(client.get(CONFIGMAPS).await.names(), ["b"]);
}

#[tokio::test]
async fn who_is_restricted_may_do_what_the_rules_say() {
    let cluster = cluster().await;
    let mut client = Client::new(&cluster);
    cluster.accept_user("alices", "alice");
    cluster.restrict(
        "alice",
        vec![Rule::new(&["get", "list"], &["configmaps"]).within("default")],
    );
    let review = async |client: &Client, attributes: Value| {
        let review = json!({"spec": {"user": "alice", "resourceAttributes": attributes}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = client.write(Method::POST, path, &review).await;
        answer.json()["status"]["allowed"].clone()
    };
    let here =
        json!({"verb": "get", "resource": "configmaps", "namespace": "default", "name": "a"});
    assert_eq!(review(&client, here).await, true);
    let all = json!({"verb": "get", "resource": "configmaps"});
    assert_eq!(review(&client, all).await, false);
    let token = json!({"spec": {"token": "alices"}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let known = client.write(Method::POST, path, &token).await.json()["status"].clone();
    assert_eq!(known["user"]["username"], "alice");
    assert_eq!(known["authenticated"], true);

    // As whom the administrator names, and as the user itself.
    let named = client.send(
        Method::GET,
        "/api/v1/configmaps",
        &[("impersonate-user", "alice")],
        "",
    );
    assert_eq!(named.await.status(), 403);
    client.token = "alices".to_owned();
    assert_eq!(client.get(CONFIGMAPS).await.status, 200);
    let all = client.get("/api/v1/configmaps").await;
    assert_eq!(all.status, 403);
    assert_eq!(
        all.json()["message"],
        "configmaps is forbidden: User \"alice\" cannot list resource \"configmaps\" in API group \"\" at the cluster scope"
    );
    let named = client.send(Method::GET, CONFIGMAPS, &[("impersonate-user", "bob")], "");
    assert_eq!(named.await.status(), 403);
}

#[tokio::test]
async fn reviews_allow_everything() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = client.write(Method::POST, path, &review).await;
    assert_eq!(
        (answer.status, &answer.json()["status"]),
        (StatusCode::CREATED, &json!({"allowed": true}))
    );
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    assert_eq!(
        client.write(Method::POST, path, &json!({})).await.json()["status"]["userInfo"]["username"],
        "admin"
    );
}
