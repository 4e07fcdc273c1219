//! Clients stall or flood `pleg agent`. It still answers other clients, receives each event, and returns its memory.

#![allow(clippy::print_stdout, reason = "a test prints what it measured")]

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pleg::runtime::clock::Clock;
use pleg_tests::wait::{pass_time, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::agent::{Agent, ask};
use super::agent_http::probes;
use super::run::{Sim, TIMEOUT, piped, program};

const HEADER: &str = "GET /metrics HTTP/1.1\r\nX: ";
const BODY: &str = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999\r\n\r\n";
const METRICS: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
const EVENTS: &str = "GET /debug/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
const LIVE: &str = "GET /debug/live HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// The hostile clients, some 1,100: their first bytes, the number of bytes that they send again and again, their count.
/// A client whose number is 0 reads the whole response to `METRICS`, but one byte of other responses, and then stalls.
const CLIENTS: [(&str, usize, usize); 7] = [
    ("", 0, 500),
    (HEADER, 1, 300),
    (HEADER, 1 << 20, 90),
    (BODY, 1 << 14, 90),
    (EVENTS, 0, 90),
    (LIVE, 0, 20),
    (METRICS, 0, 20),
];
const PAUSE: Duration = Duration::from_millis(100);

async fn connect(to: SocketAddr, first: &str, more: usize) -> io::Result<()> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(first.as_bytes()).await?;
    if more > 0 {
        loop {
            stream.write_all(&vec![b'x'; more]).await?;
            pass_time(PAUSE).await;
        }
    }
    if first == METRICS {
        stream.read_to_end(&mut Vec::new()).await?;
    } else if stream.read(&mut [0]).await? > 0 {
        pass_time(TIMEOUT).await;
    }
    Ok(())
}

/// Runs the clients until the returned set is dropped. They connect again when a connection is closed.
fn start_clients(to: SocketAddr) -> JoinSet<()> {
    let all = CLIENTS.iter();
    let all = all.flat_map(|(first, more, n)| vec![(*first, *more); *n]);
    let endless = |(first, more)| async move {
        loop {
            let _ = connect(to, first, more).await;
        }
    };
    all.map(endless).collect()
}

/// Scrapes `/metrics` until `ended`. Returns sorted durations. Needs its own thread: no client's task may delay it.
pub(super) fn scrape(to: SocketAddr, ended: &AtomicBool) -> Vec<Duration> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    let clock = Clock::start();
    let mut took = Vec::new();
    loop {
        let began = clock.now();
        let (code, _, page) = runtime.block_on(async {
            let stream = TcpStream::connect(to).await.expect("connected");
            ask(stream, "/metrics", "Host: localhost\r\n").await
        });
        let is_page = code == 200 && page.contains("\npleg_ready ");
        assert!(is_page, "{code}: {page:.99}");
        took.push(clock.now().since(began));
        if ended.load(Ordering::Relaxed) {
            took.sort();
            return took;
        }
        thread::park_timeout(PAUSE);
    }
}

