//! The HTTP server of `pleg agent`: who may read what, and how the commands read it.

use pleg_tests::wait::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use super::agent::{Agent, ask};
use super::run::{Running, SECRET, Sim, TIMEOUT, TestDir, arg, assert_has, piped, pleg};

/// SHA-256 of `first` and of `second`.
const FIRST: &str = "a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e";
const SECOND: &str = "16367aacb67a4a017c8da8ab95682ccb390863780f7114dda0a0e0c55644c7c4";

/// The address of the agent's listener for the kubelet's probes.
pub(super) async fn probes(agent: &mut Agent) -> String {
    let message = agent.running.message().await;
    let address = message.strip_suffix(" serves /healthz and /readyz");
    address.expect("an address").replace("http://", "")
}

#[tokio::test]
async fn connection_with_slow_or_large_request_is_closed() {
    let agent = Agent::start("--sim").await;
    let huge = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let body = "POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\nx";
    let requests = [
        ("", ""),
        ("GET /metrics HTTP/1.1\r\nHost: ", "HTTP/1.1 408"),
        (&*huge, "HTTP/1.1 431"),
        (body, "HTTP/1.1 405"),
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
}

#[tokio::test]
async fn request_needs_a_token_from_the_last_read_token_file() {
    let dir = TestDir::new();
    let upper = FIRST.to_uppercase();
    let tokens = format!("# all\n\n{SECRET}  -\n {upper} prometheus, until May\n");
    let file = dir.write("tokens", &tokens);
    let mut agent = Agent::start(&format!("--sim --token-file {}", arg(&file))).await;
    let metrics = async |agent: &Agent, authorization: &str| {
        let header = format!("Host: localhost\r\nAuthorization: {authorization}\r\n");
        ask(agent.connect().await, "/metrics", &header).await.0
    };
    for token in ["Bearer secret", "Bearer first", "bearer first"] {
        assert_eq!(metrics(&agent, token).await, 200, "{token}");
    }
    let digest = &*format!("Bearer {FIRST}");
    for token in ["first", "Digest first", "Bearer second", digest].repeat(9) {
        assert_eq!(metrics(&agent, token).await, 401, "{token}");
    }
    let (code, head, body) = agent.get("/metrics").await;
    assert_eq!((code, &*body), (401, "unauthorized\n"));
    assert_has(&head, "www-authenticate: bearer");
    for reason in ["no token", "wrong token", "its token is itself a line"] {
        let line = agent.running.message().await;
        assert_has(&line, &format!("rejected a client, {reason} | : 127.0.0.1"));
    }
    // A kubelet's probes have no token.
    assert_eq!(agent.get("/healthz").await.0, 200);
    agent.until_shows("/readyz", "ok (brief)\n").await;

    dir.write("tokens", SECOND);
    agent.running.signal("HUP").await;
    let reread = until(TIMEOUT, "the new token", || async {
        (metrics(&agent, "Bearer second").await == 200).then_some(())
    });
    reread.await.expect("read again");
    assert_eq!(metrics(&agent, "Bearer first").await, 401);
    for (text, words) in [
        ("# none\n", "contains no digest"),
        ("hidden\n", ":1 is not the SHA-256 of a token"),
        (&format!("{SECOND}\n{}é", &SECOND[2..]), ":2 is not"),
        (&format!("{SECOND}0"), "printf %s TOKEN | sha256sum"),
    ] {
        dir.write("tokens", text);
        agent.running.signal("HUP").await;
        let line = agent.running.message().await;
        assert_has(&line, words);
        assert_has(&line, "; the old token and certificates stay in use");
        assert!(!line.contains("hidden"), "{line}");
    }
    assert_eq!(metrics(&agent, "Bearer second").await, 200);
}

#[tokio::test]
async fn agent_serves_and_removes_its_unix_socket() {
    let dir = TestDir::new();
    let socket = dir.path("agent.sock");
    let address = format!("unix://{}", arg(&socket));
    let command = format!("agent --sim --listen {address}");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("a stale socket"));
    // The agent also runs if the service manager cannot be reached.
    let mut first = pleg(&command);
    first.env("NOTIFY_SOCKET", "/none/notify.sock");
    let mut running = Running::spawn(first);
    running.message_with(&format!("; {address} serves")).await;
    let warning = "cannot notify the service manager at /none";
    running.message_with(warning).await;
    let stream = UnixStream::connect(&socket).await.expect("connected");
    let (code, _, body) = ask(stream, "/healthz", "").await;
    assert_eq!((code, &*body), (200, "ok\n"));
    let second = Running::start(&command).end().await;
    assert_eq!(second.code, Some(1), "it is in use");
    assert_has(&second.err, "cannot listen on unix://");
    running.stop("TERM", 0).await;
    assert!(!socket.exists());
}

