use pleg_tests::fuse::HangingMount;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::*;
use crate::picture::host::tests::fake::FakeHost;

const OLD: &str = "1764000000.100000 n kubelet[800]: I skipping pod synchronization - [PLEG is not healthy: pleg was last seen active 3m0.6s ago; threshold is 3m0s]\n";
const NEW: &str = "1764000010.000000 n kubelet[800]: E1124 12:00:10.0 800 kubelet.go:2460] \"Skipping pod synchronization\" err=\"PLEG is not healthy: pleg was last seen active 3m10.6s ago; threshold is 3m0s\"\n";

fn read(text: &str, now: f64, started: Option<f64>) -> Journal {
    let mut journal = Journal::default();
    journal.add(text, now, started);
    journal
}

#[test]
fn unhealthy_lines_of_all_versions_count_except_at_kubelet_start() {
    let other = "1764000011.0 n kubelet[800]: pod shop/cart is secret\n";
    let text = [OLD, NEW, other].concat();
    let journal = read(&text, 1_764_000_020.0, None);
    let expected = r#"{"lines":3,"unhealthy":2,"skipped":2,"agoSeconds":10.0,"inactive":"3m10.6s","threshold":"3m0s"}"#;
    assert_eq!(serde_json::to_string(&journal).unwrap(), expected);
    let restarted = read(&text, 1_764_000_020.0, Some(1_764_000_005.0));
    assert_eq!(restarted.unhealthy, 1, "another process logged line 1");
    let old = read(&text, 1_764_000_905.0, None);
    assert_eq!(old.unhealthy, 1, "a file also has older lines");
    let text =
        "x PLEG is not healthy: active secret ago; threshold is \u{1b}[31m\nPLEG is not healthy";
    let malformed = serde_json::to_string(&read(text, 0.0, None)).unwrap();
    let nulls = r#""unhealthy":2,"skipped":0,"agoSeconds":null,"inactive":null,"threshold":null}"#;
    assert!(malformed.ends_with(nulls), "{malformed}");
    // A kubelet in its first minute causes no alarm.
    let text = "err=\"PLEG is not healthy: pleg has yet to be successful\"";
    for (at, counted) in [(1000.5, 0), (1059.0, 0), (1061.0, 1)] {
        let boot = 1_764_000_000.0;
        let line = format!("{} n kubelet: {text}\n", boot + at);
        let journal = read(&line, boot + 1100.0, Some(boot + 1000.0));
        assert_eq!(journal.unhealthy, counted, "{at}");
    }
}

#[test]
fn time_of_a_log_line_is_read_in_each_format() {
    let time_of = Timestamp::from_second(1_764_000_010).unwrap();
    let local = time_of.to_zoned(TimeZone::system());
    let klog = local.strftime("E%m%d %H:%M:%S.123456 800 kubelet.go:1] x");
    let klog = klog.to_string();
    for (line, at) in [
        ("1764000010.5 n kubelet[8]: x", Some(1_764_000_010.5)),
        ("{\"ts\":1764000010500.25}", Some(1_764_000_010.500_25)),
        (&*klog, Some(1_764_000_010.0)),
        ("1764009999.0 n kubelet[8]: of the future", None),
        ("E1399 12:00:10.000000 x", None),
        ("x", None),
        ("42 lines follow", None),
    ] {
        assert_eq!(time(line, 1_764_000_020.0), at, "{line}");
    }
}

fn metrics_with(sum: f64, count: u64) -> String {
    let name = "kubelet_pleg_relist_duration_seconds";
    let figures = format!("{name}_bucket{{le=\"1\"}} 3\n{name}_sum {sum}\n{name}_count {count}\n");
    format!("# TYPE {name} histogram\n{figures}kubelet_pleg_last_seen_seconds 1.7e+09\n")
}

