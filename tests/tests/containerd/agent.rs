//! Compares the CPU and memory usage of `pleg agent` on an idle real node with the budget in docs/fleet.md. Run it
//! with `just measure-agent`.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use pleg::runtime::clock::Clock;
use pleg_tests::daemon::Version;
use pleg_tests::kubelet::Kubelet;
use pleg_tests::usage;
use pleg_tests::wait::{pass_time, until};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::image::get;
use crate::{SOON, with_daemon};

/// The number of pods that a kubelet runs at most by default.
const PODS: usize = 110;
const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures a release build: just measure-agent"]
async fn agent_stays_in_budget_on_idle_node_with_110_pods() -> anyhow::Result<()> {
    with_daemon(Version::V2, async |daemon| {
        let program = std::env::var_os("PLEG_PROGRAM").context("set PLEG_PROGRAM")?;
        let minutes = std::env::var("PLEG_IDLE_MINUTES").map_or(Ok(5), |m| m.parse())?;
        let kubelet = Kubelet::new(daemon)?;
        kubelet.run_pods(PODS).await?;
        let endpoint = daemon.endpoint.to_string();
        let mut agent = Command::new(program)
            .args(["agent", "--listen", "127.0.0.1:0", "-r", &endpoint])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let pid = agent.id().context("it has ended")?;
        let mut lines = BufReader::new(agent.stderr.take().context("piped")?).lines();
        let address = loop {
            let line = lines.next_line().await?.context("no address")?;
            if let Some((_, rest)) = line.split_once("; http://") {
                break rest.split(' ').next().unwrap_or(rest).to_owned();
            }
        };
        for line in [
            "pleg_stream_state{state=\"confirmed\"} 1\n",
            "pleg_running_containers{container_state=\"running\"} 110\n",
        ] {
            until(SOON, line, || async {
                let page = get(&address, "/metrics").await.ok()?;
                page.contains(line).then_some(())
            })
            .await?;
        }
        // At a load of 0.3 or more, the agent also reads the threads of all shims: the node must be idle.
        let idle = || async {
            let load = std::fs::read_to_string("/proc/loadavg").ok()?;
            (load.split(' ').next()?.parse::<f64>().ok()? < 0.3).then_some(())
        };
        until(SOON * 15, "a load below 0.3", idle).await?;
        let clock = Clock::start();
        let (began, before) = (clock.now(), usage::cpu(pid)?);
        for _ in 0..minutes * 4 {
            pass_time(SCRAPE_INTERVAL).await;
            get(&address, "/metrics").await?;
        }
        let (used, elapsed) = (usage::cpu(pid)? - before, clock.now().since(began));
        let share = used.as_secs_f64() / elapsed.as_secs_f64() * 100.0;
        let most = usage::status(pid, "VmHWM:")?;
        println!(
            "{PODS} pods on containerd, idle: {used:?} of CPU in {elapsed:.0?}, {share:.4} % of a core; \
             RSS at most {most} KiB"
        );
        // Allow more CPU time and memory than on a simulated node, because here the agent also examines the host.
        anyhow::ensure!(share <= 0.08, "{share} %");
        anyhow::ensure!(most <= 17 << 10, "{most} KiB");
        Ok(())
    })
    .await
}
