//! The faults that the knobs cause. This module makes the random decisions, counts the faults that fired, changes
//! events, and makes calls hang, wait or fail.
//!
//! All decisions use one random number generator, seeded from the simulator's seed.

use std::collections::{BTreeMap, HashMap};

use pleg_cri::v1::{ContainerEventResponse, ContainerStatus};
use pleg_node_model::GO_ZERO_TIME;
use tokio::time::Instant;
use tonic::Status;

use crate::{
    engine::Engine,
    error::SimError,
    id::Rng,
    knobs::{Rate, Value, parse, snake},
};

/// The additional size of an event if `oversize.bytes` is not set.
const DEFAULT_OVERSIZE: usize = 5_000_000;
pub(crate) const SECOND_SUBSCRIBER: &str = "second_subscriber";
const HOUR: i64 = 3_600_000_000_000;

type Alteration = fn(&mut ContainerEventResponse);

/// The knobs that change an event, each with the function that makes the change.
const ALTERATIONS: [(&str, Alteration); 7] = [
    ("sandbox.nil", |e| e.pod_sandbox_status = None),
    ("containers.empty", |e| e.containers_statuses.clear()),
    ("containers.hole", |e| {
        e.containers_statuses.push(ContainerStatus::default());
    }),
    ("stamp.zero", |e| e.created_at = 0),
    ("stamp.negative", |e| e.created_at = GO_ZERO_TIME),
    ("stamp.seconds", |e| e.created_at /= 1_000_000_000),
    ("stamp.future", |e| e.created_at += HOUR),
];

pub(crate) struct Faults {
    /// The knobs that are on, by name.
    knobs: BTreeMap<String, Knob>,
    rng: Rng,
    /// For each knob, how often its fault has occurred.
    pub(crate) fired: BTreeMap<String, u64>,
    /// The last event of each sandbox.
    last_events: HashMap<String, ContainerEventResponse>,
}

struct Knob {
    value: Value,
    since: Instant,
    /// For the rate `#N`: the number of cases since the knob was set in which the knob could fire.
    cases: u64,
}

impl Engine {
    /// Sets these knobs and leaves other knobs unchanged. Sets no knob if one of them is not valid, or has no effect
    /// in the simulated runtime.
    pub(crate) fn set_knobs(&self, knobs: &[&str]) -> Result<(), SimError> {
        let parsed = knobs.iter().map(|knob| parse(knob));
        let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
        let mut on = parsed.iter().filter(|(_, value)| value.is_some());
        if on.any(|(name, _)| name == SECOND_SUBSCRIBER) {
            self.profile.check_second_subscriber()?;
        }
        let (since, cases) = (self.instant(), 0);
        let with_time = |value| Knob {
            value,
            since,
            cases,
        };
        for (name, value) in parsed {
            let knob = value.map(with_time);
            let mut faults = self.faults();
            faults.knobs.remove(&name);
            faults.knobs.extend(knob.map(|knob| (name, knob)));
        }
        self.knob_changes.send_replace(());
        Ok(())
    }

    /// Turns all knobs off. Calls that hang because of a knob proceed.
    pub(crate) fn reset_knobs(&self) {
        self.faults().last_events.clear();
        self.faults().knobs.clear();
        self.knob_changes.send_replace(());
    }

    /// Delays a call or makes it fail, if a knob says so. `pod` is the uid of the pod that the call is about.
    pub(crate) async fn intercept_call(
        &self,
        method: &str,
        pod: Option<&str>,
    ) -> Result<(), Status> {
        let mut groups = vec!["all".to_owned(), snake(method)];
        // The knobs of a list call also apply to its streaming variant, if the runtime implements that.
        let is_streamed = self.profile.list_page_size.is_some();
        match method {
            "StreamContainers" if is_streamed => groups.push("list_containers".to_owned()),
            "StreamPodSandboxes" if is_streamed => groups.push("list_pod_sandbox".to_owned()),
            _ => {}
        }
        if let Some(uid) = pod {
            groups.extend(["pod.*".to_owned(), format!("pod.{uid}")]);
        }
        let mut changes = self.knob_changes.subscribe();
        let mut hung = false;
        loop {
            changes.borrow_and_update();
            let now = self.instant();
            let Some((name, until)) = self.faults().hang(&groups, now) else {
                break;
            };
            if !std::mem::replace(&mut hung, true) {
                self.faults().count(&name);
            }
            // `changed` fails only if the sender `knob_changes` is dropped, and `self` owns it.
            let changed = changes.changed();
            match until {
                Some(until) => drop(tokio::time::timeout_at(until, changed).await),
                None => drop(changed.await),
            }
        }
        let mut failure = Ok(());
        for group in groups {
            let name = format!("{group}.latency");
            let latency = self.faults().value(&name, Value::span);
            if let Some(latency) = latency {
                let until = self.clock.now().after(latency);
                self.clock.sleep_until(until).await;
            }
            let name = format!("{group}.fail");
            let mut faults = self.faults();
            if let Some(Value::Failure(code, _)) = faults.get(&name)
                && faults.fires(&name)
            {
                failure = Err(Status::new(code, "injected fault: this call fails"));
            }
        }
        failure
    }
}

