//! What becomes of an informer whose reflector panics; what needs a server is tested end to end.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::cluster_accessor::tests::config;
use crate::credential::Credential;
use crate::eviction::Fleet;
use crate::gvr::Gvr;
use crate::informer::Scope;
use crate::informers::InformersConfig;
use crate::panics::planned;
use crate::upstream::endpoint::Endpoint;

mod compressed;
mod protobuf;

const ANY: Scope = Scope {
    namespace: false,
    name: false,
};

#[tokio::test(start_paused = true)]
async fn an_informer_that_panicked_shows_nothing_and_starts_over_after_a_pause() {
    let stop = CancellationToken::new();
    let fleet = Fleet::start(InformersConfig::default(), &TaskTracker::new(), &stop);
    let stopped = stop.child_token();
    let informer = Informer::new(Gvr::new("", "v1", "pods"), Arc::default(), stopped);
    let informer = Arc::new(informer);
    let mut reflector = Reflector::new(Arc::clone(&informer), Arc::new(Settings::new(&fleet)));
    // As in the middle of a watch: readers read, watchers watch.
    let body = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
    let envelope = Arc::new(Envelope::learn(body.as_bytes(), "Pod").unwrap().envelope);
    let at = ResourceVersion::from_number(5);
    reflector.epoch = 1;
    reflector.state = State::Watch;
    reflector.kind.envelope = Some(Arc::clone(&envelope));
    reflector.store.complete(at);
    informer.publish((1, 1), true, reflector.store.snapshot(&envelope));
    informer.history().begin(1, at, envelope);
    assert!(informer.read_any((1, 1), ANY).is_ok());

    let server = config("http://127.0.0.1:1").endpoint;
    let timeout = Duration::from_secs(1);
    let server = Endpoint::new(server);
    let connection = Connection::new(&server, &Credential::default(), timeout, None).unwrap();
    let (_connections, connected) = watch::channel(Some(Arc::new(connection)));
    planned::plan("reflector", 2);
    let mut running = Box::pin(reflector.run(connected));
    let start = Instant::now();
    let mut until = async |visits: u32| {
        while planned::visits("reflector") < visits {
            let step = tokio::time::timeout(Duration::from_millis(10), &mut running);
            assert!(step.await.is_err(), "it goes on");
        }
        start.elapsed()
    };
    assert!(until(1).await < Duration::from_millis(100));
    assert!(informer.read_any((1, 1), ANY).is_err());
    assert!(informer.history().enter(None).is_err());
    // After a pause, and after a longer one.
    let again = until(2).await;
    assert!(again >= Duration::from_millis(500), "{again:?}");
    let pause = until(3).await - again;
    assert!(pause >= Duration::from_secs(1), "{pause:?}");
    stop.cancel();
    assert!(running.await.is_none());
}
