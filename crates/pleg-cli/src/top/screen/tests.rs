//! Tests of the screen, on a terminal in memory.

mod trouble;

use std::collections::BTreeSet;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use pleg::core::{ContainerState, ContainerStatus, Instant};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

use crate::top::app::App;
use crate::top::keys::HELP;
use crate::top::source::Answer;
use crate::view::View;
use crate::view::tests::Sample;

const SIZES: [(u16, u16); 4] = [(60, 15), (80, 24), (120, 40), (200, 50)];

/// The command on a terminal in memory, which observes a sample.
struct Top {
    app: App,
    sample: Sample,
    /// Changes each view before it is shown.
    change: fn(&mut View),
    terminal: Terminal<TestBackend>,
    now: Instant,
}

impl Top {
    fn new(sample: Sample, (width, height): (u16, u16)) -> Self {
        let mut top = Self {
            app: App::new(None, None, true),
            now: sample.now,
            sample,
            change: |_| (),
            terminal: Terminal::new(TestBackend::new(width, height)).unwrap(),
        };
        top.answer();
        top
    }

    /// Answers as the source does, until the query stays the same.
    fn answer(&mut self) {
        for _ in 0..3 {
            let mut view = self.sample.view(&self.app.wanted());
            (self.change)(&mut view);
            self.answer_with(Ok(Arc::new(view)));
        }
    }

    fn answer_with(&mut self, view: Result<Arc<View>, String>) {
        let (query, at) = (self.app.wanted(), self.now);
        self.app.answer(Answer { query, at, view });
    }

    fn key(&mut self, code: KeyCode) -> bool {
        let outcome = self.app.key(KeyEvent::new(code, KeyModifiers::NONE));
        self.answer();
        outcome.is_break()
    }

    /// Types a text, in which `⏎` is Enter, `⎋` Escape and `↓` the arrow.
    fn keys(&mut self, text: &str) {
        for c in text.chars() {
            self.key(match c {
                '⏎' => KeyCode::Enter,
                '⎋' => KeyCode::Esc,
                '↓' => KeyCode::Down,
                c => KeyCode::Char(c),
            });
        }
    }

    fn buffer(&mut self) -> Buffer {
        let (app, now) = (&mut self.app, self.now);
        let drawn = self.terminal.draw(|frame| super::draw(frame, app, now));
        drawn.unwrap().buffer.clone()
    }

    /// The lines on the screen.
    fn lines(&mut self) -> Vec<String> {
        let buffer = self.buffer();
        let rows = buffer.content.chunks(usize::from(buffer.area.width));
        rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect())
            .collect()
    }

    #[track_caller]
    fn shows(&mut self, text: &str) {
        let screen = self.lines().join("\n");
        assert!(screen.contains(text), "{text:?} is not on\n{screen}");
    }

    #[track_caller]
    fn hides(&mut self, text: &str) {
        let screen = self.lines().join("\n");
        assert!(!screen.contains(text), "{text:?} is on\n{screen}");
    }

    /// The place and the text of the line of the pod.
    #[track_caller]
    fn find(&mut self, pod: &str) -> (u16, String) {
        let is_it = |line: &String| line.get(2..).is_some_and(|l| l.starts_with(pod));
        let mut lines = (0..).zip(self.lines());
        let found = lines.find(|(_, line)| is_it(line));
        found.unwrap_or_else(|| panic!("no {pod}"))
    }

    #[track_caller]
    fn line_of(&mut self, pod: &str) -> String {
        self.find(pod).1
    }

    #[track_caller]
    fn cursor_is_at(&mut self, pod: &str) {
        assert!(self.line_of(pod).starts_with('>'), "{pod}");
        let lines = self.lines();
        assert_eq!(lines.iter().filter(|l| l.starts_with('>')).count(), 1);
    }
}

#[test]
fn list_shows_pods_with_states_at_each_size() {
    for size in SIZES {
        let mut top = Top::new(Sample::new(), size);
        for text in [
            "ready",
            "3 pods, 5 containers (3 running)",
            "stream confirmed",
            "? help",
        ] {
            top.shows(text);
        }
        let dns = top.line_of("system/dns");
        assert!(dns.starts_with(">x") && dns.contains("Exited"), "{dns}");
        assert!(dns.contains("0/1"), "{dns}");
        let cart = top.line_of("shop/cart-7f9");
        assert!(cart.starts_with("  ") && cart.contains("Running"), "{cart}");
        let width = usize::from(size.0);
        assert!(top.lines().iter().all(|line| line.chars().count() == width));
    }
    let mut top = Top::new(Sample::new(), (120, 40));
    for expected in [
        ">xsystem/dns Exited 0/1 0 5s 3s dns: 137 Error, 5s ago",
        "shop/cart-7f9 Running 2/2 0 30s 3s",
        "shop/web-1 Running 1/1 1 30s 3s app: 3 Error, 40s ago",
    ] {
        let pod = expected.trim_start_matches(">x").split(' ').next().unwrap();
        let cells = top.line_of(pod);
        let cells = Vec::from_iter(cells.split_whitespace()).join(" ");
        assert_eq!(cells, expected);
    }
}

