use super::*;
use crate::picture::host::tests::fake::FakeHost;

const UID: &str = "0b4ea2f5-1c33-4d5e-9a77-52ee03a9c001";

/// Each row: a path, a file system type, and if the mount is read, its position in the result.
const MOUNTS: &str = "
/ ext4
/proc proc
/var/lib/kubelet/pods/UID/volumes/kubernetes.io~projected/token tmpfs
/var/lib/kubelet/pods/UID/volumes/kubernetes.io~csi/pv/mount ext4 4
/var/lib/kubelet/pods/UID/volumes/kubernetes.io~nfs/data nfs4 1
/data/k/pods/aabbccddaabbccddaabbccddaabbccdd/volume-subpaths/x/0 xfs 5
/var/lib/kubelet/plugins/kubernetes.io/csi/d/globalmount ext4 6
/mnt/my\\040share fuse.sshfs 2
/mnt/my\\040share fuse.sshfs
/srv cifs 3
/sys/fs/fuse/connections fusectl
/run/x overlay";

#[test]
fn mounts_that_can_hang_are_found_with_decoded_paths() {
    let mut expected = Vec::new();
    let mut table = "malformed\n".to_owned();
    let mounts = MOUNTS.replace("UID", UID);
    for row in mounts.trim().lines() {
        let [path, fs, place @ ..] = &row.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        table += &format!("36 35 0:1 / {path} rw,relatime shared:7 - {fs} src rw\n");
        expected.extend(place.first().map(|place| (*place, unescaped(path))));
    }
    expected.sort();
    let found = relevant(&table);
    let paths = found.iter().map(|mount| &mount.path);
    assert!(paths.eq(expected.iter().map(|(_, path)| path)), "{found:?}");
    assert_eq!((found[0].pod.as_deref(), &found[1].pod), (Some(UID), &None));
    assert_eq!(found[1].fs, "fuse.sshfs");
    let path = unescaped("/ü\\040b\\134c\\134040\\011");
    assert_eq!(path, "/ü b\\c\\040\t");
}

#[tokio::test]
async fn excess_mounts_and_failed_start_of_the_reader_are_reported() {
    let host = FakeHost::new();
    let lines = (0..MOST + 10).map(|n| format!("1 1 0:1 / /m{n} rw - fuse.x x rw\n"));
    host.write("proc/1/mountinfo", &lines.collect::<String>());
    let mut target = host.target();
    target.ask_mount = vec!["true".into()];
    let (mounts, why) = collect(&target, Clock::start()).await;
    let beyond = Some("mounts: 10 beyond the first 256".to_owned());
    assert_eq!((mounts.examined, mounts.skipped, why), (MOST, 10, beyond));
    target.ask_mount = vec!["/nonexistent/program".into()];
    let (mounts, why) = collect(&target, Clock::start()).await;
    assert_eq!(mounts.examined, 0);
    assert!(why.is_some_and(|why| why.contains("cannot start a process")));
}
