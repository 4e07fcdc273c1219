//! A child process of the harness, with orders and answers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::marker::PhantomData;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::signals::check_terminated;
use crate::node::ExpectedPod;
use crate::protocol::{Recorded, SubjectAnswer, SubjectOrder};
use crate::usage::Usage;

/// The interval at which a wait for an answer checks for termination.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Returns the value of the expected answer, or fails.
macro_rules! expect_answer {
    ($answer:expr, $pattern:pat => $value:expr) => {
        match $answer {
            $pattern => $value,
            other => anyhow::bail!("unexpected answer: {other:?}"),
        }
    };
}
pub(super) use expect_answer;

/// The process of a subject.
pub(super) type Subject = Process<SubjectOrder, SubjectAnswer>;

/// A process that receives orders `O` and returns answers `A`. It is killed on drop.
#[derive(Debug)]
pub(super) struct Process<O, A> {
    name: String,
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    of: PhantomData<(O, A)>,
}

impl<O: Serialize, A: DeserializeOwned> Process<O, A> {
    /// Starts a process with these additional environment variables, and waits for its first answer.
    pub(super) fn start(
        executable: &Path,
        args: &[String],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let mut child = Command::new(executable)
            .args(args)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", executable.display()))?;
        let (orders, out) = (child.stdin.take(), child.stdout.take());
        let (send, answers) = channel();
        if let Some(out) = out {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines() {
                    let Ok(line) = line else { return };
                    if send.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let process = Self {
            name: args.join(" "),
            child,
            orders,
            answers,
            of: PhantomData,
        };
        process.receive(Duration::from_secs(150))?;
        Ok(process)
    }

    /// Sends an order.
    pub(super) fn send(&mut self, order: &O) -> Result<()> {
        let Some(orders) = &mut self.orders else {
            bail!("{} does not accept orders", self.name)
        };
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        let sent = orders.write_all(&line).and_then(|()| orders.flush());
        sent.with_context(|| format!("cannot send an order to {}", self.name))
    }

    /// Receives the next answer.
    pub(super) fn receive(&self, within: Duration) -> Result<A> {
        let mut left = within;
        let line = loop {
            check_terminated()?;
            let next = left.min(CHECK_INTERVAL);
            match self.answers.recv_timeout(next) {
                Ok(line) => break line,
                Err(RecvTimeoutError::Timeout) if left > next => left -= next,
                Err(_) => bail!("no answer within {within:?}: {}", self.name),
            }
        };
        serde_json::from_str(&line).with_context(|| format!("{}: {line}", self.name))
    }

    /// Stops the process. Its files and connections stay open.
    pub(super) fn freeze(&self) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, Signal::SIGSTOP).with_context(|| format!("cannot stop {}", self.name))
    }

    /// Sends an order and receives its answer.
    pub(super) fn request(&mut self, order: &O) -> Result<A> {
        self.send(order)?;
        self.receive(Duration::from_secs(150))
    }
}

impl Subject {
    /// Waits until the cache shows these pods.
    pub(super) fn sync(&mut self, expected: Vec<ExpectedPod>) -> Result<()> {
        self.send(&SubjectOrder::Sync { expected })?;
        let answer = self.receive(Duration::from_secs(450))?;
        let synced = expect_answer!(answer, SubjectAnswer::Synced { synced } => synced);
        ensure!(synced, "the subject did not sync: {}", self.name);
        Ok(())
    }

    /// Returns the usage, and the number of bytes that are not freed, if allocations are counted.
    pub(super) fn used(&mut self) -> Result<(Usage, Option<u64>)> {
        let answer = self.request(&SubjectOrder::Use)?;
        Ok(expect_answer!(answer, SubjectAnswer::Used { usage, live_bytes } => (usage, live_bytes)))
    }

    /// Starts to record. Returns the usage so far.
    pub(super) fn record(&mut self) -> Result<Usage> {
        let answer = self.request(&SubjectOrder::Record)?;
        Ok(expect_answer!(answer, SubjectAnswer::Used { usage, .. } => usage))
    }

    pub(super) fn recorded(&mut self) -> Result<Recorded> {
        let answer = self.request(&SubjectOrder::Recorded)?;
        Ok(expect_answer!(answer, SubjectAnswer::Recorded(recorded) => recorded))
    }
}

impl<O, A> Drop for Process<O, A> {
    fn drop(&mut self) {
        // The process exits when its stdin is closed. It is killed in any case.
        self.orders = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
