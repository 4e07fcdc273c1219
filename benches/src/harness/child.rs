//! The process of a subject.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::protocol::{Answer, ExpectedPod, Order};
use crate::subject::Kind;

/// The time limit for an answer of a subject. It is long, because the machine may be loaded and calls may be slow.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// A subject. Dropping it kills its process.
pub(super) struct Subject {
    kind: Kind,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl Subject {
    pub(super) fn start(executable: &Path, kind: Kind, socket: &Path) -> Result<Self> {
        let mut process = Command::new(executable)
            .args(["subject", &kind.name(), "--socket"])
            .arg(socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", executable.display()))?;
        let answers = process.stdout.take().context("no stdout")?;
        Ok(Self {
            kind,
            orders: process.stdin.take().context("no stdin")?,
            answers: BufReader::new(answers).lines(),
            _process: process,
        })
    }

    /// Sends a command and receives its answer.
    pub(super) async fn request(&mut self, order: &Order) -> Result<Answer> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        self.orders.write_all(&line).await?;
        self.receive().await
    }

    /// Receives the next answer.
    pub(super) async fn receive(&mut self) -> Result<Answer> {
        let line = tokio::time::timeout(TIME_LIMIT, self.answers.next_line()).await;
        let line = line.with_context(|| format!("no answer of {:?}", self.kind))??;
        let line = line.with_context(|| format!("{:?} has ended", self.kind))?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Waits until the cache of the subject shows the pods `expected`.
    pub(super) async fn sync(&mut self, expected: Vec<ExpectedPod>) -> Result<()> {
        let (events, seconds) = (0, TIME_LIMIT.as_secs_f64() / 2.0);
        self.request(&Order::Await {
            expected,
            events,
            seconds,
        })
        .await?;
        let synced = self.receive().await?.at.is_some();
        ensure!(synced, "{:?} does not show the pods", self.kind);
        Ok(())
    }
}
