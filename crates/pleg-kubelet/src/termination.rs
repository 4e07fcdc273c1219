//! Termination messages: a container's text in the file at its `terminationMessagePath`, or the end of its log.
//!
//! The limits are upstream's: 4096 bytes of the file; 80 lines and 2048 bytes of the log. (The limit for all messages
//! of a pod together is in the [status](crate::pod_status).)

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

const MOST_BYTES: u64 = 4096;
const MOST_OF_LOG: usize = 2048;
const MOST_LINES: usize = 80;
/// The bytes that are read at the end of a log: more than `MOST_OF_LOG`, because lines have prefixes and can be long.
const READ_OF_LOG: u64 = 64 << 10;

/// The message that a container left in `file` or, if that is empty, at the end of `log`. Blocks on the file system.
pub(crate) fn message(file: &Path, log: Option<&Path>) -> String {
    let message = end_of(file, MOST_BYTES).unwrap_or_default();
    match log {
        Some(log) if message.is_empty() => {
            let end = end_of(log, READ_OF_LOG).unwrap_or_default();
            last_lines(&end, end.len() as u64 == READ_OF_LOG)
        }
        _ => String::from_utf8_lossy(&message).into_owned(),
    }
}

/// Reads the last `most` bytes of a file. A container cannot replace its message file, which is mounted into it.
fn end_of(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut options = File::options();
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let mut file = options.read(true).custom_flags(flags.bits()).open(file)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(most)))?;
    let mut end = Vec::new();
    file.take(most).read_to_end(&mut end)?;
    Ok(end)
}

/// The text of the last lines of a log in the CRI's format. An entry has a time, the stream, `F` or `P` (the line goes
/// on in the next entry), and the text. `is_cut` is true if the first line is incomplete.
fn last_lines(log: &[u8], is_cut: bool) -> String {
    let log = String::from_utf8_lossy(log);
    let entries: Vec<&str> = log.lines().skip(usize::from(is_cut)).collect();
    let entries = &entries[entries.len().saturating_sub(MOST_LINES)..];
    let mut text = String::new();
    for entry in entries {
        let mut parts = entry.splitn(4, ' ').skip(2);
        let (tag, line) = (parts.next(), parts.next());
        text.push_str(line.unwrap_or_default());
        if tag != Some("P") {
            text.push('\n');
        }
    }
    text.split_off(text.ceil_char_boundary(text.len().saturating_sub(MOST_OF_LOG)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn termination_message_is_end_of_long_file_or_log() {
        let dir = tempfile::tempdir().unwrap();
        let (file, log) = (dir.path().join("file"), dir.path().join("log"));
        assert_eq!(message(&file, None), "", "nothing is there");
        fs::write(&log, "2026-01-01T00:00:00Z stderr F panic\n").unwrap();
        assert_eq!(message(&file, Some(&log)), "panic\n");
        fs::write(&file, "x".repeat(5000) + "end").unwrap();
        let message = message(&file, Some(&log));
        assert_eq!((message.len(), message.ends_with("end")), (4096, true));
    }

    #[test]
    fn log_message_is_limited_and_its_partial_lines_are_joined() {
        let line =
            |n: usize, tag: &str| format!("2026-01-01T00:00:00.{n:09}Z stdout {tag} line {n}\n");
        let log: String = (0..100).map(|n| line(n, "F")).collect();
        let text = last_lines(log.as_bytes(), false);
        let ends = (text.starts_with("line 20\n"), text.ends_with("line 99\n"));
        assert_eq!(ends, (true, true), "{text}");
        let parts = line(1, "P") + &line(2, "F");
        assert_eq!(last_lines(parts.as_bytes(), false), "line 1line 2\n");
        assert_eq!(last_lines(parts.as_bytes(), true), "line 2\n");
        let long = format!("t stdout F {}\n", "ä".repeat(2000));
        let text = last_lines(long.as_bytes(), false);
        assert!((2046..=2048).contains(&text.len()), "{}", text.len());
    }
}
