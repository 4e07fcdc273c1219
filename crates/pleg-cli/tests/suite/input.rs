//! The command line, variables and files. With bad input, the command fails within 15 s with a clear message.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::Duration;

use super::run::{Running, SECRET, Sim, TestDir, arg, assert_has, piped, pleg, program};

/// Checks that the command fails after `seconds` (from-to), with a message that contains all of `words`.
async fn fails_after(seconds: &str, command: Command, words: &str) {
    let shown = format!("{command:?}");
    let (least, most) = seconds.split_once('-').expect("two times");
    let [least, most] = [least, most].map(|s| Duration::from_secs(s.parse().expect("a number")));
    let end = Running::spawn(command).end_within(most).await;
    assert!(end.took >= least, "{shown}: {:?}", end.took);
    let (code, err) = (end.code, end.err);
    let is_error = matches!(code, Some(1 | 2)) && !err.contains("panicked");
    assert!(is_error, "{shown}: {err}");
    assert_has(&err, &words.replace(", ", " | "));
}

/// The command with these words: the arguments, and variables such as `A=b`.
fn command(words: &str) -> Command {
    let is_variable = |word: &&str| word.starts_with(|c: char| c.is_uppercase());
    let (variables, args): (Vec<_>, Vec<_>) = words.split_whitespace().partition(is_variable);
    let mut command = pleg(&args.join(" "));
    command.envs(variables.iter().filter_map(|word| word.split_once('=')));
    command
}

#[tokio::test]
async fn invalid_argument_or_variable_is_named_with_what_is_allowed() {
    for row in "\
        watch -r tcp://127.0.0.1:1234 => tcp, unix://
        pods -r= => runtime-endpoint
        watch --frobnicate => --frobnicate, Usage
        dance => dance, Usage
        watch -o yaml => yaml, json
        watch --events maybe => maybe, never
        watch --log-format xml => xml, json
        agent --sim -r /x.sock => --sim
        watch --sim=docker => docker, containerd-2
        watch -l =web => KEY=VALUE
        watch --for soon => soon, 10s
        watch --for 0s => zero
        top --sim => needs a terminal
        agent --sim --relist-period=-1s => negative
        agent --sim --unready-after 5s => unready-after
        agent --sim --probe-period 1ms => probe-period
        agent --log-format json --listen 0.0.0.0:80 => \"level\":\"error\", \"message\":\"0.0.0.0:80 is not a loopback, --token-file, --tls-client-ca
        agent --config /none => cannot read /none: No such file
        config check /none => cannot read /none: No such file
        completions csh => csh, bash
        man /dev/null/x => cannot write to /dev/null/x
        sim => --socket
        sim --socket /none/s => /none/s
        sim --socket /none/s --mode containerd-3 => containerd-3, containerd-1.7, crio-disabled
        sim --socket /none/s --runtime-version 1.7.24 => 1.7.24, containerd 2.0.0 or later
        sim --socket /none/s --chaos drop=often => drop=often, not a rate, 5%
        sim --socket /none/s --chaos drops=5% => drops, similar: drop
        sim ctl --socket /none/s => /none/s.ctl, no simulated runtime
        sim ctl => --socket
        check --agent localhost => localhost, not an address
        check --agent https://127.0.0.1 => https://127.0.0.1, not an address
        check --agent ftp://127.0.0.1:1 => ftp, not an address
        check --agent http://127.0.0.1:1/path => path, not an address
        check --agent unix://run/a.sock => unix, not an address
        PLEG_LOG=garbage=foo=bar pods => PLEG_LOG, garbage=foo=bar
        PLEG_LOG=dbug pods => dbug, is not a level
        PLEG_LOG=pleg=loud pods => PLEG_LOG, invalid
        PLEG_LOG=pleg=debug,infoo pods => infoo, is not a level
        PLEG_RUNTIME_ENDPOINT=run/a pods => PLEG_RUNTIME_ENDPOINT, absolute path
        CONTAINER_RUNTIME_ENDPOINT=tcp://127.0.0.1:1 pods => CONTAINER_RUNTIME_ENDPOINT, tcp"
        .lines()
    {
        let (line, words) = row.split_once(" => ").expect("a command and words");
        fails_after("0-15", command(line), words).await;
    }
}

