//! The facts that an agent collects every 30 s: the runtime's conditions, findings about its endpoint, pods and host.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use futures::future::OptionFuture;
use metrics::{describe_gauge, gauge};
use pleg::core::{CallError, Instant, PodView};
use pleg::{HealthWatch, Pleg};
use pleg_cri::{CriClient, diagnose};
use tokio::sync::watch;
use tracing::field::display;

use super::finding::{FROM_LISTS, Finding, Severity, arrange, contains};
use super::host::{self, Calls, Host, HostTarget};
use super::runtime::{self, Conditions, Failure, Pods, Unusable};
use crate::connect::{Chosen, Target};
use crate::text::{clip, duration, lower, safe};

const PERIOD: Duration = Duration::from_secs(30);
/// The period while the runtime does not answer, and after a look at the host found a shim's thread newly blocked.
const TROUBLED: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_secs(10);
/// Limits of the metrics: this many findings at a time, characters of a runtime's name or version, and runtimes.
const MOST_SHOWN: usize = 12;
const MOST_NAME: usize = 64;
const MOST_RUNTIMES: usize = 16;
/// The codes of the degraded reasons that say that calls to the runtime are slow, hang or fail.
const SLOW: [&str; 4] = ["runtime_silent", "list_failed", "list_slow", "pods_hung"];

const CONDITION: &str = "pleg_runtime_condition";
const RUNTIME: &str = "pleg_runtime_info";
const ANSWERED: &str = "pleg_runtime_status_answered";
pub(crate) const FINDING: &str = "pleg_finding";

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) conditions: Conditions,
    /// The findings, each with the time at which it was first found.
    findings: Vec<(Instant, Finding)>,
    pub(crate) not_examined: Vec<String>,
}

impl Facts {
    pub(crate) fn before_first_look() -> Self {
        let mut facts = Self::default();
        let host = "the host: not looked at yet".to_owned();
        facts.not_examined.push(host);
        facts
    }

    pub(super) fn findings(&self, now: Instant) -> impl Iterator<Item = Finding> {
        self.findings.iter().map(move |(since, finding)| {
            let lasted = now.since(*since).as_secs_f64();
            finding.clone().lasting(finding.seconds.or(Some(lasted)))
        })
    }

    fn answer(&mut self, answer: Result<Conditions, CallError>) {
        gauge!(ANSWERED).set(f64::from(u8::from(answer.is_ok())));
        match answer {
            Ok(conditions) => self.conditions = conditions,
            Err(error) => self.conditions.failure = Some(Failure::from(&error)),
        }
        for condition in self.conditions.conditions.iter().filter(|c| c.is_needed()) {
            let value = f64::from(u8::from(condition.status));
            gauge!(CONDITION, "condition" => condition.name.clone()).set(value);
        }
    }

    /// Replaces the findings. Logs each that begins, ends, becomes worse, or is no longer explained by another finding.
    fn conclude(&mut self, findings: Vec<Finding>, now: Instant) {
        let last = std::mem::take(&mut self.findings);
        let before = arrange(last.iter().map(|(_, finding)| finding.clone()).collect());
        let after = arrange(findings.clone());
        let since = |code: &str| {
            let known = last.iter().find(|(_, finding)| finding.code == code);
            known.map_or(now, |(since, _)| *since)
        };
        for finding in &before {
            set(finding, 0.0);
            let (code, summary) = (finding.code, &finding.summary);
            if after.iter().all(|new| new.code != code) {
                let lasted = duration(now.since(since(code)));
                tracing::info!(code, "over after {lasted}: {summary}");
            }
        }
        let worst = after.iter().filter(|f| f.severity > Severity::Info);
        worst.take(MOST_SHOWN).for_each(|finding| set(finding, 1.0));
        for finding in &after {
            let rank = |of: &Finding| (of.severity, of.cause.is_none());
            let mut known = before.iter().filter(|old| old.code == finding.code);
            if known.all(|old| rank(old) < rank(finding)) {
                log(finding);
            }
        }
        // Not arranged: `Picture::of` adds and leaves out findings, and then arranges all.
        self.findings = findings.into_iter().map(|f| (since(f.code), f)).collect();
    }
}

