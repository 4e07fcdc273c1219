//! Tests of the screen, on a terminal in memory.

mod trouble;

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use pleg::core::{ContainerState, ContainerStatus, Instant};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

use crate::top::app::{App, Page};
use crate::top::source::Answer;
use crate::view::tests::Sample;
use crate::view::{Reason, View};

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
        let backend = TestBackend::new(width, height);
        let mut top = Self {
            app: App::new(None, None, true),
            now: sample.now,
            sample,
            change: |_| (),
            terminal: Terminal::new(backend).unwrap(),
        };
        top.answer();
        top
    }

    /// Answers as the source does, until the query stays the same.
    fn answer(&mut self) {
        for _ in 0..3 {
            let query = self.app.asked();
            let mut view = self.sample.view(&query);
            (self.change)(&mut view);
            self.app.answer(Answer {
                query,
                at: self.now,
                view: Ok(Arc::new(view)),
            });
        }
    }

    fn fail(&mut self, error: &str) {
        self.app.answer(Answer {
            query: self.app.asked(),
            at: self.now,
            view: Err(error.to_owned()),
        });
    }

    fn key(&mut self, code: KeyCode) -> bool {
        let outcome = self.app.key(KeyEvent::new(code, KeyModifiers::NONE));
        self.answer();
        outcome.is_break()
    }

    fn keys(&mut self, text: &str) {
        for c in text.chars() {
            let code = match c {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                c => KeyCode::Char(c),
            };
            self.key(code);
        }
    }

    fn buffer(&mut self) -> Buffer {
        let (app, now) = (&mut self.app, self.now);
        let draw = |frame: &mut ratatui::Frame<'_>| super::draw(frame, app, now);
        self.terminal.draw(draw).unwrap().buffer.clone()
    }

    /// The lines on the screen.
    fn lines(&mut self) -> Vec<String> {
        let buffer = self.buffer();
        let width = usize::from(buffer.area.width);
        let rows = buffer.content.chunks(width);
        rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect())
            .collect()
    }

    #[track_caller]
    fn shows(&mut self, texts: &[&str]) {
        let screen = self.lines().join("\n");
        for text in texts {
            assert!(screen.contains(text), "{text:?} is not on\n{screen}");
        }
    }

    #[track_caller]
    fn hides(&mut self, text: &str) {
        let screen = self.lines().join("\n");
        assert!(!screen.contains(text), "{text:?} is on\n{screen}");
    }

    /// The line of the pod.
    #[track_caller]
    fn line_of(&mut self, pod: &str) -> String {
        let lines = self.lines();
        let line = lines
            .iter()
            .find(|line| line.get(2..).is_some_and(|l| l.starts_with(pod)));
        line.unwrap_or_else(|| panic!("no {pod} on\n{}", lines.join("\n")))
            .clone()
    }
}

#[test]
fn list_shows_pods_with_states_at_each_size() {
    for size in SIZES {
        let mut top = Top::new(Sample::new(), size);
        top.shows(&[
            "ready",
            "3 pods, 5 containers (3 running)",
            "stream confirmed",
            "? help",
        ]);
        let dns = top.line_of("system/dns");
        assert!(dns.starts_with(">x") && dns.contains("Exited"), "{dns}");
        assert!(dns.contains("0/1"), "{dns}");
        let cart = top.line_of("shop/cart-7f9");
        assert!(cart.starts_with("  ") && cart.contains("Running"), "{cart}");
        let width = usize::from(size.0);
        assert!(top.lines().iter().all(|line| line.chars().count() == width));
    }
}

#[test]
fn wide_screen_has_every_column() {
    let mut top = Top::new(Sample::new(), (120, 40));
    let web = top.line_of("shop/web-1");
    let cells: Vec<_> = web.split_whitespace().collect();
    let expected = [
        "shop/web-1",
        "Running",
        "1/1",
        "1",
        "30s",
        "3s",
        "app:",
        "3",
        "Error,",
        "40s",
        "ago",
    ];
    assert_eq!(cells, expected, "{web}");
}

