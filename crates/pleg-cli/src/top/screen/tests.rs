//! Tests of the screen, on a terminal in memory.

mod trouble;

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use itertools::Itertools as _;
use pleg::core::Instant;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use crate::top::app::App;
use crate::top::keys::HELP;
use crate::top::source::Answer;
use crate::view::View;
use crate::view::tests::Sample;

const SIZES: [(u16, u16); 4] = [(60, 15), (80, 24), (120, 40), (200, 50)];

struct Top {
    app: App,
    sample: Sample,
    terminal: Terminal<TestBackend>,
    now: Instant,
}

impl Top {
    fn new(sample: Sample, (width, height): (u16, u16)) -> Self {
        let mut top = Self {
            app: App::new(None, None, true),
            now: sample.now,
            sample,
            terminal: Terminal::new(TestBackend::new(width, height)).unwrap(),
        };
        top.answer();
        top
    }

    /// Answers the app's query three times, as `Source` would: each answer may change the query.
    fn answer(&mut self) {
        for _ in 0..3 {
            let view = self.sample.view(&self.app.wanted());
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

    /// Types a text, in which `⏎` is Enter, `⎋` Escape, `␣` a space, `↓` the arrow and `⇞` and `⇟` move by a screen.
    fn keys(&mut self, text: &str) {
        for c in text.chars() {
            self.key(match c {
                '⏎' => KeyCode::Enter,
                '⎋' => KeyCode::Esc,
                '␣' => KeyCode::Char(' '),
                '↓' => KeyCode::Down,
                '⇞' => KeyCode::PageUp,
                '⇟' => KeyCode::PageDown,
                c => KeyCode::Char(c),
            });
        }
    }

    fn buffer(&mut self) -> Buffer {
        let (app, now) = (&mut self.app, self.now);
        let drawn = self.terminal.draw(|frame| super::draw(frame, app, now));
        drawn.unwrap().buffer.clone()
    }

    fn lines(&mut self) -> Vec<String> {
        let buffer = self.buffer();
        let rows = buffer.content.chunks(usize::from(buffer.area.width));
        let lines = rows.map(|row| row.iter().map(Cell::symbol).collect::<String>());
        lines.collect()
    }

    /// The lines on the screen, with one space between words. Requires at most one line with the cursor.
    fn screen(&mut self) -> String {
        let lines = self.lines();
        let screen = lines.iter().map(|line| squeezed(line) + "\n");
        let screen = "\n".to_owned() + &screen.collect::<String>();
        assert!(screen.matches("\n>").count() < 2, "{screen}");
        screen
    }

    /// Each line: keys to press => texts that the screen then shows => texts that it does not show. `⏎` ends a line.
    #[track_caller]
    fn play(&mut self, rows: &str) {
        for row in rows.lines().filter(|row| !row.is_empty()) {
            let mut parts = row.split(" => ");
            self.keys(parts.next().unwrap_or_default());
            let screen = self.screen();
            for is_shown in [true, false] {
                for text in parts.next().unwrap_or_default().split_terminator(" | ") {
                    let text = squeezed(text).replace('⏎', "\n");
                    let is_right = screen.contains(&text) == is_shown;
                    assert!(is_right, "{row}: {text:?} on{screen}");
                }
            }
        }
    }
}

fn squeezed(line: &str) -> String {
    line.split_whitespace().join(" ")
}

#[test]
fn list_shows_pods_with_states_at_each_terminal_size() {
    for size in SIZES {
        let rows = "
 => ready | 3 pods, 5 containers (3 running) | stream confirmed | ? help
 => ⏎>xsystem/dns Exited 0/1 | ⏎shop/cart-7f9 Running";
        Top::new(Sample::new(), size).play(rows);
    }
    let rows = "
 => ⏎>xsystem/dns Exited 0/1 0 5s 3s dns: 137 Error, 5s ago⏎
 => ⏎shop/cart-7f9 Running 2/2 0 30s 3s⏎
 => ⏎shop/web-1 Running 1/1 1 30s 3s app: 3 Error, 40s ago⏎";
    Top::new(Sample::new(), (120, 40)).play(rows);
}

#[test]
fn wide_terminal_has_the_selected_pod_beside_the_list() {
    let shown = " => ── pod system/dns\n↓ => ── pod shop/cart-7f9 | shop/web-1";
    for (width, rows) in [(200, shown), (159, " =>  => ── pod system/dns")] {
        let mut top = Top::new(Sample::new(), (width, 50));
        top.screen();
        top.answer();
        top.play(rows);
    }
}

/// Without colours, the text is the same, and the cursor is still visible.
#[test]
fn healthy_rows_are_dim_and_problems_are_red() {
    let mut sample = Sample::new();
    sample.hang("web-1");
    let mut top = Top::new(sample, (120, 40));
    top.keys("↓");
    let (buffer, with) = (top.buffer(), top.lines());
    for (pod, state, colour, modifier) in [
        ("shop/cart-7f9", "Running", Color::Reset, Modifier::DIM),
        ("shop/web-1", "Hung", Color::Red, Modifier::BOLD),
    ] {
        let is_it = |line: &String| line.get(2..).is_some_and(|l| l.starts_with(pod));
        let y = with.iter().position(is_it).unwrap();
        let x = with[y].find(state).unwrap();
        let cell = &buffer.content[y * 120 + x];
        assert!(cell.fg == colour, "{cell:?}");
        assert!(cell.modifier.contains(modifier), "{cell:?}");
    }
    top.app.colour = false;
    let buffer = top.buffer();
    let is_plain = |c: &Cell| c.fg == Color::Reset && c.bg == Color::Reset;
    assert!(buffer.content.iter().all(is_plain));
    assert_eq!(top.lines(), with);
    let is_reversed = |cell: &Cell| cell.modifier.contains(Modifier::REVERSED);
    assert!(buffer.content.iter().any(is_reversed), "the cursor");
}

#[test]
fn containers_are_a_tree_below_their_pod() {
    let rows = "
 =>  => proxy
↓␣ => ⏎> shop/cart-7f9 Running 2/2⏎├ app Running⏎└ proxy Running⏎
␣ =>  => proxy
e => ⏎xsystem/dns Exited 0/1 dns: 137 Error, 5s ago⏎└ dns Exited 137 Error⏎> shop/cart-7f9
 => ⏎├ app Running⏎└ proxy Running⏎shop/web-1 Running 1/1 app: 3 Error, 40s ago⏎└ app Running 3 Error⏎";
    Top::new(Sample::new(), (80, 24)).play(rows);
}

#[test]
fn filter_applies_while_it_is_typed_and_c_clears_filters() {
    let mut top = Top::new(Sample::new(), (80, 24));
    let rows = r#"
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
    top.play(rows);
    top.key(KeyCode::Esc);
    assert!(top.key(KeyCode::Char('q')), "the end");
}

#[test]
fn order_changes_and_the_cursor_follows_its_pod() {
    let mut top = Top::new(Sample::new(), (80, 24));
    let rows = "
 => ⏎>xsystem/dns
↓ => by state | ⏎> shop/cart-7f9
s => by name | ⏎> shop/cart-7f9
r => by name, reversed | 5s ago⏎shop/web-1 Running 1/1 app: 3 Error, 40s ago⏎> shop/cart-7f9";
    top.play(rows);
    let pods = &mut top.sample.pods;
    pods.retain(|pod| &*pod.status.name != "cart-7f9");
    top.answer();
    top.play(" => ⏎>");
    // A cursor on the first line stays there instead of following its pod.
    let mut top = Top::new(Sample::new(), (80, 24));
    top.keys("↓k");
    top.sample.hang("web-1");
    top.answer();
    top.play(" => ⏎>!shop/web-1 Hung 14s");
}

#[test]
fn long_lists_are_scrolled_to_each_pod_and_container() {
    let names = (0..100).map(|n| format!("c{n:02} ")).collect_vec();
    for size in SIZES {
        let mut top = Top::new(Sample::empty(), size);
        for n in 0..1_000 {
            top.sample.add("shop", &format!("web-{n:04}"), &["app"]);
        }
        top.answer();
        top.play("G => ⏎> shop/web-0999");
        top.keys(&"k".repeat(30));
        top.play(" => ⏎> shop/web-0969\n⇞ => ⏎>\ng => ⏎> shop/web-0000");
        top.sample
            .add("shop", "big", &names.iter().map(|c| &**c).collect_vec());
        top.keys("/big⏎⏎");
        let pages: String = (0..20).map(|_| (top.screen(), top.keys("⇟")).0).collect();
        assert!(names.iter().all(|name| pages.contains(name)), "{pages}");
    }
}

#[test]
fn pod_is_shown_in_detail_with_its_history() {
    for size in SIZES {
        let mut sample = Sample::new();
        sample.died("shop", "web-1", "app", 3);
        let mut top = Top::new(sample, size);
        let rows = "
/web-1⏎⏎ => pod shop/web-1 | states as of 3s ago; details as of 10s ago
⇟ => ⏎app Exited for 40s 3 Error | app=web
g => pod shop/web-1
G => app=web | ContainerDied";
        top.play(rows);
        top.sample.pods.clear();
        top.answer();
        let rows = "
g => This pod does not exist any more. | ContainerDied
⎋ => no pods";
        top.play(rows);
    }
}

#[test]
fn paused_screen_is_unchanged_but_opens_pods() {
    let mut top = Top::new(Sample::new(), (80, 24));
    top.keys("p");
    top.sample.pods.retain(|pod| &*pod.status.name != "dns");
    top.answer();
    let rows = "
 => PAUSED | system/dns | 3 pods
↓⏎ => pod shop/cart-7f9 | PAUSED
⎋p =>  => system/dns";
    top.play(rows);
}

#[test]
fn control_characters_in_names_from_the_runtime_are_escaped() {
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
fn drawing_succeeds_at_tiny_and_changing_sizes() {
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
    top.play(" => shop/web-1");
}

#[test]
fn help_fits_into_80_columns() {
    let shown = HELP.lines().map(|line| line.to_owned() + " | ");
    Top::new(Sample::new(), (80, 30)).play(&format!("? => {}", shown.collect::<String>()));
    Top::new(Sample::new(), (60, 15)).play("?G => FRESH");
}
