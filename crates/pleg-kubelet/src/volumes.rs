//! The directories of a pod on the node: its volumes and its logs.
//!
//! All calls block on the file system. A mount may hang: call them from
//! [`spawn_blocking`](tokio::task::spawn_blocking) and with a deadline.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Component, Path, PathBuf};

use pleg::PodUid;

use crate::removal::remove_directory;

/// A volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Volume {
    /// A path of the node.
    HostPath {
        /// The path.
        path: PathBuf,
        /// What must be there, or is created.
        kind: HostPathKind,
    },
    /// A directory that is created with the pod and removed with it.
    EmptyDir,
}

/// What a `hostPath` volume asks of its path: the values of its field `type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HostPathKind {
    /// Nothing is checked.
    #[default]
    Any,
    /// A directory, created with mode 0755 if nothing is there.
    DirectoryOrCreate,
    /// A directory.
    Directory,
    /// A file, created empty with mode 0644 if nothing is there.
    FileOrCreate,
    /// A file.
    File,
    /// A unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

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

/// The directory of all pods, for example `/var/lib/kubelet/pods`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDirectories {
    root: PathBuf,
}

impl PodDirectories {
    /// Directories below `root`. It is created with the first pod.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory of a pod.
    ///
    /// # Errors
    /// If the uid is not the name of a directory: uids of unknown pods come from the runtime.
    pub fn of(&self, uid: &PodUid) -> Result<PathBuf, VolumeError> {
        Ok(self.root.join(FileName::new(uid.as_str())?))
    }

    /// Makes the volumes of a pod and returns where each is. What exists already is kept.
    ///
    /// # Errors
    /// The first volume that cannot be used.
    pub fn prepare(
        &self,
        uid: &PodUid,
        volumes: &BTreeMap<String, Volume>,
    ) -> Result<BTreeMap<String, PathBuf>, VolumeError> {
        let mut paths = BTreeMap::new();
        for (name, volume) in volumes {
            let path = match volume {
                Volume::HostPath { path, kind } => {
                    check_host_path(name, path, *kind)?;
                    path.clone()
                }
                Volume::EmptyDir => self.make_empty_dir(uid, name)?,
            };
            paths.insert(name.clone(), path);
        }
        Ok(paths)
    }

    /// Removes the directory of a pod with its `emptyDir` volumes. Nothing to remove is no error.
    /// Symbolic links are removed, not followed. What is mounted below the directory stays as it is.
    ///
    /// # Errors
    /// [`VolumeError::Mounted`] names what is mounted; another error, what cannot be removed.
    pub fn remove(&self, uid: &PodUid) -> Result<(), VolumeError> {
        remove_directory(&self.of(uid)?)
    }

    /// The pods that have a directory.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn uids(&self) -> Result<Vec<PodUid>, VolumeError> {
        let names = names_in(&self.root)?;
        Ok(names.iter().map(|name| PodUid::from(&**name)).collect())
    }

    /// The path of an `emptyDir` volume of a pod, which is upstream's.
    ///
    /// # Errors
    /// If the uid or the name of the volume is not the name of a directory.
    pub fn empty_dir(&self, uid: &PodUid, volume: &str) -> Result<PathBuf, VolumeError> {
        let volumes = self.of(uid)?.join("volumes/kubernetes.io~empty-dir");
        Ok(volumes.join(FileName::new(volume)?))
    }

    /// The hosts file of a pod.
    #[cfg(feature = "k8s-openapi")]
    pub(crate) fn hosts(&self, uid: &PodUid) -> Result<PathBuf, VolumeError> {
        Ok(self.of(uid)?.join("etc-hosts"))
    }

    /// The file in which an attempt of a container leaves its termination message.
    #[cfg(feature = "k8s-openapi")]
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

    /// World-writable like upstream's: the containers' users differ.
    fn make_empty_dir(&self, uid: &PodUid, volume: &str) -> Result<PathBuf, VolumeError> {
        let path = self.empty_dir(uid, volume)?;
        fs::create_dir_all(&path)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o777)))
            .map_err(|source| VolumeError::Io {
                volume: volume.to_owned(),
                path: path.clone(),
                source,
            })?;
        Ok(path)
    }
}

/// Makes a file that is mounted into containers, with this mode whatever the umask is: the containers' users differ.
#[cfg(feature = "k8s-openapi")]
pub(crate) fn make_file(path: &Path, text: &str, mode: u32) -> Result<(), VolumeError> {
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(path, text))
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .map_err(|source| VolumeError::Directory {
            path: path.to_owned(),
            source,
        })
}

