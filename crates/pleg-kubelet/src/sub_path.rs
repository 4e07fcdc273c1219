//! Paths in volumes (`subPath`).
//!
//! A container that has the volume may exchange a directory for a symbolic link to any path of the node, before or
//! while the runtime mounts it (CVE-2017-1002101, CVE-2021-25741). So the path is opened once, without following links,
//! and the opened file is mounted below the pod's directory, where no container can write. The runtime mounts it from
//! there. Needs Linux 5.6, and the mount namespace of the runtime.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, ResolveFlag};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};

use crate::mounts::{open_beneath, unmount};

/// A path in a volume, and where it is mounted for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubPath {
    pub(crate) volume: PathBuf,
    pub(crate) path: PathBuf,
    pub(crate) target: PathBuf,
}

impl SubPath {
    /// Mounts the path. Missing directories are made with the mode of the volume, as upstream does.
    ///
    /// # Errors
    /// The path leaves the volume, or has a symbolic link (`ELOOP`), or cannot be mounted.
    pub(crate) fn mount(&self) -> io::Result<()> {
        let opened = self.open()?;
        unmount(&self.target);
        let parent = self.target.parent().unwrap_or(&self.target);
        fs::create_dir_all(parent)?;
        if fs::metadata(path_of(&opened))?.is_dir() {
            fs::create_dir_all(&self.target)?;
        } else {
            fs::File::create(&self.target)?;
        }
        let none = None::<&str>;
        Ok(mount(
            Some(&path_of(&opened)),
            &self.target,
            none,
            MsFlags::MS_BIND,
            none,
        )?)
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
                    // Despite the umask.
                    fchmod(&made, mode)?;
                    made
                }
                found => found?,
            };
        }
        Ok(opened)
    }
}

/// A path of an open file that no link can change.
fn path_of(opened: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", opened.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::removal::tests::in_mount_namespace;

    fn sub_path(root: &Path, path: &str) -> SubPath {
        let (volume, target) = (root.join("volume"), root.join("target/0"));
        SubPath {
            volume,
            path: path.into(),
            target,
        }
    }

    #[test]
    fn path_in_a_volume_is_mounted_with_missing_directories() {
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
    fn link_and_path_out_of_the_volume_are_refused() -> io::Result<()> {
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
