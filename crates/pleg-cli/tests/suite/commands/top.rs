//! `pleg top` on terminals of tmux: what it shows, and that it leaves the terminal as it was.

use std::path::Path;

use pleg_tests::wait::until;

use super::run::{Running, Sim, TIMEOUT, arg, run_pod};
use crate::support::tmux::Tmux;
use crate::support::{SECRET, TestDir, pleg, program};

impl Tmux {
    /// Runs `pleg top` with these arguments. The command line says how it ended.
    fn top(&self, args: &[&str]) {
        let (command, args) = (program(), args.join(" "));
        let command = command.display();
        self.line(&format!("clear; {command} top {args}; echo ended with $?"));
    }

    async fn ended(&self, code: i32) {
        self.until_shows(&format!("ended with {code}\n")).await;
    }
}

fn on(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

#[tokio::test]
async fn pods_are_searched_shown_paused_and_left() {
    let sim = Sim::start().await;
    run_pod(&sim.kubelet, "cart-1").await;
    run_pod(&sim.kubelet, "web-1").await;
    let terminal = Tmux::start();
    let before = terminal.settings().await;
    terminal.top(&["-r", &on(&sim.socket)]);
    terminal.until_shows("test/web-1").await;
    let screen = terminal.screen();
    assert!(screen.starts_with(" SIMULATED NODE "), "{screen}");
    terminal.keys(&["/", "c", "a", "r", "Enter"]);
    terminal.until_shows("1 of 2 pods, search \"car\"").await;
    terminal.keys(&["Enter"]);
    terminal.until_shows("pod test/cart-1").await;
    terminal.keys(&["p"]);
    terminal.until_shows("PAUSED").await;
    terminal.keys(&["Escape"]);
    terminal.until_shows("by state").await;
    terminal.tmux(&["resize-window", "-x", "70", "-y", "18"]);
    let is_heading = |line: &str| line.starts_with("── 1 of 2") && line.chars().count() == 70;
    let fits = |screen: &str| screen.lines().any(is_heading);
    terminal.until("as wide as the terminal", fits).await;
    terminal.keys(&["p", "c"]);
    terminal.until_shows("test/web-1").await;
    terminal.keys(&["q"]);
    terminal.ended(0).await;
    assert_eq!(terminal.settings().await, before);
}

#[tokio::test]
async fn terminal_is_as_before_whatever_ends_the_command() {
    let sim = Sim::start().await;
    run_pod(&sim.kubelet, "web-1").await;
    let terminal = Tmux::start();
    let before = terminal.settings().await;
    let start = async || {
        terminal.top(&["-r", &on(&sim.socket)]);
        terminal.until_shows("test/web-1").await;
    };
    // Only tests of debug builds can press F12.
    for (key, code) in [("C-c", 0), ("F12", 101)] {
        start().await;
        terminal.keys(&[key]);
        terminal.ended(code).await;
        if key == "F12" {
            terminal.until_shows("F12 was pressed").await;
        }
        assert_eq!(terminal.settings().await, before, "after {key}");
    }
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        start().await;
        let id = terminal.process().await.to_string();
        let mut kill = std::process::Command::new("kill");
        let sent = kill.args(["-s", signal, &id]).status();
        assert!(sent.is_ok_and(|s| s.success()), "{signal} is sent");
        terminal.ended(code).await;
        assert_eq!(terminal.settings().await, before, "after {signal}");
    }
}

#[tokio::test]
async fn command_ends_with_its_terminal() {
    let terminal = Tmux::start();
    terminal.top(&["--sim"]);
    terminal.until_shows("demo/").await;
    let id = terminal.process().await;
    drop(terminal);
    let gone = || async { (!Path::new(&format!("/proc/{id}")).exists()).then_some(()) };
    until(TIMEOUT, "the end", gone).await.expect("it ends");
}

#[tokio::test]
async fn screen_has_no_colours_if_the_user_wants_none() {
    let terminal = Tmux::start();
    let colours = async |variable: &str| {
        terminal.line(&format!("export {variable}"));
        terminal.top(&["--sim"]);
        terminal.until_shows("demo/").await;
        let screen = terminal.tmux(&["capture-pane", "-p", "-e"]);
        terminal.keys(&["q"]);
        terminal.ended(0).await;
        // Attributes such as bold (1) are no colours (30 and above).
        let codes = screen.split("\u{1b}[").skip(1);
        let numbers = codes.flat_map(|code| code.split(['m', ';']));
        numbers
            .filter(|n| matches!(n.parse(), Ok(30..=38 | 40..=48 | 90..=107)))
            .count()
    };
    assert!(colours("NO_COLOR=").await > 0);
    assert_eq!(colours("NO_COLOR=1").await, 0);
}

#[tokio::test]
async fn agent_is_browsed_and_missing_answers_are_shown() {
    let dir = TestDir::new();
    let [token, tokens, socket] = ["token", "tokens", "agent.sock"].map(|name| dir.path(name));
    std::fs::write(&token, "secret\n").expect("written");
    std::fs::write(&tokens, SECRET).expect("written");
    let url = on(&socket);
    let (listen, file) = (["--listen", &url], ["--token-file", arg(&tokens)]);
    let mut agent = Running::start(&[&["agent", "--sim"], &listen[..], &file].concat());
    agent.message().await.expect("the address");
    let terminal = Tmux::start();
    terminal.top(&["--agent", &url]);
    terminal.until_shows("401 Unauthorized").await;
    terminal.ended(1).await;
    terminal.top(&["--agent", &url, "--token-file", arg(&token)]);
    terminal.until_shows("demo/").await;
    terminal.keys(&["/", "x", "%", "&", "Enter"]);
    terminal.until_shows("no pod matches").await;
    terminal.keys(&["c"]);
    terminal.until_shows("demo/").await;
    agent.signal("TERM").await;
    agent.end().await;
    terminal.until_shows("NO ANSWER of the agent for").await;
    terminal.until_shows("agent_silent for").await;
    terminal.keys(&["q"]);
    terminal.ended(0).await;
}

#[tokio::test]
async fn without_a_terminal_it_is_an_error() {
    let end = Running::spawn(pleg(&["top", "--sim"])).end().await;
    assert_eq!((end.code(), &*end.out), (Some(1), ""));
    assert!(end.err.contains("needs a terminal"), "{}", end.err);
}
