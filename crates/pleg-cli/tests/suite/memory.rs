//! The memory of `pleg agent` with runtimes that send much more than they are asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pleg_tests::usage;
use pleg_tests::wait::until;

use super::agent_flood::scrape;
use super::run::{PROMPT, Sim, TIMEOUT};

fn memory(pid: u32, line: &str) -> u64 {
    usage::status(pid, line).expect("it runs") / 1024
}

/// 40 pods are inspected at a time, and every response has 15 MiB.
#[tokio::test(flavor = "multi_thread")]
async fn memory_of_responses_at_the_limit_is_bounded_and_returned() {
    let sim = Sim::with("--empty --mode unimplemented").await;
    sim.kubelet.run_pods(40).await.expect("run");
    sim.control("list.unfiltered list.pad=384KiB status.pad=15MiB")
        .await;
    let agent = sim.agent("").await;
    let pid = agent.running.id();
    for operation in ["podsandbox_status", "container_status"] {
        let label = format!("operation_type=\"{operation}\"");
        let count = format!("pleg_runtime_operations_duration_seconds_count{{{label}}}");
        let called = || async { (agent.metric(&count).await >= Some(40.0)).then_some(()) };
        let called = until(TIMEOUT * 3, operation, called).await;
        called.expect("called");
    }
    sim.control("reset").await;
    // Annotations are kept until the next status: 15 MiB of all containers, and 15 MiB of the last list.
    let returned = || async { (memory(pid, "VmRSS:") <= 90).then_some(()) };
    let returned = until(TIMEOUT, "less memory", returned).await;
    assert!(returned.is_ok(), "{} MiB are in use", memory(pid, "VmRSS:"));
    let peak = memory(pid, "VmHWM:");
    println!("the peak was {peak} MiB");
    assert!(peak <= 150, "{peak} MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_answers_while_lists_are_large() {
    for (rows, problem) in [
        (150_000, "the list has more than 100000 rows"),
        // Not more rows: the runtime, which is not optimized, must send them in time while other tests run.
        (20_000, "[+]list ok"),
    ] {
        let args = format!("--empty --mode unimplemented --chaos list.fill={rows}");
        let sim = Sim::with(&args).await;
        let agent = sim.agent("").await;
        let pid = agent.running.id();
        let address = agent.address.parse().expect("an address");
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let scrapes = tokio::task::spawn_blocking(move || scrape(address, &over));
        agent.until_shows("/readyz?verbose", problem).await;
        is_over.store(true, Ordering::Relaxed);
        let scrapes = scrapes.await.unwrap().expect("all answered");
        assert!(scrapes[scrapes.len() - 1] < PROMPT, "{scrapes:?}");
        let peak = memory(pid, "VmHWM:");
        assert!(peak < 200, "{peak} MiB");
    }
}
