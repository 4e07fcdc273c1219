//! The memory and the CPU time of `pleg agent`: within the budgets of docs/fleet.md (`just measure-agent` runs these
//! tests with a release build), and with runtimes that send much more than a list or status needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use pleg::runtime::clock::Clock;
use pleg_tests::kubelet::{Life, Pod};
use pleg_tests::usage;
use pleg_tests::wait::{pass_time, until};

use super::agent_flood::scrape;
use super::run::{PROMPT, Sim, TIMEOUT, program};

const RUNNING: &str = "pleg_running_containers{container_state=\"running\"}";
const EXITED: &str = "pleg_running_containers{container_state=\"exited\"}";

async fn create(sim: &Sim, pods: usize) -> Vec<Pod> {
    let create = async |n: usize| {
        let (pod, _) = sim.run_pod(&format!("pod-{n}")).await;
        let proxy = sim.kubelet.run(&pod, "proxy", 0, Life::UntilStopped).await;
        proxy.map(|_| pod).expect("started")
    };
    join_all((0..pods).map(create)).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: just measure-agent"]
async fn idle_agent_with_110_pods_stays_within_its_budget() {
    let sim = Sim::start().await;
    create(&sim, 110).await;
    let agent = sim.confirmed_agent("").await;
    agent.until_metric(RUNNING, 220.0).await;
    let minutes = std::env::var("PLEG_IDLE_MINUTES").map_or(5, |m| m.parse().expect("a number"));
    let (pid, clock) = (agent.running.id(), Clock::start());
    let (began, before) = (clock.now(), usage::cpu(pid).expect("it runs"));
    for _ in 0..minutes * 4 {
        pass_time(Duration::from_secs(15)).await;
        assert_eq!(agent.get("/metrics").await.0, 200);
    }
    let used = usage::cpu(pid).expect("it runs") - before;
    let elapsed = clock.now().since(began);
    let share = used.as_secs_f64() / elapsed.as_secs_f64() * 100.0;
    let (now, most) = (agent.kib("VmRSS:"), agent.kib("VmHWM:"));
    println!("110 pods, idle: {used:?} of CPU in {elapsed:.0?}, {share:.4} % of a core");
    println!("RSS {now} KiB, at most {most} KiB");
    assert!(share <= 0.05 && most <= 17_000_000 / 1024);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures a release build: just measure-agent"]
async fn storm_of_1000_pods_stays_within_its_budget() {
    let sim = Sim::start().await;
    let agent = sim.confirmed_agent("").await;
    let clock = Clock::start();
    let report = |what: &str, began| {
        let (now, most) = (agent.kib("VmRSS:"), agent.kib("VmHWM:"));
        let elapsed = clock.now().since(began);
        println!("1,000 pods {what} in {elapsed:.1?}: RSS {now} KiB, at most {most} KiB");
        most
    };

    let began = clock.now();
    let pods = create(&sim, 1000).await;
    agent.until_metric(RUNNING, 2000.0).await;
    report("are created", began);

    let began = clock.now();
    let stop = pods.iter().map(|pod| sim.kubelet.stop_pod(pod));
    assert!(join_all(stop).await.iter().all(Result::is_ok));
    agent.until_metric(EXITED, 2000.0).await;
    report("die", began);

    let began = clock.now();
    let remove = pods.iter().map(|pod| sim.kubelet.remove_pod(pod));
    assert!(join_all(remove).await.iter().all(Result::is_ok));
    agent.until_metric("pleg_running_pods", 0.0).await;
    agent.until_metric(EXITED, 0.0).await;
    let most = report("are removed", began);
    assert!(most <= 60 << 10, "{most} KiB");
}

#[test]
#[ignore = "measures a release build: just measure-agent"]
fn size_of_the_program_is_within_its_budget() {
    let bytes = std::fs::metadata(program()).expect("it exists").len();
    println!("the program has {bytes} bytes");
    assert!(bytes <= 14_500_000, "{bytes}");
}

/// The agent reads 40 pods. Every status response has 15 MiB; the limit of a message is 16 MiB.
#[tokio::test(flavor = "multi_thread")]
async fn memory_for_15_mib_status_responses_is_bounded_and_returned() {
    let sim = Sim::with("--empty --mode unimplemented").await;
    sim.kubelet.run_pods(40).await.expect("run");
    sim.control("list.unfiltered list.pad=384KiB status.pad=15MiB")
        .await;
    let agent = sim.agent("").await;
    for operation in ["podsandbox_status", "container_status"] {
        let label = format!("operation_type=\"{operation}\"");
        let count = format!("pleg_runtime_operations_duration_seconds_count{{{label}}}");
        let called = || async { (agent.metric(&count).await >= Some(40.0)).then_some(()) };
        let called = until(TIMEOUT * 3, operation, called).await;
        called.expect("called");
    }
    sim.control("reset").await;
    // The agent must have returned the memory of the padded responses: it drops annotations above 320 KiB.
    let returned = || async { (agent.kib("VmRSS:") <= 90 << 10).then_some(()) };
    let returned = until(TIMEOUT, "less memory", returned).await;
    assert!(returned.is_ok(), "{} KiB are in use", agent.kib("VmRSS:"));
    let peak = agent.kib("VmHWM:");
    println!("the peak was {peak} KiB");
    assert!(peak <= 150 << 10, "{peak} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_answers_while_lists_are_large() {
    for (rows, problem) in [
        (150_000, "the list has more than 100000 rows"),
        // Not 100,000 rows: the simulated runtime, a debug build, must send them in time while other tests run.
        (20_000, "[+]list ok"),
    ] {
        let args = format!("--empty --mode unimplemented --chaos list.fill={rows}");
        let sim = Sim::with(&args).await;
        let agent = sim.agent("").await;
        let address = agent.address.parse().expect("an address");
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let scrapes = tokio::task::spawn_blocking(move || scrape(address, &over));
        agent.until_shows("/readyz?verbose", problem).await;
        is_over.store(true, Ordering::Relaxed);
        let scrapes = scrapes.await.expect("all answered");
        assert!(scrapes[scrapes.len() - 1] < PROMPT, "{scrapes:?}");
        let peak = agent.kib("VmHWM:");
        assert!(peak < 200 << 10, "{peak} KiB");
    }
}
