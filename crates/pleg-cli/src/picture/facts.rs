//! What is collected beside the generator, every half a minute: the runtime's own conditions, what is wrong with its
//! endpoint, its pods and the host.

use std::cmp::Reverse;
use std::convert::Infallible;
use std::time::Duration;

use metrics::{describe_gauge, gauge};
use pleg::core::{CallError, Instant, PodView};
use pleg::runtime::clock::Clock;
use pleg::{HealthWatch, Pleg};
use pleg_cri::{CriClient, Endpoint, diagnose};
use tokio::sync::watch;

use super::finding::{Finding, Severity};
use super::host::{self, Host, HostTarget};
use super::runtime::{self, Conditions, Pods, Unusable};
use crate::connect::Target;
use crate::text::{clip, duration, safe};

/// How often facts are collected.
const PERIOD: Duration = Duration::from_secs(30);
/// The same while the runtime does not answer: some facts of the host need two looks.
const TROUBLED: Duration = Duration::from_secs(5);
/// The most findings that are metrics at once.
const MOST_SHOWN: usize = 12;
/// The deadline of one call.
const DEADLINE: Duration = Duration::from_secs(10);
/// How many characters of the runtime's name and version are shown.
const MOST_NAME: usize = 64;

const CONDITION: &str = "pleg_runtime_condition";
const RUNTIME: &str = "pleg_runtime_info";
const ANSWERED: &str = "pleg_runtime_status_answered";
pub(crate) const FINDING: &str = "pleg_finding";

/// The last facts, and what follows from them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) conditions: Conditions,
    /// When the last answer of `Status` came.
    pub(crate) answered: Option<Instant>,
    /// Why the last `Status` failed, and since when it fails.
    pub(crate) error: Option<(CallError, Instant)>,
    /// What follows, and since when.
    findings: Vec<(Finding, Instant)>,
    /// What could not be examined, and why.
    pub(crate) not_examined: Vec<String>,
}

impl Facts {
    /// What follows from the facts.
    pub(super) fn findings(&self, now: Instant) -> impl Iterator<Item = Finding> {
        self.findings.iter().map(move |(finding, since)| {
            let seconds = now.since(*since).as_secs_f64();
            finding
                .clone()
                .lasting(Some(finding.seconds.unwrap_or(seconds)))
        })
    }

    /// Takes the answer of `Status`.
    fn answer(&mut self, answer: Result<Conditions, CallError>, now: Instant) {
        gauge!(ANSWERED).set(f64::from(u8::from(answer.is_ok())));
        match answer {
            Ok(conditions) => {
                self.answered = Some(now);
                self.error = None;
                self.conditions = conditions.since(&self.conditions, now);
            }
            Err(error) => {
                let since = self.error.take().map_or(now, |(_, since)| since);
                self.error = Some((error, since));
            }
        }
        for condition in self.conditions.needed() {
            let value = f64::from(u8::from(condition.status));
            gauge!(CONDITION, "condition" => condition.name.clone()).set(value);
        }
    }

    /// Takes what follows now, and logs what has begun and ended.
    fn conclude(&mut self, findings: Vec<Finding>, now: Instant) {
        let last = std::mem::take(&mut self.findings);
        let since = |code: &str| {
            let known = last.iter().find(|(finding, _)| finding.code == code);
            known.map(|(_, since)| *since)
        };
        for (finding, since) in &last {
            set(finding, 0.0);
            if findings.iter().all(|new| new.code != finding.code) {
                let (code, summary) = (finding.code, &finding.summary);
                let lasted = duration(now.since(*since));
                tracing::info!(code, "over after {lasted}: {summary}");
            }
        }
        let mut alarming: Vec<&Finding> = findings.iter().collect();
        alarming.retain(|finding| finding.severity > Severity::Info);
        alarming.sort_by_key(|finding| Reverse(finding.severity));
        alarming
            .into_iter()
            .take(MOST_SHOWN)
            .for_each(|finding| set(finding, 1.0));
        let dated = findings.into_iter().map(|finding| {
            let known = since(finding.code);
            if known.is_none() {
                log(&finding);
            }
            (finding, known.unwrap_or(now))
        });
        self.findings = dated.collect();
    }
}

