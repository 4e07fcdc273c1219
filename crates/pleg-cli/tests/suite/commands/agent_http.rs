//! The HTTP server of `pleg agent`: who may read what, and how the commands read it.

use std::path::Path;
use std::process::Stdio;

use pleg_tests::wait::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use super::agent::{Agent, ask};
use super::run::{Running, TIMEOUT, arg};
use crate::support::{TestDir, pleg};

/// SHA-256 of `first` and of `second`.
const FIRST: &str = "a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e";
const SECOND: &str = "16367aacb67a4a017c8da8ab95682ccb390863780f7114dda0a0e0c55644c7c4";

/// The address of the listener for probes.
pub(super) async fn probes(agent: &mut Agent) -> String {
    let message = agent.running.message().await.expect("a second address");
    let address = message.strip_suffix(" serves /healthz and /readyz");
    address.expect("an address").replace("http://", "")
}

#[tokio::test]
async fn slow_and_large_requests_are_ended() {
    let agent = Agent::start(&["--sim"]).await;
    let huge = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let requests = [
        ("", ""),
        ("GET /metrics HTTP/1.1\r\nHost: ", "HTTP/1.1 408"),
        (&*huge, "HTTP/1.1 431"),
        (
            "POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\nx",
            "HTTP/1.1 405",
        ),
    ];
    let ended = requests.map(async |(request, expected)| {
        let mut stream = agent.connect().await;
        // The agent may close the connection before everything is written, or before everything is read.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut response = String::new();
        let read = tokio::time::timeout(TIMEOUT, stream.read_to_string(&mut response));
        let _ = read.await.expect("closed in time");
        let is_expected = response.starts_with(expected) || response.is_empty();
        assert!(is_expected, "{request:.40}: {response}");
    });
    futures::future::join_all(ended).await;
    // A request without keep-alive: the connection ends after the response.
    let (code, head, _) = agent.get("/healthz").await;
    assert_eq!(code, 200);
    assert!(head.contains("connection: close"), "{head}");
    agent.stop().await;
}

#[tokio::test]
async fn request_needs_a_token_whose_digest_was_read_last() {
    let dir = TestDir::new();
    let file = dir.path("tokens");
    std::fs::write(&file, format!("{FIRST} prometheus\n")).expect("written");
    let mut agent = Agent::start(&["--sim", "--token-file", arg(&file)]).await;
    let metrics = async |agent: &Agent, token: &str| {
        let header = format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n");
        ask(agent.connect().await, "/metrics", &header).await.0
    };
    assert_eq!(metrics(&agent, "first").await, 200);
    for _ in 0..20 {
        assert_eq!(metrics(&agent, "second").await, 401);
    }
    let (code, head, body) = agent.get("/metrics").await;
    assert_eq!((code, &*body), (401, "unauthorized\n"));
    assert!(head.contains("www-authenticate: bearer"), "{head}");
    // One line for each reason.
    for reason in ["wrong token", "no token"] {
        let line = agent.running.message().await.expect("a line");
        let end = format!("rejected a client, {reason}: 127.0.0.1");
        assert!(line.ends_with(&end), "{line}");
    }
    // For the probes of a kubelet.
    assert_eq!(agent.get("/healthz").await.0, 200);
    agent.until_ready().await;

    std::fs::write(&file, format!("{SECOND}  -\n")).expect("written");
    agent.running.signal("HUP").await;
    let reread = until(TIMEOUT, "the new token", || async {
        (metrics(&agent, "second").await == 200).then_some(())
    });
    reread.await.expect("read again");
    assert_eq!(metrics(&agent, "first").await, 401);
    std::fs::write(&file, "third\n").expect("written");
    agent.running.signal("HUP").await;
    let line = agent.running.message().await.expect("an error");
    assert!(line.contains("printf %s TOKEN | sha256sum"), "{line}");
    let ending = "; the last token and certificates stay in use";
    assert!(line.ends_with(ending), "{line}");
    assert_eq!(metrics(&agent, "second").await, 200);
    agent.stop().await;
}

