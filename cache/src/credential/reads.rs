//! Reads of files whose file system may be gone: it keeps the thread that asked, for as long as it likes.
//!
//! So a file is read once at a time, whoever asks, and not again while a read of it has not ended. Files below one mount
//! point share a few places: a server of files that is gone costs the process these, and no other file has to wait.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::bounded_file;
use crate::facts::{ClusterFacts, Facts, NoFact};

/// Reads at once below one mount point, of tokio's 512 threads for blocking work.
const AT_ONCE: usize = 8;

/// How long whoever asks waits for a read.
const PATIENCE: Duration = Duration::from_secs(5);

/// The threads are the process's, and so are the places.
pub(super) static READS: LazyLock<Reads> = LazyLock::new(Reads::new);

/// What is being read.
pub(super) struct Reads {
    /// Nothing is known of a file once its read has ended: the next one is to see what is there then.
    under_way: ClusterFacts<PathBuf, Vec<u8>, String>,
    /// By mount point.
    places: Arc<Mutex<HashMap<PathBuf, Arc<Semaphore>>>>,
}

impl Reads {
    fn new() -> Self {
        Self {
            under_way: Facts::new(0, |_, _| 1).of_cluster(),
            places: Arc::default(),
        }
    }

    /// What is in the file.
    ///
    /// # Errors
    /// Why it cannot be read, without its name.
    pub(super) async fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        self.read_with(path, mount_point, read_file).await
    }

    async fn read_with(
        &self,
        path: &Path,
        mount_point: fn(&Path) -> PathBuf,
        read: impl FnOnce(&Path) -> io::Result<Vec<u8>> + Send + 'static,
    ) -> Result<Vec<u8>, String> {
        let places = Arc::clone(&self.places);
        let file = path.to_owned();
        let question = async move {
            let (file, mount_point) = spawn_blocking(move || {
                let mount_point = mount_point(&file);
                (file, mount_point)
            })
            .await
            .map_err(|error| error.to_string())?;
            let places = Arc::clone(
                places
                    .lock()
                    .entry(mount_point)
                    .or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))),
            );
            // Never closed.
            let place = places.acquire_owned().await.ok();
            let read = spawn_blocking(move || {
                let _place = place;
                read(&file)
            });
            match read.await.unwrap_or_else(|error| Err(error.into())) {
                Ok(bytes) => Ok((bytes, Some(Instant::now()))),
                Err(error) => Err(error.to_string()),
            }
        };
        let answer = self.under_way.get_or_ask(path.to_owned(), question);
        match timeout(PATIENCE, answer).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(NoFact::Failed(error))) => Err(error),
            Ok(Err(NoFact::Ended)) => Err("the read was ended".to_owned()),
            Err(_elapsed) => Err(format!(
                "the file system did not answer within {} s",
                PATIENCE.as_secs()
            )),
        }
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    bounded_file::read(path, bounded_file::SMALL)
}

/// Where the file system of a path is mounted, by what the kernel lists: the file system itself might not answer.
fn mount_point(path: &Path) -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    longest_of(&mounts, &path)
}