fn log(finding: &Finding) {
    let Finding {
        code,
        summary,
        next,
        ..
    } = finding;
    let evidence = finding.evidence.join("; ");
    match finding.severity {
        Severity::Critical => tracing::error!(code, %evidence, %next, "{summary}"),
        Severity::Warning => tracing::warn!(code, %evidence, %next, "{summary}"),
        Severity::Info => tracing::info!(code, %evidence, "{summary}"),
    }
}

fn set(finding: &Finding, value: f64) {
    let severity = finding.severity.to_string();
    gauge!(FINDING, "code" => finding.code, "severity" => severity).set(value);
}

/// Registers the descriptions of the metrics.
pub(crate) fn describe_metrics() {
    describe_gauge!(
        CONDITION,
        "1 if the `condition` of the runtime's Status is true, 0 if it is false."
    );
    describe_gauge!(ANSWERED, "1 if the runtime answered the last Status call.");
    describe_gauge!(
        RUNTIME,
        "1 for the `name` and `version` of the present runtime, 0 for earlier ones."
    );
    describe_gauge!(
        FINDING,
        "1 while a finding about the host, the runtime or its pods lasts, by its `code` and `severity`."
    );
}

/// Collects the facts of one node.
pub(crate) struct Collector {
    pleg: Pleg,
    clock: Clock,
    client: CriClient,
    /// Why there is none, if no socket was found.
    endpoint: Result<Endpoint, String>,
    /// `None` of a simulated runtime, which is not on the host.
    host: Option<host::Watch>,
    runtimes: Runtimes,
    /// The last two looks at the cache, the earlier one from before the last look at the host, and what follows from both.
    /// They stay as they are while the runtime does not answer: the cache is old then.
    earlier: Option<Vec<PodView>>,
    views: Option<Vec<PodView>>,
    pods: Pods,
}

impl Collector {
    pub(crate) fn new(target: &Target, pleg: &Pleg) -> anyhow::Result<Self> {
        Ok(Self {
            clock: pleg.clock(),
            client: target.client(DEADLINE)?,
            endpoint: target
                .endpoint()
                .cloned()
                .map_err(|error| error.to_string()),
            host: (!target.simulated()())
                .then(|| host::Watch::new(HostTarget::new(target.socket()))),
            runtimes: Runtimes::default(),
            earlier: None,
            views: None,
            pods: Pods::default(),
            pleg: pleg.clone(),
        })
    }

    /// Collects again and again, and when the runtime stops or begins to answer.
    pub(crate) async fn run(mut self, shown: &watch::Sender<Facts>) -> Infallible {
        let mut health = self.pleg.health();
        loop {
            let began = self.clock.now();
            self.collect(&health, shown).await;
            let usable = is_usable(&health, self.clock.now());
            let due = began.after(if usable { PERIOD } else { TROUBLED });
            let changes = async {
                while health.changed().await {
                    if is_usable(&health, self.clock.now()) != usable {
                        return;
                    }
                }
                // The generator has ended.
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = self.clock.sleep_until(due) => {}
                () = changes => {}
            }
        }
    }

