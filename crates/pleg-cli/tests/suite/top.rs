//! `pleg top` on a terminal: what it shows, and that it leaves the terminal as it was.

use std::process::Stdio;

use pleg_tests::wait::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::run::{Running, SECRET, Sim, TIMEOUT, TestDir, arg, piped, program, signal};

/// `pleg top` on a terminal of 80 columns and 24 lines, which `script` makes.
struct Terminal {
    child: Child,
    unread: Vec<u8>,
    settings: String,
    pid: String,
}

impl Terminal {
    async fn top(args: &str, no_color: &str) -> Self {
        let (command, settings) = (program(), "echo A$(stty -g)A");
        let top = format!("sh -c 'echo P$$P; exec {} top {args}'", command.display());
        let end = format!("echo ended with $?; {settings}");
        let script = format!("stty rows 24 cols 80; {settings}; {top}; {end}");
        let mut command = piped("script");
        command.args(["-qec", &script, "/dev/null"]);
        command.env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
        command.env("NO_COLOR", no_color).stdin(Stdio::piped());
        let child = Command::from(command).kill_on_drop(true).spawn();
        let mut terminal = Self {
            child: child.expect("script is installed"),
            unread: Vec::new(),
            settings: String::new(),
            pid: String::new(),
        };
        terminal.until("A").await;
        terminal.settings = terminal.until("A").await;
        terminal.until("P").await;
        terminal.pid = terminal.until("P").await;
        terminal
    }

    /// Reads until this text is written, and returns what precedes it.
    async fn until(&mut self, text: &str) -> String {
        let out = self.child.stdout.as_mut().expect("piped");
        let reading = async {
            loop {
                let mut windows = self.unread.windows(text.len());
                if let Some(at) = windows.position(|window| window == text.as_bytes()) {
                    let before = self.unread.drain(..at + text.len()).as_slice()[..at].to_vec();
                    return String::from_utf8(before).expect("UTF-8");
                }
                let read = out.read_buf(&mut self.unread).await;
                assert!(read.expect("output") > 0, "the end");
            }
        };
        let read = tokio::time::timeout(TIMEOUT, reading).await;
        read.unwrap_or_else(|_| panic!("no {text:?} in {}", String::from_utf8_lossy(&self.unread)))
    }

    async fn keys(&mut self, keys: &str) {
        let keyboard = self.child.stdin.as_mut().expect("piped");
        keyboard.write_all(keys.as_bytes()).await.expect("typed");
    }

    /// Waits until the command has ended, has restored the terminal, and has then printed this text.
    async fn ended(&mut self, code: i32, shown: &str) {
        let screen = self.until(&format!("ended with {code}\r\n")).await;
        assert!(screen.contains("[?25h"), "no cursor: {screen:?}");
        let (_, left) = screen.split_once("[?1049l").expect("the main screen");
        assert!(left.contains(shown), "{left:?}");
        self.until("A").await;
        assert_eq!(self.until("A").await, self.settings);
    }
}

#[tokio::test]
async fn no_color_is_obeyed_and_the_terminal_is_restored() {
    let sim = Sim::start().await;
    sim.run_pod("web-1").await;
    // NO_COLOR, keys or a signal, text that the command prints then, its exit code. F12 panics only in debug builds.
    for (no_color, end, shown, code) in [
        ("", "q", "", 0),
        ("1", "\u{3}", "", 0),
        ("", "\u{1b}[24~", "F12 was pressed", 101),
        ("", "INT", "", 130),
        ("1", "TERM", "", 143),
        ("", "HUP", "", 129),
    ] {
        let args = format!("-r {}", arg(&sim.socket));
        let mut terminal = Terminal::top(&args, no_color).await;
        let banner = terminal.until("SIMULATED NODE").await;
        let screen = banner + &terminal.until("test/web-1").await;
        // Attributes such as bold (1) are no colours (30 and above).
        let codes = screen.split("\u{1b}[").skip(1);
        let mut numbers = codes.flat_map(|code| code.split(['m', ';']));
        let is_colour = |n: &str| matches!(n.parse(), Ok(30..=38 | 40..=48 | 90..=107));
        assert_eq!(numbers.any(is_colour), no_color.is_empty(), "{screen:?}");
        if code > 128 {
            signal(&terminal.pid, end).await;
        } else {
            terminal.keys("?").await;
            terminal.until("namespace").await;
            terminal.keys(end).await;
        }
        terminal.ended(code, shown).await;
    }
}

#[tokio::test]
async fn top_fits_a_resized_terminal_and_ends_when_it_closes() {
    let mut terminal = Terminal::top("--sim", "").await;
    terminal.until("demo/").await;
    let process = format!("/proc/{}", terminal.pid);
    let mut stty = Command::new("stty");
    stty.args(["-F", &format!("{process}/fd/0"), "cols", "70", "rows", "18"]);
    assert!(stty.status().await.is_ok_and(|s| s.success()), "resized");
    let screen = terminal.until("\u{1b}[18;1H? help").await;
    let (_, heading) = screen.rsplit_once("── pods, by state ").expect("a heading");
    let heading = heading.chars().take_while(|c| *c == '─');
    assert_eq!(heading.count(), 70 - 18, "{screen:?}");
    drop(terminal);
    let gone = || async { (!std::path::Path::new(&process).exists()).then_some(()) };
    until(TIMEOUT, "the end", gone).await.expect("it ends");
}

#[tokio::test]
async fn top_shows_an_agent_and_reports_when_it_stops_answering() {
    let dir = TestDir::new();
    let (token, tokens) = (dir.write("token", "secret\n"), dir.write("tokens", SECRET));
    let (socket, tokens) = (dir.path("agent.sock"), arg(&tokens));
    let url = arg(&socket);
    let mut agent = Running::start(&format!("agent --sim --listen {url} --token-file {tokens}"));
    agent.message().await;
    let mut rejected = Terminal::top(&format!("--agent {url}"), "").await;
    rejected.until("401 Unauthorized").await;
    rejected.until("ended with 1\r\n").await;
    let args = format!("--agent {url} --token-file {}", arg(&token));
    let mut terminal = Terminal::top(&args, "").await;
    terminal.until("demo/").await;
    terminal.keys("/x%&\r").await;
    terminal.until("clears").await;
    agent.stop("TERM", 0).await;
    terminal.until("NO ANSWER").await;
    terminal.keys("q").await;
    terminal.ended(0, "").await;
}
