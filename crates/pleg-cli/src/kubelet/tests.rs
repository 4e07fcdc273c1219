use super::*;
use crate::picture::host::tests::fake::FakeHost;

/// A node that runs this command line.
fn node(line: &str) -> FakeHost {
    let host = FakeHost::new();
    host.run(800, line);
    host
}

/// Why there may be a subscriber; empty if there is none.
fn why(host: &FakeHost) -> String {
    find_subscriber(host.root(), None).unwrap_or_default()
}

fn found(host: &FakeHost) -> Option<Kubelet> {
    let kubelets = Kubelet::all(&Proc::below(host.root())).unwrap();
    kubelets.into_iter().next()
}

#[test]
fn feature_gate_on_command_line_is_found() {
    for (line, found) in [
        ("/usr/bin/kubelet", false),
        ("kubelet --feature-gates=EventedPLEG=true", true),
        ("kubelet --feature-gates A=false,EventedPLEG=1", true),
        ("kubelet --feature-gates=EventedPLEG=false", false),
        ("kubelet --feature-gates=AllAlpha=true", true),
        (
            "kubelet --feature-gates=AllAlpha=true,EventedPLEG=false",
            false,
        ),
        ("hyperkube kubelet --feature-gates=EventedPLEG", true),
        ("grep kubelet --feature-gates=EventedPLEG=true", false),
    ] {
        let why = why(&node(line));
        assert_eq!(!why.is_empty(), found, "{line}: {why}");
    }
    let text = "the kubelet (pid 800) subscribes to them (--feature-gates=EventedPLEG=true)";
    assert_eq!(why(&node("kubelet --feature-gates=EventedPLEG=true")), text);
}

#[test]
fn feature_gate_in_configuration_file_is_found() {
    let enabled = "kind: KubeletConfiguration\nfeatureGates:\n  EventedPLEG: true\n";
    let disabled = "{\"featureGates\": {\"EventedPLEG\": false, \"AllBeta\": true}}";
    let host = node("kubelet --config=/etc/kubelet.yaml");
    assert!(why(&host).ends_with("may subscribe to them: /etc/kubelet.yaml cannot be read"));
    for (text, end) in [
        (enabled, "(EventedPLEG in /etc/kubelet.yaml)"),
        (disabled, ""),
        ("kind: KubeletConfiguration\n", ""),
        ("featureGates: [\n", "cannot be parsed"),
    ] {
        host.write("etc/kubelet.yaml", text);
        let why = why(&host);
        assert!(
            why.ends_with(end) && why.is_empty() == end.is_empty(),
            "{text}: {why}"
        );
    }
    let host = node("kubelet --config /etc/kubelet.yaml --config-dir=/etc/kubelet.d");
    host.write("etc/kubelet.yaml", disabled);
    assert!(why(&host).contains("/etc/kubelet.d/*.conf cannot be read"));
    host.write("etc/kubelet.d/10-gates.conf", enabled);
    host.write("etc/kubelet.d/20-other.conf", "address: 0.0.0.0\n");
    assert!(why(&host).contains("/etc/kubelet.d/10-gates.conf"));
    for (line, end) in [
        ("kubelet", "config.yaml)"),
        ("kubelet --feature-gates=EventedPLEG=false", ""),
    ] {
        let host = node(line);
        host.write(DEFAULT_CONFIG.trim_start_matches('/'), enabled);
        let why = why(&host);
        assert!(
            why.ends_with(end) && why.is_empty() == end.is_empty(),
            "{line}: {why}"
        );
    }
}