/// On errors that may be temporary, the command tries for 10 s, or for the time of --for. On others it fails at once.
#[tokio::test(flavor = "multi_thread")]
async fn error_names_socket_without_runtime_and_what_is_wrong() {
    let dir = TestDir::new();
    let bind = |name: &str| UnixListener::bind(dir.path(name)).expect("bound");
    let _silent = bind("silent");
    dir.write("file", "x");
    let huge = Sim::with("--empty --mode unimplemented").await;
    huge.run_pod("web").await;
    huge.control("list.pad=17MiB list.limit=20MiB").await;
    let http = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    let garbage = "\0\u{ff}\x13\x37garbage that is no protocol at all\n";
    for (name, answer) in [("http", http), ("garbage", garbage)] {
        let listener = bind(name);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 64]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
    }
    let failing = "\
        9-15 pods -r DIR/silent => does not respond, 10s, start the runtime, or correct its endpoint (set by -r)
        9-15 pods -r DIR/none => no socket, 10s, start the runtime, or correct its endpoint (set by -r)
        2-8 watch --for=3s -r DIR/none => none, within 3s, start the runtime, or correct its endpoint (set by -r)
        0-5 pods -r DIR/file => file, is a regular file, socket
        0-5 pods -r DIR => directory, socket
        0-5 pods -r DIR/http => not a container runtime, HTTP/1
        0-5 pods -r DIR/garbage => not a container runtime, socket
        0-5 pods -r HUGE => ListPodSandbox, 16777216
        0-5 sim --socket DIR/silent => silent";
    let failing = failing.lines().map(async |row| {
        let row = row.replace("DIR", arg(dir.root()));
        let row = row.replace("HUGE", arg(&huge.socket));
        let (line, words) = row.split_once(" => ").expect("a command and words");
        let (seconds, args) = line.trim_start().split_once(' ').expect("times");
        fails_after(seconds, pleg(args), words).await;
    });
    futures::future::join_all(failing).await;
}

/// Root may open every socket, so if root runs this test, the command runs without capabilities.
#[tokio::test]
async fn command_without_permission_for_the_socket_fails_at_once() {
    let dir = TestDir::new();
    let socket = dir.path("closed");
    let _listener = UnixListener::bind(&socket).expect("bound");
    std::fs::set_permissions(&socket, Permissions::from_mode(0o000)).expect("set");
    let mut command = piped(program());
    if dir.root().metadata().is_ok_and(|m| m.uid() == 0) {
        command = piped("setpriv");
        command.arg("--bounding-set=-all").arg(program());
    }
    command.args(["pods", "-r"]).arg(&socket);
    fails_after("0-5", command, "permission denied, closed").await;
}

#[test]
fn config_check_prints_ok_or_one_line_for_each_problem() {
    let dir = TestDir::new();
    let token = dir.write("token", SECRET);
    // The lines of the file => the exit code, and the lines that are printed.
    for row in "\
        listen = '0.0.0.0:9394' | token-file = 'TOKEN' => 0 agent.toml: ok
        listne = 'a' | | events = 'maybe' => 1 toml:1: unknown key `listne`; allowed: | toml:3: invalid value of `events`: use auto, always, never
        config = '/a' => 1 toml:1: unknown key `config`; allowed: runtime-endpoint, sim, events, listen,
        relist-period = 5 => 1 toml:1: invalid value of `relist-period`: not a duration; use for example 500ms
        verbose = 'a' => 1 toml:1: invalid value of `verbose`: use a number
        kubelet-names = 1 => 1 `kubelet-names`: use true, false
        sim = 'x' => 1 `sim`: use containerd-1.7, containerd-2
        sim = 'crio' | runtime-endpoint = '/a' => 1 agent.toml: `runtime-endpoint` and `sim` exclude
        verbose = 1 | listen = => 1 agent.toml:2:
        verbose = 1 | | verbose = 2 => 1 agent.toml:3: duplicate key
        verbose = 1 | [agent] | b = 1 => 1 agent.toml:2: `agent` must be a string
        é = 1 => 1 agent.toml:1:
        a = 'b => 1 agent.toml:1:
        relist-period = '2m' => 1 agent.toml: relist-period-max
        listen = '[::1]:1' => 0 agent.toml: ok
        listen = '0.0.0.0:9394' => 1 --token-file
        listen = 'localhost:1' => 1 `listen`: not an address
        listen = 'unix://a' => 1 `listen`: not an address
        tls-cert = '/none' => 1 --tls-key
        token-file = '/none' => 1 cannot read /none"
        .lines()
    {
        let row = row.trim_start().replace("TOKEN", arg(&token));
        let (text, outcome) = row.split_once(" => ").expect("a file and its outcome");
        let (code, lines) = outcome.split_once(' ').expect("a code and lines");
        let file = dir.write("agent.toml", &text.replace(" |", "\n"));
        let output = pleg("config check").arg(&file).output().expect("it runs");
        let shown = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
        assert_eq!(output.status.code(), code.parse().ok(), "{text}: {shown}");
        let lines: Vec<&str> = lines.split(" | ").collect();
        assert_eq!(shown.lines().count(), lines.len(), "{text}: {shown}");
        let all = shown.lines().zip(lines);
        all.for_each(|(line, words)| assert_has(line, words));
    }
}

