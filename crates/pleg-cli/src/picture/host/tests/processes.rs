//! What samples of a host show of its processes.

use super::super::cgroup::{self, Limit};
use super::super::sample::{Sample, Subject};
use super::super::shims::{DeadInit, Shims};
use super::super::{daemon, pressure};
use super::fake::FakeHost;

const SHIM: &str = "containerd-shim";

fn add(host: &FakeHost, pid: u32, name: &str, state: char, args: &str) {
    host.process(pid, name, state, 1);
    host.arguments(pid, &args.split(' ').collect::<Vec<_>>());
}

/// What lasts on a host between two samples, and this change in between.
fn shims(host: &FakeHost, change: impl FnOnce(&FakeHost)) -> Shims {
    Shims::of(&host.samples(None, change))
}

#[test]
fn shims_of_the_socket_are_found() {
    let host = FakeHost::new();
    let path = |name: &str| host.root().join(name).display().to_string();
    let (ours, theirs) = (path("cri.sock"), path("other.sock"));
    host.write("cri.sock", "");
    host.write("other.sock", "");
    for (pid, name, args) in [
        (
            10,
            SHIM,
            format!("shim -namespace k8s.io -id s1 -address {ours}"),
        ),
        (
            11,
            SHIM,
            format!("shim -namespace k8s.io -id s2 -address {theirs}"),
        ),
        (
            12,
            SHIM,
            format!("shim -namespace moby -id s3 -address {ours}"),
        ),
        (13, SHIM, "shim -namespace=k8s.io -id=s4".to_owned()),
        (14, SHIM, "shim".to_owned()),
        (
            20,
            "conmon",
            "conmon -b /b -c c1 --exit-dir=/var/run/crio/exits".to_owned(),
        ),
        (
            21,
            "conmon",
            "conmon -c c2 --exit-dir /run/libpod/exits".to_owned(),
        ),
        (22, "other", "shim -id s5".to_owned()),
    ] {
        add(&host, pid, name, 'S', &args);
    }
    for (socket, ids) in [
        (Some(&*ours), "s1 s4 c1"),
        (None, "s1 s2 s4 c1"),
        (Some("/gone.sock"), "s4 c1"),
    ] {
        let root = host.root().to_owned();
        let subject = Subject {
            root,
            socket: socket.map(Into::into),
            ..Subject::default()
        };
        let sample = Sample::take(&subject, &Sample::default()).unwrap();
        let found: Vec<&str> = sample
            .processes
            .values()
            .filter_map(|seen| seen.shim())
            .collect();
        assert_eq!(found.join(" "), ids, "{socket:?}");
    }
}

#[test]
fn program_of_a_user_or_a_pod_is_no_shim() {
    let host = FakeHost::new();
    add(&host, 10, SHIM, 'T', "shim -id s1");
    let found = || {
        let shims = shims(&host, |_| ());
        (shims.shims.len(), shims.complete)
    };
    assert_eq!(found(), (1, true));
    host.write("proc/10/status", "Uid:\t1000\t0\t0\t0\n");
    assert_eq!(found(), (0, true));
    host.write("proc/10/status", "Uid:\t0\t0\t0\t0\n");
    host.write("proc/10/cgroup", "0::/kubepods/pod1/x\n");
    assert_eq!(found(), (0, false), "Kata Containers has its shims there");
}

#[test]
fn only_what_lasts_is_reported() {
    let host = FakeHost::new();
    for (pid, state) in [(10, 'T'), (11, 'S'), (12, 'T')] {
        add(&host, pid, SHIM, state, &format!("shim -id s{pid}"));
    }
    for (pid, state) in [(100, 'Z'), (101, 'Z'), (102, 'S')] {
        host.process(pid, "app", state, 11);
    }
    // Its first thread has ended, others run.
    let stat = "103 (app) Z 11 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 2 0 100000 0 512 0\n";
    host.write("proc/103/stat", stat);
    for (pid, thread, state, switches) in [(11, 13, 'D', 5), (11, 14, 'D', 5), (11, 15, 'S', 5)] {
        host.thread(pid, thread, state, switches, "nfs_wait");
    }
    let shims = shims(&host, |host| {
        host.remove("proc/101");
        host.remove("proc/12");
        host.process(102, "app", 'Z', 11);
        host.thread(11, 14, 'D', 6, "it has run in between");
    });
    let [first, second, ended] = &shims.shims[..] else {
        panic!("{shims:?}");
    };
    assert!(shims.complete && first.stopped && !second.stopped);
    assert_eq!(
        (&*second.zombies, &*second.blocked),
        (&[100][..], &["nfs_wait".to_owned()][..])
    );
    assert_eq!((ended.pid, &*ended.id, ended.stopped), (12, "s12", false));
}

