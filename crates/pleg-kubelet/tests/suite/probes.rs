//! The prober, over a generator on a fake runtime and paused time; connections and HTTP requests over
//! real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use pleg::core::{CallError, ContainerDetails, EventType, ReportedState};
use pleg::runtime::fake::{FakeRuntime, container, sandbox};
use pleg::{Id, Pleg, PodUid};
use pleg_kubelet::probe::{Check, Exec, Probe, ProbeKind, ProbeTiming, Prober};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

const SECOND: Duration = Duration::from_secs(1);

/// Commands end with this code.
#[derive(Clone, Default)]
struct Command {
    code: Arc<AtomicI32>,
    runs: Arc<AtomicUsize>,
    /// Ends a command that hangs.
    release: Arc<Notify>,
}

impl Exec for Command {
    async fn exec(&self, _: &Id, _: &[String], _: Duration) -> Result<i32, CallError> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        match self.code.load(Ordering::Relaxed) {
            i32::MAX => panic!("a test panic"),
            i32::MIN => {
                self.release.notified().await;
                Ok(0)
            }
            code => Ok(code),
        }
    }
}

struct Node {
    runtime: FakeRuntime,
    pleg: Pleg,
    prober: Prober<Command>,
    command: Command,
    changes: Arc<AtomicUsize>,
    uid: PodUid,
}

/// A pod with one container that runs.
async fn node() -> Node {
    let runtime = FakeRuntime::new();
    runtime.run_pod("u");
    let pleg = Pleg::builder(runtime.clone()).spawn().unwrap();
    pleg.wait_until_synced().await.unwrap();
    let command = Command::default();
    let prober = Prober::new(&pleg, command.clone(), "127.0.0.1");
    Node {
        runtime,
        pleg,
        prober,
        command,
        changes: Arc::default(),
        uid: "u".into(),
    }
}

impl Node {
    fn set(&self, probes: &[Probe]) {
        let changes = self.changes.clone();
        let changed = move || {
            changes.fetch_add(1, Ordering::Relaxed);
        };
        self.prober.set(&self.uid, probes, changed).unwrap();
    }

    fn ready(&self) -> bool {
        let status = self.pleg.get(&self.uid).status;
        self.prober.results(&status).ready.contains("c")
    }

    fn failed(&self) -> Option<ProbeKind> {
        let status = self.pleg.get(&self.uid).status;
        self.prober.results(&status).failed.into_values().next()
    }

    /// Another container of that name runs.
    async fn replace(&self) {
        self.runtime.remove("u-c");
        let mut next = container("u", "c2", ReportedState::Running);
        next.identity.name = Some("c".into());
        self.runtime.put_and_emit(next, EventType::Started);
        let is_next = || {
            let status = self.pleg.get(&self.uid).status;
            let newest = status.container("c").map(|c| c.id.clone());
            newest == Some(Id::from("u-c2"))
        };
        self.until(is_next).await;
    }

    async fn pass(&self, time: Duration) {
        let clock = self.pleg.clock();
        clock.sleep_until(clock.now().after(time)).await;
    }

    async fn until(&self, so: impl Fn() -> bool) -> Duration {
        let began = self.pleg.now();
        while !so() {
            assert!(self.pleg.now().since(began) < 600 * SECOND, "not in time");
            self.pass(Duration::from_millis(10)).await;
        }
        self.pleg.now().since(began)
    }
}

fn command(kind: ProbeKind) -> Probe {
    Probe {
        container: "c".to_owned(),
        kind,
        timing: ProbeTiming::default(),
        check: Check::Exec {
            command: vec!["check".to_owned()],
        },
    }
}

#[tokio::test(start_paused = true)]
async fn container_without_probes_is_ready_when_it_runs() {
    let node = node().await;
    assert!(node.ready());
}

#[tokio::test(start_paused = true)]
async fn failing_readiness_is_reported_and_recovers() {
    let node = node().await;
    node.set(&[command(ProbeKind::Readiness)]);
    assert!(!node.ready(), "not before its first success");
    assert!(node.until(|| node.ready()).await < SECOND);
    node.command.code.store(1, Ordering::Relaxed);
    let took = node.until(|| !node.ready()).await;
    assert!(
        took > 20 * SECOND && took <= 31 * SECOND,
        "three failures: {took:?}"
    );
    node.command.code.store(0, Ordering::Relaxed);
    assert!(node.until(|| node.ready()).await <= 11 * SECOND);
    assert_eq!(node.changes.load(Ordering::Relaxed), 3);
    assert_eq!(node.failed(), None, "it is not to be stopped");
}

#[tokio::test(start_paused = true)]
async fn failing_liveness_names_the_container_until_another_runs() {
    let node = node().await;
    node.set(&[command(ProbeKind::Liveness)]);
    node.command.code.store(1, Ordering::Relaxed);
    node.until(|| node.failed() == Some(ProbeKind::Liveness))
        .await;
    let runs = node.command.runs.load(Ordering::Relaxed);
    node.pass(100 * SECOND).await;
    assert_eq!(node.command.runs.load(Ordering::Relaxed), runs, "it waits");
    node.replace().await;
    assert_eq!(node.failed(), None);
    node.set(&[command(ProbeKind::Liveness)]);
    node.until(|| node.failed() == Some(ProbeKind::Liveness))
        .await;
}

#[tokio::test(start_paused = true)]
async fn other_probes_wait_for_the_startup_probe() {
    let node = node().await;
    node.command.code.store(1, Ordering::Relaxed);
    let mut startup = command(ProbeKind::Startup);
    startup.timing.failure_threshold = 30;
    node.set(&[startup, command(ProbeKind::Liveness)]);
    node.pass(200 * SECOND).await;
    assert_eq!(node.failed(), None, "liveness is not checked yet");
    node.command.code.store(0, Ordering::Relaxed);
    node.until(|| node.ready()).await;
    node.command.code.store(1, Ordering::Relaxed);
    node.until(|| node.failed() == Some(ProbeKind::Liveness))
        .await;
}

