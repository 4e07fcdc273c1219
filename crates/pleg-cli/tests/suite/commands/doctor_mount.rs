//! `pleg doctor-mount`, the process that asks one mount.

use std::fs;
use std::time::Duration;

use pleg_tests::fuse::HangingMount;
use pleg_tests::wait::until;

use super::doctor_host::HOST;
use crate::support::{TestDir, pleg};

const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn mount_that_answers_is_a_success() {
    for (path, code) in [("/", 0), ("/nonexistent", 1)] {
        let status = pleg(&["doctor-mount", path]).status().unwrap();
        assert_eq!(status.code(), Some(code), "{path}");
    }
}

#[tokio::test]
async fn mount_that_hangs_is_waited_for_until_it_is_gone() {
    let _host = HOST.write().await;
    let dir = TestDir::new();
    let path = dir.path("mount");
    fs::create_dir(&path).unwrap();
    let mount = match HangingMount::new(&path) {
        Ok(mount) => mount,
        Err(why) => return println!("skipped: {why}"),
    };
    let mut child = pleg(&["doctor-mount", path.to_str().unwrap()])
        .spawn()
        .unwrap();
    // Not its state: a process whose program is being read from disk is in state D, too.
    let waits_in = format!("/proc/{}/wchan", child.id());
    let blocked = async || {
        let function = fs::read_to_string(&waits_in).ok()?;
        function.starts_with("fuse").then_some(())
    };
    until(DEADLINE, "the child waits for the mount", blocked)
        .await
        .unwrap();
    assert_eq!(child.try_wait().unwrap(), None);
    drop(mount);
    let ended = || std::future::ready(child.try_wait().unwrap());
    let status = until(DEADLINE, "the child ends", ended).await.unwrap();
    assert_eq!(status.code(), Some(1));
}