#[test]
fn container_processes_are_found_with_both_cgroup_versions() {
    let id = "f".repeat(64);
    let pods = "sys/fs/cgroup/kubepods.slice/pod1.slice";
    for (group, freezer, frozen, thawed) in [
        (
            format!("4:freezer:/kubepods/pod1/{id}"),
            "sys/fs/cgroup/freezer/kubepods/pod1",
            ["freezer.state", "FROZEN", "freezer.self_freezing"],
            "THAWED",
        ),
        (
            format!("0::/kubepods.slice/pod1.slice/cri-containerd-{id}.scope"),
            pods,
            ["cgroup.events", "frozen 1", "cgroup.freeze"],
            "populated 1\nfrozen 0",
        ),
        (
            format!("0::/../pod1.slice/crio-{id}.scope"),
            pods,
            ["cgroup.events", "frozen 1", "cgroup.freeze"],
            "frozen 0",
        ),
    ] {
        let host = FakeHost::new();
        add(&host, 10, SHIM, 'S', "shim -id s1");
        host.process(100, "app", 'D', 10);
        host.process(101, "sh", 'S', 10);
        host.write("proc/100/cgroup", &group);
        let [file, now, flag] = frozen;
        let state = format!("{freezer}/{}/{file}", group.rsplit('/').next().unwrap());
        host.write(&state, now);
        host.write(&format!("{freezer}/{flag}"), "1");
        let all = shims(&host, |_| ()).processes;
        assert_eq!((all.len(), all[0].pid, &*all[0].id), (1, 100, &*id));
        assert!(
            all[0].old && all[0].shim.as_deref() == Some("s1"),
            "{all:?}"
        );
        let cause = Some(format!("/{freezer}"));
        assert_eq!(all[0].frozen, cause, "the group above is the cause");
        let thawed = shims(&host, |host| host.write(&state, thawed));
        assert_eq!(thawed.processes[0].frozen, None, "{group}");
    }
}

#[test]
fn init_that_is_gone_in_both_samples_is_reported() {
    let host = FakeHost::new();
    let task = "run/containerd/io.containerd.runtime.v2.task/k8s.io";
    add(&host, 10, SHIM, 'S', "shim -id s1");
    host.process(110, "pause", 'S', 10);
    for (id, pid) in [
        ("s1", "110"),
        ("c1", "201"),
        ("c2", "202\n"),
        ("c3", "203"),
        ("c4", "x"),
    ] {
        host.write(&format!("{task}/{id}/init.pid"), pid);
    }
    host.link("proc/10/cwd", &host.root().join(task).join("s1"));
    host.process(202, "app", 'S', 10);
    let shims = shims(&host, |host| {
        host.process(203, "app", 'S', 10);
        host.remove("proc/202");
    });
    let (container, pid, zombie) = ("c1".to_owned(), 201, false);
    assert_eq!(
        shims.dead_inits,
        [DeadInit {
            container,
            pid,
            zombie
        }]
    );
}

#[test]
fn helper_that_runs_for_long_is_found() {
    let host = FakeHost::new();
    add(&host, 10, SHIM, 'S', "shim -id s1");
    host.process(800, "containerd", 'S', 1);
    for (pid, name, state, parent) in [
        (11, "runc", 'S', 10),
        (12, "crun", 'T', 800),
        (13, "runc", 'S', 1),
        (14, "sleep", 'S', 10),
    ] {
        host.process(pid, name, state, parent);
    }
    let found = || {
        let helpers = Shims::of(&host.samples(Some(800), |_| ())).helpers;
        helpers
            .into_iter()
            .map(|helper| (helper.pid, helper.shim, helper.stopped))
    };
    let expected = [(11, Some("s1".to_owned()), false), (12, None, true)];
    assert!(found().eq(expected), "people start the others");
    host.write("proc/uptime", "1009.0 1.0\n");
    assert_eq!(found().len(), 0, "they are young");
}

/// What nothing is expected of is read in turns, unless a thread seems to block or a call is slow.
#[test]
fn calm_host_is_read_in_part_but_its_pods_always() {
    let host = FakeHost::new();
    add(&host, 10, SHIM, 'S', "shim -id s1");
    let set = |state| {
        host.process(11, "app", state, 10);
        host.process(20, "bash", state, 1);
    };
    let states = |load: &str, thorough: bool| {
        let root = host.root().to_owned();
        let subject = Subject {
            root,
            thorough,
            ..Subject::default()
        };
        host.write("proc/loadavg", "0.50 0 0 1/100 9");
        set('S');
        let before = Sample::take(&subject, &Sample::default()).unwrap();
        host.write("proc/loadavg", load);
        set('T');
        let after = Sample::take(&subject, &before).unwrap();
        [11, 20].map(|pid| after.processes[&pid].process.state)
    };
    assert_eq!(states("0.60 0 0 1/100 9", false), ['T', 'S']);
    assert_eq!(states("0.80 0 0 1/100 9", false), ['T', 'T']);
    assert_eq!(states("2.80 0 0 1/100 9", false), ['T', 'S']);
    assert_eq!(states("0.60 0 0 1/100 9", true), ['T', 'T']);
}

