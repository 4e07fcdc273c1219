//! The programs that containers run. Each is a task that waits for its exit and then sends the
//! event.

use std::{future::pending, sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

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
    /// Cancelled when the program has exited, or its task has ended.
    exited: CancellationToken,
}

/// A command to a program. A later command overrides an earlier one, except that of a kill.
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
        let exited = CancellationToken::new();
        let has_exited = exited.clone().drop_guard();
        lock(&self.programs).insert(id.to_owned(), Program { command, exited });
        let (engine, id) = (Arc::clone(self), id.to_owned());
        self.tasks.spawn(async move {
            let exit = tokio::select! {
                biased;
                () = engine.stop.cancelled() => return,
                exit = engine.own_exit(script) => exit,
                exit = commanded_exit(script, commands) => exit,
            };
            let events = engine.world().container_exited(&id, exit);
            lock(&engine.programs).remove(&id);
            let pending = engine.begin_exit_event(&id);
            // Waiters for the exit proceed before the event is sent.
            drop(has_exited);
            engine.emit(events).await;
            // Some runtimes find out only after the event that the container was out of memory.
            engine.world().show_reason(&id);
            engine.finish_exit_event(&id, &pending);
        });
    }

    /// The exit of a program that nobody stops.
    async fn own_exit(&self, script: Script) -> ExitStatus {
        let (exit, after) = match script {
            Script::Exit { code, after } => (ExitStatus::from_code(code), after),
            Script::Oom { after } => (ExitStatus::OOM, after),
            Script::Run | Script::IgnoreTerm | Script::FailStart => pending().await,
        };
        self.pause(after).await;
        exit
    }

    /// Stops a container, with `grace` between `SIGTERM` and `SIGKILL`. Returns when it has exited;
    /// its event may follow later. No error if there is nothing to do.
    pub(crate) async fn stop_program(&self, id: &str, grace: Duration) {
        let Some(program) = self.program(id) else {
            return;
        };
        if !grace.is_zero() {
            program.send(Command::Stop);
            tokio::select! {
                () = program.exited.cancelled() => return,
                () = self.pause(grace) => {}
            }
        }
        program.send(Command::Kill(ExitStatus::from_code(KILLED)));
        program.exited.cancelled().await;
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
        for program in all {
            program.send(Command::Kill(exit));
            program.exited.cancelled().await;
        }
    }

    fn program(&self, id: &str) -> Option<Program> {
        lock(&self.programs).get(id).cloned()
    }

    pub(crate) fn begin_exit_event(&self, id: &str) -> CancellationToken {
        let pending = CancellationToken::new();
        lock(&self.exit_events).insert(id.to_owned(), pending.clone());
        pending
    }

    pub(crate) fn finish_exit_event(&self, id: &str, pending: &CancellationToken) {
        lock(&self.exit_events).remove(id);
        pending.cancel();
    }

    /// Waits for the event of an earlier exit. In a real runtime, a removal takes longer than
    /// sending that event, so DELETED overtakes STOPPED only if something delays STOPPED.
    pub(crate) async fn wait_for_exit_event(&self, id: &str) {
        let pending = lock(&self.exit_events).get(id).cloned();
        if let Some(pending) = pending {
            tokio::select! {
                () = pending.cancelled() => {}
                () = self.pause(EXIT_EVENT_WAIT) => {}
            }
        }
    }
}

/// The exit of a program that is stopped or killed.
async fn commanded_exit(script: Script, mut commands: watch::Receiver<Command>) -> ExitStatus {
    loop {
        let command = *commands.borrow_and_update();
        match (command, script.on_term()) {
            (Command::Kill(exit), _) => return exit,
            (Command::Stop, Some(code)) => return ExitStatus::from_code(code),
            (Command::Run, _) | (Command::Stop, None) => {}
        }
        if commands.changed().await.is_err() {
            pending::<()>().await;
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
}
