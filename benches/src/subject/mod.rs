//! A subject: one way to observe the runtime, in a separate process, so that its resource usage is
//! measured alone. All subjects run on one thread, with the same transport and allocator.

mod control;
mod full_decode;
mod generators;
mod map_events;
mod raw;
mod receipts;
mod staleness;
mod watch;
mod workers;

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use pleg_cri::{CriConfig, CriRuntime};
use serde::{Deserialize, Serialize};

use crate::AllocationCounter;

/// The kind of a subject. Committed results contain the names of serde.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Reads events, decodes and drops them.
    Drain,
    /// Decodes both lists and drops the rows.
    Decode,
    /// Keeps the decoded statuses of all pods.
    #[serde(rename = "owned")]
    #[value(name = "owned")]
    Statuses,
    /// Makes the calls that this project makes on an idle node, and drops the answers.
    Calls,
    /// Upstream's generic PLEG with on-demand relist (1.36).
    Generic,
    /// This project in polling mode.
    #[serde(rename = "best-generic")]
    #[value(name = "best-generic")]
    Polling,
    /// Upstream's evented PLEG up to 1.36.
    Evented,
    /// Upstream's PLEG with events as hints (1.37).
    Hint,
    /// This project.
    Ours,
}

impl Kind {
    /// Whether it reads the event stream.
    #[must_use]
    pub const fn subscribes(self) -> bool {
        matches!(self, Self::Drain | Self::Evented | Self::Hint | Self::Ours)
    }

    /// Whether it has a cache.
    #[must_use]
    pub const fn has_cache(self) -> bool {
        !matches!(
            self,
            Self::Drain | Self::Decode | Self::Statuses | Self::Calls
        )
    }

    /// Its name on the command line.
    #[must_use]
    pub fn argument(self) -> String {
        let name = self.to_possible_value();
        name.map_or_else(String::new, |name| name.get_name().to_owned())
    }

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drain => "raw drain",
            Self::Decode => "prost decode",
            Self::Statuses => "decoded statuses",
            Self::Calls => "calls alone",
            Self::Generic => "generic",
            Self::Polling => "pleg, polling",
            Self::Evented => "evented ≤ 1.36",
            Self::Hint => "hint 1.37",
            Self::Ours => "pleg",
        }
    }
}

/// The settings of a subject.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// The kind of the subject.
    #[arg(value_enum)]
    pub kind: Kind,
    /// The runtime's socket.
    #[arg(long)]
    pub socket: PathBuf,
    /// Relist only when ordered.
    #[arg(long)]
    pub without_timer: bool,
    /// Record the time at which each event is received.
    #[arg(long)]
    pub stamp: bool,
    /// Do not read announcements.
    #[arg(long)]
    pub stalled: bool,
    /// Run pod workers after announcements.
    #[arg(long)]
    pub workers: bool,
    /// Probe the runtime once a second, if the subject supports it.
    #[arg(long)]
    pub probing: bool,
}

impl Settings {
    fn runtime(&self) -> Result<CriRuntime> {
        let endpoint = format!("unix://{}", self.socket.display()).parse()?;
        let config = CriConfig::new(endpoint);
        // Its cache is made of the statuses in events.
        let config = match self.kind {
            Kind::Evented => config.with_whole_events(),
            _ => config,
        };
        Ok(CriRuntime::new(config)?)
    }
}

/// Runs until the harness closes stdin.
///
/// # Errors
/// If the runtime cannot be reached, or an order is invalid.
pub async fn run(settings: Settings, allocated: AllocationCounter) -> Result<()> {
    match settings.kind {
        Kind::Drain => raw::drain(&settings).await,
        Kind::Decode => raw::decode(&settings).await,
        Kind::Statuses => raw::statuses(&settings, allocated).await,
        Kind::Calls => raw::call(&settings).await,
        _ => generators::run(&settings, allocated).await,
    }
}
