//! A shell on a terminal of tmux, to see and type what a user sees and types.

use std::path::PathBuf;
use std::process::Command;

use pleg_tests::wait::until;

use super::TestDir;
use crate::commands::run::TIMEOUT;

/// A terminal with a shell. Its server is stopped when this is dropped.
pub(crate) struct Tmux {
    socket: PathBuf,
    dir: TestDir,
}

impl Tmux {
    /// A terminal of 80 columns and 24 lines, without the user's configuration.
    pub(crate) fn start() -> Self {
        let dir = TestDir::new();
        let socket = dir.path("tmux");
        let terminal = Self { socket, dir };
        let mut command = terminal.command(&["-f", "/dev/null", "new-session", "-d"]);
        command.args(["-x", "80", "-y", "24", "sh"]);
        command.env("LC_ALL", "C.UTF-8").env("RUST_BACKTRACE", "0");
        for variable in ["CONTAINER_RUNTIME_ENDPOINT", "NO_COLOR", "ENV"] {
            command.env_remove(variable);
        }
        let started = command.output().expect("tmux is installed");
        assert!(started.status.success(), "{started:?}");
        terminal
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        // Needed for characters that are not ASCII.
        command.arg("-u").arg("-S").arg(&self.socket).args(args);
        command
    }

    pub(crate) fn tmux(&self, args: &[&str]) -> String {
        let output = self.command(args).output().expect("tmux is installed");
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Types keys, with tmux's names, such as `Enter` and `C-c`.
    pub(crate) fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types a line.
    pub(crate) fn line(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.keys(&["Enter"]);
    }

    pub(crate) fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen is as it must be.
    pub(crate) async fn until(&self, what: &str, is: impl Fn(&str) -> bool) {
        let looks = || async { is(&self.screen()).then_some(()) };
        let shown = until(TIMEOUT, what, looks).await;
        assert!(shown.is_ok(), "not {what}:\n{}", self.screen());
    }

    pub(crate) async fn until_shows(&self, text: &str) {
        self.until(text, |screen| screen.contains(text)).await;
    }

    /// The settings of the terminal, without its size; whether the alternate screen is shown, and
    /// whether the cursor is.
    pub(crate) async fn settings(&self) -> String {
        let file = self.dir.path("stty");
        let _ = std::fs::remove_file(&file);
        let path = file.display();
        self.line(&format!("stty -a > {path}.new; mv {path}.new {path}"));
        let read = || async { std::fs::read_to_string(&file).ok() };
        let settings = until(TIMEOUT, "stty", read).await.expect("the shell works");
        let settings: Vec<&str> = settings.lines().skip(1).collect();
        let format = "alternate screen #{alternate_on}, cursor #{cursor_flag}";
        let shown = self.tmux(&["display-message", "-p", format]);
        format!("{}\n{shown}", settings.join("\n"))
    }

    /// The id of the process that the shell runs.
    pub(crate) async fn process(&self) -> u32 {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = format!("/proc/{shell}/task/{shell}/children");
        let child = || async {
            let children = std::fs::read_to_string(&children).ok()?;
            children.split_whitespace().next()?.parse().ok()
        };
        until(TIMEOUT, "a child", child).await.expect("it runs")
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}
