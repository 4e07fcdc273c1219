pub(crate) mod fake;
mod processes;

use self::fake::FakeHost;
use super::*;
use crate::picture::finding::{FROM_LISTS, Severity, arrange, contains};

/// Each row: evidence, and the codes and severities of its findings if no call is slow.
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
{"daemon": {}, "limits": [{"controller": "cpu", "limit": 1, "used": 100, "events": 2, "periods": 8}]} => daemon_cpu_limit warning
{"daemon": {}, "limits": [{"controller": "cpu", "limit": 1, "used": 100, "events": 1, "periods": 8}]} =>
{"daemon": {"blocked": ["folio_wait"]}, "limits": [{"controller": "memory", "limit": 100, "used": 95}]} => daemon_memory_limit warning
{"daemon": {}, "limits": [{"controller": "memory", "limit": 100, "used": 50, "events": 1}]} => daemon_memory_limit warning
{"daemon": {}, "limits": [{"controller": "memory", "limit": 100, "used": 94}]} =>
{"daemon": {}, "limits": [{"controller": "pids", "limit": 100, "used": 95}]} => daemon_pids_limit warning
{"disks": [{"path": "/a", "bytes": 100000000000, "freeBytes": 6000000000}]} =>
{"disks": [{"path": "/a", "bytes": 10000000000, "freeBytes": 400000000}]} => disk_full warning
{"disks": [{"path": "/a", "bytes": 8000000}, {"path": "/b", "bytes": 8000000}]} => disk_full critical
{"disks": [{"path": "/a", "bytes": 9, "readOnly": true}]} => disk_readonly critical
{"disks": [{"path": "/a", "inodes": 1000, "freeInodes": 49}]} => disk_inodes warning
{"disks": [{"path": "/a", "inodes": 1000, "freeInodes": 4}]} => disk_inodes critical
{"shims": {"helpers": [{"pid": 9, "id": "runc", "shim": "s1", "ageSeconds": 12.0}]}} => runc_hangs critical
{"mounts": {"hanging": [{"path": "/b"}]}} => mount_hangs critical
{"mounts": {"slow": [{"path": "/b", "answerMillis": 700}]}} => mount_slow info
{"bus": {"silent": true}} => systemd_silent critical
{"bus": {"version": "219"}} => systemd_old info
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
{"shims": {"processes": [{"id": "c1", "shim": "s1", "blocked": ["nfs"]}]}} => container_blocked warning
{"shims": {"processes": [{"id": "c1", "shim": "s1", "blocked": ["x"], "frozen": "/a"}]}} => container_frozen critical
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

