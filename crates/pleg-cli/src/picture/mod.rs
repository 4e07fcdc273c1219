//! The one picture of a node: [`host`], [`runtime`] and [`generator`] collect evidence, plain data that can be recorded,
//! and judge it. Every command and page shows the table of their [findings](finding); none has words of its own.

pub(crate) mod facts;
pub(crate) mod finding;
pub(crate) mod generator;
pub(crate) mod host;
pub(crate) mod runtime;

use pleg::Pleg;
use pleg::core::{Counters, Health, Instant, NotReady};

use facts::Facts;
use finding::{Finding, arrange};
use generator::Generator;
use runtime::Problems;

/// What is wrong with a node now.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    pub(crate) ready: Result<(), NotReady>,
    /// The worst first, and each cause before what it explains.
    pub(crate) findings: Vec<Finding>,
}

impl Picture {
    /// The picture that a generator and the last facts give.
    pub(crate) fn now(pleg: &Pleg, facts: &Facts) -> Self {
        let (health, now) = (pleg.health(), pleg.now());
        let problems = Problems::new(&health.pod_problems(), now);
        Self::of(&health.current(), &pleg.counters(), &problems, facts, now)
    }

    /// The same of what they say.
    pub(crate) fn of(
        health: &Health,
        counters: &Counters,
        problems: &Problems,
        facts: &Facts,
        now: Instant,
    ) -> Self {
        let generator = Generator::of(health, counters, now);
        let mut findings = generator::check(&generator);
        findings.extend(problems.check());
        let is_usable = findings
            .iter()
            .all(|f| !f.not_ready && f.code != "list_failed");
        let mut of_facts: Vec<Finding> = facts.findings(now).collect();
        if is_usable {
            // It has answered since the facts were collected.
            of_facts.retain(|finding| !runtime::UNUSABLE.contains(&finding.code));
        }
        of_facts.retain(|fact| findings.iter().all(|finding| finding.code != fact.code));
        findings.extend(of_facts);
        Self {
            ready: health.ready(now),
            findings: arrange(findings),
        }
    }
}
