//! `pleg doctor` on a real containerd, on which the test plants one trouble after the other.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use pleg::core::Id;
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::environment::{built, number};
use pleg_tests::fuse::HangingMount;
use pleg_tests::kubelet::{Kubelet, Life, Pod};
use pleg_tests::wait::{pass_time, until};
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::image::{address, get};
use crate::{SOON, with_daemon};

/// The start of each script. `group CONTROLLER` moves the daemon into a control group and sets `$g` to its directory.
const PRELUDE: &str = r#"
    set -eu
    DAEMON=$(cat "$DIR/containerd.pid")
    root=/sys/fs/cgroup
    group() {
        if [ -d $root/memory ]; then root=$root/$1; else echo "+$1" > $root/cgroup.subtree_control || true; fi
        g=$root/pleg-doctor-$DAEMON
        mkdir -p $g
        echo $DAEMON > $g/cgroup.procs
    }
    write() { if [ -e $g/$1 ]; then echo $2 > $g/$1; fi; }
    ungroup() {
        for process in $(cat $g/cgroup.procs); do echo $process > $root/cgroup.procs || true; done
        rmdir $g
    }
    freeze() {
        g=/sys/fs/cgroup/freezer$(sed -n 's/.*:freezer://p' /proc/$1/cgroup)
        [ -e $g/freezer.state ] || g=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$1/cgroup)
        write freezer.state FROZEN; write cgroup.freeze 1
    }
    used() {
        all=$(cat $g/memory.usage_in_bytes 2> /dev/null || cat $g/memory.current)
        echo $((all - $(sed -n 's/^\(total_\)\?inactive_file //p' $g/memory.stat | tail -n 1)))
    }
    # Most memory of the group belongs to another process, because the daemon's changes all the time.
    restart_at_memory_limit() {
        "$CONTAINERD_SH" kill "$DIR"; DAEMON=$$; group memory; "$CONTAINERD_SH" start "$DIR" > /dev/null
        perl -e '$x = "x" x 2e8; sleep 200' > /dev/null 2>&1 & echo $$ > $root/cgroup.procs; now=0; last=-1
        while [ $now -gt $last ]; do last=$now; sleep 2; now=$(used); done
        write memory.limit_in_bytes $((now * 102 / 100)); write memory.max $((now * 102 / 100))
    }
    leave_memory_groups() {
        for g in /sys/fs/cgroup/memory/pleg-doctor-* /sys/fs/cgroup/pleg-doctor-*; do [ ! -d $g ] || { root=${g%/*}; ungroup; }; done
    }
    # Two threads less than the limit: at the limit a program in Go ends.
    crowd() {
        for n in $(seq 20); do sleep 60 > /dev/null 2>&1 & echo $! > $g/cgroup.procs; done
        write pids.max $(($(cat $g/pids.current) + 2))
    }
    over() { mount -t tmpfs -o $1 none "$DIR/root"; }
    impostor() {
        name=$1; script=$2; shift 2
        cp /usr/bin/perl "$DIR/$name"
        "$DIR/$name" -e "$script" -- "$@" > /dev/null 2>&1 &
        echo $! > "$DIR/impostor"
        sleep 1
    }
    expose() { kill -9 $(cat "$DIR/impostor"); }
    serve() { echo "use IO::Socket::INET; \$s = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $1, Listen => 9,
        ReuseAddr => 1); while (\$c = \$s->accept) { sysread \$c, \$b, 999; print \$c qq($2); close \$c }"; }
    lose_state() {
        "$CONTAINERD_SH" kill "$DIR"; tasks=$DIR/state/io.containerd.runtime.v2.task/k8s.io
        umount -l "$tasks"/*/rootfs || true
        rm -r "$tasks"/*
        "$CONTAINERD_SH" start "$DIR" > /dev/null
    }
"#;

/// Each case: the code of the finding; the script that plants the trouble; a text that the recommended step must
/// contain; `ends` if the recommended step ends the trouble; the script that ends the trouble. The scripts' variables
/// are DIR, SOCKET, DAEMON, and SHIM and INIT (the pids of a pod's shim and of its container). CI plants only the
/// troubles of the first six cases. The trouble of the last case makes the runtime lose its pods, so it must be last.
const TROUBLES: &str = r#"
daemon_stopped; kill -STOP $DAEMON; kill -CONT $DAEMON; ends;
daemon_cpu_limit; group cpu && write cpu.cfs_quota_us 1000 && write cpu.max '1000 100000'; pleg-doctor-$DAEMON; ends; group cpu && ungroup
disk_full; over size=1m && ! head -c 2M /dev/zero 2> /dev/null > "$DIR/root/file"; du -xh --max-depth=2 $DIR/root; ; umount "$DIR/root"
container_frozen; freeze $INIT; /sys/fs/cgroup/; ends;
kubelet_other_runtime; impostor kubelet 'sleep 600' --container-runtime-endpoint=unix:///run/other.sock; pleg doctor -r unix:///run/other.sock; ; expose
shim_stopped; kill -STOP $SHIM && kill -9 $INIT; kill -CONT $SHIM; ends;
daemon_frozen; group freezer && freeze $DAEMON; pleg-doctor-$DAEMON; ends; group freezer && ungroup
daemon_descriptors; prlimit --pid $DAEMON --nofile=$(($(ls /proc/$DAEMON/fd | wc -l) + 4)):; prlimit --pid $DAEMON; ends;
daemon_memory_limit; restart_at_memory_limit; pleg-doctor-; ends; leave_memory_groups
daemon_pids_limit; group pids && crowd; pleg-doctor-$DAEMON; ends; group pids && ungroup
disk_inodes; over nr_inodes=9 && ! touch $(seq -f "$DIR/root/%g" 9) 2> /dev/null; du -x --inodes --max-depth=2 $DIR/root; ; umount "$DIR/root"
disk_readonly; over size=1m && mount -o remount,ro "$DIR/root"; mount -o remount,rw $DIR/root; ends; umount "$DIR/root"
runc_hangs; touch "$DIR/hang" && sleep 14; /stack; ; rm "$DIR/hang"
shim_orphaned; impostor containerd-shim-runc-v2 'sleep 600' -namespace k8s.io -address "$SOCKET" -id lost && sleep 15; kill ; ends;
kubelet_stopped; impostor kubelet 'sleep 600' && kill -STOP $!; kill -CONT ; ends; expose
kubelet_pleg_unhealthy; impostor kubelet "$(serve 10999 'HTTP/1.0 500 x\r\n\r\n[-]pleg failed\n')" --healthz-port=10999; ; ; expose
kubelet_unhealthy; impostor kubelet "$(serve 10999 'HTTP/1.0 500 x\r\n\r\n[-]syncloop failed\n')" --healthz-port=10999; ; ; expose
kubelet_relist_slow; impostor kubelet "$(serve 10255 'HTTP/1.0 200 x\r\n\r\nkubelet_pleg_relist_duration_seconds_sum 30\nkubelet_pleg_relist_duration_seconds_count 9\n')"; ; ; expose
mount_hangs; ; umount -f -l $DIR/hanging; ends;
ended_container_runs; sleep 12 && lose_state; $INIT; ;
"#;

#[tokio::test(flavor = "multi_thread")]
async fn each_of_six_planted_troubles_is_the_first_finding() -> anyhow::Result<()> {
    with_daemon(Version::V2, async |daemon: &_| plant(daemon, 6).await).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a long one: just plant-troubles"]
async fn every_planted_trouble_is_the_first_finding() -> anyhow::Result<()> {
    with_daemon(Version::V2, async |daemon: &_| {
        plant(daemon, usize::MAX).await
    })
    .await
}

async fn plant(daemon: &Daemon, most: usize) -> anyhow::Result<()> {
    let dir = daemon.dir.display();
    // The runtime's runc hangs while the file `hang` exists.
    let install = r#"
        runc=$(sed -n 's/.*BinaryName = "\(.*\)"/\1/p' "$DIR/config.toml")
        printf '#!/bin/sh\nwhile [ -e "%s/hang" ]; do sleep 1; done\nexec "%s" "$@"\n' "$DIR" "$runc" > "$DIR/runc"
        chmod +x "$DIR/runc"
        sed -i "s|BinaryName = .*|BinaryName = \"$DIR/runc\"|" "$DIR/config.toml"
        "$CONTAINERD_SH" kill "$DIR"; "$CONTAINERD_SH" start "$DIR" > /dev/null; mkdir "$DIR/hanging""#;
    let containerd = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/containerd.sh");
    let mut facts = vec![
        ("DIR", dir.to_string()),
        ("SOCKET", daemon.endpoint.path().display().to_string()),
        ("CONTAINERD_SH", containerd.display().to_string()),
    ];
    shell(&facts, install).await?;
    let kubelet = Kubelet::new(daemon)?;
    let pods = kubelet.run_pods(4).await?;
    let healthy = examine(daemon).await?;
    let bad = |f: &&Value| f["severity"] != "info";
    let bad = findings(&healthy)?.into_iter().find(bad);
    ensure!(bad.is_none(), "{bad:#?}");
    let mut failures = Vec::new();
    let log = daemon.dir.join("agent.log");
    // CI, with only six troubles, starts no agent: it would take too long to wait until the agent shows each trouble.
    let agent = (most > 6).then(|| start_agent(daemon, &log)).transpose()?;
    for row in TROUBLES.trim().lines().take(most) {
        let fields: Vec<&str> = row.split(';').map(str::trim).collect();
        let [code, script, step, ends, undo] = fields[..] else {
            anyhow::bail!("a row has five fields: {row}");
        };
        println!("{code}");
        // Each of the following three troubles needs a separate pod.
        let own = ["container_frozen", "shim_stopped", "runc_hangs"];
        let own = own.iter().position(|name| *name == code);
        let (pod, id) = &pods[own.map_or(0, |n| n + 1)];
        facts.truncate(3);
        facts.push(("DAEMON", listener(daemon).await?.to_string()));
        facts.push(("SHIM", shim_of(pod).await?.to_string()));
        facts.push(("INIT", kubelet.process(id).await.to_string()));
        let hanging = || HangingMount::new(&daemon.dir.join("hanging"));
        let mount = (code == "mount_hangs").then(hanging);
        if let Some(Err(why)) = &mount {
            println!("skipped: {why}");
            continue;
        }
        let find = async {
            shell(&facts, script).await?;
            let report = examine(daemon).await?;
            let next = expect(&report, code, &expand(step, &facts))?;
            // Only doctor examines mounts, and the kubelet's health, metrics and log.
            let of_doctor =
                "mount_hangs kubelet_pleg_unhealthy kubelet_unhealthy kubelet_relist_slow";
            if agent.is_some() && of_doctor.split(' ').all(|other| other != code) {
                until_agent_shows(daemon, &log, code).await?;
            }
            match ends {
                "" => Ok(()),
                _ => follow(daemon, &facts, &next, code).await,
            }
        };
        let stop = async {
            if code == "runc_hangs" {
                pass_time(SOON / 10).await;
                let _stopped = kubelet.stop(id).await;
            }
            std::future::pending::<()>().await;
        };
        let found = tokio::select! {
            found = find => found,
            () = stop => Ok(()),
        };
        let results = [found, shell(&facts, undo).await];
        let errors = results.into_iter().filter_map(Result::err);
        failures.extend(errors.map(|error| format!("{code}: {error:#}")));
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// Waits until `code` is the first finding in the agent's view, `check` and `top`, and readyz names it.
async fn until_agent_shows(daemon: &Daemon, log: &Path, code: &str) -> anyhow::Result<()> {
    let address = address(log).context("the agent has no address")?;
    until(SOON * 3, code, || async {
        // A CPU limit does not hold back an idle runtime: doctor's calls keep the runtime busy.
        if code == "daemon_cpu_limit" {
            examine(daemon).await.ok()?;
        }
        let ready = get(&address, "/readyz?verbose").await.ok()?;
        let view = get(&address, "/debug/view?limit=0").await.ok()?;
        let view: Value = serde_json::from_str(view.split_once("\r\n\r\n")?.1).ok()?;
        let reasons = view["health"]["reasons"].as_array()?.iter();
        let mut codes = reasons.filter_map(|reason| reason["code"].as_str());
        let worst = codes.clone().next()?;
        let first = codes.find(|code| *code != "network_not_ready");
        let pleg = built("pleg").ok()?.display().to_string();
        let check = output(&format!("{pleg} check --agent http://{address}")).await?;
        let (shown, _) = check.strip_prefix('(')?.split_once(") ")?;
        let is_named = ready.contains(&format!("({code})"));
        if !is_named || first != Some(code) || shown != worst {
            return None;
        }
        let size = "stty rows 24 cols 200";
        let top = format!("{size}; exec timeout 2 {pleg} top --agent http://{address}");
        let text = r"sed 's/\x1b\[[^A-Za-z]*[A-Za-z]/ /g' | tr -s ' '";
        let screen = output(&format!("script -qec '{top}' /dev/null | {text}")).await?;
        let (worst, _) = screen.split_once(" do: ")?;
        worst.contains(shown).then_some(())
    })
    .await
}

async fn output(command: &str) -> Option<String> {
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", command]).stdin(Stdio::null());
    String::from_utf8(shell.output().await.ok()?.stdout).ok()
}

/// Executes the printed step, and checks that the trouble is over.
async fn follow(
    daemon: &Daemon,
    facts: &[(&str, String)],
    next: &str,
    code: &str,
) -> anyhow::Result<()> {
    let command = next.split('`').nth(1).context(next.to_owned())?;
    shell(facts, command).await?;
    let report = examine(daemon).await?;
    let left = findings(&report)?.into_iter().find(|f| f["code"] == code);
    ensure!(left.is_none(), "{command} did not end it: {left:#?}");
    Ok(())
}

fn expand(text: &str, facts: &[(&str, String)]) -> String {
    let replace =
        |text: String, (name, value): &(&str, String)| text.replace(&format!("${name}"), value);
    facts.iter().fold(text.to_owned(), replace)
}

async fn shell(facts: &[(&str, String)], script: &str) -> anyhow::Result<()> {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{PRELUDE}{script}\n")])
        .envs(facts.iter().map(|(name, value)| (name, value)));
    let output = tokio::time::timeout(SOON * 3, command.stdin(Stdio::null()).output())
        .await
        .context(script.to_owned())??;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{script}: {error}");
    Ok(())
}

/// Runs doctor `PLEG_DOCTOR_RUNS` times while an agent runs, the test restarts pods all the time, and a process
/// uses all of a CPU.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a long one: just examine-healthy"]
async fn healthy_node_under_load_has_no_finding_above_information() -> anyhow::Result<()> {
    with_daemon(Version::V2, async |daemon: &_| {
        let kubelet = Kubelet::new(daemon)?;
        let pods = kubelet.run_pods(80).await?;
        let log = daemon.dir.join("agent.log");
        let _agent = start_agent(daemon, &log)?;
        let mut hog = Command::new("sh");
        hog.args(["-c", "while :; do :; done"]).kill_on_drop(true);
        let _hog = hog.spawn()?;
        let restarts = restart(&kubelet, &pods[..10]);
        let examine = async {
            for run in 1..=number("PLEG_DOCTOR_RUNS", 2)? {
                let report = examine(daemon).await?;
                let mut findings = findings(&report)?.into_iter();
                let bad = findings.find(|f| f["severity"] != "info");
                ensure!(bad.is_none(), "run {run}: {bad:#?}");
            }
            anyhow::Ok(())
        };
        tokio::select! {
            result = examine => result?,
            error = restarts => return error,
        }
        let reported = reported(&log)?;
        ensure!(reported.is_empty(), "the agent reported {reported:#?}");
        Ok(())
    })
    .await
}

/// Restarts containers until a call fails.
async fn restart(kubelet: &Kubelet, pods: &[(Pod, Id)]) -> anyhow::Result<()> {
    let mut pods = pods.to_vec();
    for attempt in 1.. {
        for (pod, id) in &mut pods {
            kubelet.stop(id).await?;
            kubelet.remove(id).await?;
            *id = kubelet
                .create(pod, "app", attempt, Life::UntilStopped)
                .await?;
            kubelet.start(id).await?;
        }
    }
    Ok(())
}

/// Starts an agent that logs to a file.
fn start_agent(daemon: &Daemon, log: &Path) -> anyhow::Result<Child> {
    let mut command = Command::new(built("pleg")?);
    let endpoint = &daemon.endpoint;
    let args = format!("agent -v --log-format json --listen 127.0.0.1:0 -r {endpoint}");
    command.args(args.split(' ')).stdout(Stdio::null());
    command.stderr(fs::File::create(log)?).kill_on_drop(true);
    Ok(command.spawn()?)
}

/// The agent's log records with a level above info, except those about the missing network plugin.
fn reported(log: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(log)?;
    let records = text.lines().map(serde_json::from_str);
    let records: Vec<Value> = records.collect::<Result<_, _>>()?;
    ensure!(!records.is_empty(), "the agent did not log its start");
    let above = |record: &Value| record["level"] != "info" && record["code"] != "network_not_ready";
    Ok(records.into_iter().filter(above).collect())
}

/// Checks that `code` is the first finding and that its recommended step contains `step`. Returns that whole step.
fn expect(report: &Value, code: &str, step: &str) -> anyhow::Result<String> {
    let first = findings(report)?.into_iter().next().context("no finding")?;
    let all = &report["findings"];
    ensure!(first["code"] == code, "{code} is not the first of {all:#}");
    let next = first["next"].as_str().unwrap_or_default();
    ensure!(next.contains(step), "no {step} in {next}");
    Ok(next.to_owned())
}

/// All findings, except `network_not_ready`: the daemons of these tests have no network plugin.
fn findings(report: &Value) -> anyhow::Result<Vec<&Value>> {
    let findings = report["findings"].as_array().context("no findings")?;
    let is_network = |f: &&Value| f["code"] == "network_not_ready";
    let (network, others): (Vec<_>, _) = findings.iter().partition(is_network);
    ensure!(network.len() <= 1, "{network:?}");
    Ok(others)
}

async fn examine(daemon: &Daemon) -> anyhow::Result<Value> {
    let seconds = format!("{}s", number("PLEG_DOCTOR_SECONDS", 3)?);
    let mut command = Command::new(built("pleg")?);
    command.args(["doctor", "-o", "json", "--for", &seconds, "-r"]);
    command.arg(daemon.endpoint.to_string()).kill_on_drop(true);
    let output = tokio::time::timeout(SOON * 3, command.output())
        .await
        .context("it does not end")??;
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .with_context(|| format!("{text}; {}", String::from_utf8_lossy(&output.stderr)))
}

async fn shim_of(pod: &Pod) -> anyhow::Result<u32> {
    let mut command = Command::new("pgrep");
    let command = command.args(["-f", &format!("containerd-shim.*-id {}", pod.sandbox)]);
    let output = command.stdin(Stdio::null()).output().await?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().next().context("no shim")?.trim().parse()?)
}

/// The process of the daemon.
async fn listener(daemon: &Daemon) -> anyhow::Result<u32> {
    let stream = tokio::net::UnixStream::connect(daemon.endpoint.path()).await?;
    Ok(stream.peer_cred()?.pid().context("unknown")?.try_into()?)
}
