use super::fake::FakeHost;
use super::*;
use crate::picture::finding::Layer::Runtime;
use crate::picture::finding::{Kind, Severity, arrange};
use crate::proc::Proc;

fn calls() -> Calls {
    Calls {
        slow: true,
        ..fine()
    }
}

/// Evidence, and the codes and severities of its findings. The calls are those of [`fine`].
const FINDINGS: &str = r#"
{} =>
{"daemon": {"name": "containerd", "ageSeconds": 700.0}} =>
{"daemon": {"stopped": true, "blocked": ["nfs"]}} => daemon_stopped critical
{"daemon": {"frozen": "/sys/fs/cgroup/freezer/a", "blocked": ["__refrigerator"]}} => daemon_frozen critical
{"daemon": {"blocked": ["nfs_wait"]}} => daemon_blocked warning
{"daemon": {"descriptors": {"open": 90, "limit": 100}}} => daemon_descriptors warning
{"daemon": {"descriptors": {"open": 89, "limit": 100}}} =>
{"daemon": {"ageSeconds": 59.0}} => daemon_restarted info
{"daemon": {"replaced": true}} => daemon_restarted warning
{"files": {"open": 90, "limit": 100}} => host_descriptors warning
{"threads": {"open": 90, "limit": 100}} => host_pids warning
{"daemon": {}, "limits": {"cpu": {"limit": 1, "used": 100, "events": 2, "periods": 8}}} => daemon_cpu_limit warning
{"daemon": {}, "limits": {"cpu": {"limit": 1, "used": 100, "events": 1, "periods": 8}}} =>
{"daemon": {"blocked": ["folio_wait"]}, "limits": {"memory": {"limit": 100, "used": 95}}} => daemon_memory_limit warning
{"daemon": {}, "limits": {"memory": {"limit": 100, "used": 50, "events": 1}}} => daemon_memory_limit warning
{"daemon": {}, "limits": {"memory": {"limit": 100, "used": 94}}} =>
{"daemon": {}, "limits": {"pids": {"limit": 100, "used": 95}}} => daemon_pids_limit warning
{"disks": [{"path": "/a", "bytes": 100000000000, "freeBytes": 6000000000}]} =>
{"disks": [{"path": "/a", "bytes": 10000000000, "freeBytes": 400000000}]} => disk_full warning
{"disks": [{"path": "/a", "bytes": 8000000}, {"path": "/b", "bytes": 8000000}]} => disk_full critical
{"disks": [{"path": "/a", "bytes": 9, "readOnly": true}]} => disk_readonly critical
{"disks": [{"path": "/a", "inodes": 1000, "freeInodes": 49}]} => disk_inodes warning
{"disks": [{"path": "/a", "inodes": 1000, "freeInodes": 4}]} => disk_inodes critical
{"helpers": [{"pid": 9, "name": "runc", "parent": 10, "ageSeconds": 12.0}]} => runc_hangs critical
{"mounts": {"hanging": [{"path": "/b"}]}} => mount_hangs critical
{"mounts": {"slow": [{"path": "/b", "answerMillis": 700}]}} => mount_slow info
{"systemd": {"silent": true}} => systemd_silent critical
{"systemd": {"version": "219"}} => systemd_old info
{"blocked": [{"pid": 5}]} => blocked_tasks info
{"pressure": {"io": {"some": {"share": 0.2}}}} => io_pressure info
{"pressure": {"io": {"full": {"share": 0.1}}}} => io_pressure info
{"pressure": {"memory": {"some": {"share": 0.1}}}} => memory_pressure info
{"pressure": {"cpu": {"some": {"share": 0.5}}}} => cpu_pressure info
{"pressure": {"io": {"some": {"share": 0.15}}, "cpu": {"some": {"share": 0.4}}}} =>
{"shims": {"shims": [{"pid": 10, "id": "s1", "old": true}]}} =>
{"shims": {"shims": [{"pid": 10, "id": "s1", "stopped": true, "blocked": ["nfs"]}]}} => shim_stopped critical
{"shims": {"shims": [{"pid": 10, "id": "s1", "blocked": ["nfs"]}]}} => shim_blocked critical
{"shims": {"shims": [{"pid": 10, "id": "s1", "zombies": [13]}]}} => shim_zombie warning
{"shims": {"shims": [{"pid": 10, "id": "s2", "old": true}]}} => shim_orphaned warning
{"shims": {"shims": [{"pid": 10, "id": "s2"}]}} =>
{"shims": {"deadInits": [{"container": "c1", "pid": 14}]}} => init_gone critical
{"shims": {"deadInits": [{"container": "c2", "pid": 14}]}} =>
{"shims": {"processes": [{"id": "c1", "shim": "s1", "old": true}]}} =>
{"shims": {"processes": [{"id": "c2", "shim": "s1", "old": true}]}} => ended_container_runs critical
{"shims": {"processes": [{"id": "c3", "shim": "s3", "old": true}]}} => ended_container_runs critical
{"shims": {"processes": [{"id": "c3", "shim": "s3"}]}} =>
{"shims": {"processes": [{"id": "c1", "shim": "s1", "blocked": "nfs"}]}} => container_blocked warning
{"shims": {"processes": [{"id": "c1", "shim": "s1", "blocked": "x", "frozen": "/a"}]}} => container_frozen critical
{"daemon": {"name": "containerd"}, "shims": {"complete": true}} => shim_missing warning
{"daemon": {"name": "containerd"}, "shims": {}} =>
{"daemon": {"name": "crio"}, "shims": {"complete": true}} =>
{"kubelet": {"pid": 7}} =>
{"kubelet": {"pid": 7, "stopped": true}} => kubelet_stopped critical
{"kubelet": {"healthz": {"failed": ["PLEG", "syncloop"]}}} => kubelet_pleg_unhealthy critical, kubelet_unhealthy warning
{"kubelet": {"healthz": {"failed": ["syncloop"]}}} => kubelet_unhealthy warning
{"kubelet": {"healthz": {"healthy": true}}} =>
{"kubelet": {"healthz": {}}} => kubelet_unhealthy warning
{"kubelet": {"healthz": {"silent": true}}} => kubelet_unhealthy warning
{"kubelet": {"journal": {"unhealthy": 9, "agoSeconds": 4.0}}} => kubelet_pleg_unhealthy critical
{"kubelet": {"journal": {"unhealthy": 9, "agoSeconds": 400.0}}} => kubelet_pleg_unhealthy warning
{"kubelet": {"relists": {"count": 5, "meanSeconds": 1.5}}} => kubelet_relist_slow warning
{"kubelet": {"relists": {"meanSeconds": 0.9}}} =>
"#;

