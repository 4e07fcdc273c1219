//! Searches the states of a small world and formats a counterexample as a trace.

use std::fmt;
use std::time::Duration;

use stateright::report::{ReportData, ReportDiscovery, Reporter};
use stateright::{Checker, HasDiscoveries, Model};

use super::execution::Execution;
use super::state::Action;
use super::world_model::WorldModel;
use super::worlds::World;

/// The result of a search.
#[derive(Debug)]
pub struct SearchReport {
    pub world: &'static str,
    /// The number of generated states, and of distinct ones.
    pub states: usize,
    pub unique: usize,
    pub depth: usize,
    pub took: Duration,
    /// A violation and its trace, if any.
    pub counterexample: Option<Counterexample>,
}

/// A violation and how it came about.
#[derive(Debug)]
pub struct Counterexample {
    pub violation: String,
    pub steps: usize,
    pub trace: String,
}

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Everything, in little memory.
    All,
    /// The shortest counterexample first.
    Shortest,
}

/// Searches until all states are visited or an invariant is violated.
pub fn check(world: &'static World, search: Search, threads: usize) -> SearchReport {
    let checker = WorldModel::new(world)
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures);
    match search {
        Search::All => search_report(world, checker.spawn_dfs()),
        Search::Shortest => search_report(world, checker.spawn_bfs()),
    }
}

fn search_report(
    world: &'static World,
    checker: impl Checker<WorldModel> + Send + Sync,
) -> SearchReport {
    let mut report = Report::default();
    let checker = checker.join_and_report(&mut report);
    let counterexample = checker.discoveries().into_iter().next().map(|(_, path)| {
        let steps = path.into_actions();
        replay(checker.model(), steps)
    });
    SearchReport {
        world: world.name,
        states: checker.state_count(),
        unique: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: report.took,
        counterexample,
    }
}

/// Replays a counterexample with a trace.
fn replay(model: &WorldModel, steps: Vec<Action>) -> Counterexample {
    let mut execution = Execution::begin(model, true);
    execution.trace = Some(Vec::new());
    let count = steps.len();
    for (n, action) in steps.into_iter().enumerate() {
        let messages = execution.trace.as_ref().map_or(0, Vec::len);
        execution.act(action);
        if let Some(line) = execution.trace.as_mut().and_then(|t| t.get_mut(messages)) {
            *line = format!("{:>2}. {line}", n + 1);
        }
    }
    let violation = execution.state.violation.as_deref();
    let violation = violation
        .unwrap_or("a run does not come to rest")
        .to_owned();
    let trace = execution.trace.unwrap_or_default().join("\n");
    Counterexample {
        violation,
        steps: count,
        trace,
    }
}

/// Captures the duration that stateright measures.
#[derive(Default)]
struct Report {
    took: Duration,
}

impl Reporter<WorldModel> for Report {
    fn report_checking(&mut self, data: ReportData) {
        self.took = data.duration;
    }

    fn report_discoveries(
        &mut self,
        _: &WorldModel,
        _: std::collections::BTreeMap<&'static str, ReportDiscovery<WorldModel>>,
    ) {
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(50)
    }
}

impl fmt::Display for SearchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            world,
            states,
            unique,
            depth,
            took,
            counterexample,
        } = self;
        let seconds = took.as_secs_f64();
        write!(
            f,
            "{world:<17} {states:>9} states {unique:>8} different  depth {depth:>2}  {seconds:>6.1} s  "
        )?;
        match counterexample {
            None => f.write_str("0 truncated, every invariant holds"),
            Some(found) => write!(f, "VIOLATION after {} steps", found.steps),
        }
    }
}