#[test]
fn kubelet_of_another_runtime_does_not_count() {
    let counts = |flags: &str, config: &str| {
        let host = node(&format!("kubelet --feature-gates=EventedPLEG=true{flags}"));
        host.write("run/theirs.sock", "");
        host.write("run/ours.sock", "");
        let ours = host.root().join("run/ours.sock");
        host.link("run/link.sock", &ours);
        host.write("var/lib/kubelet/config.yaml", config);
        find_subscriber(host.root(), Some(&ours)).is_some()
    };
    for (endpoint, expected) in [
        ("unix:///run/ours.sock", true),
        ("/run/ours.sock", true),
        ("unix:///run/link.sock", true),
        ("unix:///run/gone.sock", true),
        ("unix:///run/theirs.sock", false),
        ("/run/theirs.sock", false),
    ] {
        let flag = format!(" --container-runtime-endpoint {endpoint}");
        assert_eq!(counts(&flag, ""), expected, "{endpoint}");
        let config = format!("containerRuntimeEndpoint: {endpoint}\n");
        assert_eq!(counts("", &config), expected, "{endpoint} in the file");
    }
    let (ours, theirs) = (
        " --container-runtime-endpoint=/run/ours.sock",
        "/run/theirs.sock",
    );
    assert!(counts(
        ours,
        &format!("containerRuntimeEndpoint: {theirs}\n")
    ));
    assert!(counts("", "a: [\n"), "it cannot be parsed");
    assert!(counts("", ""), "none is set");
}

#[test]
fn process_and_its_health_port_are_found() {
    for (line, config, expected) in [
        ("kubelet", "", "10248"),
        ("kubelet", "healthzPort: 7\n", "7"),
        ("kubelet --healthz-port=0", "healthzPort: 7\n", "0"),
        ("k3s server", "", "10248"),
        (
            "kubelet --container-runtime-endpoint=/run/theirs.sock",
            "",
            "/run/theirs.sock",
        ),
        (
            "kubelet --container-runtime-endpoint=/run/gone.sock",
            "",
            "/run/gone.sock",
        ),
        ("bash", "", ""),
    ] {
        let host = node(line);
        host.write("run/ours.sock", "");
        host.write("run/theirs.sock", "");
        host.write("var/lib/kubelet/config.yaml", config);
        let ours = host.root().join("run/ours.sock");
        let shown = found(&host).map(|kubelet| {
            let port = || kubelet.healthz_port().to_string();
            kubelet.other_runtime(&ours).unwrap_or_else(port)
        });
        assert_eq!(shown.unwrap_or_default(), expected, "{line}");
    }
}

#[test]
fn program_of_a_user_or_a_pod_is_no_kubelet() {
    let host = node("kubelet --config=/dev/zero");
    assert!(why(&host).contains("/dev/zero cannot be read") && found(&host).is_some());
    for (file, text) in [
        ("proc/800/status", "Uid:\t1000\t0\t0\t0\n"),
        ("proc/800/cgroup", "0::/kubepods.slice/x.scope\n"),
    ] {
        let host = node("kubelet --config=/dev/zero");
        host.write(file, text);
        assert_eq!((&*why(&host), found(&host)), ("", None), "{file}");
    }
}

#[test]
fn unknown_counts_as_subscriber() {
    assert_eq!(why(&FakeHost::new()), "", "no kubelet runs");
    let hide = |host: FakeHost| {
        host.link("proc/self/ns/pid", Path::new("pid:[4026532177]"));
        why(&host)
    };
    assert!(hide(FakeHost::new()).contains("not visible"));
    assert_eq!(hide(node("kubelet")), "", "its command line is visible");
    let k3s = node("k3s");
    // It has set a title.
    k3s.write("proc/800/cmdline", "/usr/local/bin/k3s server\0");
    assert!(why(&k3s).contains("k3s (pid 800) contains a kubelet"));
    k3s.remove("proc");
    assert!(why(&k3s).contains("cannot be read"));
}

#[test]
fn endpoint_of_the_kubelet_precedes_found_sockets() {
    let host = node("kubelet --container-runtime-endpoint=unix:///run/theirs.sock");
    host.write("run/crio/x", "");
    let socket = host.root().join("run/crio/crio.sock");
    let _listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    let found = crate::find::search(host.root()).unwrap().unwrap();
    let expected =
        "unix:///run/theirs.sock (the kubelet's, pid 800; not examined: /run/crio/crio.sock)";
    assert_eq!(found.to_string(), expected);
}
