//! What `pleg agent` uses, beside the budgets of docs/fleet.md. `just measure-agent` runs this with a release
//! build.

use std::path::Path;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use pleg::core::Id;
use pleg::runtime::clock::Clock;
use pleg_tests::kubelet::{Life, Pod};
use pleg_tests::usage;
use pleg_tests::wait::pass_time;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use super::agent::Agent;
use super::run::{Sim, arg};
use crate::support::program;

const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);

fn kib(pid: u32, line: &str) -> u64 {
    usage::status(pid, line).expect("it runs")
}

/// So many pods with two containers each. Many are created at a time.
async fn create(sim: &Sim, pods: usize) -> (Vec<Pod>, Vec<Id>) {
    let create = |n: usize| async move {
        let pod = sim.kubelet.run_pod(&format!("pod-{n}")).await?;
        let mut ids = Vec::new();
        for name in ["app", "proxy"] {
            let id = sim.kubelet.run(&pod, name, 0, Life::UntilStopped).await?;
            ids.push(id);
        }
        anyhow::Ok((pod, ids))
    };
    let created = stream::iter(0..pods).map(create).buffer_unordered(64);
    let created: Vec<_> = created.try_collect().await.expect("created");
    let (pods, ids): (Vec<_>, Vec<_>) = created.into_iter().unzip();
    (pods, ids.concat())
}

/// Makes all these containers exit.
async fn exit(socket: &Path, ids: &[Id]) {
    let control = UnixStream::connect(format!("{}.ctl", arg(socket))).await;
    let (read, mut write) = control.expect("connected").into_split();
    let mut lines = BufReader::new(read).lines();
    for id in ids {
        let line = format!("exit {id} 1\n");
        write.write_all(line.as_bytes()).await.expect("written");
        let answer = lines.next_line().await.ok().flatten();
        assert_eq!(answer.as_deref(), Some("ok"));
    }
}

fn running(state: &str) -> String {
    format!("pleg_running_containers{{container_state=\"{state}\"}}")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: just measure-agent"]
async fn idle_node_with_110_pods() {
    let sim = Sim::start().await;
    create(&sim, 110).await;
    let agent = Agent::start(&["-r", arg(&sim.socket)]).await;
    agent.until_confirmed().await;
    agent.until_metric(&running("running"), 220.0).await;
    let minutes = std::env::var("PLEG_IDLE_MINUTES").map_or(5, |m| m.parse().expect("a number"));
    let (pid, clock) = (agent.running.id(), Clock::start());
    let (began, before) = (clock.now(), usage::cpu(pid).expect("it runs"));
    for _ in 0..minutes * 4 {
        pass_time(SCRAPE_INTERVAL).await;
        assert_eq!(agent.get("/metrics").await.0, 200);
    }
    let used = usage::cpu(pid).expect("it runs") - before;
    let elapsed = clock.now().since(began);
    let share = used.as_secs_f64() / elapsed.as_secs_f64() * 100.0;
    let (now, most) = (kib(pid, "VmRSS:"), kib(pid, "VmHWM:"));
    let lists = agent.metric("pleg_list_interval_seconds_count").await;
    println!(
        "110 pods, idle: {used:?} of CPU in {elapsed:.0?}, {share:.4} % of a core; RSS {now} KiB, at most \
         {most} KiB; {lists:?} lists"
    );
    assert!(share <= 0.05, "{share} %");
    assert!(most <= 16 << 10, "{most} KiB");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures a release build: just measure-agent"]
async fn storm_of_1000_pods() {
    let sim = Sim::start().await;
    let agent = Agent::start(&["-r", arg(&sim.socket)]).await;
    agent.until_confirmed().await;
    let (pid, clock) = (agent.running.id(), Clock::start());
    let report = |what: &str, began| {
        let (now, most) = (kib(pid, "VmRSS:"), kib(pid, "VmHWM:"));
        let elapsed = clock.now().since(began);
        println!("1,000 pods {what} in {elapsed:.1?}: RSS {now} KiB, at most {most} KiB");
        most
    };

    let began = clock.now();
    let (pods, ids) = create(&sim, 1000).await;
    agent.until_metric(&running("running"), 2000.0).await;
    report("are created", began);

    let began = clock.now();
    exit(&sim.socket, &ids).await;
    agent.until_metric(&running("exited"), 2000.0).await;
    report("die", began);

    let began = clock.now();
    let remove = |(pod, ids): (&Pod, &[Id])| {
        let (kubelet, pod, ids) = (&sim.kubelet, pod.clone(), ids.to_vec());
        async move {
            for id in &ids {
                kubelet.remove(id).await?;
            }
            kubelet.stop_pod(&pod).await?;
            kubelet.remove_pod(&pod).await
        }
    };
    let removed = stream::iter(pods.iter().zip(ids.chunks(2))).map(remove);
    let removed: Result<Vec<()>, _> = removed.buffer_unordered(64).try_collect().await;
    removed.expect("removed");
    agent.until_metric("pleg_running_pods", 0.0).await;
    agent.until_metric(&running("exited"), 0.0).await;
    let most = report("are removed", began);
    assert!(most <= 60 << 10, "{most} KiB");
    agent.stop().await;
}

#[test]
#[ignore = "measures a release build: just measure-agent"]
fn program_is_small() {
    let bytes = std::fs::metadata(program()).expect("it exists").len();
    println!("the program has {bytes} bytes");
    assert!(bytes <= 15_000_000, "{bytes}");
}