    async fn collect(&mut self, health: &HealthWatch, shown: &watch::Sender<Facts>) {
        let slow = is_slow(health, self.clock.now());
        let look = async {
            match &mut self.host {
                Some(watch) => Some(watch.look(slow).await),
                None => None,
            }
        };
        let (answer, mut host) = tokio::join!(self.client.status(), look);
        if answer.is_ok()
            && let Ok(runtime) = self.client.version().await
        {
            self.runtimes.show(&runtime.name, &runtime.version);
        }
        let unusable = match &self.endpoint {
            _ if is_usable(health, self.clock.now()) => None,
            Ok(endpoint) => diagnose(endpoint).await.err().map(Unusable::from),
            Err(why) => Some(Unusable {
                why: why.clone(),
                ..Unusable::default()
            }),
        };
        if unusable.is_some()
            && let Some(watch) = &mut self.host
        {
            // Some facts need two looks that are close to each other.
            host = Some(watch.look(true).await);
        }
        let usable = is_usable(health, self.clock.now());
        if usable {
            self.earlier = self.views.take();
            self.look_at_pods();
        }
        let mut findings: Vec<Finding> = unusable.iter().map(runtime::unusable).collect();
        let mut not_examined = Vec::new();
        if let Some(host) = host {
            findings.extend(self.check_host(&host, health, usable).await);
            not_examined.push(
                "mounts, systemd, the kubelet and its log: pleg doctor reads them".to_owned(),
            );
            not_examined.extend(host.unreadable);
        } else {
            not_examined.push("the host: the runtime is simulated".to_owned());
        }
        findings.extend(runtime::check_pods(&self.pods));
        let now = self.clock.now();
        shown.send_modify(|facts| {
            facts.answer(answer.map(Conditions::from), now);
            findings.extend(runtime::check_conditions(&facts.conditions));
            facts.not_examined = not_examined;
            facts.conclude(findings, now);
        });
    }

    fn look_at_pods(&mut self) {
        let earlier = self.earlier.as_deref().unwrap_or_default();
        let views = self.views.insert(self.pleg.snapshot());
        self.pods = Pods::new(earlier, views, self.clock.wall());
    }

    /// What follows from the host's facts. What differs from the cache is found only if a new list differs, too: an event may
    /// have been lost since the last one.
    async fn check_host(
        &mut self,
        host: &Host,
        health: &HealthWatch,
        usable: bool,
    ) -> Vec<Finding> {
        let slow = is_slow(health, self.clock.now());
        // What has changed since the look at the host is no finding.
        let usable = usable && self.earlier.is_some();
        let mut findings = host::check(host, &host_calls(slow, &self.pods, usable));
        if findings.iter().any(|f| host::FROM_LISTS.contains(&f.code)) {
            let relist = tokio::time::timeout(DEADLINE, self.pleg.relist_now()).await;
            let listed = matches!(relist, Ok(Ok(())));
            if listed {
                self.look_at_pods();
            }
            findings = host::check(host, &host_calls(slow, &self.pods, listed));
        }
        findings
    }
}

/// What the generator showed, as far as it decides what the host's facts mean. From an old cache, nothing but names.
fn host_calls(slow: bool, pods: &Pods, usable: bool) -> host::Calls {
    let mut calls = host::Calls::default();
    pods.name_in(&mut calls);
    calls.slow = slow;
    match usable {
        true => calls.listed = Some(pods.listed.clone()),
        false => (calls.ready, calls.running) = Default::default(),
    }
    calls
}

/// Whether a call is slow or fails.
fn is_slow(health: &HealthWatch, now: Instant) -> bool {
    let codes = ["runtime_silent", "list_slow", "list_failed", "pods_hung"];
    is_degraded(health, now, &codes)
}

/// Whether the runtime answers lists.
pub(super) fn is_usable(health: &HealthWatch, now: Instant) -> bool {
    health.ready().is_ok() && !is_degraded(health, now, &["runtime_silent", "list_failed"])
}

fn is_degraded(health: &HealthWatch, now: Instant, codes: &[&str]) -> bool {
    let degraded = health.current().degraded(now);
    degraded
        .iter()
        .any(|reason| codes.contains(&reason.as_str()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_cache_says_nothing_of_what_exists() {
        let pod = r#"{ "pods": [{ "uid": "u", "name": "shop/cart", "sandboxes": ["s"], "ready": ["s"],
            "running": { "c": "app" } }], "listed": { "s": true } }"#;
        let pods: Pods = serde_json::from_str(pod).unwrap();
        let fresh = host_calls(true, &pods, true);
        assert!(fresh.slow && fresh.listed.is_some());
        assert_eq!((fresh.ready.len(), fresh.running.len()), (1, 1));
        let old = host_calls(false, &pods, false);
        assert!(!old.slow && old.listed.is_none());
        assert!(old.ready.is_empty() && old.running.is_empty());
        assert_eq!(old.sandboxes["s"], "shop/cart");
    }
}
