//! The programs that containers run: each a task that waits for its end and then tells it.

use std::{sync::Arc, time::Duration};

use pleg_cri::v1::ContainerEventType as Kind;
use tokio::sync::watch;

use crate::{
    engine::{Engine, lock},
    script::{KILLED, Script},
};

/// How long taking a sandbox or container apart lasts at most.
const TEAR_DOWN: Duration = Duration::from_millis(50);

/// A handle on a running program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    order: watch::Sender<Order>,
    ended: watch::Receiver<bool>,
}

/// What a program is told; a later one overrules an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Live,
    Stop,
    Kill(End),
}

/// How a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) code: i32,
    pub(crate) reason: &'static str,
}

impl End {
    pub(crate) const OOM: Self = Self {
        code: KILLED,
        reason: "OOMKilled",
    };
    pub(crate) const LOST: Self = Self {
        code: 255,
        reason: "Unknown",
    };

    pub(crate) const fn by_itself(code: i32) -> Self {
        let reason = if code == 0 { "Completed" } else { "Error" };
        Self { code, reason }
    }
}

impl Engine {
    /// A container's life, in a task of its own.
    pub(crate) fn spawn_program(self: &Arc<Self>, id: &str, script: Script) {
        let (order, orders) = watch::channel(Order::Live);
        let (end, ended) = watch::channel(false);
        lock(&self.programs).insert(id.to_owned(), Program { order, ended });
        let (engine, id) = (Arc::clone(self), id.to_owned());
        self.tasks.spawn(async move {
            let how = tokio::select! {
                biased;
                () = engine.stop.cancelled() => return,
                how = engine.live(script, orders) => how,
            };
            let now = engine.now();
            // Whether it was out of memory, some runtimes find out only after they told its end.
            let late = how == End::OOM && !engine.habits.knows_oom_at_once;
            let first = if late { End::by_itself(how.code) } else { how };
            let sandbox = engine.world().container_exited(&id, first, now);
            lock(&engine.programs).remove(&id);
            let untold = engine.begin_telling(&id);
            // Whoever waits for the end goes on before it is told.
            end.send_replace(true);
            if let Some(sandbox) = sandbox {
                engine
                    .tell(Kind::ContainerStoppedEvent, &sandbox, &id)
                    .await;
            }
            if late {
                engine.world().learn_reason(&id, how.reason);
            }
            engine.end_telling(&id, untold);
        });
    }

    /// Until it ends, and how.
    async fn live(&self, script: Script, mut orders: watch::Receiver<Order>) -> End {
        let by_itself = async {
            match script {
                Script::Exit { code, after } => {
                    self.pause(after).await;
                    End::by_itself(code)
                }
                Script::Oom { after } => {
                    self.pause(after).await;
                    End::OOM
                }
                Script::Run | Script::IgnoreTerm | Script::FailStart => {
                    std::future::pending().await
                }
            }
        };
        let ordered = async {
            loop {
                let order = *orders.borrow_and_update();
                match (order, script.on_term()) {
                    (Order::Kill(end), _) => return end,
                    (Order::Stop, Some(code)) => return End::by_itself(code),
                    (Order::Live, _) | (Order::Stop, None) => {}
                }
                if orders.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            end = by_itself => end,
            end = ordered => end,
        }
    }

    /// Ends a container, with that time for `SIGTERM`. Returns when it has ended; its end may be
    /// told later. Nothing to do is no error.
    pub(crate) async fn end_container(&self, id: &str, grace: Duration) {
        let Some(mut program) = self.program(id) else {
            return;
        };
        if !grace.is_zero() {
            program.give(Order::Stop);
            tokio::select! {
                () = program.wait() => return,
                () = self.pause(grace) => {}
            }
        }
        program.give(Order::Kill(End::by_itself(KILLED)));
        program.wait().await;
    }

    /// Ends a running container as if by itself. False if it does not run.
    pub(crate) fn kill_container(&self, id: &str, end: End) -> bool {
        self.program(id).is_some_and(|program| {
            program.give(Order::Kill(end));
            true
        })
    }

    /// Ends everything that runs, and returns when it has ended.
    pub(crate) async fn end_all(&self, end: End) {
        let all: Vec<_> = lock(&self.programs).values().cloned().collect();
        for mut program in all {
            program.give(Order::Kill(end));
            program.wait().await;
        }
    }

    pub(crate) async fn until_ended(&self, id: &str) {
        if let Some(mut program) = self.program(id) {
            program.wait().await;
        }
    }

    fn program(&self, id: &str) -> Option<Program> {
        lock(&self.programs).get(id).cloned()
    }

    pub(crate) fn begin_telling(&self, id: &str) -> watch::Sender<()> {
        let (untold, told) = watch::channel(());
        lock(&self.untold).insert(id.to_owned(), told);
        untold
    }

    pub(crate) fn end_telling(&self, id: &str, untold: watch::Sender<()>) {
        lock(&self.untold).remove(id);
        drop(untold);
    }

    /// What a runtime does between an end and a removal takes longer than telling the end does;
    /// so a removal is told first only if something holds the telling up.
    pub(crate) async fn tear_down(&self, id: &str) {
        let told = lock(&self.untold).get(id).cloned();
        if let Some(mut told) = told {
            tokio::select! {
                _ = told.changed() => {}
                () = self.pause(TEAR_DOWN) => {}
            }
        }
    }
}

impl Program {
    fn give(&self, order: Order) {
        self.order.send_if_modified(|current| {
            let news = matches!(
                (*current, order),
                (Order::Live, _) | (Order::Stop, Order::Kill(_))
            );
            if news {
                *current = order;
            }
            news
        });
    }

    async fn wait(&mut self) {
        // An error means that its task is gone: it has ended, or everything has.
        let _ = self.ended.wait_for(|ended| *ended).await;
    }
}
