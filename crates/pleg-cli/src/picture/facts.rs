//! What is collected beside the generator, every half a minute: the runtime's own conditions, what is wrong with its
//! endpoint, its pods and the host.

use std::convert::Infallible;
use std::time::Duration;

use metrics::{describe_gauge, gauge};
use pleg::core::{CallError, Instant, PodView};
use pleg::runtime::clock::Clock;
use pleg::{HealthWatch, Pleg};
use pleg_cri::{CriClient, Endpoint, diagnose};
use tokio::sync::watch;

use super::finding::{Finding, Severity};
use super::host::{self, HostTarget};
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
        let alarming = findings.iter().filter(|f| f.severity > Severity::Info);
        alarming
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
    pods: Vec<PodView>,
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
            pods: Vec::new(),
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
        let look = async {
            match &mut self.host {
                Some(watch) => Some(watch.look().await),
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
            host = Some(watch.look().await);
        }
        let before = std::mem::replace(&mut self.pods, self.pleg.snapshot());
        let pods = Pods::new(&before, &self.pods, self.clock.wall());
        let mut findings: Vec<Finding> = unusable.iter().map(runtime::unusable).collect();
        findings.extend(runtime::check_pods(&pods));
        let mut not_examined = vec![match &host {
            Some(_) => {
                "mounts, systemd, the kubelet and its log: pleg doctor reads them".to_owned()
            }
            None => "the host: the runtime is simulated".to_owned(),
        }];
        if let Some(host) = host {
            let usable = unusable.is_none();
            findings.extend(host::check(
                &host,
                &calls(health, &pods, usable, self.clock.now()),
            ));
            not_examined.extend(host.unreadable);
        }
        let now = self.clock.now();
        shown.send_modify(|facts| {
            facts.answer(answer.map(Conditions::from), now);
            findings.extend(runtime::check_conditions(&facts.conditions));
            facts.not_examined = not_examined;
            facts.conclude(findings, now);
        });
    }
}

/// What the generator's calls showed, as far as it decides what the host's facts mean.
fn calls(health: &HealthWatch, pods: &Pods, usable: bool, now: Instant) -> host::Calls {
    let slow = ["runtime_silent", "list_slow", "list_failed", "pods_hung"];
    let degraded = health.current().degraded(now);
    let mut calls = host::Calls {
        slow: degraded
            .iter()
            .any(|reason| slow.contains(&reason.as_str())),
        listed: usable.then(|| pods.listed.clone()),
        ..host::Calls::default()
    };
    pods.name_in(&mut calls);
    calls
}

/// Whether the runtime answers lists.
pub(super) fn is_usable(health: &HealthWatch, now: Instant) -> bool {
    let codes = ["runtime_silent", "list_failed"];
    let degraded = health.current().degraded(now);
    health.ready().is_ok()
        && !degraded
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
