//! Faults of the simulated runtime's calls, configurable while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pleg_sim::{Call, CallFault, Faults};
use tonic::Status;

/// The current faults.
#[derive(Debug, Default)]
pub(crate) struct CallFaults(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    hung_ids: BTreeSet<String>,
    hung_calls: BTreeMap<&'static str, u64>,
    failing: BTreeSet<&'static str>,
    slow: BTreeMap<&'static str, Duration>,
    asked: BTreeMap<&'static str, u64>,
}

impl CallFaults {
    /// Calls that name this id hang.
    pub(crate) fn hang_id(&self, id: &str) {
        self.state().hung_ids.insert(id.to_owned());
    }

    /// The next calls of this method hang, that many.
    pub(crate) fn hang_calls(&self, method: &'static str, calls: u64) {
        self.state().hung_calls.insert(method, calls);
    }

    /// Calls of this method take that long.
    pub(crate) fn slow_down(&self, method: &'static str, by: Duration) {
        self.state().slow.insert(method, by);
    }

    /// Calls of this method fail.
    pub(crate) fn fail(&self, method: &'static str) {
        self.state().failing.insert(method);
    }

    /// Removes all faults. Calls that hang already keep hanging.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        state.hung_ids.clear();
        state.hung_calls.clear();
        state.failing.clear();
        state.slow.clear();
    }

    /// How many calls of this method there were.
    pub(crate) fn asked(&self, method: &str) -> u64 {
        self.state().asked.get(method).copied().unwrap_or(0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Faults for CallFaults {
    fn before(&self, call: Call<'_>) -> CallFault {
        let mut state = self.state();
        *state.asked.entry(call.method).or_default() += 1;
        if state.failing.contains(call.method) {
            return CallFault::Fail(Status::unavailable("configured to fail"));
        }
        if state.hung_ids.contains(call.id) {
            return CallFault::Hang;
        }
        match state.hung_calls.get_mut(call.method) {
            Some(left) if *left > 0 => {
                *left -= 1;
                CallFault::Hang
            }
            _ => match state.slow.get(call.method) {
                Some(by) => CallFault::Delay(*by),
                None => CallFault::None,
            },
        }
    }
}