/// The first line that an agent prints shows its runtime and why it was chosen, or an invalid setting with its value.
#[tokio::test]
async fn flag_overrides_variable_and_variable_overrides_file() {
    let dir = TestDir::new();
    let text = "runtime-endpoint = '/file'\nlisten = '127.0.0.1:0'";
    let file = dir.write("agent.toml", text);
    // Variables and flags => the line.
    for row in "\
        => watching unix:///file (set in /
        PLEG_RUNTIME_ENDPOINT= => watching unix:///file (set in /
        PLEG_LOG=off,pleg_sim,pleg_sim=trace => watching unix:///file (set in /
        --log-format=json => \"level\":\"info\",\"target\":\"pleg\",\"message\":\"watching unix:///file (set in /
        CONTAINER_RUNTIME_ENDPOINT=/b => watching unix:///b (set by CONTAINER_RUNTIME_ENDPOINT
        PLEG_RUNTIME_ENDPOINT=/a CONTAINER_RUNTIME_ENDPOINT=/b => watching unix:///a (set by PLEG_RUN
        PLEG_RUNTIME_ENDPOINT=/a -r=/c => watching unix:///c (set by -r
        PLEG_SIM=crio -r=/c => watching unix:///c (set by -r
        PLEG_RUNTIME_ENDPOINT=/a --sim => (embedded, simulated)
        PLEG_SIM=crio CONTAINER_RUNTIME_ENDPOINT=/b => (embedded, simulated)
        PLEG_RELIST_PERIOD=2m => relist-period-max
        PLEG_RELIST_PERIOD=2m --relist-period=1s => watching
        PLEG_EVENTS=x => invalid value of PLEG_EVENTS: use auto, always, never
        PLEG_VERBOSE=x => invalid value of PLEG_VERBOSE:
        CONTAINER_RUNTIME_ENDPOINT=tcp://a => invalid value of CONTAINER_RUNTIME_ENDPOINT:"
        .lines()
    {
        let (words, expected) = row.split_once("=> ").expect("words and the line");
        let mut command = command(&format!("PLEG_LOG=off agent {words}"));
        command.env("PLEG_CONFIG", &file);
        assert_has(&Running::spawn(command).message().await, expected);
    }
}

#[test]
fn completions_and_manual_pages_have_the_commands_and_their_flags() {
    let dir = TestDir::new();
    let run = |args: &str| {
        let output = pleg(args).output().expect("it runs");
        assert!(output.status.success(), "{args}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&format!("completions {shell}"));
        let words = "_pleg | agent | relist-period | config | containerd-1.7";
        assert_has(&script, words);
    }
    let pages = dir.path("share/man1").display().to_string();
    run(&format!("man {pages}"));
    for (page, words) in [
        ("pleg.1", "lifecycle events of the pods"),
        ("pleg-agent.1", "relist\\-period"),
        ("pleg-config-check.1", "FILE"),
        ("pleg-sim-ctl.1", "socket"),
    ] {
        let text = std::fs::read_to_string(format!("{pages}/{page}")).expect(page);
        let is_page = text.starts_with(".ie") && text.contains(words);
        assert!(is_page, "{page}: {text}");
    }
}