/// Evidence, and what the next step of its first finding contains.
const ADVICE: &str = r#"
{"blocked": [{"pid": 5, "at": "nfs_wait"}]} => disk or mount for which they wait: `dmesg`; `cat /proc/5/stack`
{"blocked": [{"pid": 5, "at": "__refrigerator"}]} => thaw it
{"blocked": [{"pid": 5, "at": "mem_cgroup_handle_over_high"}]} => memory
{"daemon": {"pid": 8, "stopped": true}} => `kill -CONT 8`
{"daemon": {"frozen": "/sys/fs/cgroup/freezer/a"}} => `echo THAWED > /sys/fs/cgroup/freezer/a/freezer.state`
{"daemon": {"frozen": "/sys/fs/cgroup/a"}} => `echo 0 > /sys/fs/cgroup/a/cgroup.freeze`
{"shims": {"shims": [{"pid": 10, "stopped": true}, {"pid": 9, "stopped": true}]}} => `kill -CONT 9 10`
{"disks": [{"path": "/a/b", "readOnly": true, "mount": "/a"}]} => `mount -o remount,rw /a`
{"mounts": {"hanging": [{"path": "/b"}]}} => `umount -f -l /b`
{"daemon": {}, "limits": {"cpu": {"group": "/sys/fs/cgroup/cpu/x", "limit": 1, "used": 9, "events": 8, "periods": 8}}} => `echo -1 > /sys/fs/cgroup/cpu/x/cpu.cfs_quota_us`
{"daemon": {}, "limits": {"memory": {"group": "/sys/fs/cgroup/x", "limit": 100, "used": 99}}} => `echo 200 > /sys/fs/cgroup/x/memory.max`
{"daemon": {}, "limits": {"pids": {"group": "/sys/fs/cgroup/system.slice/containerd.service", "limit": 10, "used": 10}}} => `systemctl set-property --runtime containerd.service TasksMax=20`
"#;

/// Calls of a node with one pod, all fast.
fn fine() -> Calls {
    let one = |id: &str, name: &str| BTreeMap::from([(id.to_owned(), name.to_owned())]);
    let listed = [("s1", true), ("c1", true), ("c2", false)];
    Calls {
        sandboxes: one("s1", "shop/cart"),
        ready: one("s1", "shop/cart"),
        running: one("c1", "shop/cart web"),
        listed: Some(listed.map(|(id, lives)| (id.to_owned(), lives)).into()),
        ..Calls::default()
    }
}

fn host(evidence: &str) -> Host {
    serde_json::from_str(evidence).unwrap()
}

