//! What the cache shows: true, fresh, never going back.

use std::sync::Arc;

use pleg_core::{
    Confirmed, ContainerState, Id, Instant, KnownState, PodStatus, PodUid, PodView, SandboxState,
    TerminalRecord,
};

use super::{Checks, states};
use crate::laws::{self, Broken, Lawful};
use crate::runtime::pod_of;
use crate::tally::Path;
use crate::truth::{State, Truth};

/// How long a believed state, and a believed removal, may not be overruled.
const PATIENCE: u64 = 100_000_000;
const PATIENCE_OF_REMOVAL: u64 = 10_000_000_000;

impl Checks {
    pub(super) fn publish(
        &mut self,
        truth: &Truth,
        now: u64,
        uid: &PodUid,
        view: &PodView,
    ) -> Lawful {
        let pod = pod_of(uid);
        let old = self.cache.remove(uid);
        if let Some(old) = old.as_ref().filter(|o| !o.status.is_nothing()) {
            let older = view.as_of < old.as_of || details_are_older(old, view);
            laws::NEVER_OLDER.holds(!older, || {
                let (was, is) = (old.as_of, view.as_of);
                format!("{uid} was as of {was:?} and is as of {is:?}")
            })?;
        }
        let same = old
            .as_ref()
            .is_some_and(|old| Arc::ptr_eq(&old.status, &view.status));
        if !same {
            for (id, state) in states(&view.status) {
                self.shown(truth, now, (uid, pod), id, state, view)?;
            }
            self.details(truth, old.as_ref().map(|o| &*o.status), &view.status)?;
            if let Some(old) = &old {
                self.vanished(truth, now, &old.status, Some(&view.status));
            }
        }
        let known = old.as_ref().map(|old| (old.as_of, old.inspected));
        self.fresh(truth, now, uid, view, known)?;
        self.cache.insert(uid, view.clone());
        Ok(())
    }

    /// One id in a published status.
    fn shown(
        &mut self,
        truth: &Truth,
        now: u64,
        (uid, pod): (&PodUid, Option<usize>),
        id: &Id,
        state: Option<State>,
        view: &PodView,
    ) -> Lawful {
        let life = truth.life(id);
        let Some((life, real)) = life.and_then(|l| Some((l, l.at(now)?))) else {
            return Err(laws::INVENTED
                .broken(format!("{id} is published and never existed"))
                .of(pod));
        };
        let home = pod.is_none_or(|pod| pod == life.pod);
        laws::HOME.holds(home, || format!("{id} is published as one of {uid}"))?;
        let lies = self.lies;
        // What lies beneath an UNKNOWN is published, too: from then on it is believed.
        let position = state.or_else(|| last_known(&view.status, id));
        let true_state = lies || position.is_none_or(|s| s <= real);
        let of = Some(life.pod);
        let fails = |law: laws::Assertion, what: String| Err::<(), Broken>(law.broken(what).of(of));
        if !true_state {
            return fails(
                laws::TRUE,
                format!("{id} is published {position:?} and is {real:?}"),
            );
        }
        let Some(book) = self.book(truth, id) else {
            return Ok(());
        };
        book.published = true;
        book.home = Some(uid.clone());
        if let Some((gone, from)) = book.vanished.take() {
            if gone == now && from != *uid {
                // The pod has become known for whom the sandbox's own id had to stand.
            } else if !lies {
                return fails(
                    laws::GRAVE,
                    format!("{id} was removed and is published again"),
                );
            } else if now < gone + PATIENCE_OF_REMOVAL {
                let after = (now - gone) / 1_000_000;
                return fails(
                    laws::PATIENCE,
                    format!("the removal of {id} is overruled after {after} ms"),
                );
            }
        } else if let (Some(position), Some((before, since))) = (position, book.shown)
            && position < before
        {
            if !lies {
                return fails(
                    laws::FORWARD,
                    format!("{id} was {before:?} and is {position:?}"),
                );
            }
            if now < since + PATIENCE {
                let after = (now - since) / 1_000_000;
                return fails(
                    laws::PATIENCE,
                    format!("{before:?} of {id} is overruled after {after} ms"),
                );
            }
        }
        let unsure = book.unsure.is_some();
        if let Some(position) = position
            && book.shown.is_none_or(|(before, _)| before != position)
        {
            book.shown = Some((position, now));
        }
        if state.is_some() {
            return Ok(());
        }
        self.tally.path(Path::ShownUnknown);
        if !unsure && position.is_some() {
            return fails(
                laws::UNKNOWN,
                format!("{id} is published as unknown, and no inspection said so"),
            );
        }
        Ok(())
    }

