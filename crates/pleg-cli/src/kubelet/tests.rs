use super::*;
use crate::proc::HOST_PIDS;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

/// A node with an init process and the given processes, whose PIDs count from 800.
fn node(namespace: &str, processes: &[&[&str]]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let add = |pid: &str, args: &[&str]| {
        let dir = root.path().join("proc").join(pid);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cmdline"), args.join("\0") + "\0").unwrap();
        let program = args[0]
            .split(' ')
            .next()
            .unwrap()
            .rsplit('/')
            .next()
            .unwrap();
        let stat =
            format!("{pid} ({program}) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 100000 0 512 0\n");
        fs::write(dir.join("stat"), stat).unwrap();
        fs::write(dir.join("status"), "Uid:\t0\t0\t0\t0\n").unwrap();
        fs::write(dir.join("cgroup"), "0::/system.slice/kubelet.service\n").unwrap();
        symlink(root.path(), dir.join("root")).unwrap();
    };
    add("1", &["/sbin/init"]);
    for (n, args) in processes.iter().enumerate() {
        add(&(800 + n).to_string(), args);
    }
    let own = root.path().join("proc/self/ns");
    fs::create_dir_all(&own).unwrap();
    symlink(namespace, own.join("pid")).unwrap();
    root
}

fn write(root: &TempDir, path: &str, text: &str) {
    let path = root.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Why there may be a subscriber; `None` if there is none.
fn why(root: &TempDir) -> Option<String> {
    find_subscriber(root.path(), None)
}

fn process(root: &TempDir) -> Option<Kubelet> {
    let kubelets = Kubelet::all(&Proc::below(root.path())).unwrap();
    kubelets.into_iter().next()
}

#[test]
fn feature_gate_on_command_line_is_found() {
    for (args, found) in [
        (&["/usr/bin/kubelet"][..], false),
        (&["kubelet", "--feature-gates=EventedPLEG=true"], true),
        (
            &["kubelet", "--feature-gates", "A=false,EventedPLEG=1"],
            true,
        ),
        (&["kubelet", "--feature-gates=EventedPLEG=false"], false),
        (&["kubelet", "--feature-gates=AllAlpha=true"], true),
        (
            &["kubelet", "--feature-gates=AllAlpha=true,EventedPLEG=false"],
            false,
        ),
        (
            &["hyperkube", "kubelet", "--feature-gates=EventedPLEG"],
            true,
        ),
        (
            &["grep", "kubelet", "--feature-gates=EventedPLEG=true"],
            false,
        ),
    ] {
        let root = node(HOST_PIDS, &[&["containerd"], args]);
        assert_eq!(why(&root).is_some(), found, "{args:?}: {:?}", why(&root));
    }
    let root = node(
        HOST_PIDS,
        &[&["kubelet", "--feature-gates=EventedPLEG=true"]],
    );
    let text = "the kubelet (pid 800) subscribes to them (--feature-gates=EventedPLEG=true)";
    assert_eq!(why(&root).as_deref(), Some(text));
}

#[test]
fn feature_gate_in_configuration_file_is_found() {
    let enabled = "kind: KubeletConfiguration\nfeatureGates:\n  EventedPLEG: true\n";
    let disabled = "{\"featureGates\": {\"EventedPLEG\": false, \"AllBeta\": true}}";
    let root = node(HOST_PIDS, &[&["kubelet", "--config=/etc/kubelet.yaml"]]);
    let text = "may subscribe to them: /etc/kubelet.yaml cannot be read";
    assert!(why(&root).is_some_and(|why| why.ends_with(text)));
    write(&root, "etc/kubelet.yaml", enabled);
    assert!(why(&root).is_some_and(|why| why.ends_with("(EventedPLEG in /etc/kubelet.yaml)")));
    write(&root, "etc/kubelet.yaml", disabled);
    assert_eq!(why(&root), None);
    write(&root, "etc/kubelet.yaml", "kind: KubeletConfiguration\n");
    assert_eq!(why(&root), None);
    write(&root, "etc/kubelet.yaml", "featureGates: [\n");
    assert!(why(&root).is_some_and(|why| why.ends_with("cannot be parsed")));

    let args = [
        "kubelet",
        "--config",
        "/etc/kubelet.yaml",
        "--config-dir=/etc/kubelet.d",
    ];
    let root = node(HOST_PIDS, &[&args]);
    write(&root, "etc/kubelet.yaml", disabled);
    assert!(why(&root).is_some_and(|why| why.contains("/etc/kubelet.d cannot be read")));
    write(&root, "etc/kubelet.d/10-gates.conf", enabled);
    write(&root, "etc/kubelet.d/20-other.conf", "address: 0.0.0.0\n");
    assert!(why(&root).is_some_and(|why| why.contains("/etc/kubelet.d/10-gates.conf")));

    let root = node(HOST_PIDS, &[&["kubelet"]]);
    write(&root, "var/lib/kubelet/config.yaml", enabled);
    assert!(why(&root).is_some_and(|why| why.contains(DEFAULT_CONFIG)));
    let off = "--feature-gates=EventedPLEG=false";
    let root = node(HOST_PIDS, &[&["kubelet", off]]);
    write(&root, "var/lib/kubelet/config.yaml", enabled);
    assert_eq!(why(&root), None, "the flag overrides the file");
}

#[test]
fn kubelet_of_another_runtime_does_not_count() {
    let gate = "--feature-gates=EventedPLEG=true";
    let found = |args: &[&str], config: &str| {
        let root = node(HOST_PIDS, &[&[&["kubelet", gate], args].concat()]);
        for socket in ["run/ours.sock", "run/theirs.sock"] {
            write(&root, socket, "");
        }
        symlink(
            root.path().join("run/ours.sock"),
            root.path().join("run/link.sock"),
        )
        .unwrap();
        write(&root, "var/lib/kubelet/config.yaml", config);
        let ours = root.path().join("run/ours.sock");
        find_subscriber(root.path(), Some(&ours)).is_some()
    };
    for (endpoint, counts) in [
        ("unix:///run/ours.sock", true),
        ("/run/ours.sock", true),
        ("unix:///run/link.sock", true),
        ("unix:///run/gone.sock", true),
        ("unix:///run/theirs.sock", false),
        ("/run/theirs.sock", false),
    ] {
        let flag = ["--container-runtime-endpoint", endpoint];
        assert_eq!(found(&flag, ""), counts, "{endpoint}");
        let config = format!("containerRuntimeEndpoint: {endpoint}\n");
        assert_eq!(found(&[], &config), counts, "{endpoint} in the file");
    }
    let theirs = "containerRuntimeEndpoint: /run/theirs.sock\n";
    assert!(found(
        &["--container-runtime-endpoint=/run/ours.sock"],
        theirs
    ));
    assert!(found(&[], "a: [\n"), "it cannot be parsed");
    assert!(found(&[], ""), "none is set");
}

#[test]
fn process_and_its_health_port_are_found() {
    let find = |args: &[&str], config: &str| {
        let root = node(HOST_PIDS, &[&["containerd"], args]);
        write(&root, "run/ours.sock", "");
        write(&root, "run/theirs.sock", "");
        write(&root, "var/lib/kubelet/config.yaml", config);
        let ours = root.path().join("run/ours.sock");
        process(&root).map(|kubelet| match kubelet.other_runtime(&ours) {
            Some(endpoint) => endpoint,
            None => format!("{} {}", kubelet.pid, kubelet.healthz_port()),
        })
    };
    let configured = "healthzPort: 7\n";
    assert_eq!(find(&["kubelet"], "").as_deref(), Some("801 10248"));
    assert_eq!(find(&["kubelet"], configured).as_deref(), Some("801 7"));
    let flag = ["kubelet", "--healthz-port=0"];
    assert_eq!(find(&flag, configured).as_deref(), Some("801 0"));
    assert_eq!(find(&["k3s server"], "").as_deref(), Some("801 10248"));
    let other = ["kubelet", "--container-runtime-endpoint=/run/theirs.sock"];
    assert_eq!(find(&other, "").as_deref(), Some("/run/theirs.sock"));
    let gone = ["kubelet", "--container-runtime-endpoint=/run/gone.sock"];
    assert_eq!(find(&gone, "").as_deref(), Some("/run/gone.sock"));
    assert_eq!(find(&["bash"], ""), None);
}

#[test]
fn program_of_a_user_or_a_pod_is_no_kubelet() {
    let root = node(HOST_PIDS, &[&["kubelet", "--config=/dev/zero"]]);
    assert!(why(&root).is_some_and(|why| why.contains("/dev/zero cannot be read")));
    write(&root, "proc/800/status", "Uid:\t1000\t0\t0\t0\n");
    assert_eq!(why(&root), None, "a user started it");
    assert_eq!(process(&root), None);
    write(&root, "proc/800/status", "Uid:\t0\t0\t0\t0\n");
    assert!(process(&root).is_some());
    write(&root, "proc/800/cgroup", "0::/kubepods.slice/x.scope\n");
    assert_eq!(why(&root), None, "it is in a pod");
    assert_eq!(process(&root), None);
}

#[test]
fn unknown_counts_as_subscriber() {
    assert_eq!(why(&node(HOST_PIDS, &[])), None, "no kubelet runs");
    let other = node("pid:[4026532177]", &[]);
    assert!(why(&other).is_some_and(|why| why.contains("not visible")));
    let other = node("pid:[4026532177]", &[&["kubelet"]]);
    assert_eq!(why(&other), None, "its command line is visible");
    let k3s = node(HOST_PIDS, &[&["/usr/local/bin/k3s server"]]);
    assert!(why(&k3s).is_some_and(|why| why.contains("k3s (pid 800) contains a kubelet")));
    let empty = tempfile::tempdir().unwrap();
    assert!(why(&empty).is_some_and(|why| why.contains("cannot be read")));
}

#[test]
fn endpoint_of_the_kubelet_precedes_found_sockets() {
    let flag = "--container-runtime-endpoint=unix:///run/theirs.sock";
    let root = node(HOST_PIDS, &[&["bash"], &["kubelet", flag]]);
    fs::create_dir_all(root.path().join("run/crio")).unwrap();
    let socket = root.path().join("run/crio/crio.sock");
    let _listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    let found = crate::find::search(root.path()).unwrap().unwrap();
    let expected =
        "unix:///run/theirs.sock (the kubelet's, pid 801; not examined: /run/crio/crio.sock)";
    assert_eq!(found.to_string(), expected);
}