#[test]
fn findings_follow_from_the_evidence_and_the_runbook_explains_them() {
    let runbook = include_str!("../../../../../docs/runbook.md");
    let (_, doctor) = runbook.split_once("\n## Host, runtime and pods\n").unwrap();
    for row in FINDINGS.trim().lines() {
        let (evidence, expected) = row.split_once(" =>").unwrap();
        let findings = check(&host(evidence), &fine());
        let found: Vec<String> = findings
            .iter()
            .map(|f| format!("{} {}", f.code, f.severity))
            .collect();
        assert_eq!(found.join(", "), expected.trim(), "{evidence}");
        for finding in findings {
            let heading = format!("\n### {}\n", finding.code);
            assert!(doctor.contains(&heading), "{} is missing", finding.code);
            assert!(!finding.next.contains("PID"), "{}", finding.next);
            assert!(
                !finding.explains.contains(&finding.code),
                "{}",
                finding.code
            );
        }
    }
}

#[test]
fn advice_follows_from_the_cause() {
    for row in ADVICE.trim().lines() {
        let (evidence, advice) = row.split_once(" => ").unwrap();
        let next = check(&host(evidence), &fine())[0].next.clone();
        assert!(next.contains(advice), "{next}");
    }
}

#[test]
fn starved_node_advises_nothing_that_kills() {
    let starved = r#"{"pressure": {"cpu": {"some": {"share": 0.9}}}, "shims": {"shims": [{"pid": 10, "id": "s1", "zombies": [13]}],
        "deadInits": [{"container": "c1", "pid": 14}]}}"#;
    let findings = check(
        &host(starved),
        &Calls {
            slow: true,
            ..fine()
        },
    );
    let findings = arrange(findings);
    assert_eq!(findings[0].code, "cpu_pressure");
    assert!(
        !findings.iter().any(|f| f.next.contains("`kill")),
        "{findings:#?}"
    );
}

#[test]
fn recording_gives_the_same_findings() {
    let host = host(
        r#"{"cpus": 2, "load": 9.5, "daemon": {"pid": 8, "stopped": true}, "kubelet": {"unknown": "of a later version"},
        "shims": {"complete": true, "shims": [{"pid": 11, "id": "s2", "blocked": ["nfs"]}]}}"#,
    );
    let recording = serde_json::to_string(&host).unwrap();
    let read: Host = serde_json::from_str(&recording).unwrap();
    assert_eq!(read, host);
    assert_eq!(check(&read, &calls()), check(&host, &calls()));
    assert_eq!(serde_json::from_str::<Host>("{}").unwrap(), Host::default());
}

#[test]
fn stopped_daemon_precedes_pressure_that_slows_calls() {
    let stalls = r#"{"some": {"share": 0.9}}"#;
    let host = host(&format!(
        r#"{{"pressure": {{"cpu": {stalls}, "io": {stalls}}}, "daemon": {{"stopped": true, "waitingForCpu": 5.0}}}}"#
    ));
    let mut findings = check(&host, &calls());
    findings.push(Kind("runtime_silent", Runtime, Severity::Critical, &[]).found("", ""));
    let findings = arrange(findings);
    assert_eq!(findings[0].code, "daemon_stopped");
    let alone = Host {
        daemon: None,
        ..host
    };
    let mut findings = check(&alone, &calls());
    findings.push(Kind("list_slow", Runtime, Severity::Critical, &[]).found("", ""));
    let findings = arrange(findings);
    assert_eq!(findings[0].severity, Severity::Critical);
    assert!(findings[0].code.ends_with("_pressure"), "{findings:?}");
}

#[tokio::test]
async fn this_host_is_examined_in_time() {
    let clock = Clock::start();
    let began = clock.now();
    let target = HostTarget {
        ask_mount: vec!["true".into()],
        ..HostTarget::new(Some("/nonexistent/cri.sock".into()))
    };
    let host = Box::pin(collect(&target, Duration::from_millis(50))).await;
    assert!(clock.now().since(began) < Duration::from_secs(20));
    assert!(
        host.cpus > 0 && host.load.is_some() && host.files.is_some(),
        "{host:?}"
    );
    assert_eq!(host.daemon, None);
    let why = "the process that listens on /nonexistent/cri.sock: No such file";
    assert!(
        host.unreadable.iter().any(|line| line.starts_with(why)),
        "{host:?}"
    );
}

