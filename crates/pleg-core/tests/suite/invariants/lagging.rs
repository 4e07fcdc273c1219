//! Invariant 9: what a lagging subscriber may miss, with random events and random readers.

use std::collections::BTreeSet;
use std::time::Duration;

use pleg_core::{EventType, Inbox, LifecycleType, PodLifecycleEvent, ReportedState};

use crate::script::{Script, container, exited, s, status};
use LifecycleType::{ContainerDied, ContainerRemoved, PodSync};
use pleg_proof::rng::Rng;

/// Announcements as the reconciler makes them: containers of two names come and go.
fn announcements(rng: &mut Rng) -> Vec<PodLifecycleEvent> {
    let mut t = Script::confirmed();
    t.event(EventType::Created, "s", s(), &[]);
    let mut alive: Vec<(String, u64)> = Vec::new();
    for n in 0..rng.between(10, 60) {
        if alive.len() < 4 && rng.percent(50) {
            let id = format!("c{n}");
            let mut report = status(&id, "p", ReportedState::Created);
            report.identity.name = Some(rng.pick(&["a", "b"]).into());
            t.event(EventType::Created, &id, s(), &[report]);
            alive.push((id, 1));
        } else if !alive.is_empty() {
            let at = rng.below(alive.len() as u64) as usize;
            let (id, step) = &mut alive[at];
            let (event, shown) = match step {
                1 => (
                    EventType::Started,
                    vec![container(id, "p", ReportedState::Running)],
                ),
                2 => (EventType::Stopped, vec![exited(id, "p", 1, "Error")]),
                _ => (EventType::Deleted, vec![]),
            };
            t.event(event, id, s(), &shown);
            *step += 1;
            if *step > 3 {
                alive.remove(at);
            }
        }
        if rng.percent(5) {
            t.pass(rng.between(0, 400_000));
        }
    }
    t.events
}

#[test]
fn lagging_inbox_counts_every_lost_died_and_removed() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let pushed = announcements(&mut rng);
        let mut inbox = Inbox::new(rng.between(1, 8) as usize);
        let (mut popped, mut missed) = (Vec::new(), 0);
        for event in &pushed {
            inbox.push(event.clone());
            while rng.percent(30) {
                missed += inbox.take_missed().unwrap_or_default();
                popped.extend(inbox.pop());
            }
        }
        missed += inbox.take_missed().unwrap_or_default();
        popped.extend(std::iter::from_fn(|| inbox.pop()));

        // In order, and only announced events.
        let mut rest = pushed.iter();
        assert!(popped.iter().all(|p| rest.any(|e| *e == *p)), "seed {seed}");
        let lost: Vec<_> = pushed.iter().filter(|e| !popped.contains(e)).collect();
        let end = |e: &PodLifecycleEvent| matches!(e.event, ContainerDied | ContainerRemoved);
        let ids: BTreeSet<_> = lost
            .iter()
            .filter(|e| end(e))
            .map(|e| &e.subject)
            .map(|s| s.as_ref().map(|s| &s.id))
            .collect();
        assert!(
            ids.len() as u64 <= missed,
            "seed {seed}: {ids:?} lost, {missed} told"
        );
        for event in lost.iter().filter(|e| !end(e)) {
            let later = pushed.iter().skip_while(|e| *e != *event).skip(1);
            let overtaken = later.clone().any(|e| match (&event.subject, &e.subject) {
                (Some(a), Some(b)) => a.id == b.id,
                (None, None) => e.event == PodSync && e.uid == event.uid,
                _ => false,
            });
            assert!(overtaken, "seed {seed}: {event:?} is lost");
        }
        // The last three ends of a name, if they are recent.
        for name in ["a", "b"] {
            let of_name = |e: &&PodLifecycleEvent| {
                e.event == ContainerRemoved && e.subject.as_ref().is_some_and(|s| &*s.name == name)
            };
            let now = pushed.last().map(|e| e.detected).unwrap_or_default();
            let young = pushed
                .iter()
                .filter(of_name)
                .rev()
                .take(3)
                .filter(|e| now.since(e.detected) < Duration::from_secs(600));
            for event in young {
                assert!(popped.contains(event), "seed {seed}: {event:?} is lost");
            }
        }
    }
}
