//! `pleg doctor` finds planted troubles of simulated runtimes and of the host, one at a time.

use std::fs;
use std::path::Path;
use std::process::Command;

use futures::StreamExt;
use itertools::Itertools as _;
use pleg_tests::fuse::HangingMount;
use pleg_tests::kubelet::Life;
use serde_json::Value;
use tokio::sync::Mutex;

use super::run::{End, Running, Sim, TIMEOUT, TestDir, arg, assert_has, piped, pleg};

struct Examined {
    report: Value,
    code: Option<i32>,
}

impl Examined {
    fn of(end: &End) -> Self {
        let report = serde_json::from_str(&end.out);
        let report = report.unwrap_or_else(|error| panic!("{error}: {:?}, {:?}", end.out, end.err));
        let code = end.code;
        Self { report, code }
    }

    /// Gives the command an empty root, because other tests change what it would see of the host.
    async fn new(socket: &Path, args: &str) -> Self {
        let host = TestDir::new();
        Self::with_host(socket, &format!("{args} --root {}", arg(host.root()))).await
    }

    async fn with_host(socket: &Path, args: &str) -> Self {
        Self::of(&run(&format!("doctor -o json -r {} {args}", arg(socket))).await)
    }

    fn findings(&self) -> &[Value] {
        self.report["findings"].as_array().expect("findings")
    }

    /// Requires the code and summary of the first finding, and the exit code. Ignores load, which other tests cause.
    #[track_caller]
    fn assert_first(&self, code: &str, summary: &str, exit: i32) {
        let is_load = |code: &str| code.ends_with("_pressure") || code == "blocked_tasks";
        let mut findings = self.findings().iter();
        let first = findings.find(|f| !is_load(f["code"].as_str().expect("a code")));
        let first = first.unwrap_or(&Value::Null);
        let found = first["code"] == code && self.code == Some(exit);
        let text = first["summary"].as_str().unwrap_or_default();
        let findings = &self.report["findings"];
        assert!(found && text.contains(summary), "{findings}");
    }
}

async fn run(args: &str) -> End {
    Running::start(args).end_within(TIMEOUT * 3).await
}

/// The first finding, the exit code, and the arguments of a simulated runtime with this trouble.
const PLANTED: [&str; 12] = [
    "list_slow 1 --pods 20 --chaos list_containers.latency=1200ms",
    "list_large 1 --pods 90 --chaos list.pad=85000",
    "list_large 2 --pods 90 --chaos list.pad=150000",
    "list_failed 2 --pods 5 --chaos list_pod_sandbox.fail=internal",
    "filters_ignored 1 --pods 50 --chaos list.unfiltered",
    "network_not_ready 2 --pods 5 --chaos network.not_ready=on",
    "stream_disabled 0 --pods 5 --mode crio-disabled",
    "runtime_silent 2 --mode silent",
    "runtime_unreachable 2 down",
    "stream_lossy 1 --chaos drop=80%",
    "stream_silent 1 --chaos drop=on",
    "stream_lossy 1 --mode containerd-1.7 --chaos second_subscriber=80%",
];

#[tokio::test]
async fn planted_trouble_is_the_first_finding() {
    // Examines five at a time, because the load of all at once would be a finding.
    let examined = futures::stream::iter(PLANTED).map(async |planted| {
        let fields = planted.splitn(3, ' ').collect_tuple();
        let (code, exit, args) = fields.expect("three fields");
        let sim = match args {
            "down" => Sim::down(),
            args => Sim::with(args).await,
        };
        // An event counts as missed 10 s after a read has shown the change. In the first 10 s of a stream, none counts.
        let span = match code {
            "stream_lossy" | "stream_silent" => "--for 26s --events always",
            _ => "--for 4s",
        };
        let examined = Examined::new(&sim.socket, span).await;
        examined.assert_first(code, "", exit.parse().expect("a number"));
        let mut found = examined.findings().iter();
        let has_time = |f: &Value| f["code"] != "stream_lossy" || f["seconds"].is_number();
        assert!(found.all(has_time), "{}", examined.report);
    });
    examined.buffered(5).collect::<()>().await;
}

#[tokio::test]
async fn redacted_recording_gives_same_findings_without_pod_or_container_names() {
    let sim = Sim::start().await;
    let life = Life::UntilStopped;
    sim.run_container("secret-pod", "secret-app", life).await;
    let trouble = "pod.uid-secret-pod.hang=on network.not_ready=on";
    sim.control(trouble).await;
    let file = sim.dir.path("node.json");
    let record = async |args: &str| {
        let args = format!("--for 3s --record {} {args}", arg(&file));
        let examined = Examined::new(&sim.socket, &args).await;
        (examined, fs::read_to_string(&file).expect("a recording"))
    };
    // No event may bring the pod's status: the generator must make the status call, which hangs.
    let (examined, recording) = record("--events never").await;
    for name in "secret-app test/secret-pod annotation label environ".split(' ') {
        assert!(!recording.contains(name), "{name} is in {recording}");
    }
    let replayed = Examined::of(&run(&format!("doctor -o json --replay {}", arg(&file))).await);
    let severities = |examined: &Examined| -> Vec<_> {
        let severity = |f: &Value| (f["code"].clone(), f["severity"].clone());
        examined.findings().iter().map(severity).collect()
    };
    let names_it = |f: &Value| f["summary"].to_string().contains("test/secret-pod");
    let is_it = |f: &Value| f["code"] == "pods_hung" && names_it(f);
    assert!(examined.findings().iter().any(is_it), "{}", examined.report);
    assert_eq!(severities(&replayed), severities(&examined));
    assert_eq!(replayed.code, examined.code);
    assert!(record("--names").await.1.contains("test/secret-pod"));
}