#[test]
fn wide_terminal_has_the_selected_pod_beside_the_list() {
    let mut top = Top::new(Sample::new(), (200, 50));
    top.lines();
    top.answer();
    top.shows("── pod system/dns");
    top.keys("↓");
    top.shows("── pod shop/cart-7f9");
    top.shows("shop/web-1");
    let mut narrow = Top::new(Sample::new(), (159, 50));
    narrow.lines();
    narrow.answer();
    narrow.hides("── pod system/dns");
}

#[test]
fn healthy_rows_are_dim_and_problems_are_red() {
    let mut sample = Sample::new();
    sample.hang("web-1");
    let mut top = Top::new(sample, (120, 40));
    top.keys("↓");
    let buffer = top.buffer();
    for (pod, state, colour, modifier) in [
        ("shop/cart-7f9", "Running", Color::Reset, Modifier::DIM),
        ("shop/web-1", "Hung", Color::Red, Modifier::BOLD),
    ] {
        let (y, line) = top.find(pod);
        let x = u16::try_from(line.find(state).unwrap()).unwrap();
        let cell = &buffer[(x, y)];
        assert!(cell.fg == colour, "{cell:?}");
        assert!(cell.modifier.contains(modifier), "{cell:?}");
    }
}

#[test]
fn containers_are_a_tree_below_their_pod() {
    let mut top = Top::new(Sample::new(), (80, 24));
    top.hides("proxy");
    top.keys("↓ ");
    let (lines, at) = (top.lines(), usize::from(top.find("shop/cart").0));
    assert!(lines[at + 1].contains("├ app"), "{lines:#?}");
    assert!(lines[at + 2].contains("└ proxy"), "{lines:#?}");
    top.keys(" ");
    top.hides("proxy");
    top.keys("e");
    for text in ["└ dns", "├ app", "└ proxy"] {
        top.shows(text);
    }
    let of_web = usize::from(top.find("shop/web").0) + 1;
    let line = top.lines().remove(of_web);
    assert!(line.contains("└ app") && line.contains("3 Error"), "{line}");
}

/// Keys, what the screen shows then, and what it does not show.
const FILTERS: &str = r#"
/prox => search: prox => shop/web-1
⎋ => shop/web-1 => of 3 pods
/prox⏎ => 1 of 3 pods, search "prox" => system/dns
/web⏎ => 1 of 3 pods, search "web" => shop/cart
/CART⏎ => 1 of 3 pods => shop/web-1
/shop/⏎ => 2 of 3 pods => system/dns
/uid-dns⏎ => 1 of 3 pods => shop/cart
/example.com/image⏎ => 2 of 3 pods => system/dns
/zzz⏎ => no pod matches; c clears the filters => shop/web-1
c => system/dns => of 3 pods
nshop⏎ => 2 of 3 pods, namespace shop => system/dns
l=x⏎ => is not KEY, !KEY, KEY=VALUE or KEY!=VALUE => ? help
⎋lapp=web⏎ => 1 of 3 pods, namespace shop, labels app=web => shop/cart
c/q?p => search: q?p => PAUSED"#;

#[test]
fn filters_apply_while_typed_and_are_cleared() {
    let mut top = Top::new(Sample::new(), (80, 24));
    for row in FILTERS.trim().lines() {
        let [keys, shows, hides] = row.split(" => ").collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        top.keys(keys);
        top.shows(shows);
        top.hides(hides);
    }
    top.key(KeyCode::Esc);
    assert!(top.key(KeyCode::Char('q')), "the end");
}

#[test]
fn order_changes_and_the_cursor_follows_its_pod() {
    let mut top = Top::new(Sample::new(), (80, 24));
    top.keys("↓");
    for (key, order) in [
        ("", "by state"),
        ("s", "by name"),
        ("r", "by name, reversed"),
    ] {
        top.keys(key);
        top.shows(order);
        top.cursor_is_at("shop/cart-7f9");
    }
    let order = ["system/dns", "shop/web", "shop/cart"].map(|pod| top.find(pod).0);
    assert!(order.is_sorted(), "{order:?}");
    let pods = &mut top.sample.pods;
    pods.retain(|pod| &*pod.status.name != "cart-7f9");
    top.answer();
    assert_eq!(top.lines().iter().filter(|l| l.starts_with('>')).count(), 1);
}

#[test]
fn cursor_at_the_first_place_shows_new_problems() {
    let mut top = Top::new(Sample::new(), (80, 24));
    top.cursor_is_at("system/dns");
    top.sample.hang("web-1");
    top.answer();
    let web = top.line_of("shop/web-1");
    assert!(web.starts_with(">!") && web.contains("Hung 14s"), "{web}");
}

