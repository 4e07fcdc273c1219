//! Tests the prober with a generator on a fake runtime and paused time, and TCP and HTTP checks on real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use pleg::core::{CallError, CallErrorKind, ContainerDetails, EventType, ReportedState};
use pleg::runtime::fake::{FakeRuntime, container, error, sandbox, with_ips};
use pleg::{Id, Pleg, PodUid};
use pleg_kubelet::probe::{Exec, ProbeKind, Prober};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::{SECOND, pass, until};

/// Exit codes that stand for a command that cannot be run, and for one that takes too long.
const UNAVAILABLE: i32 = -1;
const TIMED_OUT: i32 = -2;

/// Commands end with `code`, panic (`i32::MAX`) or hang (`i32::MIN`).
#[derive(Clone, Default)]
struct Command {
    code: Arc<AtomicI32>,
    runs: Arc<AtomicUsize>,
    /// Ends a hung command.
    release: Arc<Notify>,
}

impl Exec for Command {
    async fn exec(&self, _: &Id, _: &[String], _: Duration) -> Result<i32, CallError> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        match self.code.load(Ordering::Relaxed) {
            i32::MAX => panic!("a test panic"),
            UNAVAILABLE => Err(error("ExecSync", CallErrorKind::Unavailable)),
            TIMED_OUT => Err(error("ExecSync", CallErrorKind::DeadlineExceeded)),
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

/// A node whose only pod has one running container.
async fn node() -> Node {
    let runtime = FakeRuntime::new();
    runtime.run_pod("u");
    let pleg = Pleg::builder(runtime.clone()).spawn().unwrap();
    pleg.wait_until_synced().await.unwrap();
    let (command, changes) = (Command::default(), Arc::default());
    let prober = Prober::new(&pleg, command.clone(), "127.0.0.1");
    Node {
        runtime,
        pleg,
        prober,
        command,
        changes,
        uid: "u".into(),
    }
}

impl Node {
    /// Sets these probes of the container. Probes without a check run a command.
    fn set(&self, probes: &Value) {
        let mut container = probes.clone();
        for probe in container.as_object_mut().unwrap().values_mut() {
            if probe["httpGet"].is_null() && probe["tcpSocket"].is_null() {
                probe["exec"] = json!({"command": ["check"]});
            }
        }
        container["name"] = json!("c");
        let pod = json!({"spec": {"containers": [container]}});
        let pod = serde_json::from_value(pod).unwrap();
        let changes = self.changes.clone();
        let changed = move || _ = changes.fetch_add(1, Ordering::Relaxed);
        self.prober.set(&self.uid, &pod, changed);
    }

    fn ready(&self) -> bool {
        let status = self.pleg.get(&self.uid).status;
        self.prober.results(&status).ready.contains("c")
    }

    fn failed(&self) -> Option<ProbeKind> {
        let status = self.pleg.get(&self.uid).status;
        self.prober.results(&status).failed.into_values().next()
    }

    async fn until_ready(&self) -> Duration {
        until(&self.pleg, || self.ready()).await
    }

    async fn until_liveness_fails(&self) {
        let fails = || self.failed() == Some(ProbeKind::Liveness);
        until(&self.pleg, fails).await;
    }

    fn ends_with(&self, code: i32) {
        self.command.code.store(code, Ordering::Relaxed);
    }

    fn runs(&self) -> usize {
        self.command.runs.load(Ordering::Relaxed)
    }

    /// Replaces the container by another one of the same name.
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
        until(&self.pleg, is_next).await;
    }
}

#[tokio::test(start_paused = true)]
async fn failing_readiness_probe_is_reported_until_it_succeeds_again() {
    let node = node().await;
    assert!(node.ready(), "it has no probe");
    let set = || node.set(&json!({"readinessProbe": {}}));
    std::thread::scope(|scope| scope.spawn(set).join().unwrap());
    assert!(!node.ready(), "not before its first success");
    assert!(node.until_ready().await < SECOND);
    node.ends_with(TIMED_OUT);
    let took = until(&node.pleg, || !node.ready()).await;
    assert!(took > 20 * SECOND, "three failures: {took:?}");
    assert!(took <= 31 * SECOND, "three failures: {took:?}");
    node.ends_with(0);
    assert!(node.until_ready().await <= 11 * SECOND);
    assert_eq!(node.changes.load(Ordering::Relaxed), 3);
    assert_eq!(node.failed(), None, "the container must not be stopped");
}

#[tokio::test(start_paused = true)]
async fn container_with_failed_liveness_is_reported_until_another_container_runs() {
    let node = node().await;
    node.ends_with(UNAVAILABLE);
    node.set(&json!({"livenessProbe": {}}));
    pass(&node.pleg, 100 * SECOND).await;
    assert_eq!(node.failed(), None, "the command could not be run");
    node.ends_with(1);
    node.until_liveness_fails().await;
    let runs = node.runs();
    pass(&node.pleg, 100 * SECOND).await;
    assert_eq!(node.runs(), runs, "no check before the stop");
    node.replace().await;
    assert_eq!(node.failed(), None);
    node.set(&json!({"livenessProbe": {}}));
    node.until_liveness_fails().await;
}

#[tokio::test(start_paused = true)]
async fn other_probes_wait_for_the_startup_probe() {
    let node = node().await;
    node.ends_with(1);
    node.set(&json!({"startupProbe": {"failureThreshold": 30}, "livenessProbe": {}}));
    pass(&node.pleg, 200 * SECOND).await;
    assert_eq!(node.failed(), None, "liveness is not checked yet");
    node.ends_with(0);
    node.until_ready().await;
    node.ends_with(1);
    node.until_liveness_fails().await;
}

#[tokio::test(start_paused = true)]
async fn container_replaced_during_a_check_is_checked_at_once() {
    let node = node().await;
    node.ends_with(i32::MIN);
    node.set(&json!({"readinessProbe": {}}));
    until(&node.pleg, || node.runs() == 1).await;
    node.ends_with(1);
    node.replace().await;
    node.set(&json!({"readinessProbe": {}}));
    node.command.release.notify_one();
    let took = until(&node.pleg, || node.runs() == 2).await;
    assert!(took < SECOND && !node.ready(), "{took:?}");
    node.ends_with(0);
    node.until_ready().await;
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
    node.set(&json!({"readinessProbe": {"initialDelaySeconds": 60}}));
    let took = node.until_ready().await;
    assert!(took >= 10 * SECOND && took <= 20 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn probe_continues_after_panics_until_its_pod_is_removed() {
    let node = node().await;
    node.ends_with(i32::MAX);
    node.set(&json!({"readinessProbe": {}}));
    until(&node.pleg, || node.runs() >= 2).await;
    node.ends_with(0);
    node.until_ready().await;
    node.prober.remove(&node.uid);
    let runs = node.runs();
    pass(&node.pleg, 100 * SECOND).await;
    assert_eq!(node.runs(), runs);
}

/// Reads a request, and answers it with the HTTP status `status`. A connection without a request is a TCP check.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, status: &str) {
    let mut request = [0; 1024];
    let n = stream.read(&mut request).await.unwrap_or(0);
    if n > 0 {
        let body = String::from_utf8_lossy(&request[..n]);
        assert!(body.starts_with("GET /healthz?x=1 HTTP/1.1\r\n"), "{body}");
        let response = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok");
        _ = stream.write_all(response.as_bytes()).await;
    }
}

/// Starts a server. Returns its port. `what`: a status, `TLS`, `no request` (hangs up at once), `nothing` (no server).
async fn serve(what: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    if what == "nothing" {
        return port;
    }
    let own = rcgen::generate_simple_self_signed(["elsewhere".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth();
    let config = config.with_single_cert(vec![own.cert.der().clone()], key);
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config.unwrap()));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            match what {
                "no request" => {}
                "TLS" => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        answer(stream, "200 OK").await;
                    }
                }
                status => drop(tokio::spawn(answer(stream, status))),
            }
        }
    });
    port
}

