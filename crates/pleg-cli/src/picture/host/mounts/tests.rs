use std::collections::BTreeMap;

use pleg_tests::fuse::HangingMount;

use super::*;
use crate::picture::host::tests::fake::FakeHost;

const UID: &str = "0b4ea2f5-1c33-4d5e-9a77-52ee03a9c001";

#[test]
fn mounts_that_can_hang_are_found() {
    let pods = format!("/var/lib/kubelet/pods/{UID}");
    let line =
        |path: &str, fs: &str| format!("36 35 0:1 / {path} rw,relatime shared:7 - {fs} src rw\n");
    let table = [
        line("/", "ext4"),
        line("/proc", "proc"),
        line(
            &format!("{pods}/volumes/kubernetes.io~projected/token"),
            "tmpfs",
        ),
        line(
            &format!("{pods}/volumes/kubernetes.io~csi/pv/mount"),
            "ext4",
        ),
        line(&format!("{pods}/volumes/kubernetes.io~nfs/data"), "nfs4"),
        line(
            "/data/k/pods/aabbccddaabbccddaabbccddaabbccdd/volume-subpaths/x/0",
            "xfs",
        ),
        line(
            "/var/lib/kubelet/plugins/kubernetes.io/csi/d/globalmount",
            "ext4",
        ),
        line("/mnt/my\\040share", "fuse.sshfs"),
        line("/mnt/my\\040share", "fuse.sshfs"),
        line("/srv", "cifs"),
        line("/sys/fs/fuse/connections", "fusectl"),
        line("/run/x", "overlay"),
        "malformed\n".to_owned(),
    ]
    .concat();
    let found = relevant(&table);
    let paths: Vec<&str> = found.iter().map(|mount| mount.path.as_str()).collect();
    let expected = [
        &format!("{pods}/volumes/kubernetes.io~nfs/data"),
        "/mnt/my share",
        "/srv",
        &format!("{pods}/volumes/kubernetes.io~csi/pv/mount"),
        "/data/k/pods/aabbccddaabbccddaabbccddaabbccdd/volume-subpaths/x/0",
        "/var/lib/kubelet/plugins/kubernetes.io/csi/d/globalmount",
    ];
    assert_eq!(paths, expected);
    assert_eq!(found[0].pod.as_deref(), Some(UID));
    assert_eq!(found[1].pod, None);
    assert_eq!(found[1].fs, "fuse.sshfs");
}

#[test]
fn escaped_paths_are_decoded() {
    for (escaped, path) in [
        ("/a\\040b\\134c", "/a b\\c"),
        ("/a\\", "/a\\"),
        ("/a\\09x", "/a\\09x"),
        ("/ü\\011", "/ü\t"),
    ] {
        assert_eq!(unescaped(escaped), path);
    }
}

#[test]
fn finding_names_path_and_pod() {
    let mount = Mount {
        path: "/var/data".to_owned(),
        fs: "nfs4".to_owned(),
        pod: Some(UID.to_owned()),
        answer_millis: None,
    };
    let hanging = Mounts {
        hanging: vec![mount],
        ..Mounts::default()
    };
    let calls = Calls {
        pods: BTreeMap::from([(UID.to_owned(), "shop/cart".to_owned())]),
        ..Calls::default()
    };
    let findings = check(&hanging, &calls);
    assert_eq!(
        findings[0].summary,
        "a mount does not answer: /var/data, of pod shop/cart"
    );
    let line = "/var/data (nfs4), of pod shop/cart: no answer within 2 s";
    assert_eq!(findings[0].evidence, [line]);
    let findings = check(&hanging, &Calls::default());
    assert!(findings[0].summary.ends_with(UID), "{findings:?}");
}

/// A host with these mounts, which `program` asks.
fn host(paths: &[&Path], program: &[&str]) -> (FakeHost, HostTarget) {
    let host = FakeHost::new();
    let lines = paths
        .iter()
        .map(|p| format!("1 1 0:1 / {} rw - fuse.x x rw\n", p.display()));
    host.write("proc/1/mountinfo", &lines.collect::<String>());
    let target = HostTarget {
        root: host.root().to_owned(),
        ask_mount: program.iter().map(Into::into).collect(),
        ..HostTarget::new(None)
    };
    (host, target)
}

#[tokio::test]
async fn mount_that_does_not_answer_is_found_and_others_answer() {
    let dir = tempfile::tempdir().unwrap();
    let hanging = dir.path().join("hanging");
    fs::create_dir(&hanging).unwrap();
    let mount = match HangingMount::new(&hanging) {
        Ok(mount) => mount,
        Err(why) => return println!("skipped: {why}"),
    };
    let (host, mut target) = host(&[&hanging, dir.path(), Path::new("/gone")], &[]);
    // The paths are those of this host, not of the fake one.
    target.root = "/".into();
    target.ask_mount = vec!["stat".into(), "-f".into(), "--".into()];
    let table = relevant(&Proc::below(host.root()).read("1/mountinfo").unwrap());
    assert_eq!(table.len(), 3);
    let (mounts, why) = ask_all(&target, Clock::start(), table).await;
    drop(mount);
    assert_eq!(why, None);
    assert_eq!(mounts.asked, 3);
    let paths: Vec<_> = mounts.hanging.iter().map(|m| m.path.as_str()).collect();
    assert_eq!(paths, [hanging.to_str().unwrap()]);
}

#[tokio::test]
async fn child_that_cannot_be_started_is_named() {
    let (_host, target) = host(&[Path::new("/a")], &["/nonexistent/program"]);
    let (mounts, why) = collect(&target, Clock::start()).await;
    assert_eq!(mounts.asked, 0);
    assert!(why.is_some_and(|why| why.contains("cannot start a process")));
}

#[tokio::test]
async fn number_of_mounts_is_limited() {
    let paths: Vec<_> = (0..MOST + 10).map(|n| format!("/m{n}")).collect();
    let paths: Vec<&Path> = paths.iter().map(Path::new).collect();
    let (_host, target) = host(&paths, &["true"]);
    let (mounts, why) = collect(&target, Clock::start()).await;
    assert_eq!((mounts.asked, mounts.skipped, why), (MOST, 10, None));
}