#[test]
fn process_that_ran_in_between_is_not_blocked() {
    let host = FakeHost::new();
    for (pid, state, parent) in [
        (20, 'D', 1),
        (21, 'D', 1),
        (22, 'S', 1),
        (23, 'D', std::process::id()),
    ] {
        host.process(pid, "app", state, parent);
    }
    host.write("proc/20/wchan", "nfs_wait");
    let ran = "voluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t0\n";
    let samples = host.samples(None, |host| {
        host.write("proc/21/status", ran);
        host.process(22, "app", 'D', 1);
    });
    let blocked = pressure::blocked(&samples)
        .into_iter()
        .map(|process| (process.pid, process.at));
    assert!(blocked.eq([(20, "nfs_wait".to_owned())]));
}

#[test]
fn daemon_is_assessed_from_two_samples() {
    let host = FakeHost::new();
    host.busy(800, "containerd", 100);
    host.thread(800, 801, 'D', 3, "rpc_wait");
    host.write("proc/800/fd/0", "");
    let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files   1024  4096  files\n";
    host.write("proc/800/limits", limits);
    let samples = host.samples(Some(800), |host| host.busy(800, "containerd", 300));
    let daemon = daemon::assess(&samples, Some(800), 800).unwrap();
    assert_eq!(
        (&*daemon.name, &*daemon.blocked),
        ("containerd", &["rpc_wait".to_owned()][..])
    );
    assert_eq!(
        daemon.descriptors.map(|used| (used.open, used.limit)),
        Some((1, 1024))
    );
    assert!((daemon.cpus - 0.5).abs() < 0.01, "{daemon:?}");
    assert!(
        daemon
            .age_seconds
            .is_some_and(|age| (age - 4000.0).abs() < 1.0)
    );
    assert!(!daemon.stopped && !daemon.replaced);
    assert!(daemon::assess(&samples, Some(799), 800).unwrap().replaced);
    assert_eq!(daemon::assess(&samples, None, 9), None);
    for (first, last, stopped) in [('T', 'T', true), ('S', 'T', false), ('t', 't', true)] {
        host.process(800, "containerd", first, 1);
        let samples = host.samples(Some(800), |host| host.process(800, "containerd", last, 1));
        assert_eq!(
            daemon::assess(&samples, None, 800).unwrap().stopped,
            stopped
        );
    }
}

#[test]
fn limits_are_read_with_both_cgroup_versions() {
    let old = "cpu/a/b/cpu.cfs_quota_us: -1
        cpu/a/cpu.cfs_quota_us: 1000
        cpu/a/cpu.cfs_period_us: 100000
        cpu/a/cpu.stat: nr_periods 10 nr_throttled 2 throttled_time 9
        memory/a/memory.limit_in_bytes: 4000
        memory/a/memory.usage_in_bytes: 3900
        memory/a/memory.stat: cache 9 total_inactive_file 900
        memory/a/memory.oom_control: oom_kill_disable 0 under_oom 0 oom_kill 3
        memory/a/b/memory.limit_in_bytes: 9223372036854771712
        memory/a/b/memory.usage_in_bytes: 9
        pids/a/pids.max: max
        pids/a/b/pids.max: 50
        pids/a/b/pids.current: 49";
    let new = "a/b/cpu.max: max 100000
        a/cpu.max: 1000 100000
        a/cpu.stat: usage_usec 5 nr_periods 10 nr_throttled 2
        a/memory.max: 4000
        a/memory.current: 3900
        a/memory.stat: anon 9 inactive_file 900
        a/memory.events: low 0 oom 3 oom_kill 3
        a/b/pids.max: 50
        a/b/pids.current: 49";
    let v1 = "4:cpu,cpuacct:/a/b\n3:memory:/a/b\n2:pids:/a/b\n0::/";
    for (groups, files, stat, events) in [
        (v1, old, "cpu/a/cpu.stat", "memory/a/memory.oom_control"),
        ("0::/../../a/b", new, "a/cpu.stat", "a/memory.events"),
    ] {
        let host = FakeHost::new();
        host.process(800, "containerd", 'S', 1);
        host.write("proc/800/cgroup", groups);
        let write = |file: &str, text: &str| host.write(&format!("sys/fs/cgroup/{file}"), text);
        for line in files.lines() {
            let (file, text) = line.trim().split_once(": ").unwrap();
            write(file, text);
        }
        let samples = host.samples(Some(800), |_| {
            write(stat, "nr_periods 20\nnr_throttled 11\n");
            write(events, "oom_kill 4\n");
        });
        let limits = cgroup::assess(&samples.begin.limits, &samples.end.limits);
        let shown = |limit: &Limit| serde_json::to_string(limit).unwrap().replace('"', "");
        let limits: Vec<String> = limits.iter().map(shown).collect();
        for (limit, controller, figures) in [
            (
                &limits[0],
                "cpu",
                "limit:1000,used:100000,events:9,periods:10",
            ),
            (&limits[1], "memory", "limit:4000,used:3000,events:1"),
            (&limits[2], "pids", "limit:50,used:49,events:0"),
        ] {
            let start = format!("{{controller:{controller},group:/sys/fs/cgroup/");
            assert!(
                limit.starts_with(&start) && limit.contains(figures),
                "{limit}"
            );
        }
    }
}
