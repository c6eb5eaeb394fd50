//! How often the containers of a Pod were started again, and when the last one of them ended before.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;

use super::instant::Instant;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec<'a> {
    #[serde(borrow, default)]
    init_containers: Option<Vec<InitContainer<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitContainer<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    restart_policy: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status<'a> {
    #[serde(borrow, default)]
    conditions: Option<Vec<Condition<'a>>>,
    #[serde(borrow, default)]
    init_container_statuses: Option<Vec<Container<'a>>>,
    #[serde(borrow, default)]
    container_statuses: Option<Vec<Container<'a>>>,
}

#[derive(Deserialize)]
struct Condition<'a> {
    #[serde(rename = "type", borrow, default)]
    condition: Cow<'a, str>,
    #[serde(borrow, default)]
    status: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(default)]
    restart_count: i64,
    #[serde(default)]
    started: Option<bool>,
    #[serde(default)]
    state: State,
    #[serde(default)]
    last_state: State,
}

#[derive(Default, Deserialize)]
struct State {
    #[serde(default)]
    terminated: Option<Terminated>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terminated {
    #[serde(default)]
    exit_code: i64,
    #[serde(default)]
    finished_at: Option<Instant>,
}

/// What the cell tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Restarts {
    pub(super) count: i64,
    /// When the last one ended, where that is told too.
    pub(super) last: Option<Instant>,
}

impl Restarts {
    fn add(&mut self, container: &Container<'_>) {
        self.count = self.count.saturating_add(container.restart_count);
        let terminated = container.last_state.terminated.as_ref();
        let finished = terminated.and_then(|it| it.finished_at?.if_set());
        self.last = self.last.max(finished);
    }

    /// As servers from 1.28 on count: init containers only until all have done their work, but those that go on running
    /// beside the others always.
    pub(super) fn of(spec: &Spec<'_>, status: &Status<'_>) -> Self {
        let policies: HashMap<&str, Option<&str>> = spec
            .init_containers
            .iter()
            .flatten()
            .map(|it| (&*it.name, it.restart_policy.as_deref()))
            .collect();
        let (mut all, mut sidecars) = (Self::default(), Self::default());
        let mut is_initializing = false;
        for container in status.init_container_statuses.iter().flatten() {
            all.add(container);
            let is_sidecar = policies.get(&*container.name) == Some(&Some("Always"));
            if is_sidecar {
                sidecars.add(container);
            }
            let is_up = is_sidecar && container.started == Some(true);
            if !container.has_done_its_work() && !is_up {
                is_initializing = true;
                break;
            }
        }
        if !is_initializing || status.was_initialized() {
            all = sidecars;
            for container in status.container_statuses.iter().flatten() {
                all.add(container);
            }
        }
        if all.count == 0 {
            all.last = None;
        }
        all
    }

    /// As servers up to 1.27 count: they forget the restarts of init containers in the end, but not when they were, and tell
    /// the time even of no restart.
    pub(super) fn of_older_server(status: &Status<'_>) -> Self {
        let mut all = Self::default();
        for container in status.init_container_statuses.iter().flatten() {
            all.add(container);
            if !container.has_done_its_work() {
                return all;
            }
        }
        all.count = 0;
        for container in status.container_statuses.iter().flatten() {
            all.add(container);
        }
        all
    }
}

impl Container<'_> {
    fn has_done_its_work(&self) -> bool {
        let terminated = self.state.terminated.as_ref();
        terminated.is_some_and(|it| it.exit_code == 0)
    }
}

impl Status<'_> {
    fn was_initialized(&self) -> bool {
        let mut conditions = self.conditions.iter().flatten();
        let condition = conditions.find(|it| it.condition == "Initialized");
        condition.is_some_and(|it| it.status == "True")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn older_servers_count_otherwise() {
        let container = |count: i64, finished: Option<&str>, state: serde_json::Value| {
            let terminated = finished.map(|at| json!({"exitCode": 1, "finishedAt": at}));
            json!({"name": "c", "restartCount": count, "state": state, "lastState": {"terminated": terminated}})
        };
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let done = json!({"terminated": {"exitCode": 0}});
        for (init, main, newer, older) in [
            // Both: its own restarts.
            (
                None,
                container(2, Some(early), json!({})),
                (2, Some(early)),
                (2, Some(early)),
            ),
            // The init container's last end comes after the container's.
            (
                Some(container(3, Some(late), done.clone())),
                container(2, Some(early), json!({})),
                (2, Some(early)),
                (2, Some(late)),
            ),
            // None counted, but a time.
            (
                Some(container(3, Some(late), done)),
                container(0, None, json!({})),
                (0, None),
                (0, Some(late)),
            ),
            // Still at it.
            (
                Some(container(3, Some(late), json!({}))),
                container(1, None, json!({})),
                (3, Some(late)),
                (3, Some(late)),
            ),
        ] {
            let status = json!({"initContainerStatuses": init.into_iter().collect::<Vec<_>>(), "containerStatuses": [main]}).to_string();
            let status: Status<'_> = serde_json::from_str(&status).unwrap();
            let expected = |(count, last): (i64, Option<&str>)| Restarts {
                count,
                last: last.and_then(Instant::parse),
            };
            assert_eq!(Restarts::of(&Spec::default(), &status), expected(newer));
            assert_eq!(Restarts::of_older_server(&status), expected(older));
        }
    }
}
