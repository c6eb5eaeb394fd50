//! What happened in a namespace, as the apiserver's own watch tells it, and whether a program was told exactly that.

use std::collections::BTreeMap;

use fleetcache_e2e::client::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// The object after which nothing is written.
pub(super) const END: &str = "end";

/// What of an object is compared. The label `marker` is another one after each write.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Object {
    name: String,
    #[serde(rename = "resourceVersion")]
    version: String,
    marker: String,
}

impl Object {
    fn version(&self) -> u64 {
        self.version.parse().unwrap()
    }

    fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        Self {
            name: text(&metadata["name"]),
            version: text(&metadata["resourceVersion"]),
            marker: text(&metadata["labels"]["marker"]),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    kind: String,
    object: Object,
}

/// All events of a namespace that was empty before the first of them.
#[derive(Debug)]
pub(super) struct Truth(Vec<Event>);

impl Truth {
    /// Begins to watch; the result is there when [`END`] was created.
    pub(super) async fn record(client: &Client, path: &str) -> JoinHandle<Self> {
        let list = client.get(path).await.unwrap().ok().unwrap();
        let list = list.json().unwrap();
        assert_eq!(list["items"], json!([]), "{path} is in use");
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let mut lines = client
            .lines(&format!("{path}?watch=true&resourceVersion={version}"))
            .await
            .unwrap();
        tokio::spawn(async move {
            let mut events = Vec::new();
            loop {
                let line = lines.next().await.unwrap().unwrap();
                let line: Value = serde_json::from_slice(&line).unwrap();
                let event = Event {
                    kind: line["type"].as_str().unwrap().to_owned(),
                    object: Object::of(&line["object"]),
                };
                let is_last = event.object.name == END;
                events.push(event);
                if is_last {
                    return Self(events);
                }
            }
        })
    }

    /// How many events there were.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// The state at a version, in the order of names.
    fn at(&self, version: u64) -> Vec<Object> {
        let mut state = BTreeMap::new();
        for Event { kind, object } in self.until(version) {
            if kind == "DELETED" {
                state.remove(&object.name);
            } else {
                state.insert(&object.name, object);
            }
        }
        state.into_values().cloned().collect()
    }

    fn until(&self, version: u64) -> impl Iterator<Item = &Event> {
        self.0
            .iter()
            .take_while(move |event| event.object.version() <= version)
    }

    /// Fails unless the list of this path is the last state.
    pub(super) async fn check_list(&self, client: &Client, path: &str) {
        let list = client.get(path).await.unwrap().ok().unwrap();
        let list = list.json().unwrap();
        let items: Vec<Object> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(Object::of)
            .collect();
        assert_eq!(items, self.at(u64::MAX));
    }

    /// Whether a program was told one state, as it was at the version of its list, and then each later event once, in order.
    pub(super) fn check_stream(&self, lines: &[Value]) -> Result<(), String> {
        let mut told = None;
        for line in lines {
            if line["list"].is_array() {
                if told.is_some() {
                    return Err("it listed again".to_owned());
                }
                let list: Vec<Object> = parse(&line["list"])?;
                let version = line["resourceVersion"].as_str().unwrap_or_default();
                let version = version
                    .parse()
                    .map_err(|_| format!("a list at '{version}'"))?;
                self.check_state(version, &list)?;
                told = Some(self.until(version).count());
            } else if line["event"].is_string() {
                let next = told.as_mut().ok_or("an event came before the list")?;
                self.check_event(*next, &told_event(line)?)?;
                *next += 1;
            }
        }
        match told {
            Some(told) if told == self.0.len() => Ok(()),
            Some(told) => Err(format!("it was not told of {:?}", self.0[told])),
            None => Err("it was told nothing".to_owned()),
        }
    }