/// While the clients are connected, ten times `lives` pods start, exit and are removed; `pods` other pods run all the
/// time. Returns the 99th percentile and the maximum of the durations of scrapes.
async fn flood(pods: usize, lives: u32) -> (Duration, Duration) {
    let sim = Sim::start().await;
    let agent = sim.confirmed_agent("").await;
    for n in 0..pods {
        let run = sim.kubelet.run_pod(&format!("pod-{n}")).await;
        run.expect("run");
    }
    let count = pods as f64;
    agent.until_metric("pleg_running_pods", count).await;
    let before = agent.kib("VmRSS:");

    let address: SocketAddr = agent.address.parse().expect("an address");
    let clients = start_clients(address);
    let ended = AtomicBool::new(false);
    let scrapes = thread::scope(|scope| {
        let scrapes = scope.spawn(|| scrape(address, &ended));
        let churn = (0..10).map(async |n| {
            for life in 0..lives {
                let pod = sim.run_job(&format!("job-{n}-{life}"), 3).await;
                sim.remove_pod(&pod).await;
            }
        });
        let handle = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| handle.block_on(futures::future::join_all(churn)));
        ended.store(true, Ordering::Relaxed);
        scrapes.join().expect("all answered")
    });
    let peak = agent.kib("VmHWM:");
    drop(clients);

    // The agent received each event of a sandbox and of a container, with its type.
    let jobs = 2.0 * 10.0 * f64::from(lives);
    for (kind, number) in [
        ("created", jobs + count),
        ("started", jobs + count),
        ("stopped", jobs),
        ("deleted", jobs),
    ] {
        let name = format!("pleg_notifications_received_total{{type=\"{kind}\"}}");
        agent.until_metric(&name, number).await;
    }
    let mut series = agent.scrape().await.into_iter();
    let is_missed = |name: &str| name.starts_with("pleg_missed_events_total");
    let missed = series.find(|(name, value)| is_missed(name) && value != "0");
    assert_eq!(missed, None);
    let most = before + 8 * 1024;
    let returned = || async { Some(agent.kib("VmRSS:")).filter(|now| *now <= most) };
    let after = until(TIMEOUT, "the memory", returned).await;
    let after =
        after.unwrap_or_else(|_| panic!("{} KiB, {before} KiB before", agent.kib("VmRSS:")));
    println!("RSS {before} KiB before, at most {peak} KiB, {after} KiB after");
    agent.stop().await;

    let (n, max) = (scrapes.len(), scrapes[scrapes.len() - 1]);
    let [median, p99] = [50, 99].map(|percent| scrapes[n * percent / 100]);
    println!("{n} scrapes: median {median:.1?}, p99 {p99:.1?}, max {max:.1?}");
    (p99, max)
}

/// A scrape is lost if it takes longer than 10 s, Prometheus' default timeout. [`scrapes_are_answered_within_50_ms`]
/// measures how fast scrapes are on a machine without other tests.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_clients_cause_no_lost_scrape_or_event() {
    let (_, max) = flood(20, 5).await;
    assert!(max < Duration::from_secs(10), "{max:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures a release build: just measure-agent"]
async fn scrapes_are_answered_within_50_ms() {
    let (p99, max) = flood(300, 20).await;
    assert!(max <= Duration::from_millis(50), "p99 {p99:?}, max {max:?}");
}

/// A user of the node connects to both listeners from the kubelet's IP address: the agent must still answer probes.
#[tokio::test]
async fn idle_connections_neither_delay_kubelet_probes_nor_exhaust_descriptors() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("raised");
    let mut sim = Sim::start().await;
    let args = "agent --listen 127.0.0.1:0 --health-listen 127.0.0.1:0 -r";
    let mut command = piped("prlimit");
    command.arg("--nofile=400").arg(program());
    command.args(args.split(' ')).arg(&sim.socket);
    let mut agent = Agent::spawn(command).await;
    let probe_address = probes(&mut agent).await;
    agent.until_confirmed().await;

    let addresses = [agent.address.clone(), probe_address];
    let mut idle = Vec::new();
    for address in &addresses {
        for _ in 0..1100 {
            idle.push(TcpStream::connect(address).await.expect("connected"));
        }
    }
    let clock = Clock::start();
    let paths = |address| [(address, "/healthz"), (address, "/readyz")];
    for (address, path) in addresses.iter().flat_map(paths) {
        let mut took = Vec::new();
        for _ in 0..9 {
            let began = clock.now();
            let stream = TcpStream::connect(address).await.expect("connected");
            assert_eq!(ask(stream, path, "").await.0, 200);
            took.push(clock.now().since(began));
        }
        took.sort();
        assert!(took[4] < Duration::from_secs(1), "{path}: {took:?}");
    }

    // After a restart of the runtime, the agent needs descriptors for new connections.
    sim.stop().await;
    let confirmed = "pleg_stream_state{state=\"confirmed\"}";
    agent.until_metric(confirmed, 0.0).await;
    sim.serve("--empty").await;
    agent.until_confirmed().await;
}
