//! `pleg doctor`: reads the node for some seconds, and says whether its PLEG is unhealthy or will be, why, and
//! what to do.
//!
//! The findings follow from the recorded evidence alone, so a recording gives the same ones elsewhere.

mod recording;
mod report;

use std::process::ExitCode;

use pleg::core::Instant;
use serde::{Deserialize, Serialize};

use crate::args::{DoctorArgs, Output};
use crate::connect::Target;
use crate::log::notice;
use crate::picture::finding::{self, Finding, Severity};
use crate::picture::host::{self, Host, HostTarget};
use crate::picture::runtime::{self, Evidence, NOT_EXAMINED};

/// Nothing could be examined.
const FAILED: u8 = 3;

pub(crate) async fn run(args: DoctorArgs) -> ExitCode {
    let code = examine(args).await.unwrap_or_else(|error| {
        crate::log::show_error(&error);
        FAILED
    });
    ExitCode::from(code)
}

/// Returns an exit code as plugins of monitoring systems have.
async fn examine(args: DoctorArgs) -> anyhow::Result<u8> {
    let examination = match &args.replay {
        Some(file) => recording::load(file)?,
        None => Box::pin(Examination::of_node(&args)).await?,
    };
    if let Some(file) = &args.record {
        recording::save(&examination, args.names, file)?;
        notice(&format!("recorded in {}", file.display()));
    }
    let findings = examination.findings();
    match args.output {
        Output::Json => report::json(&examination, &findings)?,
        Output::Table => report::text(&examination, &findings)?,
    }
    Ok(match findings.first().map(|finding| finding.severity) {
        _ if findings.iter().any(|finding| finding.code == NOT_EXAMINED) => FAILED,
        None | Some(Severity::Info) => 0,
        Some(Severity::Warning) => 1,
        Some(Severity::Critical) => 2,
    })
}

/// All evidence of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Examination {
    /// When it began: UTC, RFC 3339.
    at: String,
    seconds: f64,
    runtime: Evidence,
    host: Host,
}

impl Examination {
    async fn of_node(args: &DoctorArgs) -> anyhow::Result<Self> {
        let target = Target::choose(&args.connection.runtime)?;
        let clock = target.meter.clock();
        let (began, origin) = (clock.wall(), clock.wall_at(Instant::ORIGIN));
        notice(&format!("reading {target} for {:?}", args.duration));
        let socket = target.runtime.socket();
        let mut of_host = HostTarget::new(socket.filter(|_| !target.runtime.is_embedded));
        of_host.root.clone_from(&args.root);
        let (events, duration) = (args.connection.events, args.duration);
        let host = Box::pin(host::collect(&of_host, duration));
        let both = runtime::collect(&target, events, duration, origin, host);
        let (runtime, host) = Box::pin(both).await?;
        target.close().await;
        Ok(Self {
            at: crate::json::utc(began).to_string(),
            seconds: args.duration.as_secs_f64(),
            runtime,
            host,
        })
    }

    /// The worst first; of equally bad ones the cause.
    fn findings(&self) -> Vec<Finding> {
        let mut findings = runtime::check(&self.runtime);
        findings.extend(host::check(&self.host, self.runtime.calls()));
        finding::arrange(findings)
    }
}
