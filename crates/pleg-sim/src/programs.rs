//! The programs that containers run. Each is a task that waits for its exit and then sends the
//! event.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    engine::{Engine, lock},
    script::{KILLED, Script},
};

/// How long a removal waits for the event of an earlier exit.
const EXIT_EVENT_WAIT: Duration = Duration::from_millis(50);

/// A handle to a running program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    command: watch::Sender<Command>,
    has_exited: watch::Receiver<bool>,
}

/// A command to a program. A later command overrides an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Run,
    Stop,
    Kill(ExitStatus),
}

/// How a program exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExitStatus {
    pub(crate) code: i32,
    pub(crate) reason: &'static str,
}

impl ExitStatus {
    pub(crate) const OOM: Self = Self {
        code: KILLED,
        reason: "OOMKilled",
    };
    pub(crate) const LOST: Self = Self {
        code: 255,
        reason: "Unknown",
    };

    pub(crate) const fn from_code(code: i32) -> Self {
        let reason = if code == 0 { "Completed" } else { "Error" };
        Self { code, reason }
    }
}

impl Engine {
    /// Starts the program of a container as a task.
    pub(crate) fn spawn_program(self: &Arc<Self>, id: &str, script: Script) {
        let (command, commands) = watch::channel(Command::Run);
        let (exited, has_exited) = watch::channel(false);
        lock(&self.programs).insert(
            id.to_owned(),
            Program {
                command,
                has_exited,
            },
        );
        let (engine, id) = (Arc::clone(self), id.to_owned());
        self.tasks.spawn(async move {
            let exit = tokio::select! {
                biased;
                () = engine.stop.cancelled() => return,
                exit = engine.run_program(script, commands) => exit,
            };
            let now = engine.now();
            let events = engine.world().container_exited(&id, exit, now);
            lock(&engine.programs).remove(&id);
            let pending = engine.begin_exit_event(&id);
            // Waiters for the exit proceed before the event is sent.
            exited.send_replace(true);
            engine.emit_all(events).await;
            // Some runtimes find out only after the event that the container was out of memory.
            engine.world().show_reason(&id);
            engine.finish_exit_event(&id, pending);
        });
    }

    /// Waits for the exit of the program.
    async fn run_program(
        &self,
        script: Script,
        mut commands: watch::Receiver<Command>,
    ) -> ExitStatus {
        let own_exit = async {
            match script {
                Script::Exit { code, after } => {
                    self.pause(after).await;
                    ExitStatus::from_code(code)
                }
                Script::Oom { after } => {
                    self.pause(after).await;
                    ExitStatus::OOM
                }
                Script::Run | Script::IgnoreTerm | Script::FailStart => {
                    std::future::pending().await
                }
            }
        };
        let commanded_exit = async {
            loop {
                let command = *commands.borrow_and_update();
                match (command, script.on_term()) {
                    (Command::Kill(exit), _) => return exit,
                    (Command::Stop, Some(code)) => return ExitStatus::from_code(code),
                    (Command::Run, _) | (Command::Stop, None) => {}
                }
                if commands.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            exit = own_exit => exit,
            exit = commanded_exit => exit,
        }
    }

    /// Stops a container, with `grace` between `SIGTERM` and `SIGKILL`. Returns when it has exited;
    /// its event may follow later. No error if there is nothing to do.
    pub(crate) async fn stop_program(&self, id: &str, grace: Duration) {
        let Some(mut program) = self.program(id) else {
            return;
        };
        if !grace.is_zero() {
            program.send(Command::Stop);
            tokio::select! {
                () = program.wait() => return,
                () = self.pause(grace) => {}
            }
        }
        program.send(Command::Kill(ExitStatus::from_code(KILLED)));
        program.wait().await;
    }

    /// Makes a running container exit with that status. Returns false if it does not run.
    pub(crate) fn kill_container(&self, id: &str, exit: ExitStatus) -> bool {
        self.program(id).is_some_and(|program| {
            program.send(Command::Kill(exit));
            true
        })
    }

    /// Makes every running container exit, and returns when all have exited.
    pub(crate) async fn exit_all(&self, exit: ExitStatus) {
        let all: Vec<_> = lock(&self.programs).values().cloned().collect();
        for mut program in all {
            program.send(Command::Kill(exit));
            program.wait().await;
        }
    }

    pub(crate) async fn wait_for_exit(&self, id: &str) {
        if let Some(mut program) = self.program(id) {
            program.wait().await;
        }
    }

    fn program(&self, id: &str) -> Option<Program> {
        lock(&self.programs).get(id).cloned()
    }

    pub(crate) fn begin_exit_event(&self, id: &str) -> watch::Sender<()> {
        let (pending, published) = watch::channel(());
        lock(&self.exit_events).insert(id.to_owned(), published);
        pending
    }

    pub(crate) fn finish_exit_event(&self, id: &str, pending: watch::Sender<()>) {
        lock(&self.exit_events).remove(id);
        drop(pending);
    }

    /// Waits for the event of an earlier exit. In a real runtime, a removal takes longer than
    /// sending that event, so DELETED overtakes STOPPED only if something delays STOPPED.
    pub(crate) async fn wait_for_exit_event(&self, id: &str) {
        let published = lock(&self.exit_events).get(id).cloned();
        if let Some(mut published) = published {
            tokio::select! {
                _ = published.changed() => {}
                () = self.pause(EXIT_EVENT_WAIT) => {}
            }
        }
    }
}

impl Program {
    fn send(&self, command: Command) {
        self.command.send_if_modified(|current| {
            let changes = matches!(
                (*current, command),
                (Command::Run, _) | (Command::Stop, Command::Kill(_))
            );
            if changes {
                *current = command;
            }
            changes
        });
    }

    async fn wait(&mut self) {
        // An error means that the task is gone, so the program has exited.
        let _ = self.has_exited.wait_for(|exited| *exited).await;
    }
}
