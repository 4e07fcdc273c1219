//! `pleg doctor` where the cause is on the host: the runtime's process, shims, mounts, disks, the clock.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pleg_tests::fuse::HangingMount;
use pleg_tests::wait::until;
use tokio::sync::RwLock;

use super::doctor::{examine_with_host as examine, first, shown};
use super::run::{Running, Sim, TIMEOUT, arg};
use crate::support::{TestDir, copy_program, pleg};

/// A test with a mount that hangs writes it, and one that examines the host reads it.
static HOST: RwLock<()> = RwLock::const_new(());

const SHORT: &[&str] = &["--for", "4s"];

#[tokio::test]
async fn runtime_without_free_descriptors_is_the_cause_of_missing_answers() {
    let _host = HOST.read().await;
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let mut shell = Command::new("sh");
    let program = pleg(&[]).get_program().to_owned();
    shell
        .args(["-c", "ulimit -n 40; exec \"$@\"", "sh"])
        .arg(program)
        .args(["sim", "--empty", "--socket", arg(&socket)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut sim = Running::spawn(shell);
    sim.message().await.expect("it listens");
    let open: Vec<UnixStream> = (0..40)
        .filter_map(|_| UnixStream::connect(&socket).ok())
        .collect();
    let descriptors = PathBuf::from(format!("/proc/{}/fd", sim.id()));
    until(TIMEOUT, "they are accepted", || async {
        (fs::read_dir(&descriptors).ok()?.count() >= 40).then_some(())
    })
    .await
    .expect("accepted");
    let (report, exit) = examine(&socket, SHORT).await;
    assert_eq!(first(&report).0, "daemon_descriptors", "{}", shown(&report));
    assert_eq!(exit, Some(2));
    drop(open);
}

#[tokio::test]
async fn hanging_mount_is_named_with_its_path() {
    let _host = HOST.write().await;
    let sim = Sim::start().await;
    let path = sim.dir().path("mount");
    fs::create_dir(&path).unwrap();
    let _mount = match HangingMount::new(&path) {
        Ok(mount) => mount,
        Err(why) => return println!("skipped: {why}"),
    };
    let (report, exit) = examine(&sim.socket, SHORT).await;
    assert_eq!(first(&report).0, "mount_hangs", "{}", shown(&report));
    let (_, summary) = first(&report);
    assert!(summary.contains(arg(&path)), "{summary}");
    assert_eq!(exit, Some(2));
}

#[tokio::test]
async fn shim_that_does_not_reap_is_named_with_its_pod() {
    let _host = HOST.read().await;
    let sim = Sim::start().await;
    let pod = sim.kubelet.run_pod("cart").await.expect("run");
    // The kernel takes the name of the process from the file.
    let program = sim.dir().path("containerd-shim-runc-v2");
    copy_program(Path::new("/usr/bin/perl"), &program);
    let mut shim = Command::new(program);
    shim.args(["-e", "fork() or exit; sleep 1000", "--", "-namespace"])
        .args(["k8s.io", "-address", arg(&sim.socket)])
        .args(["-id", pod.sandbox.as_str()])
        .stdin(Stdio::null());
    let mut shim = shim.spawn().expect("it starts");
    let (report, exit) = examine(&sim.socket, SHORT).await;
    shim.kill().expect("it ends");
    shim.wait().expect("it is reaped");
    let (code, summary) = first(&report);
    assert_eq!(code, "shim_zombie", "{}", shown(&report));
    assert!(summary.contains("test/cart"), "{summary}");
    assert_eq!(exit, Some(1));
}

/// With a library that changes what the process sees of the wall clock.
#[tokio::test]
async fn step_of_the_wall_clock_is_found() {
    let _host = HOST.read().await;
    let architecture = std::env::consts::ARCH;
    let library = format!("/usr/lib/{architecture}-linux-gnu/faketime/libfaketime.so.1");
    if !Path::new(&library).exists() {
        return println!("skipped: no {library}");
    }
    let sim = Sim::start().await;
    let time = sim.dir().path("time");
    fs::write(&time, "+0\n").unwrap();
    let socket = arg(&sim.socket);
    let mut command = pleg(&["doctor", "-o", "json", "-r", socket, "--for", "5s"]);
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", &time)
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("FAKETIME_NO_CACHE", "1");
    let mut doctor = Running::spawn(command);
    doctor.message().await.expect("it has begun");
    fs::write(&time, "+3600\n").unwrap();
    let end = doctor.end().await;
    let report: serde_json::Value = serde_json::from_str(&end.out).expect("JSON");
    assert_eq!(first(&report).0, "clock_step", "{}", shown(&report));
    assert_eq!(end.code(), Some(1));
}