#[test]
fn relists_are_counted_between_both_reads_of_the_metrics() {
    let (before, after) = (metrics_with(10.0, 100), metrics_with(16.0, 104));
    let during = relists(Some(&before), &after);
    assert_eq!((during.count, during.mean_seconds), (4, Some(1.5)));
    assert!(during.last_seen_seconds.is_some_and(|seen| seen > 1e6));
    let all = relists(Some(&before), &before);
    assert_eq!((all.count, all.mean_seconds), (0, Some(0.1)));
    assert_eq!(relists(None, ""), Relists::default());
}

async fn serve(status: &'static str, text: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let length = text.len();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{text}");
        while let Ok((mut stream, _)) = listener.accept().await {
            let _read = stream.read(&mut [0; 1024]).await;
            let _written = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

/// A host with a kubelet whose `/healthz` is at this address, and whose `journalctl` is this script.
fn host(healthz: SocketAddr, script: &str) -> (FakeHost, HostTarget) {
    let host = FakeHost::new();
    host.run(800, &format!("kubelet --healthz-port={}", healthz.port()));
    let mut target = host.target();
    target.journalctl = ["sh", "-c", script].map(Into::into).to_vec();
    (host, target)
}

async fn examine(host: &FakeHost, target: &HostTarget) -> (Kubelet, String) {
    let (clock, sample) = (Clock::start(), host.samples(None, |_| ()).end);
    let (kubelet, unread) = ask(target, &sample, clock, clock.now()).await;
    (kubelet, unread.join("; "))
}

#[tokio::test]
async fn healthz_metrics_and_log_of_the_kubelet_are_read() {
    let text = "[+]ping ok\n[-]pleg failed: reason withheld\n[+]log ok\nhealthz check failed\n";
    let healthz = serve("500 Internal Server Error", text.to_owned()).await;
    let line = "PLEG is not healthy: pleg was last seen active 3m0s ago";
    let script = format!("echo \"$(date +%s).5 n kubelet[8]: {line}\"");
    let (host, mut target) = host(healthz, &script);
    host.write("var/lib/rancher/rke2/agent/logs/kubelet.log", line);
    target.read_only = serve("200 OK", metrics_with(3.0, 2)).await;
    let (kubelet, why) = examine(&host, &target).await;
    assert_eq!(why, "");
    assert_eq!(kubelet.healthz.unwrap().failed, ["pleg"]);
    assert_eq!(kubelet.relists.unwrap().mean_seconds, Some(1.5));
    assert_eq!(kubelet.journal.unwrap().unhealthy, 2);
}

#[tokio::test]
async fn kubelet_without_healthz_metrics_and_log_gives_no_evidence() {
    let (host, mut target) = host(SocketAddr::from(([127, 0, 0, 1], 1)), "exit 1");
    for (journalctl, expected) in [
        ("/nonexistent/journalctl", "journalctl is not installed"),
        ("false", "journalctl failed: exit status: 1; no line"),
        ("true", "no line of the last 15 min in the journal"),
    ] {
        target.journalctl = vec![journalctl.into()];
        let (kubelet, why) = examine(&host, &target).await;
        let is_expected = why.starts_with(&format!("the kubelet's log: {expected}"));
        assert!(is_expected, "{why}");
        assert_eq!(kubelet, Kubelet::default());
    }
    host.remove("proc/800");
    assert!(examine(&host, &target).await.1.contains("not visible"));
}

#[tokio::test]
async fn hanging_read_of_healthz_log_or_configuration_is_abandoned() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (host, target) = host(listener.local_addr().unwrap(), "exec sleep 1000");
    host.process(800, "kubelet", 'T', 1);
    let (kubelet, why) = examine(&host, &target).await;
    assert!(why.contains("did not end within 3 s"), "{why}");
    assert!(kubelet.healthz.unwrap().silent);
    assert!(assess(&host.samples(None, |_| ())).unwrap().stopped);
    host.run(800, "kubelet --config=/hanging/config.yaml");
    host.write("hanging/x", "");
    // A mount needs root and /dev/fuse.
    if let Ok(_mount) = HangingMount::new(&host.root().join("hanging")) {
        let (_, why) = examine(&host, &target).await;
        assert!(why.contains("configuration: no answer"), "{why}");
    }
}