#[tokio::test]
async fn unix_socket_is_served_and_removed() {
    let dir = TestDir::new();
    let socket = dir.path("agent.sock");
    let address = format!("unix://{}", arg(&socket));
    let stale = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    drop(stale);
    let mut running = Running::start(&["agent", "--sim", "--listen", &address]);
    let message = running.message().await.expect("the address");
    let serves = format!("; {address} serves");
    assert!(message.contains(&serves), "{message}");
    let stream = UnixStream::connect(&socket).await.expect("connected");
    let (code, _, body) = ask(stream, "/healthz", "").await;
    assert_eq!((code, &*body), (200, "ok\n"));
    let second = Running::start(&["agent", "--sim", "--listen", &address]);
    let end = second.end().await;
    assert_eq!(end.code(), Some(1), "it is in use");
    assert!(end.err.contains("cannot listen on unix://"), "{}", end.err);
    running.signal("TERM").await;
    assert_eq!(running.end().await.code(), Some(0));
    assert!(!socket.exists());
}

/// The files of the tests are in the current directory of the commands. A certificate that signs itself is its authority.
fn write_files(dir: &Path) {
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).expect("written");
    write("tokens", FIRST);
    write("token", "first\n");
    for (name, subject) in [
        ("server", "127.0.0.1"),
        ("client", "client"),
        ("stranger", "client"),
    ] {
        let own = rcgen::generate_simple_self_signed([subject.to_owned()]).expect("signed");
        write(&format!("{name}.pem"), &own.cert.pem());
        write(&format!("{name}.key"), &own.signing_key.serialize_pem());
    }
}

#[tokio::test]
async fn agent_with_tls_answers_commands_with_certificate_and_token() {
    let dir = TestDir::new();
    write_files(dir.root());
    let command = |args: &str| {
        let mut command = pleg(&args.split_whitespace().collect::<Vec<_>>());
        command.current_dir(dir.root());
        command
    };
    let mut agent = Agent::spawn(command(
        "agent --sim --listen 127.0.0.1:0 --health-listen 127.0.0.1:0 --token-file tokens \
         --tls-cert server.pem --tls-key server.key --tls-client-ca client.pem",
    ))
    .await;
    let probes = probes(&mut agent).await;
    let probe = async |path| {
        let stream = TcpStream::connect(&probes).await.expect("connected");
        ask(stream, path, "").await
    };
    let ready = until(TIMEOUT, "ready", || async {
        let (code, _, body) = probe("/readyz").await;
        (code == 200 && body == "ok (brief)\n").then_some(())
    });
    ready.await.expect("ready");
    assert_eq!(probe("/metrics").await.0, 404);

    let url = format!("https://{}", agent.address);
    let own = "--ca server.pem --cert client.pem --key client.key";
    let stranger = "--ca server.pem --cert stranger.pem --key stranger.key";
    let with_token = format!("{own} --token-file token");
    let [known, other] = ["--ca server.pem", "--ca client.pem"];
    for (args, out, log) in [
        (&*with_token, "ok\n", ""),
        (own, "401 Unauthorized: it needs a token", "no token"),
        (known, "it needs --cert and --key", "no certificate"),
        (
            stranger,
            "it rejects the certificate",
            "invalid certificate",
        ),
        (other, "invalid peer certificate", "no TLS handshake"),
        ("", "needs --ca", ""),
    ] {
        let check = command(&format!("check --agent {url} {args}"));
        let end = Running::spawn(check).end().await;
        let shown = end.out + &end.err;
        assert!(shown.contains(out), "{args}: {shown}");
        if !log.is_empty() {
            let line = agent.running.message().await.expect("a line");
            let log = format!("rejected a client, {log}: 127.0.0.1");
            assert!(line.contains(&log), "{args}: {line}");
        }
    }
    for name in ["check", "watch"] {
        let plain = command(&format!("{name} --agent http://{}", agent.address));
        let end = Running::spawn(plain).end().await;
        let shown = end.out + &end.err;
        assert!(shown.contains("this agent speaks https"), "{shown}");
    }
    let args = format!("watch -o json --agent {url} {with_token}");
    assert!(Running::spawn(command(&args)).event().await["seq"].is_u64());
    let end = Running::spawn(command("check --ca server.pem")).end().await;
    assert!(end.out.contains("--ca needs an agent"), "{}", end.out);
    agent.stop().await;
}

