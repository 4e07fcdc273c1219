//! The state of `pleg top`, and how the answers of `Source` change it. No I/O: time is an argument.

use super::*;

/// After this time without an answer from the source of the views, the screen says that its data is old.
const OLD_AFTER: Duration = Duration::from_secs(3);
const RECORDS: usize = 100;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Page {
    #[default]
    Pods,
    /// The page of the pod whose uid is in `App::pod`.
    Pod,
    Node,
    Help,
}

#[derive(Clone, Debug)]
pub(super) struct Prompt {
    pub(super) field: Field,
    pub(super) text: String,
    pub(super) error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Search,
    Namespace,
    Labels,
}

#[derive(Default)]
pub(super) struct App {
    pub(super) colour: bool,
    /// The filters and the order of the pods. [`App::wanted`] adds the rows, details and number of records to show.
    pub(super) query: Query,
    pub(super) page: Page,
    pub(super) pod: String,
    pub(super) prompt: Option<Prompt>,
    pub(super) feed_only: bool,
    pub(super) paused: bool,
    /// The place of the cursor among the pods that match.
    pub(super) cursor: usize,
    /// The uid of the pod that the cursor follows, or an empty text.
    pub(super) selected: String,
    pub(super) top: usize,
    pub(super) expanded: HashSet<String>,
    pub(super) all_expanded: bool,
    /// The number of the page's lines that are above the first visible line.
    pub(super) scroll: usize,
    pub(super) has_halves: bool,
    /// The number of lines that the list or the page has on the screen.
    pub(super) height: usize,
    pub(super) view: Option<Arc<View>>,
    /// The instant of the last answer, even if its view is not shown because of a pause.
    pub(super) answered: Option<Instant>,
    pub(super) error: Option<String>,
}

impl App {
    pub(super) fn new(namespace: Option<String>, labels: Option<Selector>, colour: bool) -> Self {
        let mut app = Self::default();
        (app.colour, app.height) = (colour, 20);
        (app.query.namespace, app.query.labels) = (namespace.unwrap_or_default(), labels);
        app
    }

    pub(super) fn wanted(&self) -> Query {
        let limit = (3 * self.height).clamp(60, MOST_ROWS);
        let mut query = Query {
            offset: self.cursor.saturating_sub(limit / 2),
            limit,
            records: RECORDS,
            selected: self.selected.clone(),
            pod: self.detailed(),
            ..self.query.clone()
        };
        if let Some(prompt) = &self.prompt
            && prompt.field == Field::Search
        {
            query.search.clone_from(&prompt.text);
        }
        query
    }

    /// The uid of the pod that is shown in detail, or an empty text.
    pub(super) fn detailed(&self) -> String {
        match self.page {
            Page::Pod => self.pod.clone(),
            Page::Pods if self.has_halves => self.at_cursor(),
            _ => String::new(),
        }
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        self.error = answer.view.as_ref().err().cloned();
        let Ok(view) = answer.view else { return };
        self.answered = Some(answer.at);
        if self.paused {
            self.take_detail(&view);
            return;
        }
        let page = &view.pods;
        // Ignore the place in the list of a pod that was selected when the query was sent, but is not selected now.
        if !self.selected.is_empty() && answer.query.selected == self.selected {
            match page.selected {
                Some(at) => self.cursor = at,
                // The selected pod is gone, or does not match the filters any more.
                None => self.selected.clear(),
            }
        }
        self.cursor = self.cursor.min(page.matching.saturating_sub(1));
        self.view = Some(view);
        if self.selected.is_empty() && self.cursor > 0 {
            self.follow();
        }
    }

    /// While paused: shows the detail of a pod that was opened or selected, and changes nothing else.
    fn take_detail(&mut self, answered: &View) {
        let wanted = self.detailed();
        let is_of = |view: &View| {
            let detail = view.detail.as_ref();
            detail.is_some_and(|detail| detail.row.pod.uid == wanted)
        };
        if let Some(shown) = &mut self.view
            && !is_of(shown)
            && is_of(answered)
        {
            Arc::make_mut(shown).detail = answered.detail.clone();
        }
    }

    /// Makes the cursor follow its pod. But a cursor on the first line stays there, because problems appear there.
    pub(super) fn follow(&mut self) {
        self.selected = match self.cursor {
            0 => String::new(),
            _ => self.at_cursor(),
        };
    }

    /// The uid of the pod at the cursor; empty if there is none.
    pub(super) fn at_cursor(&self) -> String {
        let pods = self.view.as_ref().map(|view| &view.pods);
        let row = pods.and_then(|pods| pods.rows.get(self.cursor.checked_sub(pods.offset)?));
        row.map_or_else(String::new, |row| row.pod.uid.clone())
    }

    pub(super) fn is_expanded(&self, row: &PodRow) -> bool {
        self.all_expanded != self.expanded.contains(&row.pod.uid)
    }

    pub(super) fn lines(&self, row: &PodRow) -> usize {
        match self.is_expanded(row) {
            true => 1 + row.containers.len() + usize::from(row.more_containers > 0),
            false => 1,
        }
    }

    /// Scrolls the list so that the cursor is visible: `top` becomes the place of the first pod on the screen.
    pub(super) fn scroll_to_cursor(&mut self, height: usize) {
        self.height = height;
        let Some(view) = self.view.clone() else {
            return;
        };
        self.top = self.top.min(self.cursor).max(view.pods.offset);
        let lines = |at: usize| {
            let row = at.checked_sub(view.pods.offset);
            let row = row.and_then(|at| view.pods.rows.get(at));
            row.map_or(1, |row| self.lines(row))
        };
        let mut needed: usize = (self.top..=self.cursor).map(lines).sum();
        let mut top = self.top;
        while needed > height && top < self.cursor {
            needed -= lines(top);
            top += 1;
        }
        self.top = top;
    }

    /// The time since the last answer, if it is at least [`OLD_AFTER`], or if the last query failed.
    pub(super) fn unanswered_for(&self, now: Instant) -> Option<Duration> {
        let silent = now.since(self.answered?);
        (silent >= OLD_AFTER || self.error.is_some()).then_some(silent)
    }
}