    /// The same for a shared informer, which promises an order for each object alone and does not say the version of its list.
    pub(super) fn check_informer(&self, lines: &[Value]) -> Result<(), String> {
        let (mut initial, mut events) = (Vec::new(), Vec::new());
        let mut last = BTreeMap::new();
        for line in lines.iter().filter(|line| line["event"].is_string()) {
            let event = told_event(line)?;
            let version = event.object.version();
            let before = last.insert(event.object.name.clone(), version);
            if before.is_some_and(|before| before >= version) {
                return Err(format!("{event:?} came after {before:?}"));
            }
            if line["initial"] == true {
                initial.push(event.object);
            } else {
                events.push(event);
            }
        }
        initial.sort_by(|one, other| one.name.cmp(&other.name));
        events.sort_by_key(|event| event.object.version());
        let first = events.first().ok_or("it was told of no event")?;
        let listed = first.object.version() - 1;
        self.check_state(listed, &initial)?;
        let told = self.until(listed).count();
        for (at, event) in events.iter().enumerate() {
            self.check_event(told + at, event)?;
        }
        if told + events.len() < self.0.len() {
            return Err(format!(
                "it was not told of {:?}",
                self.0[told + events.len()]
            ));
        }
        let store = lines.iter().find(|line| line["store"].is_array());
        let store: Vec<Object> = parse(&store.ok_or("it did not tell its store")?["store"])?;
        self.check_state(u64::MAX, &store)
    }

    fn check_state(&self, version: u64, state: &[Object]) -> Result<(), String> {
        let truth = self.at(version);
        if truth == state {
            return Ok(());
        }
        Err(format!(
            "at {version} there were\n{truth:#?}\nand it saw\n{state:#?}"
        ))
    }

    fn check_event(&self, at: usize, event: &Event) -> Result<(), String> {
        match self.0.get(at) {
            Some(truth) if truth == event => Ok(()),
            truth => Err(format!("it was told of {event:?} where {truth:?} is next")),
        }
    }
}

fn told_event(line: &Value) -> Result<Event, String> {
    Ok(Event {
        kind: parse(&line["event"])?,
        object: parse(&line["object"])?,
    })
}

fn parse<T: for<'a> Deserialize<'a>>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| format!("{value}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, version: u64) -> Value {
        json!({"name": name, "resourceVersion": version.to_string(), "marker": ""})
    }

    fn event(kind: &str, name: &str, version: u64) -> Value {
        json!({"event": kind, "object": object(name, version), "initial": false})
    }

    fn truth() -> Truth {
        let events = [
            event("ADDED", "a", 1),
            event("ADDED", "b", 3),
            event("MODIFIED", "a", 5),
            event("DELETED", "b", 7),
            event("ADDED", END, 9),
        ];
        Truth(
            events
                .iter()
                .map(|event| told_event(event).unwrap())
                .collect(),
        )
    }

    #[test]
    fn a_stream_without_a_gap_is_right() {
        let list = json!({"list": [object("a", 1), object("b", 3)], "resourceVersion": "4"});
        let events = [
            event("MODIFIED", "a", 5),
            event("DELETED", "b", 7),
            event("ADDED", END, 9),
        ];
        let right = [&[list.clone()][..], &events].concat();
        assert_eq!(truth().check_stream(&right), Ok(()));
        for (what, wrong) in [
            ("a lost event", [&right[..1], &right[2..]].concat()),
            ("a doubled event", [&right[..2], &right[1..]].concat()),
            ("a lost end", right[..3].to_vec()),
            ("another list", [&[list.clone()][..], &right].concat()),
            ("no list", right[1..].to_vec()),
            (
                "an event of the list",
                [&[list, event("ADDED", "b", 3)][..], &events].concat(),
            ),
        ] {
            assert!(truth().check_stream(&wrong).is_err(), "{what}");
        }
        let ghost = json!({"list": [object("a", 5), object("b", 3)], "resourceVersion": "8"});
        assert!(truth().check_stream(&[ghost, right[3].clone()]).is_err());
    }

    #[test]
    fn an_informer_may_mix_the_order_of_different_objects_only() {
        let initial = |name, version| json!({"event": "ADDED", "object": object(name, version), "initial": true});
        let store = json!({"store": [object("a", 5), object(END, 9)]});
        let right = [
            initial("b", 3),
            initial("a", 1),
            event("DELETED", "b", 7),
            event("MODIFIED", "a", 5),
            event("ADDED", END, 9),
            store,
        ];
        assert_eq!(truth().check_informer(&right), Ok(()));
        for lost in 0..right.len() {
            let mut wrong = right.to_vec();
            wrong.remove(lost);
            assert!(truth().check_informer(&wrong).is_err(), "without {lost}");
            wrong = right.to_vec();
            wrong.insert(lost, right[lost].clone());
            let is_store = lost + 1 == right.len();
            assert_eq!(
                truth().check_informer(&wrong).is_ok(),
                is_store,
                "{lost} twice"
            );
        }
        let mut swapped = right.to_vec();
        swapped.swap(0, 2);
        assert!(truth().check_informer(&swapped).is_err());
    }
}
