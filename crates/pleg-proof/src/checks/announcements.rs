//! What is announced: in order, once, and what the cache shows already.

use pleg_core::{LifecycleType, PodLifecycleEvent};

use super::{Checks, states};
use crate::laws::{self, Lawful};
use crate::tally::Path;
use crate::truth::{State, Truth};

impl Checks {
    pub(super) fn announce(&mut self, truth: &Truth, event: &PodLifecycleEvent) -> Lawful {
        use LifecycleType::{ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted};
        if let Some(path) = Path::said(event.event) {
            self.tally.path(path);
        }
        let Some(subject) = &event.subject else {
            return Ok(());
        };
        let (id, what) = (&subject.id, event.event);
        let Some(life) = truth.life(id) else {
            let what = format!("{id} is announced and never existed");
            return Err(laws::INVENTED.broken(what));
        };
        let fails = |law: laws::Assertion, what: String| Err(law.broken(what).of(Some(life.pod)));
        let cached = self.cache.get(&event.uid);
        let cached = cached.and_then(|v| states(&v.status).find(|(other, _)| *other == id));
        let cached = cached.map(|(_, state)| state);
        let lies = self.lies;
        let Some(book) = self.book(truth, id) else {
            return Ok(());
        };
        if book.silent && subject.incarnation == 0 {
            return fails(
                laws::SILENT,
                format!("{what} of {id}, which was first learned as removed"),
            );
        }
        if subject.incarnation != book.incarnation {
            // One that is overruled before it was announced is announced no more.
            if subject.incarnation < book.incarnation || !lies {
                let n = subject.incarnation;
                return fails(
                    laws::REBORN,
                    format!("{what} of incarnation {n} of {id}, which nobody lied about"),
                );
            }
            book.incarnation = subject.incarnation;
            let back = book.removed || !(book.started || book.died || book.changed);
            (book.started, book.died, book.removed) = (false, false, false);
            (book.changed, book.code) = (false, false);
            self.present += u64::from(back);
            self.tally.path(match what {
                ContainerStarted => Path::RebornRunning,
                _ => Path::RebornOther,
            });
        }
        let Some(book) = self.book(truth, id) else {
            return Ok(());
        };
        let first = !(book.started || book.died || book.removed || book.changed);
        let (twice, late) = match what {
            ContainerStarted => (book.started, book.died || book.removed),
            ContainerDied => (book.died, book.removed),
            ContainerRemoved => (book.removed, false),
            _ => (false, false),
        };
        if twice {
            return fails(laws::ONCE, format!("{what} of {id} is announced twice"));
        }
        // What is reborn may be shown as ended at once; that is no news then.
        let untold = what == ContainerRemoved && !book.died && book.incarnation == 0;
        if late || untold {
            let (died, removed) = (book.died, book.removed);
            return fails(
                laws::ORDER,
                format!("{what} of {id} when died was {died} and removed {removed}"),
            );
        }
        match what {
            ContainerStarted => book.started = true,
            ContainerDied => book.died = true,
            ContainerRemoved => book.removed = true,
            ContainerChanged => book.changed = true,
            _ => {}
        }
        let ran = book.ran;
        self.present += u64::from(first && subject.incarnation == 0);
        let gone = u64::from(what == ContainerRemoved);
        self.present = self.present.saturating_sub(gone);
        if what == ContainerStarted && !ran {
            return fails(
                laws::RAN,
                format!("{id} started, and nothing has shown it running"),
            );
        }
        let wrong = match what {
            ContainerDied => cached.is_some_and(|s| s.is_some_and(|s| s < State::Exited)),
            ContainerRemoved => cached.is_some(),
            _ => false,
        };
        if wrong {
            return fails(
                laws::CACHE_FIRST,
                format!("{what} of {id} is announced and the cache shows {cached:?}"),
            );
        }
        let now = event.detected.as_nanos();
        if what == ContainerRemoved && !lies && life.exists(now) {
            return fails(
                laws::ALIVE,
                format!("{id} is announced as removed and exists"),
            );
        }
        if let Some(code) = subject.exit_code
            && code != life.code
        {
            let real = life.code;
            return fails(
                laws::EXIT_CODE,
                format!("{id} is announced with exit code {code}, it is {real}"),
            );
        }
        Ok(())
    }
}
