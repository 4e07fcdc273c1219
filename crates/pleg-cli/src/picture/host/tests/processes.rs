//! Tests of what two samples of a host show about its processes.

use itertools::Itertools as _;

use super::super::sample::Sample;
use super::super::shims::{Member, Shims};
use super::super::{cgroup, daemon, pressure};
use super::fake::FakeHost;

fn shims(host: &FakeHost, change: impl FnOnce(&FakeHost)) -> Shims {
    Shims::of(&host.samples(None, change))
}

/// Adds or replaces processes: PID, name, state, parent.
fn set(host: &FakeHost, processes: &str) {
    for process in processes.split(", ") {
        let words: Vec<&str> = process.split(' ').collect();
        let [pid, parent] = [words[0], words[3]].map(|id| id.parse().unwrap());
        host.process(pid, words[1], words[2].parse().unwrap(), parent);
    }
}

/// The command lines of the processes with the PIDs 10, 11 and so on.
const SHIMS: &str = "
containerd-shim -namespace k8s.io -id s1 -address /cri.sock
containerd-shim -namespace k8s.io -id s2 -address /cri.sock.other
containerd-shim -namespace moby -id s3 -address /cri.sock
containerd-shim -namespace=k8s.io -id=s4
containerd-shim
conmon -b /b -c c1 --exit-dir=/var/run/crio/exits
conmon -c c2 --exit-dir /run/libpod/exits
other -id s5";

#[test]
fn only_shims_of_the_examined_socket_are_found() {
    let host = FakeHost::new();
    host.write("cri.sock", "");
    host.write("cri.sock.other", "");
    for (pid, line) in (10..).zip(SHIMS.trim().lines()) {
        host.run(pid, line);
    }
    // A containerd in a container has a socket of the same path.
    host.run(30, "containerd-shim -id nested -address /cri.sock");
    host.write("nested/cri.sock", "");
    host.link("proc/30/root", &host.root().join("nested"));
    let mut target = host.target();
    let (ours, gone) = (Some(host.root().join("cri.sock")), Some("/gone".into()));
    let mut sample = Sample::default();
    // The socket is missing at first.
    for (socket, ids) in [
        (gone, "s4 c1"),
        (ours, "s1 s4 c1"),
        (None, "s1 s2 s4 c1 nested"),
    ] {
        target.socket = socket;
        sample = Sample::take(&target, None, true, &sample).unwrap();
        let mut found = sample.all().filter_map(|seen| seen.shim());
        assert_eq!(found.join(" "), ids);
    }
}

#[test]
fn program_of_a_user_or_a_pod_is_no_shim() {
    let host = FakeHost::new();
    host.run(10, "containerd-shim -id s1");
    // Kata Containers has its shims in pods.
    for (uid, group, found) in [
        (0, "0::/system.slice/x.service", (1, true)),
        (1000, "0::/system.slice/x.service", (0, true)),
        (0, "0::/kubepods/pod1/x", (0, false)),
    ] {
        host.write("proc/10/status", &format!("Uid:\t{uid}\t0\t0\t0\n"));
        host.write("proc/10/cgroup", group);
        let shims = shims(&host, |_| ());
        assert_eq!((shims.shims.len(), shims.complete), found, "{group}");
    }
}