/// Each row: exit code and command => the line that the command prints => the reason in the log of the agent.
const COMMANDS: &str = "\
0 check --agent https://AGENT OWN --token-file token => ok
2 check --agent https://AGENT OWN => 401 Unauthorized: it needs a token => no token
2 check --agent https://AGENT --ca server.pem => it needs --cert and --key => no certificate
2 check --agent https://AGENT STRANGER => it rejects the certificate => invalid certificate
2 check --agent https://AGENT --ca client.pem => invalid peer certificate => no TLS handshake
2 check --agent https://AGENT => needs --ca
2 check --agent https://node-1:9394 => https://node-1:9394 needs --ca
2 check --agent http://AGENT => this agent speaks https
1 watch --agent http://AGENT => this agent speaks https
2 check --agent unix:///none.sock => no answer from an agent at unix:///none.sock
2 check --agent 127.0.0.1:1 => no answer from an agent at http://127.0.0.1:1
2 check --agent http://[::1]:1/ => no answer from an agent at http://[::1]:1
2 check --ca server.pem => --ca needs an agent";

/// `COMMANDS` name files of the test's directory. The certificates are self-signed: each one is its own authority.
#[tokio::test]
async fn agent_with_tls_answers_commands_with_certificate_and_token() {
    let dir = TestDir::new();
    dir.write("tokens", FIRST);
    dir.write("token", "first\n");
    for pair in ["server 127.0.0.1", "client client", "stranger client"] {
        let (name, subject) = pair.split_once(' ').expect("a subject");
        let own = rcgen::generate_simple_self_signed([subject.to_owned()]).expect("signed");
        dir.write(&format!("{name}.pem"), &own.cert.pem());
        dir.write(&format!("{name}.key"), &own.signing_key.serialize_pem());
    }
    let command = |args: &str| {
        let mut command = pleg(args);
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

    let [own, stranger] = ["client", "stranger"]
        .map(|name| format!("--ca server.pem --cert {name}.pem --key {name}.key"));
    for row in COMMANDS.lines() {
        let row = row.replace("OWN", &own).replace("STRANGER", &stranger);
        let row = row.replace("AGENT", &agent.address);
        let mut parts = row.split(" => ");
        let command_line = parts.next().expect("a command");
        let (code, args) = command_line.split_once(' ').expect("a code");
        let end = Running::spawn(command(args)).end().await;
        let shown = end.out.clone() + &end.err;
        assert_eq!(end.code, code.parse().ok(), "{args}: {shown}");
        let is_short = shown.lines().count() == 1 || args.starts_with("watch");
        let expected = parts.next().expect("a line");
        assert!(is_short && shown.contains(expected), "{args}: {shown}");
        if let Some(log) = parts.next() {
            let log = format!("rejected a client, {log}: 127.0.0.1");
            assert_has(&agent.running.message().await, &log);
        }
    }
    let address = &agent.address;
    let args = format!("watch -o json --agent https://{address} {own} --token-file token");
    assert!(Running::spawn(command(&args)).event().await["seq"].is_u64());
}

#[tokio::test]
async fn web_page_of_another_site_cannot_read_from_the_agent() {
    let agent = Agent::start("--sim").await;
    agent.until_metric("pleg_ready", 1.0).await;
    for (host, code) in [
        ("127.0.0.1:9394", 200),
        ("[::1]:9394", 200),
        ("LOCALHOST", 200),
        ("evil.example:9394", 421),
        ("127.0.0.1.evil.example", 421),
    ] {
        // If the response names no pod, the agent accepts any `Host`: a proxy on this host may set its own name.
        for path in ["/debug/view", "/metrics", "/readyz", "/healthz", "/"] {
            let expected = if path == "/debug/view" { code } else { 200 };
            let reply = ask(agent.connect().await, path, &format!("Host: {host}\r\n")).await;
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
        let (status, head, body) = agent.get(path).await;
        assert_eq!(status.to_string(), code, "{path}");
        assert_has(&head, shown);
        assert_has(&head, "connection: close");
        // The page loads nothing from other addresses, and its script turns no text into HTML or code.
        for unsafe_text in "unsafe src= href=\"http url( @import innerHTML eval(".split(' ') {
            let has_it = path == "/" && (head.contains(unsafe_text) || body.contains(unsafe_text));
            assert!(!has_it, "{unsafe_text}");
        }
    }
}

/// The fake kubelet is bash under the name `kubelet`: the agent looks for a process of this name.
#[tokio::test]
async fn agent_does_not_subscribe_if_a_kubelet_would_lose_events() {
    let sim = Sim::with("--empty --mode containerd-1.7").await;
    let program = sim.dir.path("kubelet");
    std::os::unix::fs::symlink("/bin/bash", &program).unwrap();
    let mut kubelet = piped(&program);
    kubelet.args(["-c", "echo runs; read line", "kubelet"]);
    kubelet.arg("--feature-gates=EventedPLEG=true");
    kubelet.stdin(std::process::Stdio::piped());
    let mut kubelet = Running::spawn(kubelet);
    assert_eq!(kubelet.line().await, "runs");
    let subscribers = async |number: &str| {
        let shown = sim.ctl("").end().await.out;
        assert_has(&shown, &format!("\n{number} subscriber"));
    };

    let agent = sim.agent("").await;
    let polls = "polling: containerd 1.7. | subscribes to them (--feature-gates";
    agent.until_shows("/readyz", polls).await;
    subscribers("0").await;
    agent.stop().await;

    let _agent = sim.confirmed_agent("--events always").await;
    subscribers("1").await;
}
