//! Mounts in the directory of a pod: file systems in memory and their removal; and opening entries that containers may
//! exchange.

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::NixPath;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::volumes::names_in;

/// Mounts a file system in memory of at most `size` bytes, with mode 0, unless one is mounted there already.
pub(crate) fn make_tmpfs(path: &Path, size: u64) -> io::Result<()> {
    let parent = path.parent().unwrap_or(path);
    if fs::symlink_metadata(path)?.dev() != fs::symlink_metadata(parent)?.dev() {
        return Ok(());
    }
    let options = format!("size={size},mode=0");
    let (source, flags) = (Some("tmpfs"), MsFlags::empty());
    Ok(mount(source, path, source, flags, Some(&*options))?)
}

/// Unmounts everything `depth` levels below a directory in which no container can write. A mount in use stays until the
/// directory is removed.
pub(crate) fn unmount_below(directory: &Path, depth: usize) {
    for name in names_in(directory).unwrap_or_default() {
        let path = directory.join(name);
        match depth {
            0 | 1 => unmount(&path),
            _ => unmount_below(&path, depth - 1),
        }
    }
}

/// Opens an entry of a directory, without following symbolic links.
pub(crate) fn open_beneath(
    parent: BorrowedFd<'_>,
    name: &(impl NixPath + ?Sized),
    flags: OFlag,
    resolve: ResolveFlag,
) -> nix::Result<OwnedFd> {
    let resolve = resolve | ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC);
    openat2(parent, name, how.resolve(resolve))
}

/// Unmounts all mounts of a path: one may hide another one.
pub(crate) fn unmount(path: &Path) {
    while umount2(path, MntFlags::UMOUNT_NOFOLLOW).is_ok() {}
}

#[cfg(test)]
mod tests {
    use nix::sys::statfs::{TMPFS_MAGIC, statfs};

    use super::*;
    use crate::pod_volumes::make_empty_dir;
    use crate::removal::tests::in_mount_namespace;
    use crate::volumes::PodDirectories;

    #[test]
    fn volume_in_memory_lives_as_long_as_its_pod() {
        in_mount_namespace(|root| {
            let (uid, pods) = ("u".into(), PodDirectories::new(root));
            let path = pods.empty_dir(&uid, "m")?;
            make_empty_dir(&path, Some(1 << 20), Some(7))?;
            assert_eq!(statfs(&path)?.filesystem_type(), TMPFS_MAGIC);
            let made = fs::metadata(&path)?;
            assert_eq!((made.mode() & 0o7777, made.gid()), (0o2777, 7));
            fs::write(path.join("kept"), "x")?;
            let large = path.join("large");
            fs::write(&large, vec![0; 2 << 20]).expect_err("it is larger than the volume");
            fs::remove_file(&large)?;
            // A restarted kubelet does the same.
            make_empty_dir(&path, Some(1 << 20), Some(7))?;
            assert_eq!(fs::read_to_string(path.join("kept"))?, "x");
            // A mount that a container made stays.
            let other = path.join("mounted");
            fs::create_dir(&other)?;
            make_tmpfs(&other, 4096)?;
            assert!(pods.remove(&uid).is_err() && path.join("kept").exists());
            unmount(&other);
            pods.remove(&uid)?;
            assert!(!pods.of(&uid)?.exists());
            Ok(())
        });
    }
}
