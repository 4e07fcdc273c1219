//! A subject: one way to observe the runtime, in a process of its own, so that the harness measures its resource
//! usage alone. Each subject runs on one thread, with the same transport and allocator as the other subjects.

mod control;
mod drain;
mod full_decode;
mod workers;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use pleg::Pleg;
use pleg_cri::{CriConfig, CriRuntime};
use rivals::{Ours, Port};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::LiveBytes;
use crate::protocol::{Answer, Order};
use control::control;
use full_decode::FullDecode;

/// The kind of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[value(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Only receives, decodes and drops events, to measure the CPU time of client and transport.
    RuntimeAlone,
    /// Upstream's generic PLEG with relists on demand (1.36).
    Generic,
    /// Upstream's PLEG with events as hints (1.37).
    Hint,
    /// This project.
    Ours,
}

impl Kind {
    /// The name of the subject on the command line and in results.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The settings of a subject.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Settings {
    /// The kind of the subject.
    #[arg(value_enum)]
    kind: Kind,
    /// The runtime's socket.
    #[arg(long)]
    socket: PathBuf,
}

/// Runs until the harness closes stdin.
pub(crate) async fn run(settings: &Settings, live_bytes: LiveBytes) -> Result<()> {
    let endpoint = format!("unix://{}", settings.socket.display()).parse()?;
    let runtime = CriRuntime::new(CriConfig::new(endpoint))?;
    let client = runtime.client();
    let orders = Orders::of_stdin();
    match settings.kind {
        Kind::RuntimeAlone => drain::drain(&runtime, orders, live_bytes).await,
        Kind::Generic => {
            let generic = Port::generic(FullDecode(runtime));
            Box::pin(control(generic, client, orders, live_bytes)).await
        }
        Kind::Hint => {
            let hint = Port::hint(FullDecode(runtime));
            Box::pin(control(hint, client, orders, live_bytes)).await
        }
        Kind::Ours => {
            let ours = Ours::start(Pleg::builder(runtime))?;
            Box::pin(control(ours, client, orders, live_bytes)).await
        }
    }
}

/// The commands of the harness.
struct Orders(mpsc::Receiver<std::io::Result<String>>);

impl Orders {
    /// Reads the commands in a thread, because reads of stdin block.
    fn of_stdin() -> Self {
        let (send, orders) = mpsc::channel(16);
        std::thread::spawn(move || {
            let mut lines = std::io::stdin().lines();
            lines.try_for_each(|line| send.blocking_send(line))
        });
        Self(orders)
    }

    /// The next command; `None` when the harness closed stdin. Cancel safe.
    async fn next(&mut self) -> Result<Option<Order>> {
        let line = self.0.recv().await.transpose()?;
        Ok(line.map(|line| serde_json::from_str(&line)).transpose()?)
    }

    fn answer(answer: &Answer) -> Result<()> {
        let mut line = serde_json::to_vec(answer)?;
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        out.write_all(&line)?;
        Ok(out.flush()?)
    }
}
