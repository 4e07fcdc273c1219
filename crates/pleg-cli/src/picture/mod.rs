//! The picture of a node: [`host`], [`runtime`] and [`generator`] collect evidence as plain data, which can be
//! recorded, and derive [findings](finding) from it. All commands and pages show a finding with the same text.

pub(crate) mod facts;
pub(crate) mod finding;
pub(crate) mod generator;
pub(crate) mod host;
pub(crate) mod runtime;

use pleg::Pleg;
use pleg::core::{Health, Instant, NotReady};

use facts::Facts;
use finding::{Finding, arrange};
use generator::Generator;
use runtime::Problem;

#[derive(Clone, Debug, derive_more::Constructor)]
pub(crate) struct Picture {
    pub(crate) now: Instant,
    pub(crate) health: Health,
    pub(crate) facts: Facts,
    pub(crate) ready: Result<(), NotReady>,
    /// The findings, the worst first, and each cause before what it explains.
    pub(crate) findings: Vec<Finding>,
    pub(crate) problems: Vec<Problem>,
}

impl Picture {
    /// Makes the picture of `pleg` now. `generator` remembers earlier looks at `pleg`: pass the same one each time.
    pub(crate) fn now(pleg: &Pleg, facts: Facts, generator: &mut Generator) -> Self {
        let (watch, now) = (pleg.health(), pleg.now());
        let (health, ready) = (watch.current(), watch.ready());
        generator.look(&health, &pleg.counters(), now);
        // `health` does not show that `pleg` has shut down; `ready` does.
        generator.set_ready(&ready);
        let problems = Problem::all(&watch.pod_problems(), now);
        Self::of(now, health, ready, generator, problems, facts)
    }

    /// Makes the picture. If the runtime answers now, leaves out the earlier findings in `runtime::UNUSABLE`.
    pub(crate) fn of(
        now: Instant,
        health: Health,
        ready: Result<(), NotReady>,
        generator: &Generator,
        problems: Vec<Problem>,
        facts: Facts,
    ) -> Self {
        let mut findings = generator::check(generator);
        findings.extend(runtime::check_problems(&problems));
        let answers = |f: &Finding| !f.not_ready && f.code != "list_failed";
        let is_usable = findings.iter().all(answers);
        let is_over = |fact: &Finding| is_usable && runtime::UNUSABLE.contains(&fact.code);
        findings.extend(facts.findings(now).filter(|fact| !is_over(fact)));
        Self::new(now, health, facts, ready, arrange(findings), problems)
    }

    pub(crate) fn has(&self, code: &str) -> bool {
        self.findings.iter().any(|finding| finding.code == code)
    }

    pub(crate) fn age(&self, since: Instant) -> f64 {
        self.now.since(since).as_secs_f64()
    }
}