/// What is in a directory; nothing if it does not exist. Names that are no text are left out.
pub(crate) fn names_in(directory: &Path) -> Result<Vec<String>, VolumeError> {
    let failed = |source| VolumeError::Directory {
        path: directory.to_owned(),
        source,
    };
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let names = entries.map(|entry| Ok(entry.map_err(failed)?.file_name().into_string().ok()));
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

fn check_host_path(volume: &str, path: &Path, kind: HostPathKind) -> Result<(), VolumeError> {
    let failed = |source| VolumeError::Io {
        volume: volume.to_owned(),
        path: path.to_owned(),
        source,
    };
    if kind == HostPathKind::Any {
        return Ok(());
    }
    let found = match fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => match kind {
            HostPathKind::DirectoryOrCreate => {
                let mut builder = fs::DirBuilder::new();
                let builder = builder.recursive(true).mode(0o755);
                return builder.create(path).map_err(failed);
            }
            HostPathKind::FileOrCreate => {
                let mut options = fs::OpenOptions::new();
                let options = options.write(true).create_new(true).mode(0o644);
                return options.open(path).map(drop).map_err(failed);
            }
            _ => return Err(failed(e)),
        },
        Err(e) => return Err(failed(e)),
    };
    let (is_so, expected) = match kind {
        HostPathKind::Any => (true, "path"),
        HostPathKind::Directory | HostPathKind::DirectoryOrCreate => (found.is_dir(), "directory"),
        HostPathKind::File | HostPathKind::FileOrCreate => (found.is_file(), "file"),
        HostPathKind::Socket => (found.is_socket(), "socket"),
        HostPathKind::CharDevice => (found.is_char_device(), "character device"),
        HostPathKind::BlockDevice => (found.is_block_device(), "block device"),
    };
    if is_so {
        return Ok(());
    }
    Err(VolumeError::Kind {
        volume: volume.to_owned(),
        path: path.to_owned(),
        expected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(volume: Volume) -> BTreeMap<String, Volume> {
        BTreeMap::from([("v".to_owned(), volume)])
    }

    fn host_path(path: PathBuf, kind: HostPathKind) -> BTreeMap<String, Volume> {
        volume(Volume::HostPath { path, kind })
    }

    #[test]
    fn empty_dir_lives_as_long_as_its_pod() -> Result<(), Box<dyn std::error::Error>> {
        let root = tempfile::tempdir()?;
        let pods = PodDirectories::new(root.path().join("pods"));
        let uid = PodUid::from("u1");
        let path = pods.prepare(&uid, &volume(Volume::EmptyDir))?["v"].clone();
        fs::write(path.join("kept"), "x")?;
        assert_eq!(pods.prepare(&uid, &volume(Volume::EmptyDir))?["v"], path);
        assert!(path.join("kept").exists());
        pods.remove(&uid)?;
        assert!(!pods.of(&uid)?.exists());
        pods.remove(&uid)?;
        Ok(())
    }

    #[test]
    fn uid_that_leads_elsewhere_is_refused() {
        let pods = PodDirectories::new("/var/lib/kubelet/pods");
        for uid in ["", ".", "..", "../x", "a/b", "/etc", "a/", "a/.", "a:b"] {
            let of = pods.of(&PodUid::from(uid));
            assert!(matches!(of, Err(VolumeError::Name(_))), "{uid:?}: {of:?}");
        }
    }

    #[cfg(feature = "k8s-openapi")]
    #[test]
    fn file_for_containers_has_its_mode_whatever_the_umask() -> Result<(), VolumeError> {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("new/file");
        make_file(&path, "text", 0o666)?;
        let mode = fs::metadata(&path).map(|file| file.permissions().mode() & 0o777);
        assert_eq!(mode.ok(), Some(0o666));
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some("text"));
        Ok(())
    }

    #[test]
    fn host_path_is_checked_by_its_type() -> Result<(), Box<dyn std::error::Error>> {
        let root = tempfile::tempdir()?;
        let pods = PodDirectories::new(root.path().join("pods"));
        let uid = PodUid::from("u1");
        let file = root.path().join("file");
        fs::write(&file, "x")?;
        let missing = root.path().join("missing");
        let prepare = |path: &Path, kind| pods.prepare(&uid, &host_path(path.to_owned(), kind));
        assert!(prepare(&file, HostPathKind::File).is_ok());
        assert!(prepare(&missing, HostPathKind::Any).is_ok());
        let error = prepare(&file, HostPathKind::Directory).err();
        let expected = format!("volume v: hostPath {file:?} is not a directory");
        assert_eq!(error.map(|e| e.to_string()), Some(expected));
        let error = prepare(&missing, HostPathKind::Socket).err();
        assert!(matches!(error, Some(VolumeError::Io { .. })), "{error:?}");
        assert!(prepare(&missing, HostPathKind::DirectoryOrCreate).is_ok());
        assert!(missing.is_dir());
        let made = root.path().join("made");
        assert!(prepare(&made, HostPathKind::FileOrCreate).is_ok());
        assert!(made.is_file());
        Ok(())
    }
}
