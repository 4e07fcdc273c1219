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
    pub(crate) fn start((width, height): (u16, u16)) -> Self {
        let dir = TestDir::new();
        let terminal = Self {
            socket: dir.path("tmux"),
            dir,
        };
        let (width, height) = (width.to_string(), height.to_string());
        // Without the user's configuration.
        let mut command = terminal.command(&["-f", "/dev/null", "new-session", "-d"]);
        command
            .args(["-x", &width, "-y", &height, "sh"])
            .env("LC_ALL", "C.UTF-8")
            .env("RUST_BACKTRACE", "0")
            .env_remove("CONTAINER_RUNTIME_ENDPOINT")
            .env_remove("NO_COLOR")
            .env_remove("ENV");
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

    /// Waits until the screen is as it must be. What a probe finds takes 18 s: 15 until it is made, and three
    /// until it is reported.
    pub(crate) async fn wait_until(&self, what: &str, is: impl Fn(&str) -> bool) {
        let shown = until(TIMEOUT * 3, what, || async {
            is(&self.screen()).then_some(())
        })
        .await;
        assert!(shown.is_ok(), "not {what}:\n{}", self.screen());
    }

    pub(crate) async fn wait_for(&self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text)).await;
    }

    /// The settings of the terminal, without its size; whether the alternate screen is shown, and
    /// whether the cursor is.
    pub(crate) async fn settings(&self) -> String {
        let file = self.dir.path("stty");
        let _ = std::fs::remove_file(&file);
        self.line(&format!(
            "stty -a > {0}.new; mv {0}.new {0}",
            file.display()
        ));
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