/// Each row: a file for `--replay` or its text, the first line of the output, and the exit code.
const REPLAYED: &str = r#"
 => node.json: No such file => 3
/dev/zero => cannot read /dev/zero: it is larger than 67108864 bytes => 3
{ => it is not a recording of pleg doctor => 3
{"format":9,"version":"7.0.0","redacted":true,"examination":{}} => has format 9, and this version reads 1: use pleg 7.0.0 => 3
RUNTIME{"unusable":{"denied":true,"why":"permission denied"}}}} => the runtime was not examined: this user => 3
RUNTIME{"unusable":{"why":"no socket"},"stream":{"degraded":{"runtime_silent":{"lasts":true}}}}}} => PLEG is unhealthy or pods are stuck: the runtime cannot be reached => 2
RUNTIME{"conditions":{"conditions":[{"name":"NetworkReady","status":false}]}}}} => PLEG is healthy, but: the runtime's network => 2"#;

#[tokio::test]
async fn replay_gives_the_verdict_of_the_recording_or_an_error() {
    let dir = TestDir::new();
    let file = dir.path("node.json");
    let begin = r#"{"format":1,"version":"0","redacted":true,"examination":{"runtime":"#;
    for row in REPLAYED.trim_start_matches('\n').lines() {
        let fields = row.split(" => ").collect_tuple();
        let (text, shown, code) = fields.expect("three fields");
        let mut file = file.clone();
        if text.starts_with('/') {
            file = text.into();
        } else if !text.trim().is_empty() {
            fs::write(&file, text.replace("RUNTIME", begin)).unwrap();
        }
        let end = run(&format!("doctor --replay {}", arg(&file))).await;
        assert_eq!(end.code, code.parse().ok(), "{}", end.out);
        let errors = usize::from(end.out.is_empty());
        assert_eq!(end.err.lines().count(), errors, "{}", end.err);
        // The next step of a finding that another finding explains is left out.
        assert!(end.out.matches("\n  > ").count() <= 1, "{}", end.out);
        let printed = end.out + &end.err;
        assert_has(printed.lines().next().expect("a line"), shown);
    }
}

#[tokio::test]
async fn healthy_node_has_no_finding_above_information() {
    let sim = Sim::with("--pods 80").await;
    let args = format!("doctor --for 8s --root {} -r", arg(sim.dir.root()));
    let end = run(&format!("{args} {}", arg(&sim.socket))).await;
    assert_eq!(end.code, Some(0), "{}", end.out);
    let figures = "\nrelist  | \nlists  | \nstatuses  | \nevents  | \nconditions  | \ncodes ";
    assert_has(&end.out, "PLEG is healthy; nothing was found");
    assert_has(&end.out, figures);
}

/// Is locked by tests that examine the host: only one of them may see the hanging mount.
static HOST: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn hanging_mount_is_named_with_its_path() {
    let _host = HOST.lock().await;
    let sim = Sim::start().await;
    let path = sim.dir.path("mount");
    fs::create_dir(&path).unwrap();
    let _mount = match HangingMount::new(&path) {
        Ok(mount) => mount,
        Err(why) => return println!("skipped: {why}"),
    };
    let examined = Examined::with_host(&sim.socket, "--for 4s").await;
    examined.assert_first("mount_hangs", arg(&path), 2);
}

#[tokio::test]
async fn shim_that_does_not_reap_is_named_with_its_pod() {
    let _host = HOST.lock().await;
    let sim = Sim::start().await;
    let pod = sim.kubelet.run_pod("cart").await.expect("run");
    // The kernel names a process after its program's file. `cp` must write the copy of perl: if this process wrote the
    // copy, a child that another test has just forked could have the copy open, and then it could not be executed.
    let program = sim.dir.path("containerd-shim-runc-v2");
    let mut copy = Command::new("cp");
    let copied = copy.arg("/usr/bin/perl").arg(&program).status();
    assert!(copied.is_ok_and(|status| status.success()));
    let mut shim = piped(program);
    shim.args(["-e", "fork() or exit; sleep 1000", "--", "-namespace"])
        .args(["k8s.io", "-address", arg(&sim.socket)])
        .args(["-id", pod.sandbox.as_str()]);
    let _shim = Running::spawn(shim);
    let examined = Examined::with_host(&sim.socket, "--for 4s").await;
    examined.assert_first("shim_zombie", "test/cart", 1);
}

/// A preloaded library changes the wall clock that the command sees.
#[tokio::test]
async fn step_of_the_wall_clock_is_found() {
    let architecture = std::env::consts::ARCH;
    let library = format!("/usr/lib/{architecture}-linux-gnu/faketime/libfaketime.so.1");
    if !Path::new(&library).exists() {
        assert!(std::env::var_os("CI").is_none(), "no {library}");
        return println!("skipped: no {library}");
    }
    let sim = Sim::start().await;
    let time = sim.dir.path("time");
    fs::write(&time, "+0\n").unwrap();
    let args = format!("doctor -o json --for 5s --root {} -r", arg(sim.dir.root()));
    let mut command = pleg(&format!("{args} {}", arg(&sim.socket)));
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", &time)
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("FAKETIME_NO_CACHE", "1");
    let mut doctor = Running::spawn(command);
    doctor.message().await;
    fs::write(&time, "+3600\n").unwrap();
    Examined::of(&doctor.end().await).assert_first("clock_step", "", 1);
}
