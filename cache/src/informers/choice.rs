//! Which informer of a kind answers a request, of those that could.

use std::sync::Arc;

use super::{Informers, Lookup, Refusal};
use crate::form::Form;
use crate::gvr::Gvr;
use crate::holding::Holding;
use crate::informer::Informer;

/// The informers of one kind: one for each holding, at most.
#[derive(Debug, Default)]
pub(super) struct OfKind {
    objects: Option<Arc<Informer>>,
    protobuf: Option<Arc<Informer>>,
}

impl OfKind {
    pub(super) fn get(&self, holding: Holding) -> Option<&Arc<Informer>> {
        match holding {
            Holding::Objects => self.objects.as_ref(),
            Holding::Protobuf => self.protobuf.as_ref(),
        }
    }

    /// The place of one.
    pub(super) fn place(&mut self, holding: Holding) -> &mut Option<Arc<Informer>> {
        match holding {
            Holding::Objects => &mut self.objects,
            Holding::Protobuf => &mut self.protobuf,
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Informer>> {
        self.objects.iter().chain(&self.protobuf)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }
}

impl Informers {
    /// What there is of a kind for who is to be answered in a form, on a connection's generation. Where several informers
    /// could answer, one that can now; where none runs, the one that is to be started.
    pub fn find(&self, gvr: &Gvr, form: Form, generation: u64) -> Lookup {
        self.choose(gvr, form, |informer| informer.is_readable_on(generation))
    }

    /// Likewise for who is shown what was known last.
    pub fn find_last_known(&self, gvr: &Gvr, form: Form) -> Lookup {
        self.choose(gvr, form, |informer| informer.resource_version().is_some())
    }

    fn choose(&self, gvr: &Gvr, form: Form, is_ready: impl Fn(&Informer) -> bool) -> Lookup {
        let rank = |found: &Lookup| match found {
            Lookup::Informer(informer) if is_ready(informer) => 4,
            Lookup::Informer(_) => 3,
            Lookup::NotStarted(holding) if *holding == form.starts() => 2,
            Lookup::NotStarted(_) => 1,
            Lookup::Never | Lookup::Refused(_) => 0,
        };
        let found = form
            .holdings()
            .iter()
            .map(|holding| self.lookup(gvr, *holding));
        // Of equals the first.
        let best = found.reduce(|best, other| match rank(&other) > rank(&best) {
            true => other,
            false => best,
        });
        best.unwrap_or(Lookup::Never)
    }

    /// Whether a kind is a custom resource, as far as its informers have found out.
    pub fn is_custom(&self, gvr: &Gvr) -> Option<bool> {
        let seen = {
            let state = self.state.lock();
            let of_kind = state.informers.get(gvr);
            let mut seen = of_kind.into_iter().flat_map(OfKind::all);
            seen.find_map(|informer| informer.is_unstructured())
        };
        // What the server does not write in protobuf is one, but for kinds of a few extension servers: their own informer
        // tells in time.
        let no_protobuf = || {
            let refusal = self.refused.get(&(gvr.clone(), Holding::Protobuf))?;
            (refusal == Refusal::NoProtobuf).then_some(true)
        };
        seen.or_else(no_protobuf)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::envelope::Envelope;
    use crate::eviction::Fleet;
    use crate::form::MetaVersion;
    use crate::informers::InformersConfig;
    use crate::resource_version::ResourceVersion;
    use crate::store::Store;

    fn informers(stop: &CancellationToken) -> Arc<Informers> {
        let fleet = Fleet::start(InformersConfig::default(), &TaskTracker::new(), stop);
        let (_connections, connected) = watch::channel(None);
        Informers::new("a", &fleet, connected, stop)
    }

    fn running(lookup: Lookup) -> Arc<Informer> {
        match lookup {
            Lookup::Informer(informer) => informer,
            other => panic!("{other:?}"),
        }
    }

    fn sync(informer: &Informer) {
        let body = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        let envelope = Envelope::learn(body.as_bytes(), "Pod").unwrap().envelope;
        let mut store = Store::default();
        store.complete(ResourceVersion::from_number(5));
        informer.publish((1, 1), true, store.snapshot(&Arc::new(envelope)));
    }

    #[tokio::test]
    async fn whoever_can_answer_now_does() {
        let stop = CancellationToken::new();
        let informers = informers(&stop);
        let pods = Gvr::new("", "v1", "pods");
        let metadata = Form::ProtobufMetadata(MetaVersion::V1);
        let find = |form| informers.find(&pods, form, 1);
        for (form, expected) in [
            (Form::Object, Holding::Objects),
            (Form::Protobuf, Holding::Protobuf),
            (Form::Metadata(MetaVersion::V1), Holding::Objects),
            (metadata, Holding::Objects),
        ] {
            let found = find(form);
            assert!(
                matches!(found, Lookup::NotStarted(it) if it == expected),
                "{form:?}"
            );
        }
        informers.note_list(&pods, Holding::Protobuf);
        let in_protobuf = running(find(Form::Protobuf));
        assert_eq!(in_protobuf.holding, Holding::Protobuf);
        // It will be there sooner than one that is not started.
        assert!(Arc::ptr_eq(&in_protobuf, &running(find(metadata))));
        assert!(matches!(find(Form::Object), Lookup::NotStarted(_)));
        informers.note_list(&pods, Holding::Objects);
        let objects = running(find(Form::Object));
        sync(&objects);
        assert!(Arc::ptr_eq(&objects, &running(find(metadata))));
        sync(&in_protobuf);
        assert!(Arc::ptr_eq(&in_protobuf, &running(find(metadata))));
        assert_eq!(informers.all().len(), 2);
        // They share a floor: who was told by one is told nothing older by the other.
        assert!(Arc::ptr_eq(objects.floor(), in_protobuf.floor()));
        informers.stop(&objects, "test");
        assert!(Arc::ptr_eq(&in_protobuf, &running(find(metadata))));
        assert!(matches!(find(Form::Object), Lookup::NotStarted(_)));
        stop.cancel();
    }

    #[tokio::test]
    async fn what_a_kind_is_is_known_from_what_was_tried() {
        let stop = CancellationToken::new();
        let informers = informers(&stop);
        let gateways = Gvr::new("gateway.networking.k8s.io", "v1", "gateways");
        assert_eq!(informers.is_custom(&gateways), None);
        informers.refuse(&gateways, Holding::Protobuf, Refusal::Forbidden);
        assert_eq!(informers.is_custom(&gateways), None);
        informers.refuse(&gateways, Holding::Protobuf, Refusal::NoProtobuf);
        assert_eq!(informers.is_custom(&gateways), Some(true));
        informers.note_list(&gateways, Holding::Objects);
        assert_eq!(informers.is_custom(&gateways), Some(true));
        sync(&running(informers.lookup(&gateways, Holding::Objects)));
        assert_eq!(informers.is_custom(&gateways), Some(false));
        stop.cancel();
    }
}
