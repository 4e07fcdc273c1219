//! `/debug/live`: a node's records (events, health changes) and its view, as server-sent events for the page at `/`.
//!
//! Messages with records have ids: a client that connects again gets no record twice, and misses only those that the
//! agent has dropped. The first view of a connection is complete. Each later view is a patch of the view before it, to
//! save bytes. The agent computes the next message only when the client has received the one before it.

use futures::{Stream, stream};

use super::*;

/// The maximum number of clients of `/debug/live`. For each, the agent keeps the last view it sent: usually 60 kB.
pub(super) const CLIENTS: usize = 16;
/// The pause after a message with records, so that many records in a short time need few messages.
const RECORDS_PAUSE: Duration = Duration::from_millis(50);
/// The pause between two views while pods, events or health of the node change.
const VIEW_PAUSE: Duration = Duration::from_millis(250);
/// The pause between two views while nothing changes. After 7 s without a message, the page says its data is old.
const IDLE_PAUSE: Duration = Duration::from_secs(2);
/// The age of the oldest records that a client gets when it connects for the first time.
const HISTORY: Duration = Duration::from_secs(15 * 60);

/// The messages for one client. `last_id` is the id of the last message that it got before it connected again.
pub(super) fn stream(
    permit: OwnedSemaphorePermit,
    observer: Arc<Observer>,
    query: Query,
    last_id: Option<&str>,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + use<> {
    let last = last_id.and_then(|id| id.rsplit_once('/'));
    let known = last.filter(|(agent, _)| *agent == observer.lines(None, u64::MAX).head.agent);
    let clock = observer.pleg.clock();
    let now = clock.now();
    let client = Client {
        _permit: permit,
        changes: observer.changes(),
        observer,
        query,
        sent: known.map_or(0, |(_, number)| number.parse().unwrap_or(0)),
        // A client that connects again gets all records after `last_id`, or all records if the agent was restarted.
        since: last.is_none().then(|| clock.wall().before(HISTORY)),
        has_changed: true,
        records_due: now,
        view_due: now,
        view_sent: now,
        view: None,
    };
    stream::unfold(client, |mut client| async {
        Some((Ok(Frame::data(client.next().await?.into())), client))
    })
}

struct Client {
    _permit: OwnedSemaphorePermit,
    observer: Arc<Observer>,
    changes: watch::Receiver<u64>,
    query: Query,
    sent: u64,
    /// The earliest time of the records to send. `None`: sends records of any age.
    since: Option<WallTime>,
    has_changed: bool,
    /// The next message with records is sent at this instant or later; the next view is sent at `view_due`.
    records_due: Instant,
    view_due: Instant,
    view_sent: Instant,
    /// The last view that was sent, as JSON text: a `serde_json::Value` would need ten times the memory.
    view: Option<Box<str>>,
}

impl Client {
    async fn next(&mut self) -> Option<String> {
        let clock = self.observer.pleg.clock();
        loop {
            let now = clock.now();
            if self.has_changed && now >= self.records_due {
                if let Some(records) = self.records() {
                    self.records_due = now.after(RECORDS_PAUSE);
                    return Some(records);
                }
                self.has_changed = false;
            }
            if now >= self.view_due {
                self.view_sent = now;
                self.view_due = now.after(IDLE_PAUSE);
                return Some(self.view());
            }
            tokio::select! {
                () = clock.sleep_until(self.view_due) => {}
                () = clock.sleep_until(self.records_due), if self.has_changed => {}
                changed = self.changes.changed(), if !self.has_changed => {
                    changed.ok()?;
                    self.has_changed = true;
                    self.view_due = self.view_due.min(self.view_sent.after(VIEW_PAUSE));
                }
            }
        }
    }

    /// A message with one page of new records. `None` if there are none; but the first message may be without records.
    fn records(&mut self) -> Option<String> {
        let page = self.observer.lines(self.since, self.sent);
        if self.view.is_some() && page.lines.is_empty() && page.head.missed == 0 {
            return None;
        }
        self.since = None;
        self.sent = page.head.last;
        let id = format!("{}/{}", page.head.agent, page.head.last);
        let mut message = format!("event: records\nid: {id}\n");
        for line in String::from_utf8_lossy(&page.into_bytes()).lines() {
            message.extend(["data: ", line, "\n"]);
        }
        message.push('\n');
        Some(message)
    }

    fn view(&mut self) -> String {
        // Parses both views from text: parsing may change a number's last digit, and equal numbers would then differ.
        let read = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| json!({}));
        let mut view: Value = read(&with_moments(&self.observer.view(&self.query)).to_string());
        let last = self.view.as_deref().map_or_else(|| json!({}), read);
        let patch = difference(&last, &mut view).unwrap_or_else(|| json!({}));
        self.view = Some(view.to_string().into());
        format!("event: view\ndata: {patch}\n\n")
    }
}
