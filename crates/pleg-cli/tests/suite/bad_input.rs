//! With bad input, the command fails within 15 s with a clear message. It never panics or hangs.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::support::{TestDir, copy_program, pleg, serve};
use pleg::runtime::clock::Clock;
use pleg_cri::v1;
use pleg_cri::v1::runtime_service_server::RuntimeService;
use tonic::{Request, Response, Status};

/// Runs the command, which must exit within 15 s.
fn run(mut command: Command) -> Output {
    let child = command.spawn().expect("the command starts");
    let id = child.id();
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(15)).is_err() {
            // The command hangs. Kill it; the check of the exit code then fails.
            let _ = Command::new("kill")
                .args(["-KILL", &id.to_string()])
                .status();
        }
    });
    let output = Child::wait_with_output(child).expect("the command ends");
    let _ = done.send(());
    watchdog.join().expect("the watchdog ends");
    output
}

/// Checks that the command fails in time, with a message that contains all of `words`.
#[track_caller]
fn fails_with(command: Command, words: &[&str]) {
    let shown = format!("{command:?}");
    let output = run(command);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        matches!(output.status.code(), Some(1 | 2)),
        "{shown}: {:?}: {message}",
        output.status
    );
    assert!(!message.contains("panicked"), "{shown}: {message}");
    for word in words {
        assert!(
            message.contains(word),
            "{shown}: {word:?} is not in: {message}"
        );
    }
}

/// Checks a permanent error, which the command reports within 5 s.
#[track_caller]
fn fails_at_once_with(command: Command, words: &[&str]) {
    let clock = Clock::start();
    let started = clock.now();
    fails_with(command, words);
    let took = clock.now().since(started);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

fn pods_at(path: &Path) -> Command {
    pleg(&["pods", "-r", path.to_str().expect("UTF-8")])
}

#[test]
fn invalid_argument_is_named_with_what_is_allowed() {
    for (args, words) in [
        ("watch -r tcp://127.0.0.1:1234", &["tcp", "unix://"][..]),
        ("pods -r=", &["runtime-endpoint"]),
        ("watch --frobnicate", &["--frobnicate", "Usage"]),
        ("dance", &["dance", "Usage"]),
        ("watch -o yaml", &["yaml", "json"]),
        ("watch --events maybe", &["maybe", "never"]),
        ("watch --log-format xml", &["xml", "json"]),
        ("watch --sim -r /x.sock", &["--sim"]),
        ("agent --sim -r /x.sock", &["--sim"]),
        ("watch --sim=docker", &["docker", "containerd-2"]),
        ("watch --for soon", &["soon", "10s"]),
        ("watch --for 0s", &["zero"]),
        ("agent --sim --relist-period=-1s", &["negative"]),
        ("agent --sim --relist-period 2m", &["relist-period-max"]),
        ("agent --sim --unready-after 5s", &["unready-after"]),
        ("agent --sim --probe-period 1ms", &["probe-period"]),
        (
            "agent --listen 0.0.0.0:80",
            &["loopback", "--token-file", "--tls-client-ca"],
        ),
        ("agent --tls-cert /x", &["--tls-key"]),
        ("agent --sim --token-file /none", &["cannot read /none"]),
        ("sim", &["--socket"]),
        (
            "sim --socket /none/s --mode containerd-3",
            &["containerd-3", "containerd-1.7", "crio-disabled"],
        ),
        (
            "sim --socket /none/s --runtime-version 1.7.24",
            &["1.7.24", "containerd-2", "containerd 2.0 or later"],
        ),
        (
            "sim --socket /none/s --chaos drop=often",
            &["drop=often", "not a rate", "5%"],
        ),
        (
            "sim --socket /none/s --chaos drops=5%",
            &["drops", "similar: drop"],
        ),
        ("sim --socket /none/dir/s", &["/none/dir/s"]),
        (
            "sim ctl --socket /none/s",
            &["/none/s.ctl", "no simulated runtime"],
        ),
        ("sim ctl", &["--socket"]),
    ] {
        fails_with(pleg(&args.split(' ').collect::<Vec<_>>()), words);
    }
}

#[test]
fn invalid_variable_is_named() {
    for (variable, value, word) in [
        ("PLEG_LOG", "garbage=foo=bar", "garbage=foo=bar"),
        ("PLEG_LOG", "dbug", "dbug"),
        ("PLEG_RUNTIME_ENDPOINT", "run/a", "absolute path"),
        ("CONTAINER_RUNTIME_ENDPOINT", "tcp://127.0.0.1:1", "tcp"),
    ] {
        let mut command = pleg(&["pods"]);
        command.env(variable, value);
        fails_with(command, &[variable, word]);
    }
}

/// These errors may be temporary, so the command waits for ten seconds.
#[test]
fn missing_or_silent_socket_fails_after_ten_seconds() {
    let dir = TestDir::new();
    let silent = dir.path("silent.sock");
    let _listener = UnixListener::bind(&silent).expect("bound");
    let (silent, missing) = (pods_at(&silent), pods_at(&dir.path("none.sock")));
    let advice = "start the runtime, or correct its endpoint (set by --runtime-endpoint)";
    std::thread::scope(|threads| {
        threads.spawn(|| fails_with(silent, &["does not respond", "silent.sock", "10s", advice]));
        threads.spawn(|| fails_with(missing, &["no socket", "none.sock", "10s", advice]));
    });
}

#[test]
fn file_or_directory_fails_at_once() {
    let dir = TestDir::new();
    std::fs::write(dir.path("file"), "x").expect("written");
    fails_at_once_with(pods_at(&dir.path("file")), &["file", "socket"]);
    fails_at_once_with(pods_at(dir.root()), &["directory", "socket"]);
}

#[test]
fn missing_permission_fails_at_once() {
    // Root has every permission, so the command runs as another user, with setpriv.
    let dir = TestDir::new();
    let open = |p: &Path, mode| {
        std::fs::set_permissions(p, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    open(dir.root(), 0o755);
    let socket = dir.path("closed.sock");
    let _listener = UnixListener::bind(&socket).expect("bound");
    open(&socket, 0o600);
    let copy = dir.path("pleg");
    copy_program(Path::new(env!("CARGO_BIN_EXE_pleg")), &copy);
    open(&copy, 0o755);
    let am_root = std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|s| s.lines().any(|l| l.starts_with("Uid:\t0\t")));
    assert!(
        am_root || std::env::var_os("CI").is_none(),
        "CI runs as root"
    );
    if !am_root {
        println!("skipped: only root can become another user");
        return;
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(["pods", "-r"])
        .arg(&socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    fails_at_once_with(command, &["permission denied", "closed.sock"]);
}

#[test]
fn other_protocol_fails_at_once() {
    for (answer, words) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"[..],
            ["not a container runtime", "HTTP/1"],
        ),
        (
            &b"\x00\xff\x13\x37garbage that is no protocol at all\n"[..],
            ["not a container runtime", "socket"],
        ),
    ] {
        let dir = TestDir::new();
        let socket = dir.path("other.sock");
        let listener = UnixListener::bind(&socket).expect("bound");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let _ = stream.read(&mut [0; 64]);
                let _ = stream.write_all(answer);
            }
        });
        fails_at_once_with(pods_at(&socket), &words);
    }
}