fn longest_of(mounts: &str, path: &Path) -> PathBuf {
    let mount_points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let mount_points = mount_points.map(|it| PathBuf::from(it.replace("\\040", " ")));
    let above = mount_points.filter(|mount_point| path.starts_with(mount_point));
    let longest = above.max_by_key(|mount_point| mount_point.as_os_str().len());
    longest.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;
    use crate::upstream::fake::within;

    fn first_part(path: &Path) -> PathBuf {
        path.iter().take(2).collect()
    }

    /// A file system that is gone: reads that have begun, and what ends them all.
    struct Gone {
        begun: Arc<AtomicUsize>,
        until: Arc<Mutex<mpsc::Receiver<()>>>,
    }

    impl Gone {
        fn new() -> (Self, mpsc::Sender<()>) {
            let (end, until) = mpsc::channel();
            let gone = Self {
                begun: Arc::default(),
                until: Arc::new(Mutex::new(until)),
            };
            (gone, end)
        }

        fn read(&self) -> impl FnOnce(&Path) -> io::Result<Vec<u8>> + Send + 'static {
            let (begun, until) = (Arc::clone(&self.begun), Arc::clone(&self.until));
            move |_| {
                begun.fetch_add(1, Ordering::SeqCst);
                // Disconnected: it is back.
                let _ = until.lock().recv();
                Ok(b"late".to_vec())
            }
        }

        async fn begun(&self, count: usize) {
            within(async {
                while self.begun.load(Ordering::SeqCst) < count {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
    }

    #[tokio::test]
    async fn a_file_that_hangs_is_read_once_and_other_file_systems_are_not_held_up() {
        let reads = Reads::new();
        let (gone, end) = Gone::new();
        // As by an owner that looks again and again: whoever asks gives up, and the read goes on.
        for _ in 0..AT_ONCE * 3 {
            let path = Path::new("/nfs/token");
            let look = reads.read_with(path, first_part, gone.read());
            tokio::select! {
                biased;
                read = look => panic!("{read:?}"),
                () = gone.begun(1) => {}
            }
        }
        assert_eq!(gone.begun.load(Ordering::SeqCst), 1);
        // Hundreds of others that are there too hold no more threads than there are places.
        let mut others: Vec<_> = (0..AT_ONCE * 3)
            .map(|n| {
                let path = PathBuf::from(format!("/nfs/{n}"));
                let (reads, read) = (&reads, gone.read());
                Box::pin(async move { reads.read_with(&path, first_part, read).await })
            })
            .collect();
        for other in &mut others {
            assert!(futures_util::poll!(other).is_pending());
        }
        gone.begun(AT_ONCE).await;
        let read = |_: &Path| Ok(b"here".to_vec());
        let here = reads.read_with(Path::new("/etc/token"), first_part, read);
        assert_eq!(within(here).await.unwrap(), b"here");
        assert_eq!(gone.begun.load(Ordering::SeqCst), AT_ONCE);
        // It is back: all are read, and what was read late is not taken for what is there now.
        drop(end);
        for other in others {
            assert_eq!(within(other).await.unwrap(), b"late");
        }
        // Its own read may be the last to end, and until then it is not read again.
        let again = async {
            let token = Path::new("/nfs/token");
            while reads.read_with(token, first_part, read).await.unwrap() == b"late" {
                tokio::task::yield_now().await;
            }
        };
        within(again).await;
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_waits_for_some_seconds_only() {
        let reads = Reads::new();
        let path = Path::new("/nfs/token");
        // A place that never gets free, since the clock stands still while a blocking thread runs.
        let taken = Arc::new(Semaphore::new(0));
        reads.places.lock().insert(PathBuf::from("/nfs"), taken);
        let before = Instant::now();
        let read = reads.read_with(path, first_part, |_| Ok(Vec::new()));
        let error = read.await.unwrap_err();
        assert_eq!(error, "the file system did not answer within 5 s");
        assert_eq!(before.elapsed(), PATIENCE);
    }

    #[test]
    fn the_mount_point_is_the_longest_one_above() {
        let mounts = "22 1 0:21 / / rw - overlay overlay rw\n\
                      30 22 0:40 / /mnt/a\\040b rw - nfs server:/x rw\n\
                      31 22 0:41 /sub /mnt rw shared:1 - nfs server:/y rw\n";
        for (path, expected) in [
            ("/etc/token", "/"),
            ("/mnt/token", "/mnt"),
            ("/mnt/a b/token", "/mnt/a b"),
            ("/mnt2/token", "/"),
        ] {
            assert_eq!(longest_of(mounts, Path::new(path)), Path::new(expected));
        }
        assert_eq!(longest_of("", Path::new("/etc")), Path::new(""));
        assert_eq!(
            mount_point(Path::new("/proc/self/stat")),
            Path::new("/proc")
        );
    }
}
