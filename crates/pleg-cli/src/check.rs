//! `pleg check`: a custom plugin of the node-problem-detector. It asks the agent, prints one line, and
//! exits with 0 (no problem), 1 (a problem) or 2 (unknown).

use std::io::Write as _;
use std::process::ExitCode;

use crate::agent_client::AgentClient;
use crate::args::CheckArgs;
use crate::text::clip;

/// The most characters of the line: what the node-problem-detector keeps by default.
const MOST_TEXT: usize = 80;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Ok,
    Problem(String),
    Unknown(String),
}

pub(crate) async fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let outcome = match ask(&args).await {
        Ok(body) => judge(&body, args.ready_only),
        Err(error) => Outcome::Unknown(format!("{error:#}")),
    };
    let (code, text) = match &outcome {
        Outcome::Ok => (0, "ok"),
        Outcome::Problem(text) => (1, &**text),
        Outcome::Unknown(text) => (2, &**text),
    };
    writeln!(
        anstream::stdout(),
        "{}",
        clip(&crate::text::safe(text), MOST_TEXT)
    )?;
    Ok(ExitCode::from(code))
}

async fn ask(args: &CheckArgs) -> anyhow::Result<String> {
    let client = AgentClient::new(args.agent.clone(), &args.client)?;
    Ok(client.get("/readyz").await?.1)
}

/// Reads what `/readyz` shows: the first reason that is a problem. The pod that hangs or fails longest
/// is named first, because the line is short.
fn judge(body: &str, ready_only: bool) -> Outcome {
    let mut lines = body.lines();
    match lines.next() {
        Some("ok" | "ok (brief)") if ready_only => return Outcome::Ok,
        Some("ok") => {}
        Some("ok (brief)") => {
            let text = "ready; degraded reasons are shown only with the token (--token-file)";
            return Outcome::Unknown(text.to_owned());
        }
        Some(line) => {
            return match line.strip_prefix("not ready") {
                Some("") => Outcome::Problem(line.to_owned()),
                Some(rest) => Outcome::Problem(rest.trim().to_owned()),
                None => Outcome::Unknown("the agent sent something else".to_owned()),
            };
        }
        None => return Outcome::Unknown("the agent sent nothing".to_owned()),
    }
    let rest: Vec<&str> = lines.collect();
    let line = |prefix| rest.iter().find_map(|line| line.strip_prefix(prefix));
    // A runtime that does not answer is also the cause of slow lists and hung pods.
    let silent = rest.iter().find_map(|line| {
        let reason = line.strip_prefix("degraded ")?;
        reason.starts_with("(runtime_silent)").then_some(reason)
    });
    match (silent.or_else(|| line("degraded ")), line("pod ")) {
        (None, _) => Outcome::Ok,
        (Some(reason), Some(pod)) if reason.starts_with("(pods_") => {
            Outcome::Problem(pod.to_owned())
        }
        (Some(reason), _) => Outcome::Problem(reason.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_reason_decides() {
        let problem = |text: &str| Outcome::Problem(text.to_owned());
        for (body, outcome) in [
            ("ok\n", Outcome::Ok),
            ("ok\npolling: a kubelet subscribes\n", Outcome::Ok),
            (
                "ok\ndegraded (stream_down) for 4s: no event stream\n",
                problem("(stream_down) for 4s: no event stream"),
            ),
            (
                "ok\ndegraded (pods_hung): 1 hangs\npod a/b (u) hung for 4s: x\n",
                problem("a/b (u) hung for 4s: x"),
            ),
            (
                "ok\ndegraded (list_slow): x\ndegraded (runtime_silent) for 3s: y\npod a/b hung: z\n",
                problem("(runtime_silent) for 3s: y"),
            ),
            ("not ready (stale): too old\n", problem("(stale): too old")),
            ("not ready\n", problem("not ready")),
        ] {
            assert_eq!(judge(body, false), outcome, "{body}");
        }
        // Without the token the agent does not say whether anything is degraded.
        assert!(matches!(judge("ok (brief)\n", false), Outcome::Unknown(_)));
        assert_eq!(judge("ok (brief)\n", true), Outcome::Ok);
        let degraded = "ok\ndegraded (stream_down): no event stream\n";
        assert_eq!(judge(degraded, true), Outcome::Ok);
        assert_eq!(judge("not ready (stale): x\n", true), problem("(stale): x"));
        for body in ["", "<html>\n"] {
            assert!(matches!(judge(body, false), Outcome::Unknown(_)), "{body}");
        }
    }
}
