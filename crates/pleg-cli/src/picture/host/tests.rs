use serde_json::json;

use super::fake::FakeHost;
use super::*;
use crate::picture::finding::{Severity, arrange};
use crate::proc::Proc;

/// Everything that can be wrong.
fn recorded(change: impl FnOnce(&mut serde_json::Value)) -> Host {
    let stalls = json!({ "some": { "share": 0.9 } });
    let mount = json!({ "path": "/a", "fs": "nfs", "answerMillis": 900 });
    let mut host = json!({
        "cpus": 2,
        "load": 9.5,
        "files": { "open": 99, "limit": 100 },
        "pressure": { "cpu": stalls, "io": stalls, "memory": stalls },
        "blocked": [{ "pid": 5, "name": "cp", "at": "nfs" }],
        "daemon": {
            "pid": 8, "name": "containerd", "stopped": true, "ageSeconds": 3.0,
            "descriptors": { "open": 99, "limit": 100 },
        },
        "shims": {
            "complete": true,
            "shims": [
                json!({ "pid": 10, "id": "s1", "stopped": true }),
                json!({ "pid": 11, "id": "s2", "blocked": ["nfs"] }),
                json!({ "pid": 12, "id": "s3", "zombies": [13] }),
            ],
            "deadInits": [{ "container": "c1", "pid": 14 }],
        },
        "mounts": { "asked": 2, "hanging": [{ "path": "/b", "fs": "nfs" }], "slow": [mount] },
        "systemd": { "version": "219" },
        "kubelet": {
            "healthz": { "failed": ["pleg", "syncloop"] },
            "relists": { "count": 1, "meanSeconds": 3.0 },
            "unknown": "a field of a later version",
        },
    });
    change(&mut host);
    serde_json::from_value(host).unwrap()
}

fn calls() -> Calls {
    let one = |id: &str| BTreeMap::from([(id.to_owned(), "shop/cart".to_owned())]);
    Calls {
        slow: true,
        ready: one("s4"),
        running: one("c1"),
        ..Calls::default()
    }
}

#[test]
fn advice_about_what_is_blocked_follows_from_where_it_waits() {
    let next = |at: &str| {
        let blocked = json!([{ "pid": 5, "name": "cp", "at": at }]);
        let host = serde_json::from_value(json!({ "blocked": blocked })).unwrap();
        check(&host, &calls())[0].next.clone()
    };
    assert!(next("nfs_wait").contains("disk"));
    assert!(next("__refrigerator").contains("thaw"));
    assert!(next("mem_cgroup_handle_over_high").contains("memory"));
}

#[test]
fn runbook_explains_every_finding() {
    let runbook = include_str!("../../../../../docs/runbook.md");
    let (_, doctor) = runbook.split_once("\n## Doctor\n").unwrap();
    let all = [
        recorded(|_| ()),
        recorded(|host| {
            host["daemon"]["stopped"] = false.into();
            host["daemon"]["blocked"] = json!(["nfs"]);
            host["systemd"] = json!({ "silent": true });
            host["kubelet"]["stopped"] = true.into();
        }),
    ];
    let findings = all.iter().flat_map(|host| check(host, &calls()));
    let mut codes: Vec<&str> = findings.map(|finding| finding.code).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), 22, "{codes:?}");
    for code in codes {
        let heading = format!("\n### {code}\n");
        assert!(doctor.contains(&heading), "{code} is missing");
    }
}

#[test]
fn recording_gives_the_same_findings() {
    let host = recorded(|_| ());
    let recording = serde_json::to_string(&host).unwrap();
    let read: Host = serde_json::from_str(&recording).unwrap();
    assert_eq!(read, host);
    assert_eq!(check(&read, &calls()), check(&host, &calls()));
    assert_eq!(serde_json::from_str::<Host>("{}").unwrap(), Host::default());
}

#[test]
fn stopped_daemon_precedes_pressure_that_slows_calls() {
    let host = recorded(|host| {
        let all = host.as_object_mut().unwrap();
        all.retain(|part, _| ["pressure", "daemon", "blocked"].contains(&part.as_str()));
        all["daemon"]["waitingForCpu"] = 5.0.into();
    });
    let mut findings = check(&host, &calls());
    let silent = crate::picture::finding::Layer::Runtime;
    findings.push(Finding::new(
        "runtime_silent",
        silent,
        Severity::Critical,
        "",
        "",
    ));
    let findings = arrange(findings);
    assert_eq!(findings[0].code, "daemon_stopped");
    let alone = Host {
        daemon: None,
        ..host
    };
    let mut findings = check(&alone, &calls());
    findings.push(Finding::new(
        "list_slow",
        silent,
        Severity::Critical,
        "",
        "",
    ));
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
        journalctl: "true".into(),
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
