//! The source of the views of `pleg top`: a generator of its own, or an agent.

use pleg::Pleg;
use pleg::core::Settings;
use tokio::sync::{mpsc, watch};

use super::*;
use crate::agent_client::AgentClient;
use crate::args::Output;
use crate::connect::Target;
use crate::observer::Observer;
use crate::picture::facts::Collector;

/// The period at which a view is computed, or requested from an agent.
const PERIOD: Duration = Duration::from_millis(250);
/// After a view, the pause is at least this many times as long as the view's computation: large nodes take long.
const PAUSE: u32 = 9;

#[derive(derive_more::Constructor)]
pub(super) struct Answer {
    pub(super) query: Query,
    pub(super) at: Instant,
    pub(super) view: Result<Arc<View>, String>,
}

#[derive(derive_more::Constructor)]
pub(super) struct Source {
    queries: watch::Sender<Query>,
    pub(super) answers: mpsc::Receiver<Answer>,
    /// The generator of this command, and its runtime. `None` if the command gets its views from an agent.
    own: Option<(Pleg, Target)>,
}

impl Source {
    /// Starts to observe the runtime, or to ask the agent, which must answer the first time.
    pub(super) async fn start(args: &TopArgs, query: Query) -> anyhow::Result<Self> {
        let (node, own) = match &args.agent {
            Some(url) => {
                let client = AgentClient::new(url.clone(), &args.client)?;
                client.view(&query).await?;
                (Node::Agent(client), None)
            }
            None => {
                let (observer, pleg, target) = observe(args).await?;
                (Node::Own(observer), Some((pleg, target)))
            }
        };
        let (queries, requests) = watch::channel(query);
        let (answer, answers) = mpsc::channel(1);
        tokio::spawn(serve(node, requests, answer));
        Ok(Self::new(queries, answers, own))
    }

    pub(super) fn ask(&self, query: Query) {
        if *self.queries.borrow() != query {
            self.queries.send_replace(query);
        }
    }

    pub(super) async fn close(self) {
        if let Some((pleg, target)) = self.own {
            pleg.shutdown().await;
            target.close().await;
        }
    }
}

/// Starts a generator. If the runtime does not answer, the view shows that.
async fn observe(args: &TopArgs) -> anyhow::Result<(Arc<Observer>, Pleg, Target)> {
    let (target, _) = Target::choose_or_simulate(&args.connection.runtime, Output::Table)?;
    let (pleg, events) = target.spawn(args.connection.events, Settings::default())?;
    let observer = Observer::new(&target, &pleg);
    let (observing, collector) = (observer.clone(), Collector::new(&target, &pleg)?);
    tokio::spawn(async move { observing.run(events, collector).await });
    Ok((observer, pleg, target))
}

enum Node {
    Own(Arc<Observer>),
    Agent(AgentClient),
}

async fn serve(node: Node, mut queries: watch::Receiver<Query>, answers: mpsc::Sender<Answer>) {
    let clock = Clock::start();
    loop {
        let query = queries.borrow_and_update().clone();
        let began = clock.now();
        let view = match &node {
            Node::Own(observer) => Ok(observer.view(&query)),
            Node::Agent(client) => client.view(&query).await,
        };
        let at = clock.now();
        let pause = PERIOD.max(PAUSE * at.since(began));
        let view = view.map(Arc::new).map_err(|error| format!("{error:#}"));
        if answers.send(Answer::new(query, at, view)).await.is_err() {
            return;
        }
        tokio::select! {
            changed = queries.changed() => if changed.is_err() { return },
            () = clock.sleep_until(at.after(pause)) => {}
        }
    }
}
