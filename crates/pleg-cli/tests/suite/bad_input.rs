//! With bad input, the command fails within 15 s with a clear message. It never panics or hangs.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::commands::memory::Unfiltered;
use crate::commands::run::Running;
use crate::support::{TestDir, copy_program, pleg, serve};

/// Checks that the command fails within this time, with a message that contains all of `words`.
async fn fails_within(seconds: u64, command: Command, words: &[&str]) {
    let shown = format!("{command:?}");
    let limit = Duration::from_secs(seconds);
    let end = Running::spawn(command).end_within(limit).await;
    let (code, err) = (end.code(), end.err);
    let is_error = matches!(code, Some(1 | 2)) && !err.contains("panicked");
    assert!(is_error, "{shown}: {err}");
    for word in words {
        assert!(err.contains(word), "{shown}: {word:?} is not in: {err}");
    }
}

fn pods_at(path: &Path) -> Command {
    pleg(&["pods", "-r", path.to_str().expect("UTF-8")])
}

#[tokio::test]
async fn invalid_argument_is_named_with_what_is_allowed() {
    for row in "\
        watch -r tcp://127.0.0.1:1234 => tcp, unix://
        pods -r= => runtime-endpoint
        watch --frobnicate => --frobnicate, Usage
        dance => dance, Usage
        watch -o yaml => yaml, json
        watch --events maybe => maybe, never
        watch --log-format xml => xml, json
        watch --sim -r /x.sock => --sim
        agent --sim -r /x.sock => --sim
        watch --sim=docker => docker, containerd-2
        watch -l =web => KEY=VALUE
        watch --for soon => soon, 10s
        watch --for 0s => zero
        agent --sim --relist-period=-1s => negative
        agent --sim --relist-period 2m => relist-period-max
        agent --sim --unready-after 5s => unready-after
        agent --sim --probe-period 1ms => probe-period
        agent --listen 0.0.0.0:80 => loopback, --token-file, --tls-client-ca
        agent --tls-cert /x => --tls-key
        agent --sim --token-file /none => cannot read /none
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
        sim ctl => --socket"
        .lines()
    {
        let (args, words) = row.split_once(" => ").expect("arguments and words");
        let args: Vec<&str> = args.split_whitespace().collect();
        let words: Vec<&str> = words.split(", ").collect();
        fails_within(15, pleg(&args), &words).await;
    }
}

#[tokio::test]
async fn invalid_variable_is_named() {
    for (variable, value, word) in [
        ("PLEG_LOG", "garbage=foo=bar", "garbage=foo=bar"),
        ("PLEG_LOG", "dbug", "dbug"),
        ("PLEG_RUNTIME_ENDPOINT", "run/a", "absolute path"),
        ("CONTAINER_RUNTIME_ENDPOINT", "tcp://127.0.0.1:1", "tcp"),
    ] {
        let mut command = pleg(&["pods"]);
        command.env(variable, value);
        fails_within(15, command, &[variable, word]).await;
    }
}

/// These errors may be temporary, so the command waits for ten seconds, or as long as it is to run.
#[tokio::test]
async fn missing_or_silent_socket_fails_after_the_time() {
    let dir = TestDir::new();
    let _listener = UnixListener::bind(dir.path("silent.sock")).expect("bound");
    let [silent, missing] = ["silent.sock", "none.sock"].map(|name| dir.path(name));
    let watch = pleg(&["watch", "--for=3s", "-r", missing.to_str().expect("UTF-8")]);
    let advice = "start the runtime, or correct its endpoint (set by -r)";
    let rows = [
        (15, pods_at(&silent), ["does not respond", "10s", advice]),
        (15, pods_at(&missing), ["no socket", "10s", advice]),
        (8, watch, ["none.sock", "within 3s", advice]),
    ];
    let failing = rows.into_iter().map(async |(seconds, command, words)| {
        fails_within(seconds, command, &words).await;
    });
    futures::future::join_all(failing).await;
}

#[tokio::test]
async fn file_or_directory_fails_at_once() {
    let dir = TestDir::new();
    std::fs::write(dir.path("file"), "x").expect("written");
    fails_within(5, pods_at(&dir.path("file")), &["file", "socket"]).await;
    fails_within(5, pods_at(dir.root()), &["directory", "socket"]).await;
}

#[tokio::test]
async fn missing_permission_fails_at_once() {
    // Root has every permission, so the command runs as another user, with setpriv.
    let dir = TestDir::new();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
    };
    open(dir.root(), 0o755);
    let socket = dir.path("closed.sock");
    let _listener = UnixListener::bind(&socket).expect("bound");
    open(&socket, 0o600);
    let copy = dir.path("pleg");
    copy_program(Path::new(env!("CARGO_BIN_EXE_pleg")), &copy);
    open(&copy, 0o755);
    if std::fs::metadata(&copy).is_ok_and(|m| m.uid() != 0) {
        assert!(std::env::var_os("CI").is_none(), "CI runs as root");
        println!("skipped: only root can become another user");
        return;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(&copy).args(["pods", "-r"]).arg(&socket);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    fails_within(5, command, &["permission denied", "closed.sock"]).await;
}

#[tokio::test]
async fn other_protocol_fails_at_once() {
    let http = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    let garbage = "\0\u{ff}\x13\x37garbage that is no protocol at all\n";
    for (answer, word) in [(http, "HTTP/1"), (garbage, "socket")] {
        let dir = TestDir::new();
        let socket = dir.path("other.sock");
        let listener = UnixListener::bind(&socket).expect("bound");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let _ = stream.read(&mut [0; 64]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        fails_within(5, pods_at(&socket), &["not a container runtime", word]).await;
    }
}

#[tokio::test]
async fn simulated_runtime_does_not_take_a_socket_in_use() {
    let dir = TestDir::new();
    let socket = dir.path("taken.sock");
    let _listener = UnixListener::bind(&socket).expect("bound");
    let socket = socket.to_str().expect("UTF-8");
    fails_within(15, pleg(&["sim", "--socket", socket]), &["taken.sock"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn message_above_limit_fails_at_once() {
    let dir = TestDir::new();
    let socket = dir.path("huge.sock");
    serve(Unfiltered::padded(1, 17 << 20), &socket);
    fails_within(5, pods_at(&socket), &["ListPodSandbox", "16777216"]).await;
}
