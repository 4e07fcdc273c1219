//! The runtime's own `Status`: RuntimeReady, NetworkReady and further conditions. It is shown, and never
//! makes the agent unready.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use metrics::{describe_gauge, gauge};
use pleg::core::{CallError, Instant};
use pleg::runtime::clock::Clock;
use pleg_cri::CriClient;
use pleg_cri::v1::RuntimeCondition;
use tokio::sync::watch;
use tracing::field::display;

use crate::text::{clip, duration, safe};

/// How often the runtime is asked.
const PERIOD: Duration = Duration::from_secs(30);
/// The deadline of one call.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
/// How many conditions are kept, and how many characters of each text. containerd has three.
const MOST_CONDITIONS: usize = 8;
const MOST_TEXT: usize = 300;
/// How many characters of the runtime's name and version are shown.
const MOST_NAME: usize = 64;

/// The conditions that a kubelet needs.
const NEEDED: [&str; 2] = ["RuntimeReady", "NetworkReady"];

const CONDITION: &str = "pleg_runtime_condition";
const RUNTIME: &str = "pleg_runtime_info";
const ANSWERED: &str = "pleg_runtime_status_answered";

/// The last answer.
#[derive(Clone, Debug, Default)]
pub(super) struct RuntimeStatus {
    pub(super) conditions: Vec<Condition>,
    /// When the last answer came.
    pub(super) answered: Option<Instant>,
    /// Why the last call failed, and since when calls fail.
    pub(super) error: Option<(CallError, Instant)>,
}

/// A condition of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) name: String,
    pub(super) status: bool,
    reason: String,
    message: String,
    /// Since when it has this status, as far as this process knows.
    pub(super) since: Instant,
}

