//! `pleg check`, a plugin of the node-problem-detector: prints one line; exits with 0 (ok), 1 (problem), 2 (unknown).

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::bail;

use crate::agent_client::AgentClient;
use crate::args::CheckArgs;
use crate::text::{clip, lasting, lower, safe};
use crate::view::{Query, Reason, View};

/// The maximum length of the printed line in characters. The node-problem-detector keeps this many by default.
const MOST_TEXT: usize = 80;

pub(crate) async fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let (code, text) = match ask(&args).await {
        Ok(None) => (0, "ok".to_owned()),
        Ok(Some(problem)) => (1, problem),
        Err(error) => (2, format!("{error:#}")),
    };
    writeln!(anstream::stdout(), "{}", clip(&safe(&text), MOST_TEXT))?;
    Ok(ExitCode::from(code))
}

async fn ask(args: &CheckArgs) -> anyhow::Result<Option<String>> {
    let client = AgentClient::new(args.agent.clone(), &args.client)?;
    if args.ready_only {
        // `/readyz` needs no token.
        let (code, body) = client.get("/readyz").await?;
        let first = body.lines().next().unwrap_or_default();
        return match code.as_u16() {
            200 => Ok(None),
            503 => Ok(Some(first.trim_start_matches("not ready ").to_owned())),
            code => bail!("the agent answers with status {code}"),
        };
    }
    let query = Query {
        limit: 1,
        ..Query::default()
    };
    Ok(problem(&client.view(&query).await?))
}

/// The first finding. If it is about pods, names only one pod, the first by state and name, to keep the line short.
fn problem(view: &View) -> Option<String> {
    let reason = view.health.reasons.first()?;
    let of_pods = reason.code.starts_with("pods_");
    let row = view.pods.rows.first().filter(|_| of_pods);
    let of_pod = row.and_then(|row| {
        let (pod, problem) = (row.pod.shown(), row.problem.as_ref()?);
        let (state, lasted) = (lower(row.state), lasting(row.problem_seconds));
        Some(format!("{pod} {state}{lasted}: {problem}"))
    });
    of_pod.or_else(|| Some(sentence(reason)))
}

/// A finding as a sentence such as `(code) for 4s: message`.
pub(crate) fn sentence(reason: &Reason) -> String {
    let Reason { code, message, .. } = reason;
    format!("({code}){}: {message}", lasting(reason.seconds))
}
