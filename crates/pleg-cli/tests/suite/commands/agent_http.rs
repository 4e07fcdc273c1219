//! The HTTP server of `pleg agent`: who may read what, and that no client harms the agent.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pleg::runtime::clock::Clock;
use pleg_tests::wait::until;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::agent::Agent;
use super::run::{Running, TIMEOUT, arg, serve};
use crate::support::{TestDir, pleg};

/// Twenty scrapes take less than a second in the median, and none takes longer than Prometheus waits by default.
async fn check_scrapes(agent: &Agent) {
    let clock = Clock::start();
    let mut took = Vec::new();
    for _ in 0..20 {
        let began = clock.now();
        assert_eq!(agent.get("/metrics").await.0, 200);
        took.push(clock.now().since(began));
    }
    took.sort();
    let (median, longest) = (took[10], took[19]);
    assert!(median < Duration::from_secs(1), "{took:?}");
    assert!(longest < Duration::from_secs(10), "{took:?}");
}

/// A hostile client must not use up the descriptors that the connections to the runtime need.
#[tokio::test]
async fn idle_connections_do_not_blind_the_agent() {
    let own = nix::sys::resource::Resource::RLIMIT_NOFILE;
    let (_, hard) = nix::sys::resource::getrlimit(own).expect("a limit");
    nix::sys::resource::setrlimit(own, hard, hard).expect("raised");
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let sim = serve(&socket).await;
    let mut command = std::process::Command::new("sh");
    let agent = pleg(&["agent", "--listen", "127.0.0.1:0", "-r", arg(&socket)]);
    command
        .args(["-c", "ulimit -n 256; exec \"$@\"", "sh"])
        .arg(agent.get_program())
        .args(agent.get_args())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let agent = Agent::spawn(command).await;
    agent.until_confirmed().await;

    let mut idle = Vec::new();
    for _ in 0..1100 {
        idle.push(TcpStream::connect(&agent.address).await.expect("connected"));
    }
    check_scrapes(&agent).await;

    // The runtime restarts, so new connections to it are needed.
    sim.signal("TERM").await;
    assert_eq!(sim.end().await.code(), Some(0));
    agent
        .until_metric("pleg_stream_state{state=\"confirmed\"}", 0.0)
        .await;
    let _sim = serve(&socket).await;
    agent.until_confirmed().await;
    drop(idle);
    agent.stop().await;
}

/// Complete requests cost the agent work, unlike idle connections.
#[tokio::test]
async fn flood_of_complete_requests_does_not_delay_a_scrape() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let _sim = serve(&socket).await;
    let agent = Agent::start(&["-r", arg(&socket)]).await;
    agent.until_confirmed().await;
    let flood = async {
        let client = |path: &'static str| async {
            for _ in 0..50 {
                assert_eq!(agent.get(path).await.0, 200);
            }
        };
        let paths = [
            "/metrics",
            "/debug/events",
            "/debug/pods",
            "/readyz?verbose",
        ];
        let clients = paths.iter().cycle().take(20).map(|path| client(path));
        futures::future::join_all(clients).await;
    };
    tokio::join!(flood, check_scrapes(&agent));
    agent.until_confirmed().await;
    agent.stop().await;
}

