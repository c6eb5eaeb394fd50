//! Writers that do not stop: objects that are made, changed twice, deleted and made again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fleetcache_e2e::client::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::truth::END;

/// Objects that nobody writes to again, so that a list always has several pages.
const STILL: usize = 15;

/// Objects of one writer.
const OBJECTS: usize = 12;

/// Between two writes of one writer: two cores also have to read what is written, many times over.
const PACE: Duration = Duration::from_millis(25);

pub(super) fn configmap(name: &str, marker: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"marker": marker}}, "data": {"text": "<&> \u{2028}"},
    })
}

/// Some writers, until they are told to stop.
pub(super) struct Writers {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Writers {
    /// Makes the objects that stay as they are, and starts one writer for each client.
    pub(super) async fn start(clients: &[Client], path: &str) -> Self {
        for n in 0..STILL {
            create(&clients[0], path, &format!("still-{n}"), "0").await;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = clients.iter().enumerate().map(|(writer, client)| {
            let (client, path, stop) = (client.clone(), path.to_owned(), Arc::clone(&stop));
            tokio::spawn(async move { write(writer, &client, &path, &stop).await })
        });
        let tasks = tasks.collect();
        Self { stop, tasks }
    }

    /// Returns when the last write is answered.
    pub(super) async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

/// Makes the object after which nothing is written.
pub(super) async fn create_end(client: &Client, path: &str) {
    create(client, path, END, "0").await;
}

async fn create(client: &Client, path: &str, name: &str, marker: &str) {
    let object = configmap(name, marker);
    client.create(path, &object).await.unwrap().ok().unwrap();
}

async fn write(writer: usize, client: &Client, path: &str, stop: &AtomicBool) {
    let mut pace = tokio::time::interval(PACE);
    // What is next for each object: 0 to be made, 1 and 2 to be changed, 3 to be deleted.
    let mut next = [0; OBJECTS];
    for written in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        pace.tick().await;
        let (n, marker) = (written % OBJECTS, written.to_string());
        let (name, is_first) = (format!("writer-{writer}-{n}"), written < OBJECTS);
        let object = format!("{path}/{name}");
        let answer = match next[n] {
            0 => client.create(path, &configmap(&name, &marker)).await,
            3 => client.delete(&object).await,
            _ => {
                let patch = json!({"metadata": {"labels": {"marker": marker}}});
                client.patch(&object, &patch).await
            }
        };
        answer.unwrap().ok().unwrap();
        // At first neighbours get to different points of their lives, so that something is always missing.
        next[n] = if is_first {
            1 + n % 3
        } else {
            (next[n] + 1) % 4
        };
    }
}
