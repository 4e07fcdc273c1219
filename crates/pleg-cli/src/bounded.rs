//! Reads files that other users may have written or replaced: only regular files, and only up to a size.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

const MOST: u64 = 1 << 20;

/// The text of a regular file of at most 1 MiB. A device may be endless, and opening a pipe may block.
pub(crate) fn read(file: &Path) -> io::Result<String> {
    read_up_to(file, MOST)
}

pub(crate) fn read_up_to(file: &Path, most: u64) -> io::Result<String> {
    text(open(file)?, most)
}

/// Reads the text of a file, of any type. Returns an error if the file has more than `most` bytes.
pub(crate) fn text(file: File, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let reason = format!("it is larger than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last bytes of a file, at most `most`. The first line may be incomplete.
pub(crate) fn read_end(file: &Path, most: u64) -> io::Result<String> {
    let mut file = open(file)?;
    file.seek(SeekFrom::Start(file.metadata()?.len().saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Opens a regular file. Checks the type before it opens the file for reading: opening a device may have effects.
fn open(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true);
    let found = options.custom_flags(OFlag::O_PATH.bits()).open(file)?;
    if !found.metadata()?.is_file() {
        let reason = "it is not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let same = format!("/proc/self/fd/{}", found.as_raw_fd());
    options.custom_flags(flags).open(same)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn only_regular_files_up_to_the_bound_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "text").unwrap();
        assert_eq!(read(&file).unwrap(), "text");
        assert_eq!(read_up_to(&file, 4).unwrap(), "text");
        assert_eq!(read_end(&file, 2).unwrap(), "xt");
        let error = |read: io::Result<String>| read.unwrap_err().to_string();
        assert_eq!(error(read_up_to(&file, 3)), "it is larger than 3 bytes");
        let pipe = dir.path().join("pipe");
        mkfifo(&pipe, Mode::S_IRUSR).unwrap();
        for other in [&pipe, Path::new("/dev/zero"), dir.path()] {
            assert_eq!(error(read(other)), "it is not a regular file", "{other:?}");
        }
        assert!(read(Path::new("/proc/self/status")).is_ok());
    }
}
