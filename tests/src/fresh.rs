//! Read-your-writes: right after a call has returned, `newer_than` shows its effect.

use std::time::Duration;

use pleg::core::{Id, ReportedState};

use crate::check::{listing, states};
use crate::generator::Generator;
use crate::kubelet::{Kubelet, Life, Pod};

/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// The measured answers.
#[derive(Debug, Default)]
pub struct Answers {
    /// How long each took.
    took: Vec<Duration>,
    /// Those that did not show the effect of the call.
    pub stale: usize,
}

impl Answers {
    /// The number of answers.
    pub fn count(&self) -> usize {
        self.took.len()
    }

    /// The time within which that percentage of answers arrived.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut took = self.took.clone();
        took.sort_unstable();
        took.get(took.len() * percent / 100)
            .copied()
            .unwrap_or_default()
    }
}

/// Starts, stops and removes a container and its pod, that many times, and waits for a newer state
/// after each call.
///
/// # Errors
/// If a call fails, or an answer does not arrive or is too old.
pub async fn read_your_writes(
    generator: &Generator,
    kubelet: &Kubelet,
    rounds: usize,
) -> anyhow::Result<Answers> {
    let mut answers = Answers::default();
    for n in 0..rounds {
        let pod = kubelet.run_pod(&format!("pod-{n}")).await?;
        let id = kubelet.run(&pod, "app", 0, Life::UntilStopped).await?;
        let mut shows = async |id: &Id, expected: &[ReportedState]| {
            answers.wait(generator, &pod, id, expected).await
        };
        shows(&id, &[ReportedState::Running]).await?;
        kubelet.stop(&id).await?;
        shows(&id, &[ReportedState::Exited]).await?;
        kubelet.remove(&id).await?;
        shows(&id, &[]).await?;
        kubelet.stop_pod(&pod).await?;
        kubelet.remove_pod(&pod).await?;
        shows(&pod.sandbox, &[]).await?;
    }
    Ok(answers)
}

impl Answers {
    async fn wait(
        &mut self,
        generator: &Generator,
        pod: &Pod,
        id: &Id,
        expected: &[ReportedState],
    ) -> anyhow::Result<()> {
        let pleg = &generator.pleg;
        let asked = pleg.now();
        let view = pleg.newer_than(&pod.uid, asked, DEADLINE).await?;
        self.took.push(pleg.now().since(asked));
        anyhow::ensure!(
            view.as_of >= Some(asked),
            "{view:?} is older than {asked:?}"
        );
        let states = states(&view).into_iter();
        let shown: Vec<_> = states.filter(|(i, _)| i == id).map(|(_, s)| s).collect();
        if shown != expected {
            let listed = listing(&generator.observer).await?.remove(id);
            println!("{id}: shown {shown:?}, expected {expected:?}, now listed {listed:?}");
            self.stale += 1;
        }
        Ok(())
    }
}
