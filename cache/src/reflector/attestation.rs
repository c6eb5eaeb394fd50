//! What a second watch attests, and when an informer may believe it.
//!
//! A bookmark tells how far a watch has got, but servers send one only every minute, and before a watch ends. So where an
//! informer is to reach a version, a second, short watch of the kind is opened from where the informer stands (S). None
//! of its events is applied; when it gets a bookmark B, the last event before it was at E (S where there was none). The
//! server has sent all that happened between S and B, in order: **nothing happened between E and B. So whoever is complete
//! through E, or more, is complete through B.** The informer takes it for a bookmark of its own, but not before its own
//! watch has brought it to E.
//!
//! Why nothing wrong can be attested:
//! - *An apiserver that lags behind the others* tells by its bookmark how far it has got itself. That may be less than what
//!   is wanted, and is then no answer; it is never more than what it has sent.
//! - *Another history* (a restored etcd, another cluster) is asked only after the informer's own watch broke: what that
//!   watch has to say is heard before any answer is believed, and the answer "what is newest" is compared with all that
//!   was known before it was asked.
//! - *Relists, other connections and other epochs*: what is attested and not yet believed is kept beside the informer's
//!   own watch, and goes with it.

use crate::resource_version::ResourceVersion;

/// Nothing happened to a kind between two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attestation {
    /// The version of the last event before the bookmark, or where the watch started.
    pub(super) last_event: ResourceVersion,
    /// The bookmark.
    pub(super) through: ResourceVersion,
}

/// What an informer is to reach, and what has been tried for it, while one watch of its own lasts.
#[derive(Debug, Default)]
pub(super) struct Goal {
    wanted: ResourceVersion,
    /// The highest goal for which a second watch was opened: no goal is tried twice, unless somebody asks again.
    tried: ResourceVersion,
    /// Attested, but the informer is not complete through its last event yet.
    pending: Option<Attestation>,
}

impl Goal {
    /// The floor is at this version: bring the informer there.
    pub(super) fn want(&mut self, version: ResourceVersion) {
        self.wanted = self.wanted.max(version);
    }

    /// The kind is at this version, and somebody waits to read it: as [`Self::want`], also where it was tried before.
    pub(super) fn want_again(&mut self, version: ResourceVersion) {
        self.want(version);
        self.tried = ResourceVersion::default();
    }

    /// Whether an informer that stands at `held` is where it should be.
    pub(super) fn is_reached(&self, held: ResourceVersion) -> bool {
        held >= self.wanted
    }

    /// The version for which a second watch should be opened now, if none is open. It counts as tried.
    pub(super) fn next_to_try(&mut self, held: ResourceVersion) -> Option<ResourceVersion> {
        let attested = self.pending.map(|pending| pending.through);
        let enough = self.is_reached(held) || attested.is_some_and(|at| at >= self.wanted);
        if enough || self.tried >= self.wanted {
            return None;
        }
        self.tried = self.wanted;
        Some(self.wanted)
    }

    /// Something was attested.
    pub(super) fn attested(&mut self, attestation: Attestation) {
        self.pending = Some(attestation);
    }

    /// The version through which an informer that stands at `held`, with its last event at `last_event`, turns out to be
    /// complete. Told once.
    pub(super) fn settle(
        &mut self,
        held: ResourceVersion,
        last_event: ResourceVersion,
    ) -> Option<ResourceVersion> {
        let attestation = self.pending.filter(|it| held >= it.last_event)?;
        self.pending = None;
        // Where its own watch had an event that the second one had not, one of them is wrong, and nothing is attested.
        let contradicted = last_event > attestation.last_event && last_event <= attestation.through;
        (!contradicted && attestation.through > held).then_some(attestation.through)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rv(number: u64) -> ResourceVersion {
        ResourceVersion::from_number(number)
    }

    fn attested(last_event: u64, through: u64) -> Goal {
        let mut goal = Goal::default();
        goal.want(rv(through));
        goal.attested(Attestation {
            last_event: rv(last_event),
            through: rv(through),
        });
        goal
    }

    #[test]
    fn what_is_complete_through_the_last_event_is_complete_through_the_bookmark() {
        let mut goal = attested(5, 9);
        assert_eq!(goal.settle(rv(5), rv(5)), Some(rv(9)));
        assert_eq!(goal.settle(rv(9), rv(5)), None, "told once");
        // By a bookmark of its own it may stand in between.
        assert_eq!(attested(5, 9).settle(rv(7), rv(5)), Some(rv(9)));
    }

    #[test]
    fn it_is_not_believed_before_the_last_event_has_come() {
        let mut goal = attested(7, 9);
        assert_eq!(goal.settle(rv(5), rv(5)), None);
        assert_eq!(goal.next_to_try(rv(5)), None, "it is on its way");
        assert_eq!(goal.settle(rv(7), rv(7)), Some(rv(9)));
    }

    #[test]
    fn an_informer_that_is_further_stays_there() {
        assert_eq!(attested(5, 9).settle(rv(11), rv(11)), None);
    }

    #[test]
    fn an_event_that_the_second_watch_did_not_have_contradicts_it() {
        assert_eq!(attested(5, 9).settle(rv(7), rv(7)), None);
        assert_eq!(attested(5, 9).settle(rv(9), rv(9)), None);
    }

    #[test]
    fn a_goal_is_tried_once() {
        let mut goal = Goal::default();
        assert_eq!(goal.next_to_try(rv(5)), None, "nothing is wanted");
        goal.want(rv(9));
        assert_eq!(goal.next_to_try(rv(9)), None, "it is there");
        assert_eq!(goal.next_to_try(rv(5)), Some(rv(9)));
        goal.want(rv(9));
        assert_eq!(goal.next_to_try(rv(5)), None, "the same floor again");
        goal.want(rv(8));
        assert_eq!(goal.next_to_try(rv(5)), None, "a lower one");
        goal.want(rv(10));
        assert_eq!(goal.next_to_try(rv(5)), Some(rv(10)), "a higher one");
        goal.want_again(rv(10));
        assert_eq!(
            goal.next_to_try(rv(5)),
            Some(rv(10)),
            "somebody waits for it"
        );
    }

    #[test]
    fn what_is_attested_may_be_too_little() {
        let mut goal = attested(7, 9);
        goal.want(rv(12));
        assert_eq!(goal.next_to_try(rv(5)), Some(rv(12)));
        assert_eq!(goal.settle(rv(7), rv(7)), Some(rv(9)));
    }
}
