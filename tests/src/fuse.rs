//! A mount on which every access hangs: a FUSE file system whose server reads no requests.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// The mount. Dropping this value unmounts the file system, and makes pending accesses fail.
#[derive(Debug)]
pub struct HangingMount {
    path: PathBuf,
    _server: File,
}

impl HangingMount {
    /// Mounts the file system on this directory.
    pub fn new(path: &Path) -> Result<Self, String> {
        let device = "/dev/fuse";
        let server = OpenOptions::new().read(true).write(true).open(device);
        let server = server.map_err(|error| format!("{device}: {error}"))?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            server.as_raw_fd()
        );
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(
            Some("pleg"),
            path,
            Some("fuse"),
            flags,
            Some(options.as_str()),
        )
        .map_err(|error| format!("mount of a FUSE file system: {error}"))?;
        Ok(Self {
            path: path.to_owned(),
            _server: server,
        })
    }
}

impl Drop for HangingMount {
    fn drop(&mut self) {
        let flags = MntFlags::MNT_FORCE | MntFlags::MNT_DETACH;
        // Unmounting fails only if somebody has already unmounted the file system.
        let _unmounted = umount2(&self.path, flags);
    }
}
