//! `pleg watch` of an agent: shows its recent records, and then each new one.

use pleg::core::Instant;
use pleg::runtime::clock::{Clock, wall};

use super::*;
use crate::record::Page;
use crate::text::duration;

/// The agent is asked for new records once in this time.
const PERIOD: Duration = Duration::from_millis(500);
/// The code of the record which says that the agent does not answer.
const SILENT: &str = "agent_silent";

pub(super) async fn run(
    client: &AgentClient,
    since: Option<Duration>,
    printer: Printer,
) -> anyhow::Result<()> {
    let clock = Clock::start();
    let since = since.map_or(0, |since| since.as_secs().max(1));
    let (head, mut records) = client.events(&format!("since={since}")).await?;
    // The agent keeps a bounded number of records, and none from before its start.
    let complete = head.time.as_second() - head.complete_since.as_second();
    if u64::try_from(complete).is_ok_and(|complete| complete < since) {
        let begin = head.complete_since;
        notice(&format!("the agent's records begin at {begin}"));
    }
    let mut follower = Follower {
        agent: head.agent,
        last: head.last,
        silent_since: None,
        clock,
    };
    let mut more = head.more;
    loop {
        for record in &records {
            printer.print(record)?;
        }
        if !more {
            clock.sleep_until(clock.now().after(PERIOD)).await;
        }
        let answer = client.events(&format!("after={}", follower.last)).await;
        (records, more) = follower.answered(answer);
    }
}

/// The position in the agent's records.
struct Follower {
    agent: String,
    last: u64,
    silent_since: Option<Instant>,
    clock: Clock,
}

impl Follower {
    /// The records to show after an answer, and whether there are more.
    fn answered(&mut self, answer: anyhow::Result<(Page, Vec<Record>)>) -> (Vec<Record>, bool) {
        let (now, at) = (self.clock.now(), wall());
        let (head, records) = match answer {
            Ok(answer) => answer,
            Err(_) if self.silent_since.is_some() => return (Vec::new(), false),
            Err(error) => {
                self.silent_since = Some(now);
                let message = format!("{error:#}; trying again");
                let record = Record::health(DEGRADED, at, SILENT, message);
                return (vec![record], false);
            }
        };
        let mut shown = Vec::new();
        if let Some(since) = self.silent_since.take() {
            let unanswered = now.since(since);
            let lasted = duration(unanswered);
            let message = format!("the agent answers again; no answer for {lasted}");
            shown.push(Record {
                seconds: Some(unanswered.as_secs_f64()),
                ..Record::health(RECOVERED, at, SILENT, message)
            });
        }
        if head.agent != self.agent {
            // The agent was restarted: its numbers start again, and it does not know which records were lost.
            (self.agent, self.last) = (head.agent, 0);
            let message = "the agent was restarted: its last records may not be shown";
            shown.push(Record {
                message: Some(message.to_owned()),
                ..Record::new(LAGGED, at)
            });
            return (shown, true);
        }
        if head.missed > 0 {
            shown.push(Record::lagged(at, head.missed, "records"));
        }
        self.last = head.last;
        shown.extend(records);
        (shown, head.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(agent: &str, missed: u64, last: u64) -> Page {
        Page {
            agent: agent.to_owned(),
            missed,
            last,
            ..Page::default()
        }
    }

    fn types(records: &[Record]) -> Vec<&str> {
        records.iter().map(|r| &*r.r#type).collect()
    }

    #[tokio::test]
    async fn silent_or_restarted_agent_and_lost_records_are_shown() {
        let mut follower = Follower {
            agent: "a".to_owned(),
            last: 7,
            silent_since: None,
            clock: Clock::start(),
        };
        let (shown, _) = follower.answered(Ok((page("a", 3, 12), vec![Record::default()])));
        assert_eq!(types(&shown), [LAGGED, ""]);
        assert_eq!((shown[0].missed, follower.last), (Some(3), 12));
        let silent = || Err(anyhow::anyhow!("it does not answer"));
        assert_eq!(types(&follower.answered(silent()).0), [DEGRADED]);
        assert_eq!(types(&follower.answered(silent()).0), [""; 0]);
        let (shown, again) = follower.answered(Ok((page("b", 0, 2), vec![])));
        assert_eq!((types(&shown), again), (vec![RECOVERED, LAGGED], true));
        assert_eq!((&*follower.agent, follower.last), ("b", 0));
    }
}
