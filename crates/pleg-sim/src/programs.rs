//! The programs that containers run. Each program is a task that waits until the program exits, and then sends the
//! event of the exit.

use std::{future::pending, sync::Arc, time::Duration};

use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    engine::{Engine, lock},
    script::{KILLED, Script},
};

/// The maximum time for which the removal of a sandbox or container waits for the event of its exit.
const EXIT_EVENT_WAIT: Duration = Duration::from_millis(50);

/// A handle to a running program.
#[derive(Clone)]
pub(crate) struct Program {
    signals: mpsc::UnboundedSender<Signal>,
    /// A token that is cancelled when the program has exited, or when the shutdown ends the program's task.
    exited: CancellationToken,
}

enum Signal {
    Term,
    Kill(ExitStatus),
}

/// The exit of a program.
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
        let (signals, received) = mpsc::unbounded_channel();
        let exited = CancellationToken::new();
        let has_exited = exited.clone().drop_guard();
        lock(&self.programs).insert(id.to_owned(), Program { signals, exited });
        let (engine, id) = (Arc::clone(self), id.to_owned());
        self.tasks.spawn(async move {
            let exit = tokio::select! {
                biased;
                () = engine.stop.cancelled() => return,
                exit = engine.exit_without_signal(script) => exit,
                exit = exit_on_signal(script, received) => exit,
            };
            let events = engine.world().container_exited(&id, exit);
            lock(&engine.programs).remove(&id);
            let _pending = engine.exit_event(&id);
            // Calls that wait for the exit of the program proceed before the event is sent.
            drop(has_exited);
            engine.emit(events).await;
            // containerd before 2.3 finds out only after sending STOPPED that the container was out of memory.
            if let Some(container) = engine.world().node.object_mut(&id) {
                container.exit.reason_known_at = 0;
            }
        });
    }

    /// Waits until a program exits without a signal, and returns its exit.
    async fn exit_without_signal(&self, script: Script) -> ExitStatus {
        let (exit, after) = match script {
            Script::Exit { code, after } => (ExitStatus::from_code(code), after),
            Script::Oom { after } => (ExitStatus::OOM, after),
            Script::Run | Script::IgnoreTerm | Script::FailStart => pending().await,
        };
        self.pause(after).await;
        exit
    }

    /// Stops a container, with `grace` between `SIGTERM` and `SIGKILL`. Returns when the container has exited; its
    /// STOPPED event may follow later. No error if the container is not running.
    pub(crate) async fn stop_program(&self, id: &str, grace: Duration) {
        let Some(program) = self.program(id) else {
            return;
        };
        if !grace.is_zero() {
            program.send(Signal::Term);
            let pause = self.pause(grace);
            program.exited.run_until_cancelled(pause).await;
        }
        program.send(Signal::Kill(ExitStatus::from_code(KILLED)));
        program.exited.cancelled().await;
    }

    /// Makes a running container exit with the status `exit`. Returns false if the container is not running.
    pub(crate) fn kill_container(&self, id: &str, exit: ExitStatus) -> bool {
        let program = self.program(id);
        program.is_some_and(|program| program.send(Signal::Kill(exit)))
    }

    /// Makes every running container exit, and returns when all have exited.
    pub(crate) async fn exit_all(&self, exit: ExitStatus) {
        let all: Vec<_> = lock(&self.programs).values().cloned().collect();
        for program in all {
            program.send(Signal::Kill(exit));
            program.exited.cancelled().await;
        }
    }

    fn program(&self, id: &str) -> Option<Program> {
        lock(&self.programs).get(id).cloned()
    }

    /// Marks an exit whose event is not published yet, until the caller drops the guard.
    pub(crate) fn exit_event(&self, id: &str) -> DropGuard {
        let published = CancellationToken::new();
        lock(&self.exit_events).insert(id.to_owned(), published.clone());
        published.drop_guard()
    }

    /// Before a removal, waits until an earlier STOPPED of `id` is published. In a real runtime, a removal takes longer
    /// than sending STOPPED, so DELETED is sent before STOPPED only if something delays STOPPED.
    pub(crate) async fn wait_for_exit_event(&self, id: &str) {
        let published = lock(&self.exit_events).get(id).cloned();
        if let Some(published) = published {
            let pause = self.pause(EXIT_EVENT_WAIT);
            published.run_until_cancelled(pause).await;
            lock(&self.exit_events).remove(id);
        }
    }
}

/// Waits until a signal ends the program, and returns the program's exit.
async fn exit_on_signal(
    script: Script,
    mut signals: mpsc::UnboundedReceiver<Signal>,
) -> ExitStatus {
    while let Some(signal) = signals.recv().await {
        match (signal, script.on_term()) {
            (Signal::Kill(exit), _) => return exit,
            (Signal::Term, Some(code)) => return ExitStatus::from_code(code),
            (Signal::Term, None) => {}
        }
    }
    pending().await
}

impl Program {
    /// Returns false if the program has exited.
    fn send(&self, signal: Signal) -> bool {
        self.signals.send(signal).is_ok()
    }
}