#[tokio::test]
async fn what_cannot_be_read_is_named() {
    let empty = tempfile::tempdir().unwrap();
    let target = HostTarget {
        root: empty.path().to_owned(),
        ..HostTarget::new(None)
    };
    let host = Box::pin(collect(&target, Duration::ZERO)).await;
    let unreadable = host.unreadable.join("; ");
    for part in ["mounts: ", "processes: "] {
        assert!(unreadable.contains(part), "{unreadable}");
    }
    assert_eq!(check(&host, &calls()), []);
    let hidden = FakeHost::new();
    hidden.remove("proc/self");
    let target = HostTarget {
        root: hidden.root().to_owned(),
        ..HostTarget::new(None)
    };
    let host = Box::pin(collect(&target, Duration::ZERO)).await;
    assert!(
        host.unreadable
            .iter()
            .any(|line| line.contains("not visible")),
        "{host:?}"
    );
}

#[tokio::test]
async fn evidence_contains_no_command_line() {
    let host = FakeHost::new();
    host.process(900, "containerd-shim", 'S', 1);
    host.arguments(
        900,
        &["containerd-shim-runc-v2", "-id", "s1", "-secret", "hidden"],
    );
    host.process(901, "kubelet", 'S', 1);
    host.arguments(901, &["kubelet", "--healthz-port=1", "--token=hidden"]);
    host.write("proc/900/environ", "SECRET=hidden");
    host.write("proc/1/mountinfo", "");
    let target = HostTarget {
        root: host.root().to_owned(),
        journalctl: vec!["true".into()],
        ..HostTarget::new(None)
    };
    let evidence = Box::pin(collect(&target, Duration::ZERO)).await;
    let recording = serde_json::to_string(&evidence).unwrap();
    assert!(
        recording.contains("\"s1\"") && recording.contains("901"),
        "{recording}"
    );
    assert!(!recording.contains("hidden"), "{recording}");
}

#[test]
fn limits_are_read_with_both_cgroup_versions() {
    let v1 = &[
        ("cpu/a/b/cpu.cfs_quota_us", "-1"),
        ("cpu/a/cpu.cfs_quota_us", "1000"),
        ("cpu/a/cpu.cfs_period_us", "100000"),
        ("cpu/a/b/cpu.cfs_quota_us", "-1"),
        (
            "cpu/a/cpu.stat",
            "nr_periods 10\nnr_throttled 2\nthrottled_time 9",
        ),
        ("memory/a/memory.limit_in_bytes", "4000"),
        ("memory/a/memory.usage_in_bytes", "3900"),
        ("memory/a/memory.stat", "cache 9\ntotal_inactive_file 900"),
        (
            "memory/a/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 3",
        ),
        ("memory/a/b/memory.limit_in_bytes", "9223372036854771712"),
        ("memory/a/b/memory.usage_in_bytes", "9"),
        ("pids/a/pids.max", "max"),
        ("pids/a/b/pids.max", "50"),
        ("pids/a/b/pids.current", "49"),
    ];
    let v2 = &[
        ("a/b/cpu.max", "max 100000"),
        ("a/cpu.max", "1000 100000"),
        ("a/cpu.stat", "usage_usec 5\nnr_periods 10\nnr_throttled 2"),
        ("a/memory.max", "4000"),
        ("a/memory.current", "3900"),
        ("a/memory.stat", "anon 9\ninactive_file 900"),
        ("a/memory.events", "low 0\noom 3\noom_kill 3"),
        ("a/b/pids.max", "50"),
        ("a/b/pids.current", "49"),
    ];
    for (groups, files, later) in [
        (
            "4:cpu,cpuacct:/a/b\n3:memory:/a/b\n2:pids:/a/b\n0::/",
            &v1[..],
            ["cpu/a/cpu.stat", "memory/a/memory.oom_control"],
        ),
        ("0::/../../a/b", &v2[..], ["a/cpu.stat", "a/memory.events"]),
    ] {
        let fake = FakeHost::new();
        fake.process(800, "containerd", 'S', 1);
        fake.write("proc/800/cgroup", groups);
        for (file, text) in files {
            fake.write(&format!("sys/fs/cgroup/{file}"), text);
        }
        let samples = fake.samples(Some(800), |fake| {
            fake.write(
                &format!("sys/fs/cgroup/{}", later[0]),
                "nr_periods 20\nnr_throttled 11\n",
            );
            fake.write(&format!("sys/fs/cgroup/{}", later[1]), "oom_kill 4\n");
        });
        let limits = cgroup::assess(&samples.begin.limits, &samples.end.limits);
        let figures = |limit: Option<cgroup::Limit>| {
            let limit = limit.unwrap();
            assert!(limit.group.starts_with("/sys/fs/cgroup/"), "{limit:?}");
            (limit.limit, limit.used, limit.events, limit.periods)
        };
        assert_eq!(figures(limits.cpu), (1000, 100_000, 9, 10), "{groups}");
        assert_eq!(figures(limits.memory), (4000, 3000, 1, 0), "{groups}");
        assert_eq!(figures(limits.pids), (50, 49, 0, 0), "{groups}");
    }
}

