//! Each reason as a sentence, and what to do about it.

use fleetcache_cache::informers::Refusal;

use crate::decision::LiveReason;

/// What becomes of a request for a document.
pub(super) const DOCUMENT: &str = "Discovery, /version and OpenAPI v3 are the cluster's to tell each time. It need not repeat what is held, and that is the \
     answer while it is not connected.";

/// What becomes of a read from memory where users are told apart.
pub(super) const ALLOWED: &str = "It is answered from memory to each user of whom the cluster says, by a SubjectAccessReview, that it may. For others it \
     goes live (not-allowed), and the cluster gives its own answer.";

/// Who is answered while the cluster cannot be asked.
pub(super) const WAS_ALLOWED: &str = " It is for users whom the cluster allowed it when it was asked last, `staleAllowTTL` ago at most.";

/// What becomes of a request in somebody else's name.
pub(super) const IMPERSONATES: &str =
    "It has an Impersonate-* header, and those are answered 403. Leave it out.";

/// What becomes of a Table where the configuration says so.
pub(super) const TABLES_ARE_OFF: &str = "It asks for a Table, and the configuration says that those of this kind are not kept (`tables: off` under \
     `resources`). Take that away, without a restart, or ask with `Accept: application/json`: `kubectl get -o json` does.";

/// What becomes of a page of a cluster that is another one now.
pub(super) const PAGE_EXPIRED: &str = "It is a further page of a list of the cluster that was there before this one, so it is answered 410. The token in that \
     answer goes on as of now; or begin the list anew.";

