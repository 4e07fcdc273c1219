//! Mounts in the directory of a pod: file systems in memory, and paths in volumes (`subPath`).
//!
//! A container that can write to a volume may replace a directory by a symbolic link to any path of the node, before or
//! while the runtime mounts the directory (CVE-2017-1002101, CVE-2021-25741). So this module opens the path once,
//! without following links, and mounts the opened file below the pod's directory, where no container can write. The
//! runtime gets this mount as the volume. Needs Linux 5.6, and the mount namespace of the runtime.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};

use crate::volumes::names_in;

/// Mounts a file system in memory of at most `size` bytes, with mode 0, unless one is mounted at `path` already.
pub(crate) fn make_tmpfs(path: &Path, size: u64) -> io::Result<()> {
    let parent = path.parent().unwrap_or(path);
    if fs::symlink_metadata(path)?.dev() != fs::symlink_metadata(parent)?.dev() {
        return Ok(());
    }
    let options = format!("size={size},mode=0");
    let (source, flags) = (Some("tmpfs"), MsFlags::empty());
    Ok(mount(source, path, source, flags, Some(&*options))?)
}

/// Unmounts all directories that are `depth` levels below a directory in which no container can write. A mount that is
/// in use stays, and the removal of the directory then fails.
pub(crate) fn unmount_below(directory: &Path, depth: usize) {
    if depth == 0 {
        return unmount(directory);
    }
    for name in names_in(directory).unwrap_or_default() {
        unmount_below(&directory.join(name), depth - 1);
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

/// Unmounts all mounts of a path: one mount may hide another.
pub(crate) fn unmount(path: &Path) {
    while umount2(path, MntFlags::UMOUNT_NOFOLLOW).is_ok() {}
}

/// A path in a volume, and the path on the node at which it is mounted for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubPath {
    pub(crate) volume: PathBuf,
    pub(crate) path: PathBuf,
    pub(crate) target: PathBuf,
}

impl SubPath {
    /// Mounts the path at its target. Makes missing directories with the mode of the volume, as upstream does. Fails if
    /// the path leaves the volume, has a symbolic link (`ELOOP`), or cannot be mounted.
    pub(crate) fn mount(&self) -> io::Result<()> {
        let opened = self.open()?;
        // The mount uses the opened file, so that a new symbolic link in the volume cannot redirect it.
        let source = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
        unmount(&self.target);
        fs::create_dir_all(self.target.parent().unwrap_or(&self.target))?;
        match fs::metadata(&source)?.is_dir() {
            true => fs::create_dir_all(&self.target)?,
            false => drop(fs::File::create(&self.target)?),
        }
        let (target, none) = (&self.target, None::<&str>);
        Ok(mount(Some(&source), target, none, MsFlags::MS_BIND, none)?)
    }

    fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let mut opened = nix::fcntl::open(&self.volume, flags, Mode::empty())?;
        let mode = Mode::from_bits_truncate(fstat(&opened)?.st_mode & 0o777);
        for component in self.path.components() {
            let name = match component {
                Component::Normal(name) => Path::new(name),
                Component::CurDir => continue,
                _ => return Err(Errno::EXDEV.into()),
            };
            let none = ResolveFlag::empty();
            let open = |flags| open_beneath(opened.as_fd(), name, flags, none);
            opened = match open(OFlag::O_PATH) {
                Err(Errno::ENOENT) => {
                    mkdirat(opened.as_fd(), name, mode)?;
                    let made = open(OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW)?;
                    // The umask may have restricted the mode of the new directory, so the mode is set again.
                    fchmod(&made, mode)?;
                    made
                }
                found => found?,
            };
        }
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use nix::sys::statfs::{TMPFS_MAGIC, statfs};

    use super::*;
    use crate::cri_config::NodeConfig;
    use crate::removal::tests::in_mount_namespace;
    use crate::volumes::{EMPTY_DIRS, make_empty_dir};

    #[test]
    fn volume_in_memory_lives_as_long_as_its_pod() {
        in_mount_namespace(|root| {
            let node = NodeConfig::of_host(root, Vec::new());
            let path = node.pod_path("u", EMPTY_DIRS, &["m"])?;
            make_empty_dir(&path, Some(1 << 20), Some(7))?;
            assert_eq!(statfs(&path)?.filesystem_type(), TMPFS_MAGIC);
            let made = fs::metadata(&path)?;
            assert_eq!((made.mode() & 0o7777, made.gid()), (0o2777, 7));
            fs::write(path.join("kept"), "x")?;
            let large = path.join("large");
            fs::write(&large, vec![0; 2 << 20]).expect_err("it is larger than the volume");
            fs::remove_file(&large)?;
            // A restarted kubelet calls `make_empty_dir` again: the mode that a container has set and its files stay.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
            make_empty_dir(&path, Some(1 << 20), Some(7))?;
            assert_eq!(fs::metadata(&path)?.mode() & 0o7777, 0o700);
            assert_eq!(fs::read_to_string(path.join("kept"))?, "x");
            // A mount that a container made in the volume stays, so the removal of the pod's directory fails.
            let other = path.join("mounted");
            fs::create_dir(&other)?;
            make_tmpfs(&other, 4096)?;
            assert!(node.remove_files(|_| true).is_err() && path.join("kept").exists());
            unmount(&other);
            node.remove_files(|_| true)?;
            assert!(!node.pods.join("u").exists());
            Ok(())
        });
    }

    fn sub_path(root: &Path, path: &str) -> SubPath {
        SubPath {
            volume: root.join("volume"),
            path: path.into(),
            target: root.join("target/0"),
        }
    }

    #[test]
    fn mounting_a_volume_sub_path_creates_missing_directories() {
        in_mount_namespace(|root| {
            let volume = root.join("volume");
            fs::create_dir_all(volume.join("a"))?;
            fs::set_permissions(&volume, fs::Permissions::from_mode(0o757))?;
            fs::write(volume.join("a/file"), "first")?;
            sub_path(root, "a/file").mount()?;
            assert_eq!(fs::read_to_string(root.join("target/0"))?, "first");
            fs::remove_file(root.join("target/0")).expect_err("it is mounted");
            unmount(&root.join("target/0"));
            fs::remove_file(root.join("target/0"))?;
            for _ in 0..2 {
                sub_path(root, "./a/new/deep").mount()?;
            }
            fs::write(volume.join("a/new/deep/x"), "seen")?;
            assert_eq!(fs::read_to_string(root.join("target/0/x"))?, "seen");
            let mode = fs::metadata(volume.join("a/new"))?.permissions().mode();
            assert_eq!(mode & 0o777, 0o757);
            Ok(())
        });
    }

    #[test]
    fn sub_path_with_link_or_outside_volume_is_not_mounted() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let volume = root.path().join("volume");
        fs::create_dir_all(volume.join("a"))?;
        fs::write(root.path().join("outside"), "secret")?;
        symlink(root.path(), volume.join("out"))?;
        symlink("a", volume.join("in"))?;
        for path in ["out", "out/outside", "in", "..", "a/../../outside", "/etc"] {
            let opened = sub_path(root.path(), path).open();
            assert!(opened.is_err(), "{path}: {opened:?}");
        }
        Ok(())
    }
}