#[test]
fn wide_terminal_has_the_selected_pod_beside_the_list() {
    let mut top = Top::new(Sample::new(), (200, 50));
    top.lines();
    top.answer();
    top.shows(&["── pod system/dns"]);
    top.key(KeyCode::Down);
    top.shows(&["── pod shop/cart-7f9", "shop/web-1"]);
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
    top.key(KeyCode::Down);
    let lines = top.lines();
    let buffer = top.buffer();
    for (pod, colour, modifier) in [
        ("shop/cart-7f9", Color::Reset, Modifier::DIM),
        ("shop/web-1", Color::Red, Modifier::BOLD),
    ] {
        let y = lines
            .iter()
            .position(|line| line.get(2..).is_some_and(|l| l.starts_with(pod)))
            .unwrap();
        let x = lines[y].find("Running").or(lines[y].find("Hung")).unwrap();
        let cell = &buffer[(x as u16, y as u16)];
        assert!(
            cell.fg == colour && cell.modifier.contains(modifier),
            "{pod}: {cell:?}"
        );
    }
}

#[test]
fn containers_are_a_tree_below_their_pod() {
    let mut top = Top::new(Sample::new(), (80, 24));
    top.hides("proxy");
    top.key(KeyCode::Down);
    top.keys(" ");
    let lines = top.lines();
    let at = lines.iter().position(|l| l.contains("shop/cart")).unwrap();
    assert!(lines[at + 1].contains("├ app"), "{}", lines.join("\n"));
    assert!(lines[at + 2].contains("└ proxy"), "{}", lines.join("\n"));
    top.keys(" ");
    top.hides("proxy");
    top.keys("e");
    top.shows(&["└ dns", "├ app", "└ proxy"]);
}

