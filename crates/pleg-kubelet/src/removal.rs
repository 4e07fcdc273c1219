//! Removal of a directory tree that containers could write to.
//!
//! A container with `mountPropagation: Bidirectional` may have mounted a network share below its volume, and may have
//! left links to any path of the node. So each directory is opened relative to its parent, with `openat2`, which
//! refuses symbolic links and mount points (bind mounts of the same file system included) in one step: no container can
//! put a link there between check and removal. Needs Linux 5.6; on older kernels nothing is removed.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, ResolveFlag, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::mounts::open_beneath;
use crate::volumes::{Result, VolumeError};

/// Directories nested deeper than this are moved to the top of the tree before their removal: each level of nesting
/// needs an open descriptor and a stack frame, and a container may nest directories without limit.
const MAX_DEPTH: usize = 64;

/// The flags with which a directory is opened, for reading.
const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_CLOEXEC);

/// Removes a directory with its contents. A missing directory is no error. Symbolic links are removed, not followed.
/// Mount points, and the directories above them, stay: the rest is removed, and the error names the mount points. If an
/// entry cannot be removed, the error names this entry.
pub(crate) fn remove_directory(path: &Path) -> Result {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(VolumeError(format!("{path:?} is not a directory")));
    };
    let failed = VolumeError::at(path);
    let parent = nix::fcntl::open(parent, DIRECTORY, Mode::empty()).map_err(&failed)?;
    let top = match open_directory(parent.as_fd(), name) {
        Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::EXDEV) => return Err(VolumeError::mounted(&[path.to_owned()])),
        opened => opened.map_err(&failed)?,
    };
    let mut walk = Walk {
        top: top.as_fd(),
        mounted: Vec::new(),
        moved: 0,
    };
    loop {
        let before = walk.moved;
        walk.mounted.clear();
        walk.remove_contents(top.as_fd(), path, 0)?;
        // If directories were moved to the top, the loop repeats, because the listing of the top may have missed them.
        if walk.moved == before {
            break;
        }
    }
    if !walk.mounted.is_empty() {
        return Err(VolumeError::mounted(&walk.mounted));
    }
    unlinkat(parent.as_fd(), name, UnlinkatFlags::RemoveDir).map_err(failed)
}

/// Opens a directory that is neither a symbolic link nor a mount point.
fn open_directory(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = DIRECTORY | OFlag::O_NOFOLLOW;
    open_beneath(parent, name, flags, ResolveFlag::RESOLVE_NO_XDEV)
}

struct Walk<'a> {
    top: BorrowedFd<'a>,
    mounted: Vec<PathBuf>,
    /// The number of times that a directory was moved to the top of the tree.
    moved: u64,
}

