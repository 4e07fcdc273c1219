//! The effects of the keys in `pleg top`.

use super::*;

/// The help: keys, and from column 12 on what they do. Each line fits into 80 columns.
pub(super) const HELP: &str = "\
↑ ↓  j k    move; in a pod or on the node's page: scroll
PgUp PgDn   move by a screen
g G         first and last pod; a cursor at the first place stays there
Enter       show the pod: containers, labels, ends, history; Esc: back
Space       show or hide the containers of the pod
e           show or hide the containers of all pods
/           search in names, uids, containers, ids and images
n           only one namespace
l           only pods with labels, such as app=web,tier!=cache
c           clear search, namespace and labels
s           sort by state, name, restarts, change or freshness
r           reverse the order
f           only the events, or pods and events
h           the node: all findings, latencies and calls
p           pause: nothing new is shown; again: go on
?           this help
q  Ctrl-C   quit
FRESH       age of the read that confirmed the state; events: no read has yet
";

impl App {
    /// Handles a key. `Break` ends the command.
    pub(super) fn key(&mut self, key: KeyEvent) -> ControlFlow<()> {
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            _ if key.kind == KeyEventKind::Release => {}
            KeyCode::Char('c') if has_control => return ControlFlow::Break(()),
            _ if self.prompt.is_some() => self.type_key(key),
            KeyCode::Char('q') => return ControlFlow::Break(()),
            KeyCode::Char('?') => self.toggle(Page::Help),
            KeyCode::Char('h') => self.toggle(Page::Node),
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Esc | KeyCode::Backspace => self.back(),
            #[cfg(debug_assertions)]
            #[expect(clippy::panic, reason = "a test checks that the terminal is restored")]
            KeyCode::F(12) => panic!("F12 was pressed"),
            KeyCode::Char(' ') if self.page != Page::Pods => self.scroll += self.height,
            code => match self.moved(code) {
                Some(place) if self.page == Page::Pods => self.move_to(place),
                Some(place) => self.scroll = place,
                None if self.page == Page::Pods => self.list_key(code),
                None => {}
            },
        }
        ControlFlow::Continue(())
    }

    fn toggle(&mut self, page: Page) {
        self.scroll = 0;
        self.page = if self.page == page { Page::Pods } else { page };
    }

    /// Leaves the page. On the page of pods, shows the pods again if only events are shown, else clears the search.
    fn back(&mut self) {
        match self.page {
            Page::Pods if self.feed_only => self.feed_only = false,
            Page::Pods => self.query.search.clear(),
            _ => self.toggle(Page::Pods),
        }
    }

    fn list_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => {
                self.pod = self.at_cursor();
                if !self.pod.is_empty() {
                    self.toggle(Page::Pod);
                }
            }
            KeyCode::Char(' ') => {
                let uid = self.at_cursor();
                if !self.expanded.remove(&uid) {
                    self.expanded.insert(uid);
                }
            }
            KeyCode::Char('e') => {
                self.all_expanded = !self.all_expanded;
                self.expanded.clear();
            }
            KeyCode::Char('/') => self.ask(Field::Search),
            KeyCode::Char('n') => self.ask(Field::Namespace),
            KeyCode::Char('l') => self.ask(Field::Labels),
            KeyCode::Char('c') => {
                self.query = Query {
                    sort: self.query.sort,
                    reverse: self.query.reverse,
                    ..Query::default()
                };
            }
            KeyCode::Char('s') => self.query.sort = self.query.sort.next(),
            KeyCode::Char('r') => self.query.reverse = !self.query.reverse,
            KeyCode::Char('f') => self.feed_only = !self.feed_only,
            _ => {}
        }
    }

    /// For a key that moves: the new place of the cursor in the list, or the new first visible line of a page.
    fn moved(&self, key: KeyCode) -> Option<usize> {
        let from = match self.page {
            Page::Pods => self.cursor,
            _ => self.scroll,
        };
        let screen = self.height.max(1);
        Some(match key {
            KeyCode::Up | KeyCode::Char('k') => from.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => from + 1,
            KeyCode::PageUp => from.saturating_sub(screen),
            KeyCode::PageDown => from + screen,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => usize::MAX / 2,
            _ => return None,
        })
    }

    fn move_to(&mut self, place: usize) {
        let matching = self.view.as_ref().map_or(0, |view| view.pods.matching);
        self.cursor = place.min(matching.saturating_sub(1));
        self.follow();
    }

    fn ask(&mut self, field: Field) {
        let labels = self.query.labels.as_ref().map(ToString::to_string);
        self.prompt = Some(Prompt {
            field,
            text: match field {
                // A search begins with an empty text, as in the pager `less`.
                Field::Search => String::new(),
                Field::Namespace => self.query.namespace.clone(),
                Field::Labels => labels.unwrap_or_default(),
            },
            error: None,
        });
    }

    fn type_key(&mut self, key: KeyEvent) {
        let Some(prompt) = &mut self.prompt else {
            return;
        };
        prompt.error = None;
        match key.code {
            KeyCode::Esc => self.prompt = None,
            KeyCode::Enter => self.use_prompt(),
            KeyCode::Backspace => drop(prompt.text.pop()),
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                prompt.text.clear();
            }
            KeyCode::Char(c) if prompt.text.len() < 256 => prompt.text.push(c),
            _ => {}
        }
    }

    fn use_prompt(&mut self) {
        let Some(mut prompt) = self.prompt.take() else {
            return;
        };
        let text = prompt.text.trim();
        match prompt.field {
            Field::Search => self.query.search = text.to_owned(),
            Field::Namespace => self.query.namespace = text.to_owned(),
            Field::Labels if text.is_empty() => self.query.labels = None,
            Field::Labels => match text.parse() {
                Ok(labels) => self.query.labels = Some(labels),
                Err(error) => {
                    prompt.error = Some(error);
                    self.prompt = Some(prompt);
                    return;
                }
            },
        }
        self.move_to(0);
    }
}