#[test]
fn simulated_runtime_does_not_take_a_socket_in_use() {
    let dir = TestDir::new();
    let socket = dir.path("taken.sock");
    let _listener = UnixListener::bind(&socket).expect("bound");
    let socket = socket.to_str().expect("UTF-8");
    fails_with(pleg(&["sim", "--socket", socket]), &["taken.sock"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_above_limit_fails_at_once() {
    let dir = TestDir::new();
    let socket = dir.path("huge.sock");
    serve(Huge, &socket);
    fails_at_once_with(pods_at(&socket), &["ListPodSandbox", "16777216"]);
}

/// A runtime whose list of sandboxes is larger than the limit of 16 MiB.
#[derive(Debug)]
struct Huge;

#[tonic::async_trait]
impl RuntimeService for Huge {
    async fn version(
        &self,
        _: Request<v1::VersionRequest>,
    ) -> Result<Response<v1::VersionResponse>, Status> {
        Ok(Response::new(v1::VersionResponse::default()))
    }

    async fn list_pod_sandbox(
        &self,
        _: Request<v1::ListPodSandboxRequest>,
    ) -> Result<Response<v1::ListPodSandboxResponse>, Status> {
        let sandbox = v1::PodSandbox {
            id: "x".repeat(17 << 20),
            ..v1::PodSandbox::default()
        };
        Ok(Response::new(v1::ListPodSandboxResponse {
            items: vec![sandbox],
        }))
    }
}
