//! Health tells the truth about its cause (law 12): readiness and what is degraded, beside our
//! own book of what is under way and what has failed.

use pleg_core::{Degraded, Health, Instant, NotReady};

use crate::laws::{self, Lawful};
use crate::tally::{Path, Tally};
use crate::weather::{MS, SECOND};

/// What is so, as far as it can be seen from outside.
#[derive(Clone, Debug, Default)]
pub struct Signs {
    /// When the last complete list began.
    pub last_list: Option<u64>,
    pub last_list_failed: bool,
    pub list_under_way: Option<u64>,
    /// No stream stands, or none was ever asked for, since then; nothing where none is wanted.
    pub no_stream: Option<(u64, bool)>,
    /// Events wait for the writer since then.
    pub behind: Option<u64>,
    /// When the oldest inspection under way was asked for.
    pub inspection: Option<u64>,
    /// Some inspection has failed, or listed what had no status, and none of its pod has succeeded
    /// since.
    pub failing: bool,
    /// A `Version` was not answered, and no call has been since.
    pub silent: bool,
    was_ready: bool,
    was_degraded: bool,
}

/// A sign may go unsaid for so long.
const SOON: u64 = 3 * SECOND;
/// An inspection is overdue after that.
const SLOT: u64 = 250 * MS;

impl Signs {
    /// Nothing was read yet; `no_stream` as in the field.
    pub fn new(no_stream: Option<(u64, bool)>) -> Self {
        Self {
            no_stream,
            ..Self::default()
        }
    }

    /// # Errors
    /// Health says what is not so, or does not say what is.
    pub fn check(&mut self, now: u64, health: &Health, tally: &mut Tally) -> Lawful {
        self.ready(now, health, tally)?;
        let said = health.degraded(Instant::from_nanos(now));
        for what in &said {
            if let Some(path) = Path::degraded(what) {
                tally.path(path);
            }
        }
        if said.is_empty() && self.was_degraded {
            tally.path(Path::WellAgain);
        }
        self.was_degraded = !said.is_empty();
        let old = |since: Option<u64>, age: u64| since.is_some_and(|t| now >= t + age);
        let is = |sign: fn(&Degraded) -> bool| said.iter().any(sign);
        let stream = is(|d| matches!(d, Degraded::StreamDown { .. }));
        let backlog = is(|d| matches!(d, Degraded::Backlog { .. }));
        let slow = is(|d| matches!(d, Degraded::ListSlow { .. }));
        let failed = is(|d| matches!(d, Degraded::ListFailed { .. }));
        let silent = is(|d| matches!(d, Degraded::RuntimeSilent { .. }));
        let hung = is(|d| matches!(d, Degraded::PodsHung { .. }));
        let failing = is(|d| matches!(d, Degraded::PodsFailing { .. }));
        let no_stream = self.no_stream;
        let must_say_stream = match no_stream {
            Some((_, true)) => true,
            Some((since, false)) => now >= since + SOON,
            None => false,
        };
        let owed = [
            ("the stream is down", must_say_stream, stream),
            ("events wait", old(self.behind, SOON), backlog),
            ("a list is slow", old(self.list_under_way, SOON), slow),
            ("the last list failed", self.last_list_failed, failed),
            (
                "an inspection hangs",
                old(self.inspection, SOON + SLOT),
                hung,
            ),
        ];
        for (what, due, said_so) in owed {
            laws::DEGRADED.holds(!due || said_so, || {
                format!("{what} and it is not told: {said:?}, {self:?}")
            })?;
        }
        let unfounded = [
            ("the stream is down", stream, no_stream.is_some()),
            ("events wait", backlog, self.behind.is_some()),
            ("a list is slow", slow, self.list_under_way.is_some()),
            ("the last list failed", failed, self.last_list_failed),
            ("the runtime is silent", silent, self.silent),
            ("an inspection hangs", hung, self.inspection.is_some()),
            ("pods fail", failing, self.failing),
        ];
        for (what, said_so, so) in unfounded {
            laws::WELL.holds(!said_so || so, || {
                format!("it is told that {what}, and it is not so: {said:?}, {self:?}")
            })?;
        }
        Ok(())
    }

    fn ready(&mut self, now: u64, health: &Health, tally: &mut Tally) -> Lawful {
        let patience = health.unready_after.as_nanos() as u64;
        let ready = health.ready(Instant::from_nanos(now));
        let is = self.last_list.is_some_and(|t| now <= t + patience);
        laws::READY.holds(ready.is_ok() == is, || {
            format!(
                "{ready:?}, and the last complete list began {:?}",
                self.last_list
            )
        })?;
        if !is {
            tally.path(Path::Unready);
        } else if !self.was_ready {
            tally.path(Path::ReadyAgain);
        }
        self.was_ready = is;
        // The next probe is due in 15 s at most, and everything is overdue after 5 s.
        let later = Instant::from_nanos(now + 20 * SECOND + 1);
        let stalled = health.ready(later);
        let dead = matches!(stalled, Err(NotReady::Stalled { .. }));
        laws::DUE.holds(dead, || {
            format!("a writer that does nothing for 20 s looks {stalled:?}")
        })
    }
}
