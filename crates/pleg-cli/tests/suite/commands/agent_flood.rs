//! Clients of `pleg agent` that stall, flood, or are slow: a scrape from elsewhere is answered soon, no event is
//! lost, and the memory is returned.

#![allow(clippy::print_stdout, reason = "a test says what it measured")]

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream as Blocking};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pleg::runtime::clock::Clock;
use pleg_tests::kubelet::{Life, Pod};
use pleg_tests::usage;
use pleg_tests::wait::{pass_time, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::agent::Agent;
use super::run::{Sim, TIMEOUT, arg};

/// What a hostile client does on each connection. When it is closed, it connects again.
#[derive(Clone, Copy, Debug)]
enum Client {
    /// Sends nothing.
    Stalled,
    /// Sends a header that does not end, line by line.
    Slow,
    /// Sends a header of 1 MiB.
    HugeHeader,
    /// Sends a body that does not end.
    EndlessBody,
    /// Requests the largest page, and does not read it.
    Deaf,
}

/// How many there are of each: 1,100.
const CLIENTS: [(Client, usize); 5] = [
    (Client::Stalled, 500),
    (Client::Slow, 300),
    (Client::HugeHeader, 100),
    (Client::EndlessBody, 100),
    (Client::Deaf, 100),
];
/// The address of the hostile clients.
const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
/// Between two lines or parts.
const PAUSE: Duration = Duration::from_millis(100);

impl Client {
    async fn connect(self, to: SocketAddr) -> io::Result<()> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((HOSTILE, 0).into())?;
        let mut stream = socket.connect(to).await?;
        match self {
            Self::Stalled => drop(stream.read(&mut [0]).await?),
            Self::Slow => {
                stream.write_all(b"GET /metrics HTTP/1.1\r\n").await?;
                repeat(&mut stream, b"X: y\r\n").await?;
            }
            Self::HugeHeader => {
                stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").await?;
                stream.write_all(&vec![b'x'; 1 << 20]).await?;
            }
            Self::EndlessBody => {
                let header =
                    b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999\r\n\r\n";
                stream.write_all(header).await?;
                repeat(&mut stream, &[b'x'; 1 << 14]).await?;
            }
            Self::Deaf => {
                let request = b"GET /debug/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
                stream.write_all(request).await?;
                pass_time(TIMEOUT).await;
            }
        }
        Ok(())
    }
}

async fn repeat(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    loop {
        stream.write_all(bytes).await?;
        pass_time(PAUSE).await;
    }
}

/// Until this is dropped.
fn start_clients(to: SocketAddr) -> JoinSet<()> {
    let all = CLIENTS.iter().flat_map(|(client, n)| [*client].repeat(*n));
    let endless = |client: Client| async move {
        loop {
            // It ends when the agent closes the connection.
            let _ = client.connect(to).await;
        }
    };
    all.map(endless).collect()
}

/// The durations of scrapes from another address until `ended`, sorted. A thread makes them, so that the clients
/// of the same process do not delay them more than those of another process would.
fn scrape(to: SocketAddr, ended: &AtomicBool) -> io::Result<Vec<Duration>> {
    let clock = Clock::start();
    let mut took = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        let began = clock.now();
        let mut stream = Blocking::connect_timeout(&to, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        let is_whole = page.starts_with("HTTP/1.1 200 ") && page.contains("\npleg_ready ");
        if !is_whole {
            return Err(io::Error::other(format!("no page: {page:.99}")));
        }
        took.push(clock.now().since(began));
        thread::park_timeout(PAUSE);
    }
    took.sort();
    Ok(took)
}

/// So many containers of this pod start and exit, one after the other.
async fn churn(sim: &Sim, pod: &Pod, lives: u32) -> anyhow::Result<()> {
    for attempt in 0..lives {
        let life = Life::Exit {
            code: 3,
            after_ms: 20,
        };
        let id = sim.kubelet.run(pod, "app", attempt, life).await?;
        let ended = || async {
            let status = sim.kubelet.container_status(&id).await.ok()??;
            (status.exit_code == 3).then_some(())
        };
        until(TIMEOUT, "the exit", ended).await?;
        sim.kubelet.remove(&id).await?;
    }
    Ok(())
}