#[tokio::test]
async fn slow_and_large_requests_are_ended() {
    let agent = Agent::start(&["--sim"]).await;
    let send = async |bytes: &[u8]| {
        let mut stream = TcpStream::connect(&agent.address).await.expect("connected");
        // The agent may close the connection before everything is written.
        let _ = stream.write_all(bytes).await;
        let mut response = Vec::new();
        let read = stream.read_to_end(&mut response);
        let _ = tokio::time::timeout(TIMEOUT, read)
            .await
            .expect("closed in time");
        String::from_utf8_lossy(&response).into_owned()
    };
    let (idle, partial, huge, body) = tokio::join!(
        send(b""),
        send(b"GET /metrics HTTP/1.1\r\nHost: "),
        async {
            let huge = format!(
                "GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n",
                "x".repeat(1 << 20)
            );
            send(huge.as_bytes()).await
        },
        send(b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\nx"),
    );
    assert_eq!(idle, "");
    assert!(
        partial.is_empty() || partial.starts_with("HTTP/1.1 408"),
        "{partial}"
    );
    assert!(
        huge.is_empty() || huge.starts_with("HTTP/1.1 431"),
        "{huge}"
    );
    assert!(body.starts_with("HTTP/1.1 405"), "{body}");
    // A request without keep-alive: the connection ends after the response.
    let (code, head, _) = agent.get("/healthz").await;
    assert_eq!(code, 200);
    assert!(head.contains("connection: close"), "{head}");
    agent.stop().await;
}

#[tokio::test]
async fn token_is_needed_and_read_again_on_sighup() {
    let dir = TestDir::new();
    let file = dir.path("token");
    std::fs::write(&file, "first\n").expect("written");
    let agent = Agent::start(&["--sim", "--token-file", arg(&file), "-v"]).await;
    let metrics = async |token: &str| {
        let header = format!("Authorization: Bearer {token}\r\n");
        agent.get_with("/metrics", &header).await.0
    };
    assert_eq!(
        (metrics("first").await, metrics("second").await),
        (200, 401)
    );
    let (code, head, body) = agent.get("/metrics").await;
    assert_eq!((code, &*body), (401, "unauthorized\n"));
    assert!(head.contains("www-authenticate: bearer"), "{head}");
    // For the probes of a kubelet.
    assert_eq!(agent.get("/healthz").await.0, 200);
    agent.until_ready().await;

    std::fs::write(&file, "second\n").expect("written");
    agent.running.signal("HUP").await;
    until(TIMEOUT, "the new token", || async {
        (metrics("second").await == 200).then_some(())
    })
    .await
    .expect("read again");
    assert_eq!(metrics("first").await, 401);
    std::fs::remove_file(&file).expect("removed");
    agent.running.signal("HUP").await;
    assert_eq!(metrics("second").await, 200, "the last token stays in use");
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
    assert!(
        message.contains(&format!("; {address} serves")),
        "{message}"
    );
    let stream = UnixStream::connect(&socket).await.expect("connected");
    let (code, _, body) = Agent::get_on(stream, "/healthz", "").await;
    assert_eq!((code, &*body), (200, "ok\n"));
    let second = Running::start(&["agent", "--sim", "--listen", &address]);
    let end = second.end().await;
    assert_eq!(end.code(), Some(1), "it is in use");
    assert!(end.err.contains("cannot listen on unix://"), "{}", end.err);
    running.signal("TERM").await;
    assert_eq!(running.end().await.code(), Some(0));
    assert!(!socket.exists());
}

/// Writes an authority, a server's certificate and key, and a client's.
fn write_certificates(dir: &Path) {
    let write = |name: &str, text: String| std::fs::write(dir.join(name), text).expect("written");
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(authority, key).expect("an authority");
    write("ca.pem", authority.pem());
    for (name, subject) in [("server", "127.0.0.1"), ("client", "client")] {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([subject.to_owned()]).expect("a name");
        let cert = params.signed_by(&key, &authority).expect("signed");
        write(&format!("{name}.pem"), cert.pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
}

/// A TLS client, with the client's certificate or without one.
fn tls_client(dir: &Path, with_certificate: bool) -> TlsConnector {
    let read = |name: &str| CertificateDer::from_pem_file(dir.join(name)).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(read("ca.pem")).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = if with_certificate {
        let key = PrivateKeyDer::from_pem_file(dir.join("client.key")).expect("a key");
        let chain = vec![read("client.pem")];
        builder.with_client_auth_cert(chain, key).expect("valid")
    } else {
        builder.with_no_client_auth()
    };
    TlsConnector::from(Arc::new(config))
}

#[tokio::test]
async fn client_without_certificate_is_rejected() {
    let dir = TestDir::new();
    write_certificates(dir.root());
    let [ca, cert, key] = ["ca.pem", "server.pem", "server.key"].map(|name| dir.path(name));
    // An address that other hosts could connect to needs it.
    let args = ["--sim", "--tls-cert", arg(&cert), "--tls-key", arg(&key)];
    let agent = Agent::start(&[&args[..], &["--tls-client-ca", arg(&ca)]].concat()).await;
    let address: SocketAddr = agent.address.parse().expect("an address");
    let name = || address.ip().to_string().try_into().expect("a name");
    let connect = || async { TcpStream::connect(address).await.expect("connected") };

    let stream = tls_client(dir.root(), true)
        .connect(name(), connect().await)
        .await;
    let (code, _, body) = Agent::get_on(stream.expect("a handshake"), "/metrics", "").await;
    assert_eq!(code, 200);
    assert!(body.contains("pleg_ready"), "{body}");

    // With TLS 1.3 the client learns of the rejection when it reads.
    let rejected = async {
        let tls = tls_client(dir.root(), false);
        let mut stream = tls.connect(name(), connect().await).await?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await
    };
    assert!(rejected.await.is_err());
    let mut plain = connect().await;
    let _ = plain
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    let mut response = Vec::new();
    let _ = plain.read_to_end(&mut response).await;
    assert!(!response.starts_with(b"HTTP"), "no plain HTTP");
    agent.stop().await;
}

/// The fake kubelet is a shell with another name.
#[tokio::test]
async fn shared_events_are_left_to_a_kubelet() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let version = ["--mode", "containerd-1.7"];
    let args = ["sim", "--empty", "--socket", arg(&socket)];
    let mut sim = Running::start(&[&args[..], &version].concat());
    sim.message().await.expect("the socket");
    let gates = "--feature-gates=EventedPLEG=true";
    let script = "read line";
    let program = dir.path("kubelet");
    std::os::unix::fs::symlink("/bin/bash", &program).unwrap();
    let mut kubelet = tokio::process::Command::new(&program);
    kubelet
        .args(["-c", script, "kubelet", gates])
        .stdin(std::process::Stdio::piped())
        .kill_on_drop(true);
    let _kubelet = kubelet.spawn().expect("bash runs");
    let running = || {
        let own = std::process::id().to_string();
        let of = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline"));
        let processes = std::fs::read_dir("/proc").expect("processes").flatten();
        let mut lines = processes
            .filter(|p| *p.file_name() != *own)
            .filter_map(|p| of(p).ok());
        lines.any(|line| line.ends_with(b"EventedPLEG=true\0"))
    };
    until(TIMEOUT, "the kubelet", || async { running().then_some(()) })
        .await
        .expect("it runs");

    let agent = Agent::start(&["-r", arg(&socket)]).await;
    until(TIMEOUT, "the reason", || async {
        let (code, _, body) = agent.get("/readyz").await;
        (code == 200 && body.contains("polling: containerd 1.7.")).then_some(body)
    })
    .await
    .expect("polling");
    let (_, _, body) = agent.get("/readyz").await;
    assert!(
        body.contains("subscribes to them (--feature-gates"),
        "{body}"
    );
    assert_eq!(subscribers(&socket).await, 0);
    agent.stop().await;

    let agent = Agent::start(&["-r", arg(&socket), "--events", "always"]).await;
    agent.until_confirmed().await;
    assert_eq!(subscribers(&socket).await, 1);
    agent.stop().await;
}

/// The number of subscribers of a simulated runtime.
async fn subscribers(socket: &Path) -> u32 {
    let end = Running::start(&["sim", "ctl", "--socket", arg(socket)])
        .end()
        .await;
    let words: Vec<&str> = end.out.split_whitespace().collect();
    let at = words
        .iter()
        .position(|word| word.starts_with("subscribers"));
    words[at.expect("shown") - 1].parse().expect("a number")
}
