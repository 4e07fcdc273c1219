//! `pleg top` on terminals of tmux: what it shows, and that it leaves the terminal as it was.

use std::path::Path;

use pleg_tests::wait::until;
use serde_json::Value;

use super::agent::Agent;
use super::run::{Running, Sim, TIMEOUT, arg, control, run_pod};
use crate::support::tmux::Tmux;
use crate::support::{SECRET, TestDir, pleg};

const SIZES: [(u16, u16); 3] = [(60, 15), (80, 24), (120, 40)];

/// A command line that says how it ended.
fn line(args: &[&str]) -> String {
    let command = env!("CARGO_BIN_EXE_pleg");
    format!(
        "clear; {command} top {}; echo ended with $?",
        args.join(" ")
    )
}

fn on(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

async fn ended(terminal: &Tmux, code: i32) {
    terminal.wait_for(&format!("ended with {code}\n")).await;
}

#[tokio::test]
async fn pods_are_searched_shown_paused_and_left() {
    let sim = Sim::start().await;
    run_pod(&sim.kubelet, "cart-1").await;
    run_pod(&sim.kubelet, "web-1").await;
    let use_it = async |size: (u16, u16)| {
        let terminal = Tmux::start(size);
        let before = terminal.settings().await;
        terminal.line(&line(&["-r", &on(&sim.socket)]));
        terminal.wait_for("test/web-1").await;
        assert!(
            terminal.screen().starts_with(" SIMULATED NODE "),
            "{}",
            terminal.screen()
        );
        terminal.keys(&["/", "c", "a", "r", "Enter"]);
        terminal.wait_for("1 of 2 pods, search \"car\"").await;
        terminal
            .wait_until("filtered", |s| !s.contains("test/web-1"))
            .await;
        terminal.keys(&["Enter"]);
        terminal.wait_for("pod test/cart-1").await;
        terminal.keys(&["p"]);
        terminal.wait_for("PAUSED").await;
        terminal.keys(&["Escape"]);
        terminal.wait_for("by state").await;
        terminal.tmux(&["resize-window", "-x", "70", "-y", "18"]);
        let fits = |s: &str| {
            s.lines()
                .any(|l| l.starts_with("── 1 of 2") && l.chars().count() == 70)
        };
        terminal.wait_until("as wide as the terminal", fits).await;
        terminal.keys(&["p", "c"]);
        terminal.wait_for("test/web-1").await;
        terminal.keys(&["q"]);
        ended(&terminal, 0).await;
        assert_eq!(terminal.settings().await, before, "{size:?}");
    };
    tokio::join!(use_it(SIZES[0]), use_it(SIZES[1]), use_it(SIZES[2]));
}

#[tokio::test]
async fn terminal_is_as_before_whatever_ends_the_command() {
    let sim = Sim::start().await;
    run_pod(&sim.kubelet, "web-1").await;
    let terminal = Tmux::start(SIZES[1]);
    let before = terminal.settings().await;
    for (key, signal, code) in [
        ("q", "", 0),
        ("C-c", "", 0),
        ("", "INT", 130),
        ("", "TERM", 143),
        ("", "HUP", 129),
        // Only tests of debug builds can press it.
        ("F12", "", 101),
    ] {
        terminal.line(&line(&["-r", &on(&sim.socket)]));
        terminal.wait_for("test/web-1").await;
        if signal.is_empty() {
            terminal.keys(&[key]);
        } else {
            let id = terminal.process().await.to_string();
            let sent = std::process::Command::new("kill")
                .args(["-s", signal, &id])
                .status();
            assert!(sent.is_ok_and(|s| s.success()), "{signal} is sent");
        }
        ended(&terminal, code).await;
        if key == "F12" {
            terminal.wait_for("F12 was pressed").await;
        }
        assert_eq!(terminal.settings().await, before, "after {key}{signal}");
    }
}

#[tokio::test]
async fn command_ends_with_its_terminal() {
    let sim = Sim::start().await;
    run_pod(&sim.kubelet, "web-1").await;
    let terminal = Tmux::start(SIZES[1]);
    terminal.line(&line(&["-r", &on(&sim.socket)]));
    terminal.wait_for("test/web-1").await;
    let id = terminal.process().await;
    drop(terminal);
    let gone = || async { (!Path::new(&format!("/proc/{id}")).exists()).then_some(()) };
    until(TIMEOUT, "the end", gone).await.expect("it ends");
}

#[tokio::test]
async fn embedded_runtime_is_shown_as_simulated_and_without_colours() {
    let terminal = Tmux::start(SIZES[1]);
    let colours = async |variable: &str| {
        terminal.line(&format!("export {variable}"));
        terminal.line(&line(&["--sim"]));
        terminal.wait_for("SIMULATED NODE").await;
        terminal.wait_for("demo/").await;
        let screen = terminal.tmux(&["capture-pane", "-p", "-e"]);
        terminal.keys(&["q"]);
        ended(&terminal, 0).await;
        // Attributes such as bold (1) are no colours (30 and above).
        let codes = screen.split("\u{1b}[").skip(1);
        let numbers = codes.flat_map(|code| code.split(['m', ';']).map(str::to_owned));
        numbers
            .filter(|n| matches!(n.parse(), Ok(30..=38 | 40..=48 | 90..=107)))
            .count()
    };
    assert!(colours("NO_COLOR=").await > 0);
    assert_eq!(colours("NO_COLOR=1").await, 0);
}

#[tokio::test]
async fn hung_pod_frozen_runtime_and_its_end_are_named() {
    let sim = Sim::start().await;
    run_pod(&sim.kubelet, "web-1").await;
    let terminal = Tmux::start(SIZES[1]);
    terminal.line(&line(&["-r", &on(&sim.socket)]));
    terminal.wait_for("test/web-1").await;
    // The probe finds it: one status every 15 s.
    control(&sim.socket, &["pod.*.hang=on"]).await;
    terminal.wait_for("pods_hung for").await;
    terminal.wait_for("Hung ").await;
    control(&sim.socket, &["reset"]).await;
    control(&sim.socket, &["down", "kill"]).await;
    terminal.wait_for("NO ANSWER of the runtime for").await;
    terminal.wait_for("DEGRADED").await;
    terminal.keys(&["q"]);
    ended(&terminal, 0).await;
}

#[tokio::test]
async fn agent_is_looked_through_and_its_silence_is_shown() {
    let sim = Sim::start().await;
    run_pod(&sim.kubelet, "web-1").await;
    let agent = Agent::start(&["-r", arg(&sim.socket)]).await;
    let url = format!("http://{}", agent.address);
    let terminal = Tmux::start(SIZES[1]);
    terminal.line(&line(&["--agent", &url]));
    terminal.wait_for("test/web-1").await;
    assert!(
        terminal.screen().starts_with(" SIMULATED NODE "),
        "{}",
        terminal.screen()
    );
    terminal.keys(&["/", "x", "%", "&", "Enter"]);
    terminal.wait_for("no pod matches").await;
    terminal.keys(&["c"]);
    terminal.wait_for("test/web-1").await;
    agent.stop().await;
    terminal.wait_for("NO ANSWER of the agent for").await;
    terminal.wait_for("agent_silent for").await;
    terminal.keys(&["q"]);
    ended(&terminal, 0).await;
}

#[tokio::test]
async fn agent_serves_the_view_as_json() {
    let sim = Sim::start().await;
    run_pod(&sim.kubelet, "web-1").await;
    let agent = Agent::start(&["-r", arg(&sim.socket)]).await;
    let view = until(TIMEOUT, "the pod", || async {
        let (code, head, page) = agent.get("/debug/view?limit=5&pod=uid-web-1").await;
        assert_eq!(code, 200);
        assert!(head.contains("content-type: application/json"), "{head}");
        let view: Value = serde_json::from_str(&page).expect("JSON");
        view["detail"]["containers"][0]["state"]
            .is_string()
            .then_some(view)
    })
    .await
    .expect("served");
    assert_eq!(view["pods"]["total"], 1, "{view}");
    assert_eq!(view["pods"]["rows"][0]["pod"]["name"], "web-1", "{view}");
    assert_eq!(view["simulated"], true, "{view}");
    assert_eq!(agent.get("/debug/view?limit=x").await.0, 400);
}

#[tokio::test]
async fn view_needs_the_token() {
    let dir = TestDir::new();
    let [token, tokens, socket] = ["token", "tokens", "agent.sock"].map(|name| dir.path(name));
    std::fs::write(&token, "secret\n").expect("written");
    std::fs::write(&tokens, SECRET).expect("written");
    let url = on(&socket);
    let args = [
        "agent",
        "--sim",
        "--listen",
        &url,
        "--token-file",
        arg(&tokens),
    ];
    let mut agent = Running::start(&args);
    agent.message().await.expect("the address");
    let terminal = Tmux::start(SIZES[1]);
    terminal.line(&line(&["--agent", &url]));
    terminal.wait_for("401 Unauthorized").await;
    ended(&terminal, 1).await;
    terminal.line(&line(&["--agent", &url, "--token-file", arg(&token)]));
    terminal.wait_for("demo/").await;
    terminal.keys(&["q"]);
    ended(&terminal, 0).await;
}

#[tokio::test]
async fn without_a_terminal_it_is_an_error() {
    let end = Running::spawn(pleg(&["top", "--sim"])).end().await;
    assert_eq!((end.code(), &*end.out), (Some(1), ""));
    assert!(end.err.contains("needs a terminal"), "{}", end.err);
}
