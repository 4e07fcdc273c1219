use super::*;
use crate::picture::host::tests::fake::FakeHost;

fn node(line: &str) -> FakeHost {
    let host = FakeHost::new();
    host.run(800, line);
    host
}

fn why(host: &FakeHost) -> String {
    find_subscriber(host.root(), None).unwrap_or_default()
}

fn found(host: &FakeHost) -> Option<Kubelet> {
    let kubelets = Kubelet::all(&Proc::below(host.root())).unwrap();
    kubelets.into_iter().next()
}

/// Each row: a command line, the text of the configuration file => the last words that [`why`] returns.
const GATES: &str = r#"
/usr/bin/kubelet ; =>
kubelet --feature-gates=EventedPLEG=true ; => the kubelet (pid 800) subscribes to them (--feature-gates=EventedPLEG=true)
kubelet --feature-gates A=false,EventedPLEG=1 ; => EventedPLEG=true)
kubelet --feature-gates=EventedPLEG=false ; {"featureGates": {"EventedPLEG": true}} =>
kubelet --feature-gates=AllAlpha=true ; => (AllAlpha or AllBeta)
kubelet --feature-gates=AllAlpha=true,EventedPLEG=false ; =>
hyperkube kubelet --feature-gates=EventedPLEG ; => EventedPLEG=true)
grep kubelet --feature-gates=EventedPLEG=true ; =>
kubelet ; {"featureGates": {"EventedPLEG": true}} => (EventedPLEG in /var/lib/kubelet/config.yaml)
kubelet --config=/etc/k.yaml ; {"featureGates": {"EventedPLEG": true}} => (EventedPLEG in /etc/k.yaml)
kubelet --config /etc/k.yaml ; {"featureGates": {"EventedPLEG": false, "AllBeta": true}} =>
kubelet --config=/etc/k.yaml ; kind: KubeletConfiguration =>
kubelet --config=/etc/k.yaml ; featureGates: [ => may subscribe to them: /etc/k.yaml cannot be parsed
kubelet --config=/gone.yaml ; => may subscribe to them: /gone.yaml cannot be read
kubelet --config-dir=/etc/k.d ; {"featureGates": {"EventedPLEG": false}} => (EventedPLEG in /etc/k.d/10-gates.conf)
kubelet --config-dir=/gone.d ; => /gone.d/*.conf cannot be read
"#;

#[test]
fn feature_gate_of_command_line_or_file_is_found() {
    for row in GATES.trim().lines() {
        let (line, rest) = row.split_once(" ;").unwrap();
        let (config, end) = rest.split_once("=>").unwrap();
        let host = node(line);
        host.write("var/lib/kubelet/config.yaml", config);
        host.write("etc/k.yaml", config);
        let gates = "featureGates:\n  EventedPLEG: true\n";
        host.write("etc/k.d/10-gates.conf", gates);
        host.write("etc/k.d/20-other.conf", "address: 0.0.0.0\n");
        let (why, end) = (why(&host), end.trim());
        let is_it = why.ends_with(end) && why.is_empty() == end.is_empty();
        assert!(is_it, "{row}: {why}");
    }
}

/// Flags; text of the configuration file => true if the kubelet counts as a subscriber to our socket, and the kubelet's
/// endpoint if that is another socket, else its `/healthz` port. `HERE`: our root, and `/proc/800/root` is unreadable.
const ENDPOINTS: &str = "
; => true 10248
; healthzPort: 7 => true 7
--healthz-port=0 ; healthzPort: 7 => true 0
; a: [ => true 10248
--container-runtime-endpoint=unix:///run/ours.sock ; => true 10248
--container-runtime-endpoint /run/ours.sock ; containerRuntimeEndpoint: /run/theirs.sock => true 10248
--container-runtime-endpoint unix:///run/link.sock ; => true 10248
--container-runtime-endpoint=unix:///run/gone.sock ; => false unix:///run/gone.sock
--container-runtime-endpoint=unix://HERE/run/ours.sock ; => true 10248
--container-runtime-endpoint=unix://HERE/run/gone.sock ; => true 10248
--container-runtime-endpoint=unix:///run/theirs.sock ; => false unix:///run/theirs.sock
; containerRuntimeEndpoint: unix:///run/ours.sock => true 10248
; containerRuntimeEndpoint: /run/theirs.sock => false /run/theirs.sock";

#[test]
fn kubelet_of_another_runtime_does_not_count_as_subscriber() {
    for row in ENDPOINTS.trim().lines() {
        let (flags, rest) = row.split_once(';').unwrap();
        let (config, expected) = rest.split_once(" => ").unwrap();
        let host = node("kubelet");
        let flags = flags.replace("HERE", &host.root().display().to_string());
        let line = format!("kubelet --feature-gates=EventedPLEG=true {flags}");
        host.run(800, &line);
        if row.contains("HERE") {
            // A link that points to itself causes an error other than ENOENT.
            host.link("proc/800/root", Path::new("root"));
        }
        host.write("run/theirs.sock", "");
        host.write("run/ours.sock", "");
        let ours = host.root().join("run/ours.sock");
        host.link("run/link.sock", &ours);
        host.write("var/lib/kubelet/config.yaml", config.trim());
        let counts = find_subscriber(host.root(), Some(&ours)).is_some();
        let kubelet = found(&host).unwrap();
        let port = || kubelet.healthz_port().to_string();
        let other = kubelet.other_runtime(&Proc::below(host.root()), &ours);
        let other = other.unwrap_or_else(port);
        assert_eq!(format!("{counts} {other}"), expected, "{row}");
    }
}

#[test]
fn kubelet_that_a_user_or_a_pod_runs_is_ignored() {
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
fn kubelet_whose_configuration_is_unknown_counts_as_subscriber() {
    assert_eq!(why(&FakeHost::new()), "", "no kubelet is running");
    let hide = |host: FakeHost| {
        host.link("proc/self/ns/pid", Path::new("pid:[4026532177]"));
        why(&host)
    };
    assert!(hide(FakeHost::new()).contains("not visible"));
    assert_eq!(hide(node("kubelet")), "", "its command line is visible");
    let k3s = node("k3s");
    // k3s has set its own process title.
    k3s.write("proc/800/cmdline", "/usr/local/bin/k3s server\0");
    assert!(why(&k3s).contains("k3s (pid 800) contains a kubelet"));
    k3s.remove("proc");
    assert!(why(&k3s).contains("cannot be read"));
}
