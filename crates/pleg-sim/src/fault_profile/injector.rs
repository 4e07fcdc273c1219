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

use super::{
    CallFaultProfile, EventFaultProfile, FaultProfile, Hang, KnobError, Rate, knobs::snake,
};
use crate::{engine::lock, id::Rng, profile::RuntimeProfile, views::Snapshot};

/// The additional size of an event if `oversize.bytes` is not set.
const DEFAULT_OVERSIZE: usize = 5_000_000;
const SECOND_SUBSCRIBER: &str = "second_subscriber";
const SWAP: &str = "swap";
const HOUR: i64 = 3_600_000_000_000;

#[derive(Debug)]
pub(crate) struct Injector {
    state: Mutex<State>,
    /// The simulated runtime, if a second subscriber takes no events from others there.
    no_second_subscriber: Option<String>,
    /// Changes whenever a knob is set.
    changes: watch::Sender<u64>,
    clock: Clock,
}

#[derive(Debug)]
struct State {
    fault_profile: FaultProfile,
    rng: Rng,
    /// The number of cases that each knob decided since it was set.
    cases: HashMap<String, u64>,
    fired: BTreeMap<String, u64>,
    /// When hangs were set with [`Injector::set`], by name.
    set_at: HashMap<String, Instant>,
    /// When all knobs were last replaced.
    replaced_at: Instant,
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
    pub(crate) fn new(
        fault_profile: FaultProfile,
        profile: &RuntimeProfile,
        seed: u64,
        clock: Clock,
    ) -> Self {
        let injector = Self {
            state: Mutex::new(State {
                fault_profile: FaultProfile::default(),
                rng: Rng::new(seed.rotate_left(32)),
                cases: HashMap::new(),
                fired: BTreeMap::new(),
                set_at: HashMap::new(),
                replaced_at: clock.tokio(clock.now()),
                last_statuses: HashMap::new(),
            }),
            no_second_subscriber: profile.no_second_subscriber(),
            changes: watch::Sender::default(),
            clock,
        };
        injector.replace(fault_profile);
        injector
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn now(&self) -> Instant {
        self.clock.tokio(self.clock.now())
    }

    // === configuration ===

    pub(crate) fn fault_profile(&self) -> FaultProfile {
        self.state().fault_profile.clone()
    }

    /// Replaces all knobs. Hangs start now, and cases are counted from now.
    pub(crate) fn replace(&self, fault_profile: FaultProfile) {
        let now = self.now();
        let mut state = self.state();
        state.cases.clear();
        state.set_at.clear();
        state.replaced_at = now;
        state.last_statuses.clear();
        state.fault_profile = fault_profile;
        drop(state);
        self.changes.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// Sets one knob and leaves the others unchanged.
    pub(crate) fn set(&self, knob: &str) -> Result<(), KnobError> {
        let now = self.now();
        let mut state = self.state();
        let mut fault_profile = state.fault_profile.clone();
        let name = self.try_set(&mut fault_profile, knob)?;
        state.fault_profile = fault_profile;
        state.cases.remove(&name);
        state.set_at.insert(name, now);
        drop(state);
        self.changes.send_modify(|n| *n = n.wrapping_add(1));
        Ok(())
    }

    /// Sets several knobs, or none if one of them is not valid.
    pub(crate) fn set_all(&self, knobs: &[&str]) -> Result<(), KnobError> {
        let mut trial = self.fault_profile();
        for knob in knobs {
            self.try_set(&mut trial, knob)?;
        }
        knobs.iter().try_for_each(|knob| self.set(knob))
    }

    /// Sets one knob, unless it has no effect in the simulated runtime.
    fn try_set(&self, fault_profile: &mut FaultProfile, knob: &str) -> Result<String, KnobError> {
        let name = fault_profile.set(knob)?;
        let is_on = fault_profile.events.second_subscriber != Rate::Never;
        match &self.no_second_subscriber {
            Some(runtime) if name == SECOND_SUBSCRIBER && is_on => Err(KnobError::Mode {
                knob: name,
                runtime: runtime.clone(),
            }),
            _ => Ok(name),
        }
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
        let mut changes = self.changes.subscribe();
        let mut hung = false;
        loop {
            changes.borrow_and_update();
            let Some(until) = self.hangs_until(method, pod, &mut hung) else {
                break;
            };
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
        let (latency, failure) = self.state().latency_and_failure(method, pod);
        if !latency.is_zero() {
            let until = self.clock.now().after(latency);
            self.clock.sleep_until(until).await;
        }
        failure.map_or(Ok(()), |code| {
            Err(Status::new(code, "injected fault: this call fails"))
        })
    }

    /// Until when a call hangs: `None` if it does not hang, `Some(None)` if there is no end.
    fn hangs_until(
        &self,
        method: &'static str,
        pod: Option<&str>,
        hung: &mut bool,
    ) -> Option<Option<Instant>> {
        let now = self.now();
        let mut state = self.state();
        for (name, calls) in state.groups_for(method, pod) {
            let name = format!("{name}.hang");
            let until = match calls.hang {
                None => continue,
                Some(Hang::On) => None,
                Some(Hang::For(span)) => {
                    let since = state.set_at.get(&name).unwrap_or(&state.replaced_at);
                    let until = since.checked_add(span);
                    if until.is_some_and(|until| until <= now) {
                        continue;
                    }
                    until
                }
            };
            if !std::mem::replace(hung, true) {
                state.count(&name);
            }
            return Some(until);
        }
        None
    }

    // === events ===

    pub(crate) fn stamp_pause(&self) -> Duration {
        let pause = |c: &FaultProfile| Some(c.events.stamp_pause).filter(|p| !p.is_zero());
        self.value("stamp.pause", pause).unwrap_or_default()
    }

    /// Changes an event of a sandbox before it is published.
    pub(crate) fn alter_event(&self, sandbox: &str, event: &mut ContainerEventResponse) {
        let mut state = self.state();
        let faults = state.fault_profile.events.clone();
        if faults.freeze != Rate::Never {
            let now = (
                event.pod_sandbox_status.clone(),
                event.containers_statuses.clone(),
            );
            let before = state.last_statuses.insert(sandbox.to_owned(), now);
            if let Some((status, containers)) = before
                && state.fires("freeze", faults.freeze)
            {
                event.pod_sandbox_status = status;
                event.containers_statuses = containers;
            }
        }
        if state.fires("sandbox.nil", faults.nil_sandbox) {
            event.pod_sandbox_status = None;
        }
        if state.fires("containers.empty", faults.no_containers) {
            event.containers_statuses.clear();
        }
        if state.fires("containers.hole", faults.hole) {
            event.containers_statuses.push(ContainerStatus::default());
        }
        if state.fires("stamp.zero", faults.stamp_zero) {
            event.created_at = 0;
        }
        if state.fires("stamp.negative", faults.stamp_negative) {
            event.created_at = GO_ZERO_TIME;
        }
        if state.fires("stamp.seconds", faults.stamp_seconds) {
            event.created_at /= 1_000_000_000;
        }
        if state.fires("stamp.future", faults.stamp_future) {
            event.created_at = event.created_at.saturating_add(HOUR);
        }
        if state.fires("oversize", faults.oversize) {
            let bytes = "x".repeat(faults.oversize_bytes.unwrap_or(DEFAULT_OVERSIZE));
            let status = event.pod_sandbox_status.get_or_insert_default();
            status
                .annotations
                .insert("pleg-sim/oversize".to_owned(), bytes);
        }
    }

    /// How the next event is published. `swap` is not counted here: it depends on the next event
    /// (see [`Injector::count_swap`]).
    pub(crate) fn publish_mode(&self) -> Publish {
        let mut state = self.state();
        let EventFaultProfile {
            drop,
            duplicate,
            swap,
            ..
        } = state.fault_profile.events;
        if state.fires("drop", drop) {
            Publish::Never
        } else if state.fires("duplicate", duplicate) {
            Publish::Twice
        } else if state.decide(SWAP, swap) {
            Publish::AfterNext
        } else {
            Publish::Once
        }
    }

    /// Counts an event that was published after the next one.
    pub(crate) fn count_swap(&self) {
        self.state().count(SWAP);
    }

    /// Whether an event goes to the second subscriber, where each event goes to one subscriber.
    pub(crate) fn second_subscriber_takes(&self) -> bool {
        self.fires(SECOND_SUBSCRIBER, |c| c.events.second_subscriber)
    }

    /// Whether a subscriber receives nothing from now on.
    pub(crate) fn mutes(&self) -> bool {
        let mute = |c: &FaultProfile| c.events.mute.then_some(());
        self.value("stream.mute", mute).is_some()
    }

    /// Whether a stream that has delivered that many events ends.
    pub(crate) fn ends_after(&self, events: usize) -> bool {
        let end_after = |c: &FaultProfile| c.events.end_after.filter(|n| events >= *n);
        self.value("stream.end_after", end_after).is_some()
    }

    // === lists ===

    /// Whether the knob fires in this case.
    pub(crate) fn fires(&self, name: &'static str, rate: impl Fn(&FaultProfile) -> Rate) -> bool {
        let mut state = self.state();
        let rate = rate(&state.fault_profile);
        state.fires(name, rate)
    }

    /// The value of a knob, counted as fired if the knob is on.
    pub(crate) fn value<T>(
        &self,
        name: &str,
        of: impl Fn(&FaultProfile) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.state();
        let value = of(&state.fault_profile);
        if value.is_some() {
            state.count(name);
        }
        value
    }
}

impl State {
    fn count(&mut self, name: &str) {
        *self.fired.entry(name.to_owned()).or_default() += 1;
    }

    /// Decides whether the knob fires in this case, and counts it if so.
    fn fires(&mut self, name: &str, rate: Rate) -> bool {
        let fires = self.decide(name, rate);
        if fires {
            self.count(name);
        }
        fires
    }

    /// Decides whether the knob fires in this case.
    fn decide(&mut self, name: &str, rate: Rate) -> bool {
        match rate {
            Rate::Never => false,
            Rate::Millionths(n) => self.rng.below(1_000_000) < u64::from(n),
            Rate::Nth(n) => {
                let case = self.cases.entry(name.to_owned()).or_default();
                *case += 1;
                *case == n
            }
        }
    }

    /// The groups that a call belongs to.
    fn groups_for(
        &self,
        method: &'static str,
        pod: Option<&str>,
    ) -> Vec<(String, CallFaultProfile)> {
        let profile = &self.fault_profile;
        let mut groups = vec![("all".to_owned(), profile.all_calls.clone())];
        if let Some(calls) = profile.calls.get(method) {
            groups.push((snake(method), calls.clone()));
        }
        if let Some(uid) = pod {
            groups.push(("pod.*".to_owned(), profile.all_pods.clone()));
            if let Some(calls) = profile.pods.get(uid) {
                groups.push((format!("pod.{uid}"), calls.clone()));
            }
        }
        groups.retain(|(_, calls)| !calls.is_off());
        groups
    }

    /// The additional latency of a call, and the code it fails with.
    fn latency_and_failure(
        &mut self,
        method: &'static str,
        pod: Option<&str>,
    ) -> (Duration, Option<Code>) {
        let (mut latency, mut failure) = (Duration::ZERO, None);
        for (name, calls) in self.groups_for(method, pod) {
            if !calls.latency.is_zero() {
                self.count(&format!("{name}.latency"));
                latency = latency.saturating_add(calls.latency);
            }
            if let Some(fail) = calls.fail
                && self.fires(&format!("{name}.fail"), fail.rate)
            {
                failure = Some(fail.code);
            }
        }
        (latency, failure)
    }
}