impl Walk<'_> {
    /// Removes the contents of a directory. Returns true if the directory is empty now.
    fn remove_contents(&mut self, dir: BorrowedFd<'_>, path: &Path, depth: usize) -> Result<bool> {
        let failed = VolumeError::at(path);
        let mut listing = Dir::openat(dir, ".", DIRECTORY, Mode::empty()).map_err(&failed)?;
        let mut is_empty = true;
        for entry in listing.iter() {
            let entry = entry.map_err(&failed)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                is_empty &= self.remove_entry(dir, &path.join(name), depth)?;
            }
        }
        Ok(is_empty)
    }

    /// Removes an entry of a directory. Returns true if the entry is gone.
    fn remove_entry(&mut self, parent: BorrowedFd<'_>, path: &Path, depth: usize) -> Result<bool> {
        let name = path.file_name().unwrap_or_default();
        let removed = match open_directory(parent, name) {
            Ok(_) if depth >= MAX_DEPTH => {
                let moved = self.move_to_top(parent, name);
                return moved.map(|()| true).map_err(VolumeError::at(path));
            }
            Ok(directory) => {
                if !self.remove_contents(directory.as_fd(), path, depth + 1)? {
                    return Ok(false);
                }
                unlinkat(parent, name, UnlinkatFlags::RemoveDir)
            }
            // The entry is a file or link, or a mounted file: the kernel checks `O_DIRECTORY` before `RESOLVE_NO_XDEV`.
            Err(Errno::ENOTDIR | Errno::ELOOP) => {
                unlinkat(parent, name, UnlinkatFlags::NoRemoveDir)
            }
            Err(errno) => Err(errno),
        };
        match removed {
            Ok(()) | Err(Errno::ENOENT) => Ok(true),
            // The entry is a mount point: opening it fails with EXDEV and, for a mounted file, removing it with EBUSY.
            Err(Errno::EXDEV | Errno::EBUSY) => {
                self.mounted.push(path.to_owned());
                Ok(false)
            }
            Err(errno) => Err(VolumeError::at(path)(errno)),
        }
    }

    fn move_to_top(&mut self, parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
        loop {
            self.moved += 1;
            let free = format!("deep-{}", self.moved);
            match renameat(parent, name, self.top, &*free) {
                // A container has made an entry `deep-<number>` at the top, so the loop tries the next number.
                Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => {}
                result => return result,
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    pub(crate) type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    /// Runs a test in a mount namespace of its own, which ends with the thread. Needs root.
    pub(crate) fn in_mount_namespace(test: fn(&Path) -> Outcome) {
        let thread = std::thread::spawn(move || -> Outcome {
            unshare(CloneFlags::CLONE_NEWNS)?;
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
            let dir = tempfile::tempdir()?;
            test(dir.path())
        });
        thread.join().unwrap().unwrap();
    }

    fn bind(from: &Path, to: &Path) -> Outcome {
        let none = None::<&str>;
        Ok(mount(Some(from), to, none, MsFlags::MS_BIND, none)?)
    }

    /// A pod's directory with an `emptyDir`, and a directory outside with a file.
    fn pod_and_outside(dir: &Path) -> std::io::Result<(PathBuf, PathBuf)> {
        let (pod, outside) = (dir.join("pod"), dir.join("outside"));
        fs::create_dir_all(pod.join("volume/mnt"))?;
        fs::write(pod.join("volume/file"), "the pod's")?;
        fs::create_dir_all(outside.join("db"))?;
        fs::write(outside.join("db/data"), "precious")?;
        Ok((pod, outside))
    }

    /// Removes the pod's directory. Asserts that the error names the mounts `mounted`, and that the outside file stays.
    #[track_caller]
    fn assert_left(pod: &Path, outside: &Path, mounted: &[&Path]) {
        let error = remove_directory(pod).unwrap_err().to_string();
        let (_, shown) = error.split_once(": ").unwrap();
        let shown = shown.trim_end_matches("; unmount it").split(", ");
        let shown: BTreeSet<_> = shown.map(Path::new).collect();
        assert_eq!(shown, mounted.iter().copied().collect());
        let file = fs::read_to_string(outside.join("db/data"));
        assert_eq!(file.unwrap(), "precious");
    }

    #[test]
    fn busy_mount_and_mounted_file_stay_until_they_are_unmounted() {
        in_mount_namespace(|dir| {
            let (pod, outside) = pod_and_outside(dir)?;
            let (mounted, file) = (pod.join("volume/mnt"), pod.join("volume/file"));
            bind(&outside, &mounted)?;
            bind(&outside.join("db/data"), &file)?;
            let other = pod.join("volume/other");
            fs::write(&other, "the pod's")?;
            let open = fs::File::open(mounted.join("db/data"))?;
            assert_left(&pod, &outside, &[&file, &mounted]);
            assert!(!other.exists());
            drop(open);
            nix::mount::umount(&mounted)?;
            nix::mount::umount(&file)?;
            // The directory of the pod is itself a mount point.
            bind(&outside, &pod)?;
            assert_left(&pod, &outside, &[&pod]);
            nix::mount::umount(&pod)?;
            remove_directory(&pod)?;
            assert!(!pod.exists() && outside.join("db/data").exists());
            Ok(())
        });
    }

    #[test]
    fn symbolic_link_is_removed_and_its_target_stays() -> Outcome {
        let dir = tempfile::tempdir()?;
        let (pod, outside) = pod_and_outside(dir.path())?;
        std::os::unix::fs::symlink(&outside, pod.join("volume/link"))?;
        std::os::unix::fs::symlink("/no/such/file", pod.join("volume/dangling"))?;
        remove_directory(&pod)?;
        assert!(!pod.exists());
        assert_eq!(fs::read_to_string(outside.join("db/data"))?, "precious");
        remove_directory(&pod)?;
        // A link in place of the pod's directory is not followed either.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&outside, &link)?;
        assert!(remove_directory(&link).is_err());
        assert!(outside.join("db/data").exists());
        Ok(())
    }

    #[test]
    fn three_thousand_nested_directories_are_removed() -> Outcome {
        let dir = tempfile::tempdir()?;
        let top = dir.path().join("pod");
        fs::create_dir(&top)?;
        // The deepest path exceeds the kernel's limit of 4096 bytes, so the tree is made from the inside out.
        for _ in 0..3000 {
            let outer = dir.path().join("outer");
            fs::create_dir(&outer)?;
            fs::rename(&top, outer.join("deep-1"))?;
            fs::rename(&outer, &top)?;
        }
        remove_directory(&top)?;
        assert!(!top.exists());
        Ok(())
    }
}