/// Logs the finding with its cause or, if no other finding explains it, with its next step.
fn log(finding: &Finding) {
    let (code, cause, summary) = (finding.code, finding.cause, &finding.summary);
    let evidence = finding.evidence.join("; ");
    let next = cause.is_none().then(|| display(&finding.next));
    match finding.severity {
        Severity::Critical => tracing::error!(code, cause, %evidence, next, "{summary}"),
        Severity::Warning => tracing::warn!(code, cause, %evidence, next, "{summary}"),
        Severity::Info => tracing::info!(code, cause, %evidence, "{summary}"),
    }
}

fn set(finding: &Finding, value: f64) {
    let severity = lower(finding.severity);
    gauge!(FINDING, "code" => finding.code, "severity" => severity).set(value);
}

pub(crate) fn describe_metrics() {
    let condition = "1 if the `condition` of the runtime's Status is true, 0 if it is false.";
    describe_gauge!(CONDITION, condition);
    describe_gauge!(ANSWERED, "1 if the runtime answered the last Status call.");
    let runtime = "1 for the `name` and `version` of the present runtime (`other` after 16), 0 for earlier ones.";
    describe_gauge!(RUNTIME, runtime);
    let finding = "1 while a finding about the host, the runtime or its pods lasts, by its `code` and `severity`.";
    describe_gauge!(FINDING, finding);
}

pub(crate) struct Collector {
    pleg: Pleg,
    client: CriClient,
    runtime: Chosen,
    /// The watch of the host; `None` for a simulated runtime, which is not on the host.
    host: Option<host::Watch>,
    /// Names and versions of the runtimes in the metrics.
    runtimes: BTreeSet<[String; 2]>,
    /// Snapshots made while the runtime answered. `views`: the latest. `earlier`: older than the last look at the host.
    earlier: Option<Vec<PodView>>,
    views: Option<Vec<PodView>>,
    pods: Pods,
}

impl Collector {
    pub(crate) fn new(target: &Target, pleg: &Pleg) -> anyhow::Result<Self> {
        let is_on_host = !target.runtime.is_simulated();
        Ok(Self {
            client: target.client(DEADLINE)?,
            runtime: target.runtime.clone(),
            host: is_on_host.then(|| host::Watch::new(HostTarget::new(target.runtime.socket()))),
            runtimes: BTreeSet::new(),
            earlier: None,
            views: None,
            pods: Pods::default(),
            pleg: pleg.clone(),
        })
    }

    /// Collects facts every [`PERIOD`] or [`TROUBLED`], and when the runtime starts or stops answering.
    pub(crate) async fn run(mut self, shown: &watch::Sender<Facts>) -> Infallible {
        let (mut health, clock) = (self.pleg.health(), self.pleg.clock());
        loop {
            let began = clock.now();
            self.collect(&health, shown).await;
            let usable = is_usable(&health);
            let is_due_soon = !usable || self.host.as_ref().is_some_and(|host| host.is_due_soon);
            let due = began.after(if is_due_soon { TROUBLED } else { PERIOD });
            let mut rest = Box::pin(clock.sleep_until(due));
            while is_usable(&health) == usable {
                tokio::select! {
                    () = &mut rest => break,
                    // `changed` returns false if the generator has ended.
                    true = health.changed() => {}
                }
            }
        }
    }

