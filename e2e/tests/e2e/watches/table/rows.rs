//! The table. `$T` is a number of seconds that outlasts the script, `$NOW` the version when the watches are opened, `$MID`
//! one that informers have seen with some events after it, `$FUTURE` one that is far away.

mod requests;

use http::Method;

pub(super) const CONFIGMAPS: &str = "/api/v1/namespaces/w/configmaps";
pub(super) const ALL_CONFIGMAPS: &str = "/api/v1/configmaps";
pub(super) const PODS: &str = "/api/v1/namespaces/w/pods";
pub(super) const NODES: &str = "/api/v1/nodes";
pub(super) const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
pub(super) const WIDGETS: &str = "/apis/ex.io/v1/namespaces/w/widgets";
pub(super) const ENDPOINTS: &str = "/api/v1/namespaces/w/endpoints";
pub(super) const SECRETS: &str = "/api/v1/namespaces/w/secrets";
pub(super) const EVENTS: &str = "/api/v1/namespaces/w/events";

/// While what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum While {
    /// The script; the watch ends at its own time, after it.
    Script,
    /// The script; the watch would go on for half an hour and is left after the script's last word.
    OpenEnded,
    /// Nothing: the answer ends within seconds.
    Quiet,
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) case: &'static str,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    /// Whether memory answers it, by `docs/API.md`.
    pub(super) hit: bool,
    pub(super) during: While,
}

/// A watch beside the script, for plain JSON.
fn row(case: &'static str, path: &str, query: &str, hit: bool) -> Row {
    let and = if query.is_empty() { "" } else { "&" };
    Row {
        case,
        method: Method::GET,
        path: format!("{path}?watch=1&timeoutSeconds=$T{and}{query}"),
        headers: vec![("accept", "application/json")],
        hit,
        during: While::Script,
    }
}

/// A request that ends by itself, with exactly this query.
fn quiet(case: &'static str, path: &str, query: &str, hit: bool) -> Row {
    Row {
        path: format!("{path}?{query}"),
        during: While::Quiet,
        ..row(case, path, "", hit)
    }
}

impl Row {
    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value));
        self
    }

    fn open_ended(mut self) -> Self {
        self.path = self.path.replace("&timeoutSeconds=$T", "");
        self.during = While::OpenEnded;
        self
    }
}

/// All of them.
pub(super) fn all() -> Vec<Row> {
    let mut rows = starts();
    rows.extend(kinds());
    rows.extend(selectors());
    rows.extend(requests::deadlines());
    rows.extend(requests::queries());
    rows.extend(requests::representations());
    rows
}

/// Every combination of what says where a watch begins.
fn starts() -> Vec<Row> {
    let mut rows = Vec::new();
    for version in ["", "0", "$NOW", "$MID", "$FUTURE", "1", "abc"] {
        for initial in ["", "true", "false"] {
            for matching in ["", "NotOlderThan", "Exact", "Foo"] {
                for bookmarks in ["", "true"] {
                    let parameters = [
                        ("resourceVersion", version),
                        ("sendInitialEvents", initial),
                        ("resourceVersionMatch", matching),
                        ("allowWatchBookmarks", bookmarks),
                    ];
                    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
                    let query: Vec<String> = given
                        .map(|(name, value)| format!("{name}={value}"))
                        .collect();
                    let valid = match (initial, matching) {
                        ("", "") => true,
                        ("", _) | (_, "Exact" | "Foo" | "") => false,
                        _ => true,
                    };
                    let known = match version {
                        "" | "0" | "$NOW" | "$MID" => true,
                        // State not older than one that is long past is any state.
                        "1" => initial == "true",
                        // What comes after it is what is asked for; a state that is so new there is none.
                        "$FUTURE" => initial != "true",
                        _ => false,
                    };
                    let mut row = row("start", CONFIGMAPS, &query.join("&"), valid && known);
                    if !valid || version == "abc" || (version == "1" && initial != "true") {
                        row.during = While::Quiet;
                    }
                    rows.push(row);
                }
            }
        }
    }
    rows
}