#[tokio::test]
async fn responses_decide_if_tcp_and_http_checks_succeed() {
    for (kind, served, succeeds) in [
        ("http", "200 OK", true),
        ("http", "302 Found", true),
        ("http", "500 Oops", false),
        ("https", "TLS", true),
        ("https", "no request", false),
        ("tcp", "no request", true),
        ("tcp", "nothing", false),
    ] {
        let (node, port) = (node().await, serve(served).await);
        let mut probe = match kind {
            "tcp" => json!({"tcpSocket": {"port": port}}),
            _ => json!({"httpGet": {
                "scheme": kind.to_uppercase(), "port": port, "path": "healthz?x=1",
                "httpHeaders": [{"name": "X-Test", "value": "1"}],
            }}),
        };
        probe["failureThreshold"] = json!(1);
        if kind == "tcp" {
            // The pod's own address is used where the probe names no host.
            let sandbox = sandbox("u", "s", ReportedState::Running);
            node.runtime.put(with_ips(sandbox, &["127.0.0.1"]));
        }
        node.set(&json!({"readinessProbe": probe, "livenessProbe": probe}));
        if succeeds {
            node.until_ready().await;
        } else {
            node.until_liveness_fails().await;
            assert!(!node.ready(), "{kind} {served}");
        }
    }
}