/// Each row: evidence, and words of its first finding: of the summary, the lines of evidence or the next step.
const ADVICE: &str = r#"
{"blocked": [{"pid": 5, "at": "nfs_wait"}]} => disk or mount for which they wait: `dmesg`; `cat /proc/5/stack`
{"blocked": [{"pid": 5, "at": "__refrigerator"}]} => thaw it
{"blocked": [{"pid": 5, "at": "mem_cgroup_handle_over_high"}]} => memory
{"daemon": {"pid": 8, "stopped": true}} => `kill -CONT 8`
{"daemon": {"frozen": "/sys/fs/cgroup/freezer/a"}} => `echo THAWED > /sys/fs/cgroup/freezer/a/freezer.state`
{"daemon": {"frozen": "/sys/fs/cgroup/a"}} => `echo 0 > /sys/fs/cgroup/a/cgroup.freeze`
{"shims": {"shims": [{"pid": 10, "stopped": true}, {"pid": 9, "stopped": true}]}} => `kill -CONT 10 9`
{"disks": [{"path": "/a/b", "readOnly": true, "mount": "/a"}]} => `mount -o remount,rw /a`
{"mounts": {"hanging": [{"path": "/b"}]}} => `umount -f -l /b`
{"mounts": {"hanging": [{"path": "/b c"}]}} => `umount -f -l '/b c'`
{"daemon": {"pid": 8, "descriptors": {"open": 990, "limit": 1000}}} => `prlimit --pid 8 --nofile=2000:2000`
{"daemon": {"pid": 8, "descriptors": {"open": 1048570, "limit": 1048576}}} => `sysctl fs.nr_open=2097152 && prlimit
{"mounts": {"hanging": [{"path": "/b", "fs": "nfs4", "pod": "u1"}]}} => a mount does not answer: /b, of pod shop/cart; /b, of pod shop/cart: no answer within 2 s (nfs4)
{"mounts": {"hanging": [{"path": "/b", "pod": "u2"}]}} => a mount does not answer: /b, of pod u2
{"daemon": {}, "limits": [{"controller": "cpu", "group": "/sys/fs/cgroup/cpu/x", "limit": 1, "used": 9, "events": 8, "periods": 8}]} => `echo -1 > /sys/fs/cgroup/cpu/x/cpu.cfs_quota_us`
{"daemon": {}, "limits": [{"controller": "memory", "group": "/sys/fs/cgroup/x", "limit": 100, "used": 99}]} => `echo 200 > /sys/fs/cgroup/x/memory.max`
{"daemon": {}, "limits": [{"controller": "pids", "group": "/sys/fs/cgroup/system.slice/containerd.service", "limit": 10, "used": 10}]} => `systemctl set-property --runtime containerd.service TasksMax=20`
"#;

fn checked(evidence: &str, slow: bool, is_listed: bool) -> Vec<Finding> {
    let pods = r#"{"pods": [{"uid": "u1", "name": "shop/cart", "sandboxes": ["s1"], "ready": ["s1"],
        "running": {"c1": "web"}}], "listed": {"s1": true, "c1": true, "c2": false}}"#;
    let pods = &serde_json::from_str(pods).unwrap();
    check(&host(evidence), Calls::new(pods, slow, is_listed))
}

fn host(evidence: &str) -> Host {
    serde_json::from_str(evidence).unwrap()
}

/// The findings as they are shown, if calls are slow and there is also a critical finding with the code `code`.
fn arranged(evidence: &str, code: &'static str) -> Vec<Finding> {
    let mut findings = checked(evidence, true, true);
    findings.push(Finding::new(code, "", "").severity(Severity::Critical));
    arrange(findings)
}

#[test]
fn each_host_evidence_gives_its_code_and_severity() {
    for row in FINDINGS.trim().lines() {
        let (evidence, expected) = row.split_once(" =>").unwrap();
        let recording = serde_json::to_string(&host(evidence)).unwrap();
        assert_eq!(host(&recording), host(evidence));
        let findings = checked(evidence, false, true);
        let shown = |f: &Finding| format!("{} {}", f.code, crate::text::lower(f.severity));
        let found = findings.iter().map(shown).join(", ");
        assert_eq!(found, expected.trim(), "{evidence}");
        for finding in findings {
            let (code, next) = (finding.code, finding.next);
            assert!(!next.contains("PID") && !next.contains("{}"), "{next}");
            let with_old_lists = checked(evidence, false, false);
            let is_found = with_old_lists.iter().any(|f| f.code == code);
            assert_ne!(is_found, contains(FROM_LISTS, code), "{code}");
        }
        if expected.ends_with("_pressure info") || expected.ends_with("_tasks info") {
            let beside_a_slow_call = &checked(evidence, true, true)[0];
            assert_eq!(beside_a_slow_call.severity, Severity::Warning, "{row}");
        }
    }
}

#[test]
fn advice_follows_from_the_cause_and_names_pods() {
    for row in ADVICE.trim().lines() {
        let (evidence, words) = row.split_once(" => ").unwrap();
        let found = checked(evidence, false, true).remove(0);
        let shown = [vec![found.summary], found.evidence, vec![found.next]].concat();
        let shown = shown.join("; ");
        assert!(shown.contains(words), "{shown}");
    }
}

#[test]
fn findings_about_daemon_come_first_then_pressure_then_slow_calls() {
    let stalls = r#"{"cpu": {"some": {"share": 0.9}}, "io": {"some": {"share": 0.9}}}"#;
    let stopped = r#""daemon": {"stopped": true, "waitingForCpu": 5.0}"#;
    let both = format!(r#"{{"pressure": {stalls}, {stopped}}}"#);
    let full = r#"{"daemon": {"descriptors": {"open": 99, "limit": 100}}}"#;
    for (evidence, cause) in [(&*both, "daemon_stopped"), (full, "daemon_descriptors")] {
        assert_eq!(arranged(evidence, "runtime_silent")[0].code, cause);
    }
    let alone = arranged(&format!(r#"{{"pressure": {stalls}}}"#), "list_slow");
    assert_eq!(alone[0].severity, Severity::Critical);
    assert!(alone[0].code.ends_with("_pressure"), "{alone:?}");
}

#[tokio::test]
async fn unreadable_parts_of_the_host_are_named() {
    let empty = FakeHost::new();
    empty.remove("proc");
    let host = Box::pin(collect(&empty.target(), Duration::ZERO)).await;
    let unreadable = host.unreadable.join("; ");
    for part in ["mounts: ", "processes: "] {
        assert!(unreadable.contains(part), "{unreadable}");
    }
    let recording = serde_json::to_string(&host).unwrap();
    assert_eq!(checked(&recording, true, true), []);
    let hidden = FakeHost::new();
    hidden.remove("proc/self");
    let mut target = hidden.target();
    target.socket = Some("/gone.sock".into());
    let host = Watch::new(target).look(false).await;
    let unknown = "the process that listens on /gone.sock: No such file or directory (os error 2)";
    let hidden = "all processes of the host: not visible from here";
    let disks = "the runtime's disks: not visible from here";
    assert_eq!(host.unreadable, [unknown, hidden, disks]);
}

#[tokio::test]
async fn evidence_contains_no_command_line() {
    let host = FakeHost::new();
    host.run(900, "containerd-shim -id s1 -secret hidden");
    host.run(901, "kubelet --healthz-port=1 --token=hidden");
    host.write("proc/900/environ", "SECRET=hidden");
    host.write("proc/1/mountinfo", "");
    let evidence = Box::pin(collect(&host.target(), Duration::ZERO)).await;
    let recording = serde_json::to_string(&evidence).unwrap();
    let has_both = recording.contains("\"s1\"") && recording.contains("901");
    assert!(has_both, "{recording}");
    assert!(!recording.contains("hidden"), "{recording}");
}

#[test]
fn directories_of_crio_follow_from_all_its_configuration_files() {
    let host = FakeHost::new();
    host.run(800, "crio");
    host.write("etc/containerd/config.toml", "root = \"/containerd\"\n");
    host.write("etc/crio/crio.conf", "[crio]\nroot='/a'\nrunroot='/b'\n");
    host.write("etc/crio/crio.conf.d/10", "[crio]\nroot = \"/c\"\n");
    let proc = Proc::below(host.root());
    let found = disks::directories(&proc, &proc.process(800).unwrap());
    let expected = ["/c", "/b"].map(|path| Ok(path.to_owned()));
    assert_eq!(found, expected);
}

#[tokio::test]
async fn watch_compares_each_look_with_the_previous_look() {
    let host = FakeHost::new();
    let socket = host.root().join("cri.sock");
    let _listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let own = std::process::id();
    host.write("state/file", "");
    host.run(own, "containerd --root=/state/file/a -c /c.toml");
    host.write("c.toml", "state = \"/state\"\n");
    host.process(own, "containerd", 'T', 1);
    let mut watch = Watch::new(HostTarget {
        socket: Some(socket),
        ..host.target()
    });
    let first = watch.look(false).await;
    // A single look cannot show that a state lasts.
    assert!(!first.daemon.unwrap().lasting.stopped);
    // The daemon's directories are `--root` in its arguments and `state` in its configuration file.
    assert!(first.disks.iter().map(|disk| &*disk.path).eq(["/state"]));
    let unread = "/state/file/a: ENOTDIR: Not a directory".to_owned();
    assert!(first.unreadable.contains(&unread), "{:?}", first.unreadable);
    assert!(first.disks[0].bytes > 0 && !first.disks[0].read_only);
    assert!(watch.look(false).await.daemon.unwrap().lasting.stopped);
    let _hangs = Arc::clone(&watch.processes).try_acquire_owned().unwrap();
    let unread = watch.look(false).await.unreadable;
    assert_eq!(unread, ["processes: an earlier read still hangs"]);
}
