//! The directories of a pod on the node: its volumes and its logs.
//!
//! All calls block on the file system. A mount may hang, so the performer makes them in a blocking task with a deadline.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use pleg::PodUid;

use crate::mounts::unmount_below;
use crate::removal::remove_directory;

const EMPTY_DIRS: &str = "volumes/kubernetes.io~empty-dir";
const FILES: &str = "volumes/kubernetes.io~downward-api";
const SUB_PATHS: &str = "volume-subpaths";

/// Why a directory of a pod cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The path of a volume is not what its type says.
    #[error("volume {volume}: hostPath {path:?} is not a {expected}")]
    Kind {
        /// The volume.
        volume: String,
        /// Its path.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
    },
    /// A uid, or a name of a manifest, cannot be the name of a directory.
    #[error("{0:?} is not a name that a directory can have")]
    Name(String),
    /// A path cannot be read or made.
    #[error("volume {volume}: {path:?}: {source}")]
    Io {
        /// The volume.
        volume: String,
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file system does not respond. What was begun goes on.
    #[error("the file system does not respond: does a mount hang?")]
    Hangs,
    /// Something is mounted below a directory of the pod, so it was not removed. All else was.
    #[error(
        "left, because something is mounted there: {}; unmount it",
        listed(paths)
    )]
    Mounted {
        /// The mount points.
        paths: Vec<PathBuf>,
    },
    /// A directory or file of the pod cannot be read, made or removed.
    #[error("{path:?}: {source}")]
    Directory {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl VolumeError {
    /// The error of a call for that path.
    pub(crate) fn at<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> Self {
        move |source| Self::Directory {
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

/// The first paths, and how many there are.
fn listed(paths: &[PathBuf]) -> String {
    const SHOWN: usize = 3;
    let shown = paths.iter().take(SHOWN);
    let shown: Vec<_> = shown.map(|path| path.display().to_string()).collect();
    match paths.len().checked_sub(SHOWN) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The directory of all pods, for example `/var/lib/kubelet/pods`. Below it, every path is upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDirectories {
    root: PathBuf,
}

impl PodDirectories {
    /// Directories below `root`. It is created with the first pod.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory of a pod.
    ///
    /// # Errors
    /// If the uid is not the name of a directory: uids of unknown pods come from the runtime.
    pub(crate) fn of(&self, uid: &PodUid) -> Result<PathBuf, VolumeError> {
        Ok(self.root.join(FileName::new(uid.as_str())?))
    }

    /// Removes the directory of a pod with its `emptyDir` volumes. Nothing to remove is no error.
    /// Symbolic links are removed, not followed. What others have mounted in a volume stays as it is.
    ///
    /// # Errors
    /// [`VolumeError::Mounted`] names what is mounted; another error, what cannot be removed.
    pub(crate) fn remove(&self, uid: &PodUid) -> Result<(), VolumeError> {
        let directory = self.of(uid)?;
        unmount_below(&directory.join(SUB_PATHS), 3);
        unmount_below(&directory.join(EMPTY_DIRS), 1);
        remove_directory(&directory)
    }

    /// The pods that have a directory.
    pub(crate) fn uids(&self) -> Result<Vec<PodUid>, VolumeError> {
        let names = names_in(&self.root)?;
        Ok(names.iter().map(|name| PodUid::from(&**name)).collect())
    }

    pub(crate) fn empty_dir(&self, uid: &PodUid, volume: &str) -> Result<PathBuf, VolumeError> {
        Ok(self.of(uid)?.join(EMPTY_DIRS).join(FileName::new(volume)?))
    }

    /// The path of a `downwardAPI` volume.
    pub(crate) fn files(&self, uid: &PodUid, volume: &str) -> Result<PathBuf, VolumeError> {
        Ok(self.of(uid)?.join(FILES).join(FileName::new(volume)?))
    }

    /// Where a path in a volume is mounted for a container's mount number `at`.
    pub(crate) fn sub_path(
        &self,
        uid: &PodUid,
        volume: &str,
        container: &str,
        at: usize,
    ) -> Result<PathBuf, VolumeError> {
        let volume = self.of(uid)?.join(SUB_PATHS).join(FileName::new(volume)?);
        Ok(volume.join(FileName::new(container)?).join(at.to_string()))
    }

    /// The hosts file of a pod.
    pub(crate) fn hosts(&self, uid: &PodUid) -> Result<PathBuf, VolumeError> {
        Ok(self.of(uid)?.join("etc-hosts"))
    }

    /// The file in which an attempt of a container leaves its termination message.
    pub(crate) fn termination_log(
        &self,
        uid: &PodUid,
        container: &str,
        attempt: u32,
    ) -> Result<PathBuf, VolumeError> {
        let container = FileName::new(container)?;
        let directory = self.of(uid)?.join("containers").join(container);
        Ok(directory.join(attempt.to_string()))
    }
}

/// What is in a directory; nothing if it does not exist. Names that are no text are left out.
pub(crate) fn names_in(directory: &Path) -> Result<Vec<String>, VolumeError> {
    let failed = VolumeError::at(directory);
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(&failed)?,
    };
    let names = entries.map(|entry| Ok(entry.map_err(&failed)?.file_name().into_string().ok()));
    names.filter_map(Result::transpose).collect()
}

/// The name of one file or directory, which leads nowhere else. What manifests and the runtime name becomes part of a
/// path only as this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileName(String);

impl FileName {
    pub(crate) fn new(name: impl Into<String>) -> Result<Self, VolumeError> {
        let name = name.into();
        let mut components = Path::new(&name).components();
        match (components.next(), components.next()) {
            // conmon takes what stands before a colon for the name of a log driver.
            _ if name.contains(':') => Err(VolumeError::Name(name)),
            (Some(Component::Normal(only)), None) if *only == *name => Ok(Self(name)),
            _ => Err(VolumeError::Name(name)),
        }
    }
}

impl AsRef<Path> for FileName {
    fn as_ref(&self) -> &Path {
        self.0.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_that_leads_elsewhere_is_refused() {
        let pods = PodDirectories::new("/var/lib/kubelet/pods");
        for uid in ["", ".", "..", "../x", "a/b", "/etc", "a/", "a/.", "a:b"] {
            let of = pods.of(&PodUid::from(uid));
            assert!(matches!(of, Err(VolumeError::Name(_))), "{uid:?}: {of:?}");
        }
    }
}