/// `pods` pods, some of which have containers that start and exit, `lives` of them one after the other, while
/// the clients are there. Returns the durations of scrapes.
async fn flood(pods: usize, lives: u32) -> Vec<Duration> {
    const CHURNING: usize = 10;
    let sim = Sim::start().await;
    let agent = Agent::start(&["-r", arg(&sim.socket)]).await;
    agent.until_confirmed().await;
    let mut all = Vec::new();
    for n in 0..pods {
        all.push(sim.kubelet.run_pod(&format!("pod-{n}")).await.expect("run"));
    }
    let count = pods as f64;
    agent.until_metric("kubelet_running_pods", count).await;
    let pid = agent.running.id();
    let resident = || usage::status(pid, "VmRSS:").expect("it runs");
    let before = resident();

    let address: SocketAddr = agent.address.parse().expect("an address");
    let clients = start_clients(address);
    let ended = AtomicBool::new(false);
    let scrapes = thread::scope(|scope| {
        let scrapes = scope.spawn(|| scrape(address, &ended));
        let churn = all[..CHURNING].iter().map(|pod| churn(&sim, pod, lives));
        let handle = tokio::runtime::Handle::current();
        let churned =
            tokio::task::block_in_place(|| handle.block_on(futures::future::try_join_all(churn)));
        ended.store(true, Ordering::Relaxed);
        let scrapes = scrapes.join().expect("no panic").expect("all answered");
        churned.map(|_| scrapes)
    });
    let scrapes = scrapes.expect("created and removed");
    let peak = usage::status(pid, "VmHWM:").expect("it runs");
    drop(clients);

    // Each event arrived, in its kind.
    let lives = CHURNING as f64 * f64::from(lives);
    for (kind, number) in [
        ("created", lives + count),
        ("started", lives + count),
        ("stopped", lives),
        ("deleted", lives),
    ] {
        let name = format!("pleg_notifications_received_total{{type=\"{kind}\"}}");
        agent.until_metric(&name, number).await;
    }
    let (_, _, page) = agent.get("/metrics").await;
    for missed in page
        .lines()
        .filter(|l| l.starts_with("pleg_missed_events_total"))
    {
        assert!(missed.ends_with(" 0"), "{missed}");
    }
    let returned = || async { (resident() <= before + 8 * 1024).then_some(()) };
    until(TIMEOUT, "the memory", returned)
        .await
        .unwrap_or_else(|_| panic!("{} KiB, {before} KiB before", resident()));
    let after = resident();
    println!("RSS {before} KiB before, at most {peak} KiB, {after} KiB after");
    agent.stop().await;
    scrapes
}

fn show(scrapes: &[Duration]) -> (Duration, Duration) {
    let (n, max) = (scrapes.len(), scrapes[scrapes.len() - 1]);
    let quantile = |percent: usize| scrapes[n * percent / 100];
    let (median, p99) = (quantile(50), quantile(99));
    println!("{n} scrapes: median {median:.1?}, p99 {p99:.1?}, max {max:.1?}");
    (p99, max)
}

/// A scrape is lost if it takes longer than 10 s, Prometheus' default. How fast it is on a machine without other
/// tests, [`scrapes_are_answered_within_50_ms`] measures.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_clients_cause_the_loss_of_no_scrape_and_no_event() {
    let (_, max) = show(&flood(20, 5).await);
    assert!(max < Duration::from_secs(10), "{max:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures a release build: just measure-agent"]
async fn scrapes_are_answered_within_50_ms() {
    let (p99, max) = show(&flood(300, 20).await);
    assert!(max <= Duration::from_millis(50), "p99 {p99:?}, max {max:?}");
}
