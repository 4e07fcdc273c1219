//! Reads, answered from the model of the node.

use pleg_core::{CallError, CallErrorKind, Id, Inspection, Instant, Report};

use super::Script;
use super::reports::list_row;

impl Script {
    /// Time passes; every read is answered.
    pub(crate) fn run(&mut self, ms: u64) {
        self.run_with_late_timers(ms, 0);
    }

    /// Time passes; every timer fires that many milliseconds late, and every read is answered.
    pub(crate) fn run_with_late_timers(&mut self, ms: u64, late: u64) {
        let end = self.now + ms * 1_000_000;
        loop {
            self.settle();
            match self.machine.poll_timeout().map(Instant::as_nanos) {
                Some(due) if due <= end => {
                    self.now = self.now.max(due + late * 1_000_000);
                    self.pass(0);
                }
                _ => break,
            }
        }
        self.now = self.now.max(end);
    }

    /// Answers every requested read, and those that follow from it.
    pub(crate) fn settle(&mut self) {
        loop {
            if !self.lists.is_empty() {
                self.answer_list();
            } else if !self.inspections.is_empty() {
                self.answer_inspection();
            } else if let Some(id) = self.read_wanted_of() {
                let seen = |r: &&Report| r.id == id && !self.hidden.contains(&id);
                let found = self.node.iter().find(seen).cloned();
                let not_found = || CallError::new("Read", CallErrorKind::NotFound, "");
                self.read_ends(found.ok_or_else(not_found));
            } else {
                return;
            }
        }
    }

    /// Answers the oldest requested list.
    pub(crate) fn answer_list(&mut self) {
        let rows: Vec<_> = self.node.iter().map(list_row).collect();
        self.list(&rows);
    }

    fn answer_inspection(&mut self) {
        let asked = self.inspections.front().expect("an inspection is wanted");
        if let Some(error) = self.failing.get(&asked.uid).cloned() {
            return self.inspected(Inspection::new(Some(error)));
        }
        // The status of a held id that the lists of the pod do not show is read.
        let of_pod =
            |r: &&Report| r.identity.pod.as_ref() == Some(&asked.uid) || asked.held.contains(&r.id);
        let of_pod = self.node.iter().filter(of_pod).cloned();
        let (unsettled, found): (Vec<_>, Vec<_>) =
            of_pod.partition(|r| self.hidden.contains(&r.id));
        let shown = |id: &Id| self.node.iter().any(|r| r.id == *id);
        let gone: Vec<_> = asked.held.iter().filter(|id| !shown(id)).cloned().collect();
        let gone: Vec<_> = gone.iter().map(Id::as_str).collect();
        self.inspect_unsettled(&found, &gone, &unsettled);
    }

    /// Answers the oldest requested inspection of that pod, before all other reads.
    pub(crate) fn answer_inspection_of(&mut self, pod: &str) {
        let of_pod = self.inspections.iter().position(|a| a.uid.as_str() == pod);
        let asked = self.inspections.remove(of_pod.expect("it is wanted"));
        self.inspections.push_front(asked.expect("it is there"));
        self.answer_inspection();
    }

    /// Time passes until a list is requested; no read is answered. Returns how long, in
    /// milliseconds.
    pub(crate) fn pass_to_list(&mut self) -> u64 {
        for waited in 0..200_000 {
            if self.lists_wanted() > 0 {
                return waited;
            }
            self.pass(1);
        }
        panic!("no list for 200 s");
    }

    /// Time passes until a list is requested. It and all that follows from it is answered.
    pub(crate) fn next_list(&mut self) {
        self.pass_to_list();
        self.settle();
    }

    /// Time passes until a probe requests a status. Returns its id. Lists are answered.
    pub(crate) fn next_probe(&mut self) -> String {
        let until = self.now + 60_000_000_000;
        while self.now <= until {
            if let Some(id) = self.read_wanted_of() {
                return id.to_string();
            }
            while !self.lists.is_empty() {
                self.answer_list();
            }
            let due = self.machine.poll_timeout().expect("a probe is due");
            let nanos = due.as_nanos().saturating_sub(self.now);
            self.pass(nanos.div_ceil(1_000_000));
        }
        panic!("no probe within a minute");
    }

    /// Answers the probe.
    pub(crate) fn probe_answers(&mut self) {
        let id = self.read_wanted_of().expect("a status was asked for");
        let found = self.node.iter().find(|r| r.id == id).cloned();
        self.read_ends(Ok(found.expect("it exists")));
    }
}