impl Condition {
    fn new(condition: &RuntimeCondition, since: Instant) -> Self {
        let text = |text: &str| clip(text, MOST_TEXT).into_owned();
        Self {
            name: text(&condition.r#type),
            status: condition.status,
            reason: text(&condition.reason),
            message: text(&condition.message),
            since,
        }
    }

    /// Whether a kubelet would work without this condition.
    pub(super) fn is_needed(&self) -> bool {
        NEEDED.contains(&&*self.name)
    }
}

/// Its status, with the reason and the message.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status.fmt(f)?;
        if !self.reason.is_empty() {
            write!(f, " ({})", self.reason)?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

/// Registers the descriptions.
pub(super) fn describe() {
    describe_gauge!(
        CONDITION,
        "1 if the `condition` of the runtime's Status is true, 0 if it is false."
    );
    describe_gauge!(ANSWERED, "1 if the runtime answered the last Status call.");
    describe_gauge!(
        RUNTIME,
        "1 for the `name` and `version` of the present runtime, 0 for earlier ones."
    );
}

/// The names and versions of the runtimes that were shown. The last one is the present one.
#[derive(Debug, Default)]
struct Runtimes(Vec<[String; 2]>);

impl Runtimes {
    /// A runtime that changes its version all the time must not fill the memory.
    const MOST: usize = 16;

    fn show(&mut self, name: &str, version: &str) {
        let text = |text: &str| safe(&clip(text, MOST_NAME)).into_owned();
        let runtime = [text(name), text(version)];
        let set = |runtime: &[String; 2], value| {
            let [name, version] = runtime.clone();
            gauge!(RUNTIME, "name" => name, "version" => version).set(value);
        };
        if self.0.last() == Some(&runtime) {
            return;
        }
        if let Some(last) = self.0.last() {
            set(last, 0.0);
        }
        self.0.retain(|known| *known != runtime);
        if self.0.len() < Self::MOST {
            set(&runtime, 1.0);
            self.0.push(runtime);
        }
    }
}

/// Asks the runtime again and again.
pub(super) async fn run(
    client: CriClient,
    clock: Clock,
    shown: &watch::Sender<RuntimeStatus>,
) -> Infallible {
    let mut shown_runtimes = Runtimes::default();
    loop {
        let answer = client.status().await;
        let answer = answer.map(|answer| answer.status.unwrap_or_default().conditions);
        let answered = answer.is_ok();
        shown.send_modify(|status| status.apply(answer, clock.now()));
        if answered && let Ok(runtime) = client.version().await {
            shown_runtimes.show(&runtime.name, &runtime.version);
        }
        clock.sleep_until(clock.now().after(PERIOD)).await;
    }
}

impl RuntimeStatus {
    /// Takes the answer, logs what changed, and sets the metrics.
    fn apply(&mut self, answer: Result<Vec<RuntimeCondition>, CallError>, now: Instant) {
        gauge!(ANSWERED).set(f64::from(u8::from(answer.is_ok())));
        match answer {
            Ok(conditions) => {
                if let Some((_, since)) = self.error.take() {
                    let lasted = duration(now.since(since));
                    tracing::info!("the runtime reports its status again, after {lasted}");
                }
                self.answered = Some(now);
                self.replace(&conditions, now);
            }
            Err(error) => {
                let known = self.error.take();
                if known.is_none() {
                    tracing::warn!(%error, "the runtime does not report its status");
                }
                self.error = Some((error, known.map_or(now, |(_, since)| since)));
            }
        }
    }

    fn replace(&mut self, conditions: &[RuntimeCondition], now: Instant) {
        let last = std::mem::take(&mut self.conditions);
        for condition in conditions.iter().take(MOST_CONDITIONS) {
            let mut new = Condition::new(condition, now);
            let known = last.iter().find(|known| known.name == new.name);
            let known = known.filter(|known| known.status == new.status);
            if let Some(known) = known {
                new.since = known.since;
            }
            let says_the_same = known.is_some_and(|known| *known == new);
            if !says_the_same {
                new.log(last.is_empty());
            }
            if new.is_needed() {
                let value = f64::from(u8::from(new.status));
                gauge!(CONDITION, "condition" => new.name.clone()).set(value);
            }
            self.conditions.push(new);
        }
    }
}

impl Condition {
    fn log(&self, first: bool) {
        let (condition, status) = (display(&self.name), self.status);
        let given = |text: &String| (!text.is_empty()).then(|| display(text.clone()));
        let (reason, detail) = (given(&self.reason), given(&self.message));
        macro_rules! log {
            ($level:ident) => {
                tracing::$level!(
                    condition,
                    status,
                    reason,
                    detail,
                    "a condition of the runtime's status is {status}"
                )
            };
        }
        match (status, first) {
            (false, _) if self.is_needed() => log!(warn),
            (true, true) => log!(debug),
            _ => log!(info),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pleg::core::CallErrorKind;

    fn condition(name: &str, status: bool, message: &str) -> RuntimeCondition {
        RuntimeCondition {
            r#type: name.to_owned(),
            status,
            reason: String::new(),
            message: message.to_owned(),
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ORIGIN.after(Duration::from_secs(seconds))
    }

    #[test]
    fn since_is_kept_while_the_status_stays_the_same() {
        let mut status = RuntimeStatus::default();
        let network = |status, message| Ok(vec![condition("NetworkReady", status, message)]);
        status.apply(network(false, "no cni config"), at(1));
        status.apply(network(false, "cni not initialized"), at(31));
        let shown = &status.conditions[0];
        assert_eq!(shown.since, at(1));
        assert_eq!(shown.to_string(), "false: cni not initialized");
        status.apply(network(true, ""), at(61));
        assert_eq!(status.conditions[0].since, at(61));
        assert_eq!(status.conditions[0].to_string(), "true");
    }

    #[test]
    fn failed_call_keeps_the_last_answer_and_since_when_calls_fail() {
        let mut status = RuntimeStatus::default();
        status.apply(Ok(vec![condition("RuntimeReady", true, "")]), at(1));
        let error = || CallError::new("Status", CallErrorKind::DeadlineExceeded, "no answer");
        status.apply(Err(error()), at(31));
        status.apply(Err(error()), at(61));
        assert_eq!(status.error, Some((error(), at(31))));
        assert_eq!((status.conditions.len(), status.answered), (1, Some(at(1))));
        status.apply(Ok(Vec::new()), at(91));
        assert_eq!(status.error, None);
    }

    #[test]
    fn kept_conditions_are_bounded() {
        let mut status = RuntimeStatus::default();
        let long = "x".repeat(10_000);
        let many = (0..1_000).map(|n| condition(&n.to_string(), false, &long));
        status.apply(Ok(many.collect()), at(1));
        assert_eq!(status.conditions.len(), MOST_CONDITIONS);
        assert!(status.conditions[0].message.chars().count() <= MOST_TEXT);
    }
}
