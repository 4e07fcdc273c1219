//! The command line: what can be said, and what is refused with a reason.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use pleg_cri::Endpoint;

/// Watch what a container runtime does to its pods, at once and without loss.
#[derive(Debug, Parser)]
#[command(
    name = "pleg",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(after_help = "\
Examples:
  pleg watch                       the pods of this node, live
  pleg watch --sim                 those of an embedded simulated runtime
  pleg watch -o json --for 10s     ten seconds of events, one object a line
  pleg pods                        what exists now
  pleg agent                       metrics, liveness and readiness on port 9394
  pleg sim --socket /tmp/cri.sock  a simulated runtime for other tools")]
pub(crate) struct Args {
    /// Log more to standard error (-v: what happens, -vv: how); PLEG_LOG sets a filter
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the pods and their lifecycle events, live
    Watch(WatchArgs),
    /// Show what exists now: every sandbox and container
    Pods(PodsArgs),
    /// Run until stopped; serve metrics, liveness and readiness
    Agent(AgentArgs),
    /// Run a simulated container runtime for other tools
    Sim(SimArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Connection {
    /// The runtime's socket, as in crictl; without it, well-known sockets are tried. Where there
    /// is none, watch shows the embedded runtime, pods fails, agent waits and is not ready
    #[arg(
        short,
        long,
        value_name = "ENDPOINT",
        env = "CONTAINER_RUNTIME_ENDPOINT"
    )]
    pub(crate) runtime_endpoint: Option<Endpoint>,
    /// Use the embedded simulated runtime, with pods that come, crash and go
    #[arg(long, conflicts_with = "runtime_endpoint")]
    pub(crate) sim: bool,
    /// Where to hear from
    #[arg(long, value_enum, default_value_t = Mode::Evented)]
    pub(crate) mode: Mode,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Mode {
    /// The event stream, checked by lists that grow rare while nothing is found missing
    Evented,
    /// Lists alone, every second, as the kubelet's generic PLEG does
    Polling,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// An aligned table
    Table,
    /// One JSON object a line
    Json,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// End after this long, for example 10s or 1m30s
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub(crate) lasting: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PodsArgs {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AgentArgs {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Where to serve /metrics, /healthz and /readyz; a loopback address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9394", value_parser = loopback)]
    pub(crate) listen: SocketAddr,
    /// Period of the full list while the event stream is not confirmed
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    pub(crate) relist_period: Duration,
    /// The longest period of the full list, on a clean event stream
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub(crate) relist_period_max: Duration,
    /// Not ready after this long without a complete list
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = duration)]
    pub(crate) unready_after: Duration,
    /// Ask the runtime for its version this often, as a sign of life
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) liveness: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SimArgs {
    /// Where to listen
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: PathBuf,
    /// Start without pods that come, crash and go: only what clients make exists
    #[arg(long)]
    pub(crate) empty: bool,
    /// What the simulated ids and lives follow from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// A span of time as people write it: `10s`, `1m30s`, `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = |why: &str| format!("{why}; write for example 500ms, 10s or 1m30s");
    let span = jiff::SignedDuration::from_str(text).map_err(|_| wrong("not a duration"))?;
    let span = Duration::try_from(span).map_err(|_| wrong("a duration cannot be negative"))?;
    if span.is_zero() {
        return Err(wrong("a duration of zero is of no use"));
    }
    Ok(span)
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let wrong = "write for example 127.0.0.1:9394 or [::1]:9394";
    let address = SocketAddr::from_str(text).map_err(|_| format!("not an address; {wrong}"))?;
    if !address.ip().is_loopback() {
        return Err(format!(
            "not a loopback address: pod names are served there; {wrong}"
        ));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        for wrong in ["", "10", "-3s", "0s", "soon"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_loopback_is_listened_on() {
        assert!(loopback("127.0.0.1:1").is_ok());
        assert!(loopback("[::1]:1").is_ok());
        assert!(loopback("0.0.0.0:1").is_err());
        assert!(loopback("localhost").is_err());
    }
}