fn kinds() -> Vec<Row> {
    let mut rows = Vec::new();
    for (path, hit) in [
        (ALL_CONFIGMAPS, true),
        (PODS, true),
        ("/api/v1/pods", true),
        (NODES, true),
        (ROLES, true),
        (WIDGETS, true),
        ("/apis/ex.io/v1/widgets", true),
        (ENDPOINTS, true),
        ("/api/v1/endpoints", true),
        ("/api/v1/namespaces/nothing/configmaps", true),
        (SECRETS, false),
        (EVENTS, false),
    ] {
        rows.push(row("kind", path, "", hit));
        rows.push(row("kind", path, "resourceVersion=0", hit));
        rows.push(row(
            "kind",
            path,
            "resourceVersion=$MID&allowWatchBookmarks=1",
            hit,
        ));
        let streaming =
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        rows.push(row("kind", path, streaming, hit));
    }
    for path in [
        "/api/v1/foos",
        "/apis/ex.io/v2/widgets",
        "/apis/foo.io/v1/foos",
        "/api/v1/componentstatuses",
    ] {
        rows.push(quiet(
            "no such watch",
            path,
            "watch=1&timeoutSeconds=1",
            false,
        ));
    }
    rows
}

fn selectors() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |path: &str, selector: &str, hit: bool| {
        for start in [
            "",
            "resourceVersion=$NOW",
            "resourceVersion=$MID&allowWatchBookmarks=true",
        ] {
            rows.push(row("selector", path, &format!("{selector}&{start}"), hit));
        }
    };
    for selector in [
        "labelSelector=app%3Dx",
        "labelSelector=app!%3Dx",
        "labelSelector=app",
        "labelSelector=!app",
        "labelSelector=app%20in%20(x,y)",
        "labelSelector=app%3D",
        "labelSelector=app%3Dx,n%3D1",
        "labelSelector=n%3E0",
        "fieldSelector=metadata.name%3Dmoves",
        "fieldSelector=metadata.name!%3Dmoves",
        "fieldSelector=metadata.name%3Dnever-there",
        "fieldSelector=metadata.name%3Dmoves&labelSelector=app%3Dx",
        "fieldSelector=,",
        "labelSelector=",
    ] {
        add(CONFIGMAPS, selector, true);
    }
    add(ALL_CONFIGMAPS, "fieldSelector=metadata.namespace%3Dw", true);
    add(
        ALL_CONFIGMAPS,
        "fieldSelector=metadata.namespace!%3Dw",
        true,
    );
    add(PODS, "fieldSelector=status.phase%3DRunning", true);
    add(PODS, "fieldSelector=spec.nodeName%3Dn1", true);
    add(
        PODS,
        "fieldSelector=spec.nodeName%3D,status.phase!%3DRunning",
        true,
    );
    add(NODES, "fieldSelector=spec.unschedulable%3Dtrue", true);
    add(WIDGETS, "fieldSelector=spec.n%3D1", true);
    add(WIDGETS, "fieldSelector=spec.n!%3D1", true);
    add(ROLES, "fieldSelector=metadata.name%3Dt:one:two", true);
    for selector in [
        "labelSelector=a%20b",
        "labelSelector=a%20in%20(",
        "fieldSelector=foo",
        "fieldSelector=foo%3Dbar",
        "fieldSelector=spec.nodeName%3Dn1",
    ] {
        rows.push(quiet(
            "bad selector",
            CONFIGMAPS,
            &format!("watch=1&timeoutSeconds=1&{selector}"),
            false,
        ));
    }
    rows.push(quiet(
        "bad selector",
        PODS,
        "watch=1&timeoutSeconds=1&fieldSelector=spec.foo%3Dx",
        false,
    ));
    rows.push(quiet(
        "bad selector",
        WIDGETS,
        "watch=1&timeoutSeconds=1&fieldSelector=spec.zzz%3Dx",
        false,
    ));
    rows
}
