//! Applies [`FaultProfile`]: makes the random decisions, counts the faults that fired, and measures how
//! long calls hang.
//!
//! All decisions use one random number generator, seeded from the simulator's seed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use pleg_cri::v1::{ContainerEventResponse, ContainerStatus};
use pleg_node_model::GO_ZERO_TIME;
use pleg_runtime::clock::Clock;
use tokio::{sync::watch, time::Instant};
use tonic::{Code, Status};

use super::{FaultProfile, KnobError, Rate, Value, snake};
use crate::{engine::lock, id::Rng, profile::RuntimeProfile, views::Snapshot};

/// The additional size of an event if `oversize.bytes` is not set.
const DEFAULT_OVERSIZE: usize = 5_000_000;
pub(crate) const SECOND_SUBSCRIBER: &str = "second_subscriber";
const HOUR: i64 = 3_600_000_000_000;

type Alteration = fn(&mut ContainerEventResponse);

/// Knobs, and how they change an event.
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

#[derive(Debug)]
pub(crate) struct Injector {
    state: Mutex<State>,
    /// The simulated runtime, if a second subscriber takes no events from others there.
    no_second_subscriber: Option<String>,
    /// Changes whenever a knob is set.
    changes: watch::Sender<()>,
    clock: Clock,
}

#[derive(Debug)]
struct State {
    profile: FaultProfile,
    /// When each knob was set, and the number of cases that it has decided since.
    uses: HashMap<String, (Instant, u64)>,
    rng: Rng,
    fired: BTreeMap<String, u64>,
    /// The statuses of the last event of each sandbox.
    last_statuses: HashMap<String, Snapshot>,
}

/// How an event is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publish {
    Once,
    Never,
    Twice,
    AfterNext,
}

impl Injector {
    pub(crate) fn new(profile: &RuntimeProfile, seed: u64, clock: Clock) -> Self {
        Self {
            state: Mutex::new(State {
                profile: FaultProfile::default(),
                uses: HashMap::new(),
                rng: Rng::new(seed.rotate_left(32)),
                fired: BTreeMap::new(),
                last_statuses: HashMap::new(),
            }),
            no_second_subscriber: profile.no_second_subscriber(),
            changes: watch::Sender::default(),
            clock,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn now(&self) -> Instant {
        self.clock.tokio(self.clock.now())
    }

    // === configuration ===

    pub(crate) fn fault_profile(&self) -> FaultProfile {
        self.state().profile.clone()
    }

    /// Turns all knobs off. Hanging calls proceed.
    pub(crate) fn reset(&self) {
        let mut state = self.state();
        state.last_statuses.clear();
        state.profile = FaultProfile::default();
        drop(state);
        self.changes.send_replace(());
    }

    /// Sets several knobs and leaves the others unchanged. Sets none if one of them is not valid, or has
    /// no effect in the simulated runtime.
    pub(crate) fn set(&self, knobs: &[&str]) -> Result<(), KnobError> {
        let now = self.now();
        let mut state = self.state();
        let mut profile = state.profile.clone();
        let mut names = Vec::new();
        for knob in knobs {
            let name = profile.set(knob)?;
            if let Some(runtime) = &self.no_second_subscriber
                && name == SECOND_SUBSCRIBER
                && profile.get(&name).is_some()
            {
                let (knob, runtime) = (name, runtime.clone());
                return Err(KnobError::Mode { knob, runtime });
            }
            names.push(name);
        }
        state.profile = profile;
        state.uses.extend(names.into_iter().map(|n| (n, (now, 0))));
        drop(state);
        self.changes.send_replace(());
        Ok(())
    }

    /// How often each knob has fired.
    pub(crate) fn fired(&self) -> BTreeMap<String, u64> {
        self.state().fired.clone()
    }

    // === calls ===

    /// Delays a call or makes it fail. `pod` is the uid of the pod whose sandbox or container the
    /// call names.
    pub(crate) async fn intercept_call(
        &self,
        method: &'static str,
        pod: Option<&str>,
    ) -> Result<(), Status> {
        let mut groups = vec!["all".to_owned(), snake(method)];
        if let Some(uid) = pod {
            groups.extend(["pod.*".to_owned(), format!("pod.{uid}")]);
        }
        let mut changes = self.changes.subscribe();
        let mut hung = false;
        loop {
            changes.borrow_and_update();
            let now = self.now();
            let Some((name, until)) = self.state().hang(&groups, now) else {
                break;
            };
            if !std::mem::replace(&mut hung, true) {
                self.count(&name);
            }
            let hang_end = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = hang_end => {}
                // An error means that the simulator is gone, and the call with it.
                _ = changes.changed() => {}
            }
        }
        let (latency, failure) = self.state().latency_and_failure(&groups);
        if !latency.is_zero() {
            let until = self.clock.now().after(latency);
            self.clock.sleep_until(until).await;
        }
        failure.map_or(Ok(()), |code| {
            Err(Status::new(code, "injected fault: this call fails"))
        })
    }

    // === events ===

    /// Changes an event of a sandbox before it is published.
    pub(crate) fn alter_event(&self, sandbox: &str, event: &mut ContainerEventResponse) {
        let mut state = self.state();
        if state.profile.get("freeze").is_some() {
            let now = (
                event.pod_sandbox_status.clone(),
                event.containers_statuses.clone(),
            );
            let before = state.last_statuses.insert(sandbox.to_owned(), now);
            if let Some((status, containers)) = before
                && state.fires("freeze")
            {
                event.pod_sandbox_status = status;
                event.containers_statuses = containers;
            }
        }
        for (knob, alter) in ALTERATIONS {
            if state.fires(knob) {
                alter(event);
            }
        }
        if state.fires("oversize") {
            let bytes = state.profile.get("oversize.bytes").and_then(Value::number);
            let pad = "x".repeat(bytes.unwrap_or(DEFAULT_OVERSIZE));
            let status = event.pod_sandbox_status.get_or_insert_default();
            let annotations = &mut status.annotations;
            annotations.insert("pleg-sim/oversize".to_owned(), pad);
        }
    }

    /// How the next event is published. `swap` is counted later: it depends on the next event.
    pub(crate) fn publish_mode(&self) -> Publish {
        let mut state = self.state();
        if state.fires("drop") {
            Publish::Never
        } else if state.fires("duplicate") {
            Publish::Twice
        } else if state.decide("swap") {
            Publish::AfterNext
        } else {
            Publish::Once
        }
    }

    // === every fault ===

    pub(crate) fn count(&self, name: &str) {
        self.state().count(name);
    }

    /// Decides whether the knob fires in this case, and counts it if so.
    pub(crate) fn fires(&self, name: &str) -> bool {
        self.state().fires(name)
    }

    /// The part of a knob's value that matters. Counts the knob as fired if there is one.
    pub(crate) fn value<T>(&self, name: &str, of: impl Fn(Value) -> Option<T>) -> Option<T> {
        let mut state = self.state();
        let value = state.profile.get(name).and_then(of);
        if value.is_some() {
            state.count(name);
        }
        value
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.state().profile.get(name).is_some()
    }

    /// Returns true if the knob is on, and counts it as fired.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.value(name, Some).is_some()
    }
}

