//! Clients that keep a copy by list and watch, as client-go and kube-rs do it. Whatever happens, at the end they have what
//! there is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::sim::Object;
use rand::Rng as _;
use rand::rngs::StdRng;
use tokio::time::Instant;

use super::World;
use super::log::key;
use super::reads::{Read, Version};
use super::replay::Said;
use super::selection::Selection;
use super::told::Moment;
use super::watchers::{Ended, Request, Watch};

/// Seconds that a watch lasts. Bookmarks come before the end.
const TIMEOUT: u64 = 5;

/// A watch that says nothing for so long is taken for one that its cluster cannot know to be of other data.
const LED_ON: Duration = Duration::from_secs(1);

/// How long a watch is read at the end before the copy is looked at again.
const LOOK: Duration = Duration::from_millis(200);

/// How a client gets its first state.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// client-go since 1.35: a watch with the state first.
    StreamingList,
    /// client-go before: whatever state there is, then not older than the last one.
    List,
    /// kube-rs: the newest state, and again only after a 410.
    OnlyAfterExpired,
}

/// A copy of what is selected.
struct Copy<'a> {
    world: &'a World,
    client: Client,
    selection: Selection,
    way: Way,
    objects: BTreeMap<String, Arc<Object>>,
    /// What the copy is complete up to; `None` before the first list, and after what makes a client start over.
    at: Option<Moment>,
    /// The version to list not older than.
    last: Option<Moment>,
}

impl World {
    /// Keeps a copy until the run is over, and then compares it.
    pub(super) async fn keep_copy(
        &self,
        mut rng: StdRng,
        client: Client,
        selection: Selection,
        way: Way,
    ) {
        let mut copy = Copy {
            world: self,
            client,
            selection,
            way,
            objects: BTreeMap::new(),
            at: None,
            last: None,
        };
        while !self.is_over() {
            let life = self.steps(rng.random_range(100..2_000));
            tokio::select! {
                () = copy.follow() => {}
                // Some begin anew, as a restarted controller does.
                () = life => copy.at = None,
                () = self.over() => {}
            }
        }
        copy.assert_same().await;
    }
}

