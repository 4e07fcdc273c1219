//! Runs a small world to its end, and tells a counterexample as a story.

use std::fmt;
use std::time::Duration;

use stateright::report::{ReportData, ReportDiscovery, Reporter};
use stateright::{Checker, HasDiscoveries, Model};

use super::cast::Cast;
use super::play::{Action, Play};
use super::worlds::World;

/// What a check came to.
#[derive(Debug)]
pub struct Verdict {
    pub world: &'static str,
    /// States generated, and how many of them were different.
    pub states: usize,
    pub unique: usize,
    pub depth: usize,
    pub took: Duration,
    /// A law that is broken, with the story of how.
    pub broken: Option<Counterexample>,
}

/// How a law was broken.
#[derive(Debug)]
pub struct Counterexample {
    pub law: String,
    pub steps: usize,
    pub story: String,
}

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// All there is, in little memory.
    All,
    /// The shortest counterexample first.
    Shortest,
}

/// Runs a world until nothing is left of it, or a law is broken.
pub fn check(world: &'static World, search: Search, threads: usize) -> Verdict {
    let checker = Cast::new(world)
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures);
    match search {
        Search::All => verdict(world, checker.spawn_dfs()),
        Search::Shortest => verdict(world, checker.spawn_bfs()),
    }
}

fn verdict(world: &'static World, checker: impl Checker<Cast> + Send + Sync) -> Verdict {
    let mut report = Report::default();
    let checker = checker.join_and_report(&mut report);
    let broken = checker.discoveries().into_iter().next().map(|(_, path)| {
        let steps = path.into_actions();
        tell(checker.model(), steps)
    });
    Verdict {
        world: world.name,
        states: checker.state_count(),
        unique: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: report.took,
        broken,
    }
}

/// Plays a counterexample once more, aloud.
fn tell(cast: &Cast, steps: Vec<Action>) -> Counterexample {
    let mut play = Play::begin(cast, true);
    play.tale = Some(Vec::new());
    let count = steps.len();
    for (n, action) in steps.into_iter().enumerate() {
        let told = play.tale.as_ref().map_or(0, Vec::len);
        play.act(action);
        if let Some(line) = play.tale.as_mut().and_then(|t| t.get_mut(told)) {
            *line = format!("{:>2}. {line}", n + 1);
        }
    }
    let law = play.state.broken.as_deref();
    let law = law.unwrap_or("a run does not come to rest").to_owned();
    let story = play.tale.unwrap_or_default().join("\n");
    Counterexample {
        law,
        steps: count,
        story,
    }
}

/// stateright measures how long it takes.
#[derive(Default)]
struct Report {
    took: Duration,
}

impl Reporter<Cast> for Report {
    fn report_checking(&mut self, data: ReportData) {
        self.took = data.duration;
    }

    fn report_discoveries(
        &mut self,
        _: &Cast,
        _: std::collections::BTreeMap<&'static str, ReportDiscovery<Cast>>,
    ) {
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(50)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            world,
            states,
            unique,
            depth,
            took,
            broken,
        } = self;
        let seconds = took.as_secs_f64();
        write!(
            f,
            "{world:<17} {states:>9} states {unique:>8} different  depth {depth:>2}  {seconds:>6.1} s  "
        )?;
        match broken {
            None => f.write_str("0 truncated, every law holds"),
            Some(found) => write!(f, "BROKEN after {} steps", found.steps),
        }
    }
}