impl Faults {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            knobs: BTreeMap::new(),
            rng: Rng::new(seed.rotate_left(32)),
            fired: BTreeMap::new(),
            last_events: HashMap::new(),
        }
    }

    /// The knobs that are on, in the text form in which users set them.
    pub(crate) fn shown(&self) -> impl Iterator<Item = String> {
        let shown = |(name, knob): (&String, &Knob)| format!("{name}={}", knob.value);
        self.knobs.iter().map(shown)
    }

    /// Applies the faults to an event about the sandbox or one of its containers, before the event is published.
    pub(crate) fn alter_event(&mut self, sandbox: &str, event: &mut ContainerEventResponse) {
        if self.knobs.contains_key("freeze") {
            let before = self.last_events.insert(sandbox.to_owned(), event.clone());
            if let Some(before) = before
                && self.fires("freeze")
            {
                event.pod_sandbox_status = before.pod_sandbox_status;
                event.containers_statuses = before.containers_statuses;
            }
        }
        for (knob, alter) in ALTERATIONS {
            if self.fires(knob) {
                alter(event);
            }
        }
        if self.fires("oversize") {
            let bytes = self.get("oversize.bytes").and_then(Value::number);
            let pad = "x".repeat(bytes.unwrap_or(DEFAULT_OVERSIZE));
            let status = event.pod_sandbox_status.get_or_insert_default();
            let annotations = &mut status.annotations;
            annotations.insert("pleg-sim/oversize".to_owned(), pad);
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        self.knobs.get(name).map(|knob| knob.value)
    }

    /// If the knob is on, counts it as fired and returns true.
    pub(crate) fn is_on(&mut self, name: &str) -> bool {
        self.value(name, Some).is_some()
    }

    /// Calls `of` with the value of the knob and returns its result. If this is `Some`, counts the knob as fired.
    pub(crate) fn value<T>(&mut self, name: &str, of: impl Fn(Value) -> Option<T>) -> Option<T> {
        let value = self.get(name).and_then(of);
        if value.is_some() {
            self.count(name);
        }
        value
    }

    pub(crate) fn count(&mut self, name: &str) {
        *self.fired.entry(name.to_owned()).or_default() += 1;
    }

    /// If the knob fires this time, counts it as fired and returns true.
    pub(crate) fn fires(&mut self, name: &str) -> bool {
        let fires = self.decide(name);
        if fires {
            self.count(name);
        }
        fires
    }

    /// Returns true if the knob fires this time. The caller counts it as fired.
    pub(crate) fn decide(&mut self, name: &str) -> bool {
        let Some(knob) = self.knobs.get_mut(name) else {
            return false;
        };
        match knob.value {
            Value::Rate(rate) | Value::Failure(_, rate) => match rate {
                Rate::Millionths(n) => self.rng.below(1_000_000) < u64::from(n),
                Rate::Nth(n) => {
                    knob.cases += 1;
                    knob.cases == n
                }
            },
            _ => false,
        }
    }

    /// The first `hang` knob of `groups` (`all`, a call, pods) that makes calls hang now, and its end if it has one.
    fn hang(&self, groups: &[String], now: Instant) -> Option<(String, Option<Instant>)> {
        groups.iter().find_map(|group| {
            let name = format!("{group}.hang");
            let knob = self.knobs.get(&name)?;
            let span = knob.value.span();
            let until = span.and_then(|span| knob.since.checked_add(span));
            let is_over = until.is_some_and(|until| until <= now);
            (!is_over).then_some((name, until))
        })
    }
}
