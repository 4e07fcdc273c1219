//! `pleg pods`: shows every sandbox and container.

use itertools::Itertools as _;
use pleg_tests::kubelet::Life;
use pleg_tests::lives;
use serde_json::{Value, json};

use super::run::{Sim, arg, assert_has, assert_time, parse};

/// The name of a pod, with escape sequences for the terminal and characters that change the direction of text.
const OLD: &str = "o\u{1b}\u{202e}\u{9b}";

/// A pod with a running, an exited and a created container, and a stopped pod.
#[tokio::test]
async fn selected_pods_are_shown_with_every_sandbox_and_container() {
    let sim = Sim::start().await;
    let kubelet = &sim.kubelet;
    let (web, _) = sim.run_pod("web").await;
    let (code, after_ms) = (3, 0);
    let life = Life::Exit { code, after_ms };
    let job = kubelet.run(&web, "job", 0, life).await.expect("started");
    lives::ended(kubelet, &job).await.expect("exited");
    let later = kubelet.create(&web, "later", 2, Life::UntilStopped).await;
    later.expect("created");
    let old = kubelet.run_pod(OLD).await.expect("run");
    kubelet.stop_pod(&old).await.expect("stopped");

    let end = sim.run("pods -o json").end().await;
    assert_eq!(end.outcome(), (Some(0), ""));
    let is_raw = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!end.out.contains(is_raw), "{}", end.out);
    let pods: Value = end.out.lines().map(parse).collect();
    for (at, value) in [
        ("/0/pod/name", json!(OLD)),
        ("/0/sandboxes/0/state", json!("NotReady")),
        ("/0/containers", json!([])),
        ("/1/pod/name", json!("web")),
        ("/1/pod/uid", json!("uid-web")),
        ("/1/sandboxes/0/state", json!("Ready")),
    ] {
        assert_eq!(pods.pointer(at), Some(&value), "{at}: {pods}");
    }
    assert_time(&pods[1]["asOf"]);
    let containers = pods[1]["containers"].as_array().expect("an array");
    let fields = ["name", "state", "attempt", "exitCode", "reason"];
    let shown = |container: &Value| json!(fields.map(|field| container[field].clone())).to_string();
    let mut shown: Vec<_> = containers.iter().map(shown).collect();
    shown.sort();
    let expected = [
        r#"["app","Running",0,null,null]"#,
        r#"["job","Exited",0,3,"Error"]"#,
        r#"["later","Created",2,null,null]"#,
    ];
    assert_eq!(shown, expected);

    let end = sim.run("pods").end().await;
    assert_eq!(end.outcome(), (Some(0), ""));
    let out = &end.out;
    assert!(!out.contains(is_raw), "no colours in a pipe: {out}");
    let words = |line: &str| line.split_whitespace().join(" ");
    let lines: Vec<String> = end.out.lines().map(words).collect();
    assert_eq!(lines[0], "POD KIND NAME STATE EXIT AGE TRY ID AS OF UID");
    assert_eq!(lines.len(), 6, "two sandboxes, three containers: {lines:?}");
    for row in "\
        test/o\\u{1b}\\u{202e}\\u{9b} sandbox NotReady … ago uid-o\\u{1b}\\u{202e}\\u{9b}
        test/web sandbox Ready … ago uid-web
        container app Running … ago
        container job Exited 3 Error … ago
        container later Created … ago"
        .lines()
    {
        let (start, end) = row.trim_start().split_once('…').expect("an end");
        let is_it = |line: &String| line.starts_with(start) && line.ends_with(end);
        assert!(lines.iter().any(is_it), "{row} is not in {lines:?}");
    }

    for (args, names) in [
        ("-n test", &*format!("{OLD} web")),
        ("-n other -n test -l io.kubernetes.pod.uid=uid-web", "web"),
        ("-l !io.kubernetes.pod.uid", ""),
    ] {
        let end = sim.run(&format!("pods -o json {args}")).end().await;
        let pods = end.out.lines().map(parse);
        let shown: Vec<Value> = pods.map(|pod| pod["pod"]["name"].clone()).collect();
        let names: Vec<&str> = names.split_whitespace().collect();
        assert_eq!(shown, names, "{}", end.err);
    }
    let end = sim.run("pods -n other").end().await;
    let expected = format!("reading unix://{} (set by -r", arg(&sim.socket));
    assert_has(&end.err, &expected);
    assert_eq!(end.outcome(), (Some(0), "no pods\n"));
}