    async fn collect(&mut self, health: &HealthWatch, shown: &watch::Sender<Facts>) {
        let look = self.host.as_mut().map(|host| {
            // The agent may find the runtime only later: get the path of its socket again before each look.
            host.target.socket = self.runtime.socket();
            host.look(has_any(health, &SLOW))
        });
        let (answer, host) = tokio::join!(self.client.status(), OptionFuture::from(look));
        if answer.is_ok()
            && let Ok(runtime) = self.client.version().await
        {
            self.show_runtime(&runtime.name, &runtime.version);
        }
        let unusable = match self.runtime.endpoint() {
            _ if is_usable(health) => None,
            Ok(endpoint) => diagnose(endpoint).await.err().map(Unusable::from),
            Err(why) => Some(Unusable {
                why: why.to_string(),
                ..Unusable::default()
            }),
        };
        let usable = is_usable(health);
        if usable {
            self.earlier = self.views.take();
            self.look_at_pods();
        }
        let mut findings: Vec<Finding> = unusable.iter().map(runtime::unusable).collect();
        let not_examined = match host {
            None => vec!["the host: the runtime is simulated".to_owned()],
            Some(host) => {
                let slow = Unusable::may_be_slow(unusable.as_ref(), has_any(health, &SLOW));
                findings.extend(self.check_host(&host, slow, usable).await);
                let rest = "mounts, systemd, the kubelet's health and log, the clock, sandboxes without an address, \
                            ignored filters of lists: pleg doctor reads them";
                [vec![rest.to_owned()], host.unreadable].concat()
            }
        };
        findings.extend(runtime::check_pods(&self.pods));
        let now = self.pleg.now();
        shown.send_modify(|facts| {
            facts.answer(answer.map(Conditions::from));
            findings.extend(runtime::check_conditions(&facts.conditions));
            facts.not_examined = not_examined;
            facts.conclude(findings, now);
        });
    }

    fn look_at_pods(&mut self) {
        let earlier = self.earlier.as_deref().unwrap_or_default();
        let views = self.views.insert(self.pleg.snapshot());
        self.pods = Pods::new(earlier, views, self.pleg.clock().wall());
    }

    /// The findings about the host. Relists before it reports one of `FROM_LISTS`: the stream may have lost an event.
    async fn check_host(&mut self, host: &Host, slow: bool, usable: bool) -> Vec<Finding> {
        // Without `earlier`, a pod that only changed after the look at the host could be reported by mistake.
        let usable = usable && self.earlier.is_some();
        let check = |pods: &Pods, listed| host::check(host, Calls::new(pods, slow, listed));
        let findings = check(&self.pods, usable);
        if !findings.iter().any(|f| contains(FROM_LISTS, f.code)) {
            return findings;
        }
        let relist = tokio::time::timeout(DEADLINE, self.pleg.relist_now()).await;
        let listed = matches!(relist, Ok(Ok(())));
        if listed {
            self.look_at_pods();
        }
        check(&self.pods, listed)
    }

    fn show_runtime(&mut self, name: &str, version: &str) {
        let text = |text: &str| safe(&clip(text, MOST_NAME)).into_owned();
        let mut runtime = [text(name), text(version)];
        if self.runtimes.len() >= MOST_RUNTIMES && !self.runtimes.contains(&runtime) {
            runtime = ["other"; 2].map(str::to_owned);
        }
        self.runtimes.insert(runtime.clone());
        for known in &self.runtimes {
            let [name, version] = known.clone();
            let value = f64::from(u8::from(*known == runtime));
            gauge!(RUNTIME, "name" => name, "version" => version).set(value);
        }
    }
}

fn is_usable(health: &HealthWatch) -> bool {
    health.ready().is_ok() && !has_any(health, &["runtime_silent", "list_failed"])
}

fn has_any(health: &HealthWatch, codes: &[&str]) -> bool {
    let mut degraded = health.degraded().into_iter();
    degraded.any(|reason| codes.contains(&reason.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::at;

    #[test]
    fn finding_is_logged_with_its_cause_or_its_next_step() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = tracing_subscriber::fmt().with_ansi(false);
        let log = log.with_writer(file.reopen().unwrap()).finish();
        let found = ["shim_zombie", "disk_full"].map(|code| Finding::new(code, "", "kill it"));
        tracing::subscriber::with_default(log, || {
            let mut facts = Facts::default();
            let _ = [0, 30].map(|now| facts.conclude(found.to_vec(), at(now)));
            facts.conclude(found[..1].to_vec(), at(60));
        });
        let log = std::fs::read_to_string(file.path()).unwrap();
        let ends = log.lines().map(|line| line.ends_with("next=kill it"));
        assert_eq!(Vec::from_iter(ends), [true, false, false, true], "{log}");
        let has_cause = log.contains("code=\"shim_zombie\" cause=\"disk_full\"");
        assert!(has_cause, "{log}");
    }
}