    /// Exit codes are true and stay; what was known of a container is not lost.
    fn details(&mut self, truth: &Truth, old: Option<&PodStatus>, new: &PodStatus) -> Lawful {
        for c in &new.containers {
            let Some(life) = truth.life(&c.id) else {
                continue;
            };
            let was = old.and_then(|o| o.containers.iter().find(|o| o.id == c.id));
            if was == Some(c) {
                continue;
            }
            let of = Some(life.pod);
            let runs = matches!(c.state, ContainerState::Created | ContainerState::Running);
            let code = c.details.exit_code;
            if code.is_some_and(|code| runs || code != life.code) {
                let (id, state) = (&c.id, c.state);
                let what = format!("{id} is {state:?} and is published with exit code {code:?}");
                return Err(laws::EXIT_CODE.broken(what).of(of));
            }
            let Some(was) = was else { continue };
            let unknown = |s| matches!(s, ContainerState::Unknown { .. });
            if unknown(was.state) && !unknown(c.state) {
                self.tally.path(Path::UnknownCleared);
            }
            if &*was.details.reason == "Error" && &*c.details.reason == "OOMKilled" {
                self.tally.path(Path::LateReason);
            }
            let lost = [
                ("sandbox", was.sandbox.is_some() && c.sandbox != was.sandbox),
                ("name", !was.name.is_empty() && c.name != was.name),
                (
                    "creation",
                    was.created_at.is_some() && c.created_at != was.created_at,
                ),
                (
                    "exit code",
                    was.details.exit_code.is_some() && code.is_none() && !runs,
                ),
                (
                    "reason",
                    !was.details.reason.is_empty() && c.details.reason.is_empty() && !runs,
                ),
                (
                    "start",
                    was.details.started_at.is_some() && c.details.started_at.is_none(),
                ),
            ];
            if let Some((what, _)) = lost.iter().find(|(_, lost)| *lost) {
                let what = format!("the {what} of {} is lost: {was:?}, {c:?}", c.id);
                return Err(laws::KEPT_DETAILS.broken(what).of(of));
            }
        }
        Ok(())
    }

    /// Notes what the cache shows no longer.
    fn vanished(&mut self, truth: &Truth, now: u64, old: &PodStatus, new: Option<&PodStatus>) {
        let ids = |status| states(status).map(|(id, _)| id);
        if new.is_some_and(|new| ids(new).eq(ids(old))) {
            return;
        }
        for (id, _) in states(old) {
            let stays = new.is_some_and(|new| states(new).any(|(other, _)| other == id));
            if !stays
                && let Some(book) = self.book(truth, id)
                && book.home.as_ref() == Some(&old.uid)
            {
                book.vanished = Some((now, old.uid.clone()));
                book.shown = None;
            }
        }
    }

    pub(super) fn withdraw(&mut self, truth: &Truth, now: u64, uid: &PodUid) {
        let Some(mut view) = self.cache.remove(uid) else {
            return;
        };
        self.vanished(truth, now, &view.status, None);
        let nothing = PodStatus::nothing(uid.clone()).into();
        view = PodView::new(nothing, view.as_of, view.inspected);
        self.cache.insert(uid, view);
    }

    pub(super) fn swept(&mut self, as_of: Instant, gone: &[PodUid]) -> Lawful {
        laws::EVIDENCE.holds(self.lists.contain(as_of), || {
            format!("swept as of {as_of:?}, when no list began")
        })?;
        for uid in gone {
            if self.cache.get(uid).is_some_and(|v| v.status.is_nothing()) {
                self.tally.path(Path::SweptAway);
                self.cache.remove(uid);
            }
        }
        Ok(())
    }

    pub(super) fn confirmed(
        &mut self,
        truth: &Truth,
        now: u64,
        as_of: Instant,
        pods: &Confirmed,
    ) -> Lawful {
        for uid in &pods.among(self.cache.iter().map(|(uid, _)| uid)) {
            let Some(view) = self.cache.get_mut(uid) else {
                let what = format!("{uid} is confirmed and not in the cache");
                return Err(laws::EVIDENCE.broken(what).of(pod_of(uid)));
            };
            let known = Some((view.as_of, view.inspected));
            view.as_of = view.as_of.max(Some(as_of));
            let view = view.clone();
            self.fresh(truth, now, uid, &view, known)?;
        }
        Ok(())
    }