#[tokio::test(start_paused = true)]
async fn probe_that_panics_is_started_again() {
    let node = node().await;
    node.command.code.store(i32::MAX, Ordering::Relaxed);
    node.set(&[command(ProbeKind::Readiness)]);
    node.until(|| node.command.runs.load(Ordering::Relaxed) >= 2)
        .await;
    node.command.code.store(0, Ordering::Relaxed);
    node.until(|| node.ready()).await;
}

#[tokio::test(start_paused = true)]
async fn container_that_is_replaced_during_a_check_is_checked_at_once() {
    let node = node().await;
    node.command.code.store(i32::MIN, Ordering::Relaxed);
    node.set(&[command(ProbeKind::Readiness)]);
    node.until(|| node.command.runs.load(Ordering::Relaxed) == 1)
        .await;
    node.command.code.store(0, Ordering::Relaxed);
    node.replace().await;
    node.set(&[command(ProbeKind::Readiness)]);
    node.command.release.notify_one();
    assert!(node.until(|| node.ready()).await < SECOND);
}

#[tokio::test(start_paused = true)]
async fn initial_delay_counts_from_the_start_of_the_container() {
    let node = node().await;
    let mut details = ContainerDetails::default();
    details.started_at = Some(node.pleg.clock().wall().before(50 * SECOND));
    let mut running = container("u", "c", ReportedState::Running);
    running.details = details.into();
    node.runtime.put(running);
    node.pleg.request_reinspect(&node.uid).await.unwrap();
    let mut probe = command(ProbeKind::Readiness);
    probe.timing.initial_delay = 60 * SECOND;
    node.set(&[probe]);
    let took = node.until(|| node.ready()).await;
    assert!(took >= 10 * SECOND && took <= 20 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn removed_pod_is_not_probed() {
    let node = node().await;
    node.set(&[command(ProbeKind::Readiness)]);
    node.until(|| node.ready()).await;
    node.prober.remove(&node.uid);
    let runs = node.command.runs.load(Ordering::Relaxed);
    node.pass(100 * SECOND).await;
    assert_eq!(node.command.runs.load(Ordering::Relaxed), runs);
}

/// Answers every request with that status. Returns the port.
async fn serve(status: &'static str) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let n = stream.read(&mut request).await.unwrap_or(0);
                // A connection without a request is a TCP check.
                if n > 0 {
                    let body = String::from_utf8_lossy(&request[..n]);
                    assert!(body.starts_with("GET /healthz?x=1 HTTP/1.1\r\n"), "{body}");
                    let response = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok");
                    _ = stream.write_all(response.as_bytes()).await;
                }
            });
        }
    });
    port
}

fn http(port: u16) -> Probe {
    Probe {
        timing: ProbeTiming {
            period: Duration::from_millis(20),
            ..ProbeTiming::default()
        },
        check: Check::Http {
            tls: false,
            host: String::new(),
            port,
            path: "healthz?x=1".to_owned(),
            headers: vec![("X-Test".to_owned(), "1".to_owned())],
        },
        ..command(ProbeKind::Readiness)
    }
}

#[tokio::test]
async fn http_status_below_400_is_a_success() {
    for (status, ready) in [("200 OK", true), ("302 Found", true), ("500 Oops", false)] {
        let node = node().await;
        let port = serve(status).await;
        let mut liveness = http(port);
        liveness.kind = ProbeKind::Liveness;
        node.set(&[http(port), liveness]);
        if ready {
            node.until(|| node.ready()).await;
        } else {
            node.until(|| node.failed() == Some(ProbeKind::Liveness))
                .await;
            assert!(!node.ready());
        }
    }
}

/// Accepts TLS with a certificate that nobody has signed, and answers. Returns the port.
async fn serve_tls() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let own = rcgen::generate_simple_self_signed(["elsewhere".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut request = [0; 1024];
            if stream.read(&mut request).await.is_ok_and(|n| n > 0) {
                let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                _ = stream.write_all(response).await;
            }
        }
    });
    port
}

#[tokio::test]
async fn https_needs_no_valid_certificate_but_tls() {
    let https = |port, kind| {
        let mut probe = http(port);
        if let Check::Http { tls, .. } = &mut probe.check {
            *tls = true;
        }
        Probe { kind, ..probe }
    };
    let node = node().await;
    node.set(&[https(serve_tls().await, ProbeKind::Readiness)]);
    node.until(|| node.ready()).await;
    let closes = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = closes.local_addr().unwrap().port();
    tokio::spawn(async move { while closes.accept().await.is_ok() {} });
    node.set(&[https(port, ProbeKind::Liveness)]);
    node.until(|| node.failed() == Some(ProbeKind::Liveness))
        .await;
}

#[tokio::test]
async fn connection_is_a_success_and_a_closed_port_a_failure() {
    let node = node().await;
    // The pod's own address is used where the probe names no host.
    node.runtime.put(pleg::runtime::fake::with_ips(
        sandbox("u", "s", ReportedState::Running),
        &["127.0.0.1"],
    ));
    let port = serve("200 OK").await;
    let tcp = |port, kind| Probe {
        check: Check::Tcp {
            host: String::new(),
            port,
        },
        kind,
        ..http(port)
    };
    node.set(&[tcp(port, ProbeKind::Readiness)]);
    node.until(|| node.ready()).await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    node.set(&[tcp(port, ProbeKind::Liveness)]);
    node.until(|| node.failed() == Some(ProbeKind::Liveness))
        .await;
}