#[test]
fn long_list_is_scrolled_to_the_cursor() {
    for size in SIZES {
        let mut top = Top::new(Sample::empty(), size);
        for n in 0..1_000 {
            top.sample.add("shop", &format!("web-{n:04}"), &["app"]);
        }
        top.answer();
        top.lines();
        top.keys("G");
        top.cursor_is_at("shop/web-0999");
        top.keys(&"k".repeat(30));
        top.cursor_is_at("shop/web-0969");
        top.key(KeyCode::PageUp);
        assert_eq!(top.lines().iter().filter(|l| l.starts_with('>')).count(), 1);
        top.keys("g");
        top.cursor_is_at("shop/web-0000");
    }
}

#[test]
fn pod_is_shown_in_detail_with_its_history() {
    for size in SIZES {
        let mut sample = Sample::new();
        sample.died("shop", "web-1", "app", 3);
        let mut top = Top::new(sample, size);
        top.keys("/web-1⏎⏎");
        top.shows("pod shop/web-1");
        top.shows("states as of 3s ago; details as of 10s ago");
        top.keys("G");
        top.shows("app=web");
        top.shows("ContainerDied");
        top.sample.pods.clear();
        top.answer();
        top.keys("g");
        top.shows("This pod does not exist any more.");
        top.shows("ContainerDied");
        top.keys("⎋");
        top.shows("no pods");
    }
}

#[test]
fn pause_keeps_what_is_shown_but_opens_pods() {
    let mut top = Top::new(Sample::new(), (80, 24));
    top.keys("p");
    top.sample.pods.retain(|pod| &*pod.status.name != "dns");
    top.answer();
    for text in ["PAUSED", "system/dns", "3 pods"] {
        top.shows(text);
    }
    top.keys("↓⏎");
    top.shows("pod shop/cart-7f9");
    top.shows("PAUSED");
    top.keys("⎋p");
    top.hides("system/dns");
}

#[test]
fn screen_without_colours_has_the_same_text() {
    let mut sample = Sample::new();
    sample.hang("web-1");
    let mut top = Top::new(sample, (80, 24));
    let coloured = |buffer: &Buffer| {
        let mut cells = buffer.content.iter();
        cells.any(|c| c.fg != Color::Reset || c.bg != Color::Reset)
    };
    assert!(coloured(&top.buffer()));
    let with = top.lines();
    top.app.colour = false;
    let buffer = top.buffer();
    assert!(!coloured(&buffer));
    assert_eq!(top.lines(), with);
    let is_reversed = |cell: &ratatui::buffer::Cell| cell.modifier.contains(Modifier::REVERSED);
    assert!(buffer.content.iter().any(is_reversed), "the cursor");
}

#[test]
fn texts_from_outside_are_escaped_and_cut() {
    let name = "\u{1b}[2J\u{202e}<b>日本語\u{9b}\u{61c}";
    let long = "x".repeat(10_000);
    for size in SIZES {
        let mut sample = Sample::empty();
        sample.add(name, &format!("a{name}"), &[&format!("c{name}"), &long]);
        sample.died(name, &format!("a{name}"), &long, 1);
        let mut top = Top::new(sample, size);
        for keys in ["", "e", "⏎", " ", "h"] {
            top.keys(keys);
            let screen = top.lines().concat();
            let odd = |c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{61c}');
            assert!(!screen.contains(odd), "{screen:?}");
        }
    }
}

#[test]
fn hundred_containers_are_shown_in_the_detail() {
    let mut sample = Sample::new();
    sample.change("dns", |status| {
        let container = |n: usize| {
            let name = format!("c{n:03}");
            ContainerStatus::new(name.as_str(), name.as_str(), ContainerState::Created)
        };
        status.containers = (0..100).map(container).collect();
    });
    let mut top = Top::new(sample, (80, 24));
    top.keys("/dns⏎⏎");
    let mut seen = BTreeSet::new();
    for _ in 0..12 {
        let screen = top.lines().join(" ");
        let words = screen
            .split_whitespace()
            .filter(|w| w.len() == 4 && w.starts_with('c'));
        seen.extend(words.map(str::to_owned));
        top.key(KeyCode::PageDown);
    }
    assert_eq!(seen.len(), 100, "{seen:?}");
}

#[test]
fn tiny_and_changing_sizes_do_not_fail() {
    let mut sample = Sample::new();
    sample.hang("web-1");
    let mut top = Top::new(sample, (80, 24));
    top.keys("e");
    for (width, height) in [(1, 1), (10, 3), (20, 6), (200, 60), (80, 24)] {
        top.terminal.backend_mut().resize(width, height);
        for keys in ["", "h", "h", "?", "?", "f", "f", "⏎"] {
            top.keys(keys);
            top.lines();
        }
        top.keys("⎋");
    }
    top.shows("shop/web-1");
}

#[test]
fn help_fits_into_80_columns() {
    let mut top = Top::new(Sample::new(), (80, 30));
    top.keys("?");
    HELP.lines().for_each(|line| top.shows(line));
    let mut low = Top::new(Sample::new(), (60, 15));
    low.keys("?G");
    low.shows("FRESH");
}