#[test]
fn filters_apply_while_typed_and_are_cleared() {
    let mut top = Top::new(Sample::new(), (80, 24));
    for (keys, shows, hides) in [
        (
            "/prox",
            &["search: prox", "1 of 3 pods", "shop/cart"][..],
            "shop/web-1",
        ),
        ("\u{1b}", &["shop/web-1", "system/dns"], "of 3 pods"),
        ("/web\n", &["search \"web\"", "1 of 3 pods"], "shop/cart"),
        (
            "/zzz\n",
            &["no pod matches; c clears the filters"],
            "shop/web-1",
        ),
        ("c", &["shop/web-1", "system/dns"], "of 3 pods"),
        ("nshop\n", &["2 of 3 pods, namespace shop"], "system/dns"),
        (
            "l=x\n",
            &["is not KEY, !KEY, KEY=VALUE or KEY!=VALUE"],
            "? help",
        ),
        (
            "\u{1b}lapp=web\n",
            &["1 of 3 pods", "labels app=web"],
            "shop/cart",
        ),
        ("c/q?p", &["search: q?p"], "PAUSED"),
    ] {
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
    top.key(KeyCode::Down);
    assert!(top.line_of("shop/cart-7f9").starts_with('>'));
    top.keys("s");
    top.shows(&["by name"]);
    assert!(top.line_of("shop/cart-7f9").starts_with('>'));
    top.keys("r");
    top.shows(&["by name, reversed"]);
    assert!(top.line_of("shop/cart-7f9").starts_with('>'));
    top.sample
        .pods
        .retain(|pod| &*pod.status.name != "cart-7f9");
    top.answer();
    assert_eq!(top.lines().iter().filter(|l| l.starts_with('>')).count(), 1);
}

#[test]
fn cursor_at_the_first_place_shows_new_problems() {
    let mut top = Top::new(Sample::new(), (80, 24));
    assert!(top.line_of("system/dns").starts_with('>'));
    top.sample.hang("web-1");
    top.answer();
    let web = top.line_of("shop/web-1");
    assert!(web.starts_with(">!") && web.contains("Hung 14s"), "{web}");
}

#[test]
fn long_list_is_scrolled_to_the_cursor() {
    let mut sample = Sample::empty();
    for n in 0..1_000 {
        sample.add("shop", &format!("web-{n:04}"), &["app"]);
    }
    for size in SIZES {
        let mut top = Top::new(Sample::empty(), size);
        std::mem::swap(&mut top.sample.pods, &mut sample.pods);
        top.answer();
        top.lines();
        top.keys("G");
        assert!(top.line_of("shop/web-0999").starts_with('>'));
        for _ in 0..30 {
            top.key(KeyCode::Up);
        }
        assert!(top.line_of("shop/web-0969").starts_with('>'));
        top.key(KeyCode::PageUp);
        assert_eq!(top.lines().iter().filter(|l| l.starts_with('>')).count(), 1);
        top.keys("g");
        assert!(top.line_of("shop/web-0000").starts_with('>'));
        std::mem::swap(&mut top.sample.pods, &mut sample.pods);
    }
}

#[test]
fn pod_is_shown_in_detail_with_its_history() {
    for size in SIZES {
        let mut sample = Sample::new();
        sample.died("shop", "web-1", "app", 3);
        let mut top = Top::new(sample, size);
        top.keys("/web-1\n\n");
        assert_eq!(top.app.page, Page::Pod);
        top.shows(&[
            "pod shop/web-1",
            "states as of 3s ago; details as of 10s ago",
        ]);
        top.keys("G");
        top.shows(&["app=web", "ContainerDied"]);
        top.key(KeyCode::Esc);
        top.shows(&["1 of 3 pods"]);
    }
}

#[test]
fn pause_keeps_what_is_shown_but_opens_pods() {
    let mut top = Top::new(Sample::new(), (80, 24));
    top.keys("p");
    top.sample.pods.retain(|pod| &*pod.status.name != "dns");
    top.answer();
    top.shows(&["PAUSED", "system/dns", "3 pods"]);
    top.key(KeyCode::Down);
    top.key(KeyCode::Enter);
    top.shows(&["pod shop/cart-7f9", "PAUSED"]);
    top.key(KeyCode::Esc);
    top.keys("p");
    top.hides("system/dns");
}

#[test]
fn screen_without_colours_has_the_same_text() {
    let mut sample = Sample::new();
    sample.hang("web-1");
    let mut top = Top::new(sample, (80, 24));
    let coloured = |buffer: &Buffer| {
        let cells = buffer.content.iter();
        cells
            .filter(|c| c.fg != Color::Reset || c.bg != Color::Reset)
            .count()
    };
    assert!(coloured(&top.buffer()) > 0);
    let with = top.lines();
    top.app.colour = false;
    assert_eq!(coloured(&top.buffer()), 0);
    assert_eq!(top.lines(), with);
    let buffer = top.buffer();
    let reversed = buffer
        .content
        .iter()
        .filter(|c| c.modifier.contains(Modifier::REVERSED));
    assert!(reversed.count() > 0, "the cursor");
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
        let mut screens = Vec::new();
        for keys in ["", "e", "\n", "\u{20}", "h"] {
            top.keys(keys);
            screens.push(top.buffer());
        }
        for cell in screens.iter().flat_map(|buffer| &buffer.content) {
            let odd = |c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{61c}');
            assert!(!cell.symbol().chars().any(odd), "{:?}", cell.symbol());
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
    top.keys("/dns\n e");
    top.keys("e");
    top.keys("\n");
    top.shows(&["c000"]);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..12 {
        for line in top.lines() {
            let words = line
                .split_whitespace()
                .filter(|w| w.len() == 4 && w.starts_with('c'));
            seen.extend(words.map(str::to_owned));
        }
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
        for keys in ["", "h", "h", "?", "?", "f", "f", "\n"] {
            top.keys(keys);
            top.lines();
        }
        top.key(KeyCode::Esc);
    }
    top.shows(&["shop/web-1"]);
}

#[test]
fn help_fits_into_80_columns() {
    let mut top = Top::new(Sample::new(), (80, 30));
    top.keys("?");
    top.shows(&super::keys::HELP.lines().collect::<Vec<_>>());
    let mut low = Top::new(Sample::new(), (60, 15));
    low.keys("?G");
    low.shows(&["FRESH"]);
}
