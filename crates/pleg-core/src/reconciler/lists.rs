//! Full lists: what of them is news, what they confirm, and what they no longer show.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::judge::{Found, ReadAt};
use super::{Confirmed, Output, Reconciler};
use crate::belief::Call;
use crate::ids::{Id, PodUid};
use crate::lifecycle::Source;
use crate::observed::{FullRow, List, Rows, Unchanged};
use crate::order::Position;
use crate::pod::{Pod, Pods};
use crate::record::Record;
use crate::status::PodView;
use crate::time::Instant;

impl Reconciler {
    /// A full list has ended.
    pub fn handle_list(&mut self, now: Instant, list: List) {
        if self
            .audit
            .in_flight()
            .is_none_or(|(ticket, _)| ticket != list.ticket)
        {
            return;
        }
        let outcome = match &list.rows {
            Ok(rows) => {
                self.heard(list.ended);
                let Some(news) = self.news_of(&list, rows) else {
                    self.counters.lists_unresolved += 1;
                    self.audit.unresolved(list.ended, now);
                    self.pump(now);
                    return;
                };
                self.list_error = None;
                self.apply_list(now, &list, news);
                Ok(())
            }
            Err(error) => {
                self.counters.lists_failed += 1;
                self.list_error = Some(error.clone());
                self.audit.failed(error.kind, list.ended);
                Err(error.clone())
            }
        };
        self.publish(now);
        for waiter in self.waiters.take_lists(list.ticket) {
            self.out.push_back(Output::Listed {
                waiter,
                outcome: outcome.clone(),
            });
        }
        self.clear_graves(now);
        self.pump(now);
    }