#[tokio::test]
async fn page_of_another_site_cannot_read() {
    let agent = Agent::start(&["--sim"]).await;
    agent.until_ready().await;
    for (host, code) in [
        ("127.0.0.1:9394", 200),
        ("[::1]:9394", 200),
        ("LOCALHOST", 200),
        ("evil.example:9394", 421),
        ("127.0.0.1.evil.example", 421),
    ] {
        // What names no pod is for everybody on this host, also through a proxy that passes the header on.
        for path in ["/debug/view", "/metrics", "/readyz", "/healthz", "/"] {
            let expected = if path == "/debug/view" { code } else { 200 };
            let header = format!("Host: {host}\r\n");
            let reply = ask(agent.connect().await, path, &header).await;
            assert_eq!(reply.0, expected, "{host}: {reply:?}");
        }
    }
    for row in "\
        / 200 content-security-policy: default-src 'none'; script-src 'sha256-
        /debug/view?limit=5 200 content-type: application/json
        /debug/view?limit=x 400 content-type: text/plain
        /debug/events?after=5 200 content-type: application/x-ndjson
        /debug/events?after=x 400 content-type: text/plain
        /nothing 404 content-type: text/plain"
        .lines()
    {
        let (path, expected) = row.trim_start().split_once(' ').expect("a path");
        let (code, shown) = expected.split_once(' ').expect("a code");
        let (status, head, _) = agent.get(path).await;
        assert_eq!(status.to_string(), code, "{path}");
        assert!(head.contains(shown), "{path}: {head}");
    }
    agent.stop().await;
}

/// The fake kubelet is a shell with another name.
#[tokio::test]
async fn shared_events_are_left_to_a_kubelet() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let args = ["sim", "--empty", "--mode", "containerd-1.7", "--socket"];
    let mut sim = Running::start(&[&args[..], &[arg(&socket)]].concat());
    sim.message().await.expect("the socket");
    let program = dir.path("kubelet");
    std::os::unix::fs::symlink("/bin/bash", &program).unwrap();
    let mut kubelet = std::process::Command::new(&program);
    kubelet.args(["-c", "echo runs; read line", "kubelet"]);
    kubelet.arg("--feature-gates=EventedPLEG=true");
    kubelet.stdin(Stdio::piped()).stdout(Stdio::piped());
    kubelet.stderr(Stdio::piped());
    let mut kubelet = Running::spawn(kubelet);
    assert_eq!(kubelet.line().await.as_deref(), Some("runs"));

    let agent = Agent::start(&["-r", arg(&socket)]).await;
    let polls = "polling: containerd 1.7.";
    let page = agent.until_shows("/readyz", polls).await;
    let why = "subscribes to them (--feature-gates";
    assert!(page.contains(why), "{page}");
    assert_eq!(subscribers(&socket).await, "0");
    agent.stop().await;

    let agent = Agent::start(&["-r", arg(&socket), "--events", "always"]).await;
    agent.until_confirmed().await;
    assert_eq!(subscribers(&socket).await, "1");
    agent.stop().await;
}

/// The number of subscribers of a simulated runtime.
async fn subscribers(socket: &Path) -> String {
    let shown = Running::start(&["sim", "ctl", "--socket", arg(socket)]);
    let shown = shown.end().await.out;
    let (before, _) = shown.split_once(" subscriber").expect("shown");
    let number = before.split_whitespace().last();
    number.unwrap_or_default().to_owned()
}