impl Copy<'_> {
    /// Lists and watches for ever.
    async fn follow(&mut self) {
        loop {
            self.follow_once(None).await;
        }
    }

    /// One list if one is due, and one watch to its end, or for that time.
    async fn follow_once(&mut self, time: Option<Duration>) {
        let watch = match (self.at, self.way) {
            (None, Way::StreamingList) => self.streaming_list().await,
            (None, _) => match self.list().await {
                true => self.resume().await,
                false => None,
            },
            (Some(_), _) => self.resume().await,
        };
        let Some(mut watch) = watch else {
            self.world.pause().await;
            return;
        };
        let until = time.map(|time| Instant::now() + time);
        loop {
            match self.world.read(&mut watch, until).await {
                Ok(said) => self.apply(said, watch.replay.epoch()),
                Err(ended) => {
                    self.ended(&ended);
                    return;
                }
            }
        }
    }

    fn ended(&mut self, ended: &Ended) {
        match ended {
            // The next watch goes on where this one ended.
            Ended::Eof | Ended::Left => {}
            Ended::Expired | Ended::Garbage => self.at = None,
        }
    }

    async fn list(&mut self) -> bool {
        let version = match (self.way, self.last) {
            (Way::OnlyAfterExpired, _) => Version::Unset,
            (_, None) => Version::Any,
            (_, Some(last)) => Version::NotOlderThan(last),
        };
        let read = Read {
            selection: self.selection.clone(),
            version,
        };
        let turn = self.world.turn().await;
        let listed = self.world.list(&self.client, &read).await;
        drop(turn);
        let Some(listed) = listed else {
            // The version may be one that never comes again.
            self.last = None;
            return false;
        };
        self.begin(listed.at, &listed.objects);
        true
    }

    fn begin(&mut self, at: Moment, objects: &[Arc<Object>]) {
        let pairs = objects.iter().map(|object| (key(object), object.clone()));
        self.objects = pairs.collect();
        self.at = Some(at);
        self.last = self.at;
        self.world.tally().count("copies begun");
    }

    /// A watch with the state first; the copy is replaced when all of it has come.
    async fn streaming_list(&mut self) -> Option<Watch> {
        let world = self.world;
        let request = Request::initial(self.selection.clone());
        let Some(mut watch) = world.open(&self.client, request).await else {
            // Refused by an older server, or no answer: client-go falls back to a list.
            return match self.list().await {
                true => self.resume().await,
                false => None,
            };
        };
        let mut objects = Vec::new();
        loop {
            match world.read(&mut watch, None).await {
                Ok(Said::Object { object, .. }) => objects.extend(object),
                Ok(Said::Bookmark(version)) => {
                    let epoch = watch.replay.epoch();
                    self.begin(Moment { epoch, version }, &objects);
                    return Some(watch);
                }
                Ok(Said::Expired) | Err(_) => return None,
            }
        }
    }

    async fn resume(&mut self) -> Option<Watch> {
        let request = Request::after(self.selection.clone(), self.at?, TIMEOUT);
        let world = self.world;
        let Some(mut watch) = world.open(&self.client, request).await else {
            // client-go lists again after any refusal but 429, kube-rs watches again.
            if !matches!(self.way, Way::OnlyAfterExpired) {
                self.at = None;
            }
            return None;
        };
        if watch.replay.crossed().is_none() {
            return Some(watch);
        }
        // The version is of other data. It should be told so; but where nobody can know, it is led on like by a real server.
        self.at = None;
        let first = world.read(&mut watch, Some(Instant::now() + LED_ON)).await;
        world.tally().count(match first {
            Err(Ended::Expired) => "copies told that their version is of another epoch",
            Ok(_) | Err(Ended::Left) if watch.stream.hit => "copies led on from memory",
            Ok(_) | Err(Ended::Left) => "copies led on by the cluster",
            Err(_) => "copies whose watch of another epoch ended",
        });
        None
    }

    fn apply(&mut self, said: Said, epoch: usize) {
        let version = match said {
            Said::Object {
                key,
                object,
                version,
            } => {
                match object {
                    Some(object) => self.objects.insert(key, object),
                    None => self.objects.remove(&key),
                };
                version
            }
            Said::Bookmark(version) => version,
            Said::Expired => return,
        };
        self.at = Some(Moment { epoch, version });
        self.last = self.at;
    }

    fn difference(&self) -> Option<String> {
        let (current, expected) = self.world.log(|log| {
            let newest = log.newest(self.selection.kind);
            let expected: Vec<_> = self.selection.of(newest).cloned().collect();
            (log.current(), expected)
        });
        let Some(at) = self.at.filter(|at| at.epoch == current) else {
            return Some(format!("it is at {:?} in epoch {current}", self.at));
        };
        let same = expected.len() == self.objects.len()
            && expected.iter().all(|object| {
                let own = self.objects.get(&key(object));
                own.is_some_and(|own| own.json() == object.json())
            });
        let describe = |objects: &mut dyn Iterator<Item = &Arc<Object>>| {
            let objects = objects.map(|object| format!("{}@{}", key(object), object.revision));
            objects.collect::<Vec<_>>().join(" ")
        };
        (!same).then(|| {
            format!(
                "at {at:?} it has {}\nand not {}",
                describe(&mut self.objects.values()),
                describe(&mut expected.iter())
            )
        })
    }

    /// Nothing happens any more: the copy becomes what there is.
    async fn assert_same(mut self) {
        let deadline = self.world.settled().await;
        while let Some(difference) = self.difference() {
            // A watch that stays open says nothing more once all has come. The list before it takes as long as the server has it.
            let followed = self.follow_once(Some(LOOK));
            let waits = tokio::time::timeout_at(deadline, followed).await;
            if waits.is_err() {
                let (way, selection) = (self.way, &self.selection);
                self.world
                    .fail(&format!("a copy by {way:?} of {selection:?}: {difference}"));
            }
        }
        self.world.tally().count("copies right at the end");
    }
}