    /// A view as of t shows what was true at t, or later. `known` was proved before: its as-ofs.
    pub(super) fn fresh(
        &self,
        truth: &Truth,
        now: u64,
        uid: &PodUid,
        view: &PodView,
        known: Option<(Option<Instant>, Option<Instant>)>,
    ) -> Lawful {
        let Some(as_of) = view.as_of else {
            return Ok(());
        };
        let pod = pod_of(uid);
        let fails = |law: laws::Assertion, what: String| Err(law.broken(what).of(pod));
        let inspected = self.inspections.get(uid);
        let by_inspection = |t| inspected.is_some_and(|b| b.contain(t));
        let as_before = known.is_some_and(|k| k.0 == view.as_of);
        if !(as_before || self.lists.contain(as_of) || by_inspection(as_of)) {
            return fails(
                laws::EVIDENCE,
                format!("{uid} is as of {as_of:?}, when no read began"),
            );
        }
        let as_before = known.is_some_and(|k| k.1 == view.inspected);
        let by_status = |t| by_inspection(t) || self.status_reads.contains(&t);
        if !as_before && view.inspected.is_some_and(|t| !by_status(t)) {
            let when = view.inspected;
            return fails(
                laws::DETAILS_AS_OF,
                format!("{uid} was inspected {when:?}, when no inspection began"),
            );
        }
        let Some(pod) = pod else { return Ok(()) };
        for life in truth.of_pod(pod, as_of.as_nanos()) {
            let book = self.look(truth, &life.id);
            let ended_told = book.and_then(|b| b.ended_told);
            if !life.exists(now) || self.lies && ended_told.is_some_and(|t| t >= as_of) {
                continue;
            }
            let shown = states(&view.status).find(|(id, _)| **id == life.id);
            match shown {
                None if self.lies && ended_told.is_some() && book.is_some_and(|b| b.silent) => {}
                None => {
                    return fails(
                        laws::LACKS,
                        format!("{uid} as of {as_of:?} lacks {}", life.id),
                    );
                }
                _ if book.is_some_and(|b| {
                    b.unsure.is_some_and(|t| t >= as_of) && b.told.is_some_and(|t| t > as_of)
                }) => {}
                Some((_, Some(state))) if Some(state) < life.at(as_of.as_nanos()) => {
                    let id = &life.id;
                    return fails(
                        laws::FRESH,
                        format!("{uid} as of {as_of:?} shows {id} as {state:?}"),
                    );
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Terminal records.
    pub(super) fn ends(&mut self, truth: &Truth, records: &[TerminalRecord]) -> Lawful {
        for end in records {
            let life = truth.life(&end.id);
            let of = life.map(|l| l.pod);
            let of_name = |r: &&TerminalRecord| (r.kind, &r.name) == (end.kind, &end.name);
            let same = records.iter().filter(of_name).count();
            let wrong = life.is_none_or(|l| end.exit_code.is_some_and(|c| c != l.code));
            if same > 3 || wrong {
                let what = format!("wrong or too many ends: {records:?}");
                return Err(laws::ENDS.broken(what).of(of));
            }
            if let Some(book) = self.book(truth, &end.id)
                && book.incarnation == end.incarnation
            {
                if end.exit_code.is_none() && book.code {
                    let what = format!("the exit code of {} is lost", end.id);
                    return Err(laws::KEPT_DETAILS.broken(what).of(of));
                }
                book.code |= end.exit_code.is_some();
            }
        }
        Ok(())
    }
}

/// What the status says that the id was before it became unknown.
fn last_known(status: &PodStatus, id: &Id) -> Option<State> {
    let ready = status.sandboxes.iter().find(|s| s.id == *id);
    let ready = ready.and_then(|s| match s.state {
        SandboxState::Unknown { last_ready } => last_ready,
        _ => None,
    });
    let container = status.containers.iter().find(|c| c.id == *id);
    let last = container.and_then(|c| match c.state {
        ContainerState::Unknown { last } => last,
        _ => None,
    });
    match (ready, last) {
        (Some(true), _) | (_, Some(KnownState::Running)) => Some(State::Running),
        (Some(false), _) | (_, Some(KnownState::Exited)) => Some(State::Exited),
        (_, Some(KnownState::Created)) => Some(State::Created),
        (None, None) => None,
    }
}

/// Whether the details went back in time. They are as of the oldest of the pod's ids, so a new id
/// may do that.
fn details_are_older(old: &PodView, view: &PodView) -> bool {
    let had = |id: &Id| states(&old.status).any(|(other, _)| other == id);
    let no_new = states(&view.status).all(|(id, _)| had(id));
    no_new && !view.status.is_nothing() && view.inspected < old.inspected
}