#[test]
fn state_in_only_one_sample_is_not_reported() {
    let host = FakeHost::new();
    for pid in [10, 11, 12] {
        host.run(pid, &format!("containerd-shim -id s{pid}"));
    }
    set(&host, "10 containerd-shim t 1, 12 containerd-shim T 1");
    set(&host, "100 app Z 11, 101 app Z 11, 102 app S 11");
    // The first thread of process 103 has ended, but other threads run, so the process is not a zombie.
    let stat = "103 (app) Z 11 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 2 0 100000 0 512 0\n";
    host.write("proc/103/stat", stat);
    for (thread, state) in [(13, 'D'), (14, 'D'), (15, 'S')] {
        host.thread(11, thread, state, 5, "nfs_wait");
    }
    let own = format!("23 app D {}", std::process::id());
    set(&host, &format!("20 app D 1, 21 app D 1, 22 app S 1, {own}"));
    host.write("proc/20/wchan", "nfs_wait");
    let samples = host.samples(None, |host| {
        host.remove("proc/101");
        host.remove("proc/12");
        set(host, "11 containerd-shim T 1, 102 app Z 11, 22 app D 1");
        host.thread(11, 14, 'D', 6, "it has run in between");
        let ran = "voluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t0\n";
        host.write("proc/21/status", ran);
    });
    let shims = Shims::of(&samples);
    let [first, second, ended] = &shims.shims[..] else {
        panic!("{shims:?}");
    };
    assert!(shims.complete && first.lasting.stopped && !second.lasting.stopped);
    assert!(second.zombies == [100] && second.lasting.blocked == ["nfs_wait"]);
    let end = (ended.pid, &*ended.id, ended.lasting.stopped);
    assert_eq!(end, (12, "s12", false));
    let blocked = serde_json::to_string(&pressure::blocked(&samples)).unwrap();
    assert_eq!(blocked, r#"[{"pid":20,"name":"app","at":"nfs_wait"}]"#);
}

/// Each row: a process's group; frozen parent; file with the state; its text if frozen; if thawed; file that freezes.
const FREEZERS: &str = "
4:freezer:/kubepods/pod1/ID; freezer/kubepods/pod1; freezer.state; FROZEN; THAWED; freezer.self_freezing
0::/kubepods.slice/pod1.slice/cri-containerd-ID.scope; kubepods.slice/pod1.slice; cgroup.events; frozen 1; frozen 0; cgroup.freeze
0::/../pod1.slice/crio-ID.scope; kubepods.slice/pod1.slice; cgroup.events; frozen 1; frozen 0; cgroup.freeze";

#[test]
fn container_processes_are_found_with_both_cgroup_versions() {
    let id = "f".repeat(64);
    for row in FREEZERS.trim().lines() {
        let row = row.replace("ID", &id);
        let (group, above, file, frozen, thawed, flag) = row.split("; ").collect_tuple().unwrap();
        let host = FakeHost::new();
        host.run(10, "containerd-shim -id s1");
        set(&host, "100 app D 10, 101 sh S 10");
        host.write("proc/100/cgroup", group);
        let (_, below) = group.rsplit_once('/').unwrap();
        let state = format!("sys/fs/cgroup/{above}/{below}/{file}");
        host.write(&state, frozen);
        host.write(&format!("sys/fs/cgroup/{above}/{flag}"), "1");
        let all = shims(&host, |_| ()).processes;
        assert_eq!((all.len(), all[0].pid, &*all[0].id), (1, 100, &*id));
        let cause = Some(format!("/sys/fs/cgroup/{above}"));
        assert!(all[0].old && all[0].lasting.frozen == cause, "{all:?}");
        assert_eq!(all[0].shim.as_deref(), Some("s1"));
        host.write("proc/uptime", "1009.90 0.00\n"); // The process is 9.9 s old.
        let all = shims(&host, |host| host.write(&state, thawed)).processes;
        assert!(!all[0].old && all[0].lasting.frozen.is_none(), "{all:?}");
    }
}

#[test]
fn init_that_is_gone_in_both_samples_is_reported() {
    let host = FakeHost::new();
    let task = "run/containerd/io.containerd.runtime.v2.task/k8s.io";
    host.run(10, "containerd-shim -id s1");
    for init in "s1=110 c1=201 c2=202 c3=203 c4=x".split(' ') {
        let (id, pid) = init.split_once('=').unwrap();
        host.write(&format!("{task}/{id}/init.pid"), &format!("{pid}\n"));
    }
    host.link("proc/10/cwd", &host.root().join(task).join("s1"));
    set(&host, "110 pause S 10, 202 app S 10");
    let shims = shims(&host, |host| {
        set(host, "203 app S 10");
        host.remove("proc/202");
    });
    let [gone] = &shims.dead_inits[..] else {
        panic!("{shims:?}");
    };
    let shown = (&*gone.container, gone.pid, gone.zombie);
    assert_eq!(shown, ("c1", 201, false));
}

#[test]
fn program_such_as_runc_that_hangs_is_found() {
    let host = FakeHost::new();
    host.run(10, "containerd-shim -id s1");
    // Left out: 13, which a user has started; 14, not in `HELPERS`; 15, `runsc` waits for the end of its container.
    let all = "800 containerd S 1, 11 runc S 10, 12 crun T 800, 13 runc S 1, 14 sleep S 10, 15 runsc S 10";
    set(&host, all);
    for (uptime, expected) in [("5000.0", "11 s1 false, 12  true"), ("1004.0", "")] {
        host.write("proc/uptime", &format!("{uptime} 1.0\n"));
        let helpers = Shims::of(&host.samples(Some(800), |_| ())).helpers;
        let shim = |h: &Member| h.shim.clone().unwrap_or_default();
        let shown = |h: &Member| format!("{} {} {}", h.pid, shim(h), h.lasting.stopped);
        assert_eq!(helpers.iter().map(shown).join(", "), expected, "{uptime}");
    }
}

#[test]
fn threads_of_shims_are_read_if_the_load_is_high() {
    let host = FakeHost::new();
    host.run(10, "containerd-shim -id s1");
    for (load, thorough, expected) in [("0.29", false, 0), ("0.30", false, 1), ("0.00", true, 1)] {
        let take = |load: &str, state, before: &Sample| {
            host.write("proc/loadavg", load);
            host.thread(10, 12, state, 0, "nfs_wait");
            set(&host, &format!("20 bash {state} 1"));
            Sample::take(&host.target(), None, thorough, before).unwrap()
        };
        let before = take("0.50", 'S', &Sample::default());
        let after = take(load, 'D', &before);
        assert_eq!(after.processes[&20].process.state, 'D');
        assert_eq!(after.processes[&10].blocked.len(), expected, "load {load}");
        assert_eq!(after.suspects(&before), expected > 0);
        // A shim with a blocked thread in the previous sample is read again, but `suspects` ignores that thread.
        let again = take("0.00", 'D', &after);
        assert_eq!(again.processes[&10].blocked.len(), expected);
        assert!(!again.suspects(&after));
    }
}

#[test]
fn figures_of_the_daemon_follow_from_two_samples() {
    let host = FakeHost::new();
    host.process(800, "containerd", 'S', 1);
    host.thread(800, 801, 'D', 3, "rpc_wait");
    host.write("proc/800/fd/0", "");
    let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files   1024  4096  files\n";
    host.write("proc/800/limits", limits);
    let stat = "800 (containerd) S 1 0 0 0 0 0 0 0 0 0 900 0 0 0 20 0 4 0 100000 0 512 0\n";
    let samples = host.samples(Some(800), |host| host.write("proc/800/stat", stat));
    let found = daemon::assess(&samples, Some(800), 800).unwrap();
    let shown = serde_json::to_string(&found).unwrap();
    let expected = r#""blocked":["rpc_wait"],"descriptors":{"open":1,"limit":1024},"threads":4,"#;
    let age = r#""ageSeconds":4004.0"#;
    assert!(shown.contains(expected) && shown.contains(age), "{shown}");
    assert!(found.name == "containerd" && (found.cpus - 0.5).abs() < 0.01);
    assert!(!found.lasting.stopped && !found.replaced);
    assert!(daemon::assess(&samples, Some(799), 800).unwrap().replaced);
    assert_eq!(daemon::assess(&samples, None, 9), None);
}

/// The files below `/sys/fs/cgroup` of versions 1 and 2. `cpu.stat` and the last file change before the second sample.
const LIMITS: [&str; 2] = [
    "cpu/a/b/cpu.cfs_quota_us: -1
    cpu/a/cpu.cfs_quota_us: 1000
    cpu/a/cpu.cfs_period_us: 100000
    memory/a/memory.limit_in_bytes: 4000
    memory/a/memory.usage_in_bytes: 3900
    memory/a/memory.stat: cache 9 total_inactive_file 900
    memory/a/b/memory.limit_in_bytes: 9223372036854771712
    memory/a/b/memory.usage_in_bytes: 9
    pids/a/pids.max: max
    pids/a/b/pids.max: 50
    pids/a/b/pids.current: 49
    cpu/a/cpu.stat: nr_periods 10 nr_throttled 2 throttled_time 9
    memory/a/memory.oom_control: oom_kill_disable 0 under_oom 0 oom_kill 3",
    "a/b/cpu.max: max 100000
    a/cpu.max: 1000 100000
    a/memory.max: 4000
    a/memory.current: 3900
    a/memory.stat: anon 9 inactive_file 900
    a/b/pids.max: 50
    a/b/pids.current: 49
    a/cpu.stat: usage_usec 5 nr_periods 10 nr_throttled 2
    a/memory.events: low 0 oom 33 oom_kill 33
    a/memory.events.local: low 0 oom 1 oom_kill 3",
];

#[test]
fn limits_are_read_with_both_cgroup_versions() {
    let v1 = "4:cpu,cpuacct:/a/b\n3:memory:/a/b\n2:pids:/a/b\n0::/";
    for (groups, files) in [v1, "0::/../../a/b"].into_iter().zip(LIMITS) {
        let host = FakeHost::new();
        host.process(800, "containerd", 'S', 1);
        host.write("proc/800/cgroup", groups);
        let write = |(file, text): (&str, &str)| host.write(&format!("sys/fs/cgroup/{file}"), text);
        let file = |line: &'static str| line.trim().split_once(": ").unwrap();
        let files = files.lines().map(file);
        files.clone().for_each(write);
        let samples = host.samples(Some(800), |_| {
            write((files.clone().next_back().unwrap().0, "oom 9 oom_kill 4"));
            let cpu = files.clone().find(|(file, _)| file.ends_with("cpu.stat"));
            write((cpu.unwrap().0, "nr_periods 20 nr_throttled 11"));
        });
        let limits = cgroup::assess(&samples.begin.limits, &samples.end.limits);
        let shown = serde_json::to_string(&limits).unwrap().replace('"', "");
        for (controller, figures) in [
            ("cpu", "limit:1000,used:100000,events:9,periods:10"),
            ("memory", "limit:4000,used:3000,events:1"),
            ("pids", "limit:50,used:49,events:0"),
        ] {
            let start = format!("{{controller:{controller},group:/sys/fs/cgroup/");
            let limit = shown.split_once(&start).unwrap().1.split_once('}');
            assert!(limit.unwrap().0.contains(figures), "{groups}: {shown}");
        }
        let new = serde_json::to_string(&cgroup::assess(&[], &samples.end.limits)).unwrap();
        assert_eq!(new.matches(r#""events":0"#).count(), 3);
    }
}