impl Value {
    pub(crate) fn number(self) -> Option<usize> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn span(self) -> Option<Duration> {
        match self {
            Self::Span(span) => Some(span),
            _ => None,
        }
    }
}

impl State {
    fn count(&mut self, name: &str) {
        *self.fired.entry(name.to_owned()).or_default() += 1;
    }

    fn fires(&mut self, name: &str) -> bool {
        let fires = self.decide(name);
        if fires {
            self.count(name);
        }
        fires
    }

    /// Decides whether the knob fires in this case.
    fn decide(&mut self, name: &str) -> bool {
        match self.profile.get(name) {
            Some(Value::Rate(rate) | Value::Failure(_, rate)) => match rate {
                Rate::Millionths(n) => self.rng.below(1_000_000) < u64::from(n),
                Rate::Nth(n) => self.uses.get_mut(name).is_some_and(|(_, cases)| {
                    *cases += 1;
                    *cases == n
                }),
            },
            _ => false,
        }
    }

    /// The knob that makes a call of these groups hang, and the end of the hang, if it has one.
    fn hang(&self, groups: &[String], now: Instant) -> Option<(String, Option<Instant>)> {
        groups.iter().find_map(|group| {
            let name = format!("{group}.hang");
            let span = self.profile.get(&name)?.span();
            let (since, _) = self.uses.get(&name)?;
            let until = span.and_then(|span| since.checked_add(span));
            let is_over = until.is_some_and(|until| until <= now);
            (!is_over).then_some((name, until))
        })
    }

    /// The additional latency of a call of these groups, and the code it fails with.
    fn latency_and_failure(&mut self, groups: &[String]) -> (Duration, Option<Code>) {
        let (mut latency, mut failure) = (Duration::ZERO, None);
        for group in groups {
            let (slow, fail) = (format!("{group}.latency"), format!("{group}.fail"));
            if let Some(Value::Span(span)) = self.profile.get(&slow) {
                self.count(&slow);
                latency = latency.saturating_add(span);
            }
            if let Some(Value::Failure(code, _)) = self.profile.get(&fail)
                && self.fires(&fail)
            {
                failure = Some(code);
            }
        }
        (latency, failure)
    }
}