#[test]
fn helper_that_runs_for_long_is_found() {
    let fake = FakeHost::new();
    fake.process(10, "containerd-shim", 'S', 1);
    fake.arguments(10, &["shim", "-id", "s1"]);
    fake.process(11, "runc", 'S', 10);
    fake.process(12, "crun", 'T', 800);
    fake.process(13, "runc", 'S', 1);
    fake.process(14, "sleep", 'S', 10);
    let found = |fake: &FakeHost| {
        let helpers = fake.sample(Some(800)).helpers.clone();
        helpers
            .iter()
            .map(|h| (h.pid, h.stopped))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        found(&fake),
        [(11, false), (12, true)],
        "people start the others"
    );
    fake.write("proc/uptime", "1009.0 1.0\n");
    assert_eq!(found(&fake), [], "they are young");
}

#[test]
fn idle_host_is_read_in_part_but_its_pods_always() {
    let fake = FakeHost::new();
    fake.process(10, "containerd-shim", 'S', 1);
    fake.arguments(10, &["shim", "-id", "s1"]);
    fake.process(11, "app", 'S', 10);
    fake.process(20, "bash", 'S', 1);
    let states = |load: &str, thorough: bool| {
        fake.write("proc/loadavg", load);
        let subject = Subject {
            root: fake.root().to_owned(),
            thorough,
            ..Subject::default()
        };
        for pid in [11, 20] {
            fake.process(pid, "app", 'S', if pid == 11 { 10 } else { 1 });
        }
        let before = Sample::take(&subject, None).unwrap();
        for pid in [11, 20] {
            fake.process(pid, "app", 'T', if pid == 11 { 10 } else { 1 });
        }
        let after = Sample::take(&subject, Some(&before)).unwrap();
        [11, 20].map(|pid| after.processes[&pid].state)
    };
    assert_eq!(states("0.10 0 0 1/100 9", false), ['T', 'S']);
    assert_eq!(states("0.50 0 0 1/100 9", false), ['T', 'T']);
    assert_eq!(states("0.10 0 0 1/100 9", true), ['T', 'T']);
}

#[tokio::test]
async fn watch_compares_each_look_with_the_one_before() {
    let socket = tempfile::tempdir().unwrap();
    let socket = socket.path().join("cri.sock");
    let _listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let fake = FakeHost::new();
    let own = std::process::id();
    fake.process(own, "containerd", 'T', 1);
    let state = fake.root().join("state");
    std::fs::create_dir(&state).unwrap();
    fake.arguments(own, &["containerd", "--root=/state", "-c", "/c.toml"]);
    fake.write("c.toml", "state = \"/state\"\n");
    fake.link(&format!("proc/{own}/root"), fake.root());
    let target = HostTarget {
        root: fake.root().to_owned(),
        ..HostTarget::new(Some(socket))
    };
    let mut watch = Watch::new(target);
    let first = watch.look().await;
    assert!(
        !first.daemon.unwrap().stopped,
        "one look does not show what lasts"
    );
    let paths: Vec<&str> = first.disks.iter().map(|disk| disk.path.as_str()).collect();
    assert_eq!(
        paths,
        ["/state", "/state"],
        "of its arguments and its configuration"
    );
    assert!(first.disks[0].bytes > 0 && !first.disks[0].read_only);
    assert!(watch.look().await.daemon.unwrap().stopped);
    let _hangs = Arc::clone(&watch.processes).try_acquire_owned().unwrap();
    let unread = watch.look().await.unreadable;
    assert_eq!(unread, ["processes: an earlier read still hangs"]);
}

#[test]
fn thread_is_blocked_if_it_has_not_run_in_between() {
    let host = FakeHost::new();
    host.process(10, "containerd", 'S', 1);
    host.thread(10, 11, 'D', 5, "nfs_wait");
    host.thread(10, 12, 'D', 5, "io_schedule");
    host.thread(10, 13, 'S', 5, "futex");
    let proc = Proc::below(host.root());
    let before = proc.blocked_threads(10);
    assert_eq!(before.keys().collect::<Vec<_>>(), [&11, &12]);
    assert_eq!(before[&11].at.as_deref(), Some("nfs_wait"));
    host.thread(10, 12, 'D', 6, "io_schedule");
    let after = proc.blocked_threads(10);
    assert!(after[&11].since(&before[&11]));
    assert!(!after[&12].since(&before[&12]));
}