/// Why a request goes live, and what would let it be answered from memory.
pub(super) fn sentence(reason: LiveReason) -> &'static str {
    match reason {
        LiveReason::Absent => {
            "Memory does not hold that name, and only the cluster may say that an object does not exist. Nothing is wrong; a \
             name that exists is answered from memory as soon as its event has come."
        }
        LiveReason::BelowFloor => {
            "Somebody was already told of a newer state than memory holds. It passes as soon as the event comes; if it stays, \
             see whether the informer's version moves."
        }
        LiveReason::Configured => {
            "The configuration says that reads of this kind without a resourceVersion go to the cluster (`unsetResourceVersion: \
             live`). Change that, or ask for resourceVersion 0."
        }
        LiveReason::MaxAge => {
            "Its Cache-Control has a max-age, and the server was last heard longer ago. Leave the header out or raise its value."
        }
        LiveReason::Unproven => {
            "It is to be what the cluster holds now (`unsetResourceVersion: consistent`, or Cache-Control: no-cache), and that \
             could not be made sure in time. Ask again, or ask for less."
        }
        LiveReason::CacheControl => {
            "Its Cache-Control header asks for the cluster itself (no-store). Leave the header out."
        }
        LiveReason::Continue => {
            "It is a further page of a list of which memory does not hold that version (any more), or has a token that only the \
             cluster can judge. Ask for the next page within five minutes, or for the list without limit."
        }
        LiveReason::Empty => {
            "It lists a custom resource of which there are no objects, and only the cluster may say that the kind is still \
             served. Nothing is wrong."
        }
        LiveReason::History => {
            "The changes that it asks for are older than what memory keeps (five minutes, or 32 MiB of a kind); the cluster may \
             still have them. Nothing is wrong: a client that stays away for so long is served by the cluster once."
        }
        LiveReason::Limit => {
            "The list fills its limit, and by such a fieldSelector (a name, a namespace, a node) only the cluster says whether \
             more follows. Leave the limit out or raise it."
        }
        LiveReason::Method => {
            "It may change something, and whatever does goes to the cluster. Only GETs come from memory."
        }
        LiveReason::Never => {
            "The configuration says that this kind is never kept (Secrets, Events and Leases unless it says otherwise). A rule \
             under `resources` with `cache: onDemand` or `cache: always` changes that, without a restart."
        }
        LiveReason::NotAllowed => {
            "The proxy's credential may not create subjectaccessreviews there, so the cluster cannot be asked what users may do, \
             and answers them all itself. Grant it the ClusterRole that `fleetcache rbac` prints; it is tried again every 10 s, \
             and by `fleetcache refresh` at once."
        }
        LiveReason::NotStarted(_) => {
            "Nobody has read this kind lately, or not in this encoding (JSON and protobuf are kept apart). The first LIST or watch that the cluster allows, or the third GET within a \
             minute, starts its informer; `cache: always` under `resources` starts it at the connect."
        }
        LiveReason::NotSynced => {
            "Its informer is reading the first list, or has not made sure of the cluster since the last connect. Ask again in a \
             moment; if it stays so, the log tells what the informer meets."
        }
        LiveReason::Options => {
            "It has options that only the cluster can judge, such as a malformed limit or timeout, `sendInitialEvents` without \
             its resourceVersionMatch or where the cluster does not stream lists, or `watch` in a GET of one object. Leave them \
             out; one object is watched by its kind's list with `fieldSelector=metadata.name=<name>`."
        }
        LiveReason::Path => {
            "Its path is not exactly that of a resource, so it goes to the cluster as it is. A watch comes from memory with \
             `?watch=true` at the path of its list, not below `/watch/`."
        }
        LiveReason::Refused(refusal) => refused(refusal),
        LiveReason::Representation => {
            "It asks for something that memory cannot write, such as a Table or YAML; or for metadata in \
             protobuf where JSON does not tell all of it. Ask with `Accept: application/json`: `kubectl get -o json` does."
        }
        LiveReason::ResourceVersion => {
            "It asks for a resourceVersion that memory has not reached or cannot answer for: one of the future, an exact one \
             that is not held, or a malformed one. Leave it out, or ask for 0."
        }
        LiveReason::Scope => {
            "It names a namespace for a kind that has none, or no namespace for an object that is in one: the cluster says what \
             is wrong."
        }
        LiveReason::Selector => {
            "It has a selector that only the cluster can judge: a malformed one, or a field by which memory does not know how \
             the cluster selects this kind. The table of fields in docs/API.md names those it knows; of objects in protobuf it \
             knows only `metadata.name` and `metadata.namespace`."
        }
        LiveReason::Subresource => "It asks for a subresource, and those are the cluster's own.",
        LiveReason::TooLong => {
            "Its selectors, or names in its path, are longer than 2 KiB together, and what is so long the cluster is not asked \
             about a user. Ask for less at a time."
        }
        LiveReason::Unconfirmed => {
            "A write's effect on this kind is not known yet. It passes within a moment, as soon as the cluster has told its \
             newest version."
        }
        LiveReason::Upgrade => {
            "It leaves HTTP for another protocol (exec, attach, port-forward, a watch over WebSocket), which leads to the \
             cluster."
        }
    }
}

fn refused(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Forbidden => {
            "The proxy's credential may not list and watch this kind in all namespaces. Grant it that; it is tried again every \
             minute that somebody asks."
        }
        Refusal::NotListable => {
            "The cluster does not serve this kind, or not with list and watch, so it cannot be kept. Its discovery (`kubectl \
             api-resources -o wide`) may not list the kind, or not those verbs: see whether its name and version are right and \
             its CustomResourceDefinition or aggregated API is there."
        }
        Refusal::TooManyObjects => {
            "The kind has more objects than `cache.maxObjectsPerKind`. Raise that, where there is memory for it."
        }
        Refusal::MemoryLimit => {
            "Informers hold as much as `cache.memoryLimit` allows. Raise that, or mark kinds that need not be kept as \
             `cache: never` under `resources`."
        }
        Refusal::UnknownForm => {
            "The cluster writes lists of this kind in a form that memory would not give back byte for byte, so it is not kept."
        }
        Refusal::NoProtobuf => {
            "The cluster does not write this kind in protobuf: it is a custom resource, or of an extension server without. \
             A client that takes JSON too is answered from memory; ask with `Accept: application/json`."
        }
    }
}
