//! `pleg watch` with `--agent` or `--since`: shows the agent's recent records, and then each new one.

use pleg::core::Instant;
use pleg::runtime::clock::{Clock, wall};

use super::*;
use crate::record::Page;
use crate::text::duration;

/// The period at which this command asks the agent for new records.
const PERIOD: Duration = Duration::from_millis(500);
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
    let silent_since = None;
    let mut follower = Follower { head, silent_since };
    loop {
        for record in &records {
            printer.print(record)?;
        }
        if !follower.head.more {
            clock.sleep_until(clock.now().after(PERIOD)).await;
        }
        let query = format!("after={}", follower.head.last);
        records = follower.answered(client.events(&query).await);
    }
}

struct Follower {
    /// The first line of the agent's last answer. The next request asks for the records after number `last`.
    head: Page,
    silent_since: Option<Instant>,
}

impl Follower {
    /// The records to show after an answer of the agent, or after a request that failed.
    fn answered(&mut self, answer: anyhow::Result<(Page, Vec<Record>)>) -> Vec<Record> {
        let (now, at) = (Clock::start().now(), wall());
        let (head, records) = match answer {
            Ok(answer) => answer,
            Err(_) if self.silent_since.is_some() => return Vec::new(),
            Err(error) => {
                (self.silent_since, self.head.more) = (Some(now), false);
                let message = format!("{error:#}; trying again");
                return vec![Record::health(DEGRADED, at, SILENT, message)];
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
        if head.agent != self.head.agent {
            // The agent was restarted: its record numbers start again, and the number of lost records is not known.
            let (last, more) = (0, true);
            self.head = Page { last, more, ..head };
            let message = "the agent was restarted: its last records may not be shown";
            shown.push(Record {
                message: Some(message.to_owned()),
                ..Record::new(LAGGED, at)
            });
            return shown;
        }
        if head.missed > 0 {
            shown.push(Record::lagged(at, head.missed, "records"));
        }
        self.head = head;
        shown.extend(records);
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(records: &[Record]) -> Vec<&str> {
        records.iter().map(|r| &*r.r#type).collect()
    }

    #[tokio::test]
    async fn failed_requests_agent_restart_and_dropped_records_are_shown() {
        let page = |agent: &str, missed, last| Page {
            agent: agent.to_owned(),
            missed,
            last,
            ..Page::default()
        };
        let (head, silent_since) = (page("a", 0, 7), None);
        let mut follower = Follower { head, silent_since };
        let shown = follower.answered(Ok((page("a", 3, 12), vec![Record::default()])));
        assert_eq!(types(&shown), [LAGGED, ""]);
        assert_eq!((shown[0].missed, follower.head.last), (Some(3), 12));
        let silent = || Err(anyhow::anyhow!("it does not answer"));
        assert_eq!(types(&follower.answered(silent())), [DEGRADED]);
        assert_eq!(types(&follower.answered(silent())), [""; 0]);
        let shown = follower.answered(Ok((page("b", 0, 2), vec![])));
        assert_eq!(types(&shown), [RECOVERED, LAGGED]);
        let head = &follower.head;
        assert_eq!((&*head.agent, head.last, head.more), ("b", 0, true));
    }
}