    /// What is news in these rows. None if some row says that it is unchanged, and from what is not
    /// known: then the list says nothing. (What its other rows have supported by then, they did
    /// show.)
    fn news_of<'a>(&mut self, list: &List, rows: &'a Rows) -> Option<News<'a>> {
        let in_full = rows.full.iter().map(Told::InFull);
        let mut news = News {
            rows: in_full.collect(),
            met: 0,
        };
        if news.rows.is_empty() && self.stands_as(&rows.unchanged) {
            news.met = rows.unchanged.len();
            return Some(news);
        }
        self.go_through(list, &rows.unchanged, &mut news)?;
        if news.rows.is_empty() && news.met == rows.unchanged.len() {
            self.records.stand_as(rows.unchanged.clone());
        }
        Some(news)
    }

    /// Whether the list before handed over these very rows, each of which showed what was believed,
    /// and nothing has happened since.
    fn stands_as(&self, rows: &Arc<[Unchanged]>) -> bool {
        self.records.still_stand_as(rows)
            && self.aside.is_empty()
            && self.exist_undisputed() == Some(rows.len())
    }

    /// Most rows of most lists show what is believed. An unchanged one that does supports it, and
    /// there is nothing else to look up; what is left is news.
    fn go_through<'a>(
        &mut self,
        list: &List,
        rows: &'a [Unchanged],
        news: &mut News<'a>,
    ) -> Option<()> {
        let disputed = self.pods.values().any(|pod| !pod.denied.is_empty());
        // Both in the order of ids: a walk, where a search would be the greater part of the cost.
        let mut records = self.records.walk();
        let mut ahead = records.next();
        for row in rows {
            while ahead.as_ref().is_some_and(|(id, _)| **id < row.id) {
                ahead = records.next();
            }
            let (_, record) = ahead.as_mut().filter(|(id, _)| **id == row.id)?;
            if !record.resolves(row, list.began) {
                return None;
            }
            let is_no_news = self.aside.is_empty()
                && record.is_as_shown(&row.id, row.kind, row.shown)
                && !(disputed && is_disputed(&self.pods, record));
            if is_no_news {
                record.supported();
                news.met += usize::from(!record.mark.set(list.ticket));
            } else {
                news.rows.push(Told::Unchanged(row));
            }
        }
        Some(())
    }

    /// How many ids there are, if no read contradicts what is believed of any.
    fn exist_undisputed(&self) -> Option<usize> {
        let mut pods = self.pods.values();
        pods.try_fold(0, |exist, pod| {
            pod.denied.is_empty().then_some(exist + pod.members.len())
        })
    }

    /// Applies a complete list, of which everything but `news` is as believed.
    fn apply_list(&mut self, now: Instant, list: &List, mut news: News<'_>) {
        let audits = self.stream.audits(list.began);
        self.stream.listed(list.began, list.ended);
        let read = ReadAt {
            call: Call::List,
            began: list.began,
            ended: list.ended,
            list: Some(list.ticket),
            audits,
            row: None,
        };
        let mut moved: BTreeSet<PodUid> = BTreeSet::new();
        for row in std::mem::take(&mut news.rows) {
            let id = row.id();
            let aside = self.aside.take(id);
            let found = self.read_row(now, read, row);
            if let Some(kept) = aside {
                self.apply_aside(now, id, kept);
            }
            if let Some(record) = self.records.get_mut(id) {
                let first = !record.mark.set(list.ticket);
                news.met += usize::from(first && !record.is_removed());
                if found == Found::Otherwise
                    && let Some(uid) = record.identity.pod.clone()
                {
                    moved.insert(uid);
                }
            }
        }
        self.apply_absence(now, list, news.met, &mut moved);
        self.aside.forget_before(list.began);
        let mut gone = Vec::new();
        self.departed.retain(|uid, since| {
            // The list vouches for nobody's absence of whom it shows something.
            let pod = self.pods.get(uid);
            let undecided = pod.is_some_and(|pod| !pod.denied.is_empty());
            let stays = *since >= list.began || undecided;
            if !stays {
                gone.push(uid.clone());
            }
            stays
        });
        self.audit.succeeded(list.began, list.ended);
        self.publish(now);
        self.out.push_back(Output::Swept {
            as_of: list.began,
            gone,
        });
        self.confirm(list, &moved);
        if audits {
            let trust = self.stream.trust(now);
            self.audit.audited(list.ticket, trust);
        }
        if !self.synced && self.unsynced.is_none() {
            // Everything that this list showed is to be inspected once.
            self.unsynced = Some(
                self.pods
                    .keys()
                    .filter(|uid| self.desk.owes(uid))
                    .cloned()
                    .collect(),
            );
        }
    }

    fn read_row(&mut self, now: Instant, read: ReadAt, row: Told<'_>) -> Found {
        match row {
            Told::InFull(row) => {
                let read = ReadAt {
                    row: row.fingerprint,
                    ..read
                };
                self.read_report(now, read, &row.report)
            }
            Told::Unchanged(row) => {
                let Some(record) = self.records.get(&row.id) else {
                    return Found::Otherwise;
                };
                let report = record.said_again(row);
                let row = record.row;
                self.read_report(now, ReadAt { row, ..read }, &report)
            }
        }
    }

    /// An id that a complete list does not show is removed, if we first learned of it before the
    /// list began; otherwise the list says nothing about it (law 5). The list has met so many ids
    /// that exist.
    fn apply_absence(
        &mut self,
        now: Instant,
        list: &List,
        met: usize,
        moved: &mut BTreeSet<PodUid>,
    ) {
        if self.exist_undisputed() == Some(met) {
            return;
        }
        let began = list.began;
        let met = |id: &Id| {
            let record = self.records.get(id);
            record.is_some_and(|r| r.mark.is_of(list.ticket))
        };
        let mut absent: Vec<(PodUid, Id)> = Vec::new();
        for (uid, pod) in &self.pods {
            for id in pod.members.union(&pod.denied).filter(|id| !met(id)) {
                absent.push((uid.clone(), id.clone()));
            }
        }
        for (uid, id) in absent {
            let Some(record) = self.records.get_mut(&id) else {
                continue;
            };
            if record.is_removed() && began > record.believed_since() {
                // As it is believed: what this settles is no reason to doubt the rest of the pod.
                record.confirm_absence(Call::List);
                self.agreed(&uid, &id, Source::Relist);
                continue;
            }
            moved.insert(uid.clone());
            if !record.is_removed() && record.learned < began {
                self.join(now, &id, Position::Removed, Source::Relist, began);
            }
        }
    }

    /// The list confirms the freshness of pods that it shows unchanged and to which nothing is
    /// owed (law 3).
    fn confirm(&mut self, list: &List, moved: &BTreeSet<PodUid>) {
        let is_confirmed = |uid: &PodUid, pod: &Pod| {
            let owed = moved.contains(uid)
                || self.desk.owes(uid)
                || !pod.denied.is_empty()
                || pod.recheck_skipped;
            !owed && !pod.members.is_empty()
        };
        let every =
            self.departed.is_empty() && self.pods.iter().all(|(uid, pod)| is_confirmed(uid, pod));
        let mut these = Vec::new();
        for (uid, pod) in &mut self.pods {
            if (every || is_confirmed(uid, pod)) && pod.as_of < Some(list.began) {
                pod.as_of = Some(list.began);
                if !every {
                    these.push(uid.clone());
                }
            }
        }
        let pods = match every {
            true => Confirmed::All,
            false => Confirmed::These(these),
        };
        if pods != Confirmed::These(Vec::new()) && !self.pods.is_empty() {
            let as_of = list.began;
            self.out.push_back(Output::Confirm { as_of, pods });
        }
        // Those who wait are served by what the list has confirmed, pods that it does not show
        // included.
        let waited_for: Vec<PodUid> = self.waiters.pods().cloned().collect();
        for uid in waited_for {
            for waiter in self
                .waiters
                .take(&uid, |w| w.is_served_by(list.ticket, list.began))
            {
                match self.view_begun_at(&uid, list.began) {
                    Some(view) => self.answer(waiter.id, Ok(view)),
                    None => self.waiters.register(&uid, waiter),
                }
            }
        }
    }

    /// The pod's view, if the read that began then has proved it.
    fn view_begun_at(&self, uid: &PodUid, began: Instant) -> Option<PodView> {
        let before = Instant::from_nanos(began.as_nanos().saturating_sub(1));
        self.view_newer_than(uid, before)
    }
}

/// What a list says beyond what is believed.
#[derive(Default)]
struct News<'a> {
    rows: Vec<Told<'a>>,
    /// How many ids that exist the list was found to show.
    met: usize,
}

/// A row of a list.
#[derive(Clone, Copy)]
enum Told<'a> {
    InFull(&'a FullRow),
    Unchanged(&'a Unchanged),
}

impl<'a> Told<'a> {
    const fn id(self) -> &'a Id {
        match self {
            Self::InFull(row) => &row.report.id,
            Self::Unchanged(row) => &row.id,
        }
    }
}

/// Whether a read contradicts what is believed of something of its pod.
fn is_disputed(pods: &Pods, record: &Record) -> bool {
    let pod = record.identity.pod.as_ref().and_then(|uid| pods.get(uid));
    pod.is_none_or(|pod| !pod.denied.is_empty())
}
