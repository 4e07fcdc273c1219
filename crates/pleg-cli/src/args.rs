//! The command line: what can be said, and what is refused with a reason.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use pleg_cri::Endpoint;
use pleg_sim::Mode as Simulated;

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
  pleg bench                       what events save on this node, in two minutes
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
    /// Measure what each mode costs on this node, and how soon it knows
    Bench(BenchArgs),
    /// Run a simulated container runtime for other tools
    Sim(SimArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Connection {
    #[command(flatten)]
    pub(crate) runtime: Which,
    /// Where to hear from
    #[arg(long, value_enum, default_value_t = Mode::Evented)]
    pub(crate) mode: Mode,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Which {
    /// The runtime's socket, as in crictl; without it, well-known sockets are tried. Where there
    /// is none, watch and bench use the embedded runtime, pods fails, agent waits and is not ready
    #[arg(
        short,
        long,
        value_name = "ENDPOINT",
        env = "CONTAINER_RUNTIME_ENDPOINT"
    )]
    pub(crate) runtime_endpoint: Option<Endpoint>,
    /// Use the embedded simulated runtime, with pods that come, crash and go; --sim=crio and so
    /// on for another than containerd 2 (pleg sim --help lists them)
    #[arg(
        long,
        value_name = "MODE",
        value_parser = modes(),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = Simulated::Containerd2.name(),
        hide_possible_values = true,
        conflicts_with = "runtime_endpoint"
    )]
    pub(crate) sim: Option<Simulated>,
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
    /// How often the runtime is probed, by one status call: a runtime that hangs is reported within
    /// this period and 3 s
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub(crate) probe_period: Duration,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only lists, statuses and the event stream are read: nothing on the node is changed. The runtime's
CPU time is that of all its clients. The first minute is evented mode at its worst: its lists grow
rare only while nothing is found missing.

Examples:
  pleg bench                       this node's runtime, a minute in each mode
  pleg bench --for 10m -o json     longer, one object a mode
  pleg bench --sim --pods 1000     a simulated node, in a process of its own")]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) runtime: Which,
    /// How long in each mode
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub(crate) lasting: Duration,
    /// How many pods the simulated node has
    #[arg(long, value_name = "NUMBER", default_value_t = 110)]
    pub(crate) pods: usize,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = sim_help(), subcommand_value_name = "ctl")]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SimCommand>,
    /// Where to listen; control listens beside it, on PATH.ctl
    #[arg(long, value_name = "PATH", required = true)]
    pub(crate) socket: Option<PathBuf>,
    /// Which runtime to be (see below)
    #[arg(
        long,
        value_name = "MODE",
        value_parser = modes(),
        default_value = Simulated::Containerd2.name(),
        hide_possible_values = true
    )]
    pub(crate) mode: Simulated,
    /// Which version of it; habits follow the version
    #[arg(long, value_name = "VERSION")]
    pub(crate) runtime_version: Option<String>,
    /// What to do wrong (see below); may be given many times
    #[arg(long, value_name = "KNOB=VALUE", value_parser = knob)]
    pub(crate) chaos: Vec<String>,
    /// Start without pods that come, crash and go: only what clients make exists
    #[arg(long)]
    pub(crate) empty: bool,
    /// Start with so many pods, and keep so many up; without it they come one by one, up to six
    #[arg(long, value_name = "NUMBER", conflicts_with = "empty")]
    pub(crate) pods: Option<usize>,
    /// What the simulated ids, lives and dice follow from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Command a simulated runtime that runs
    Ctl(CtlArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = ctl_help())]
pub(crate) struct CtlArgs {
    /// The socket of the simulated runtime
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: PathBuf,
    /// What it is to do
    #[arg(value_name = "COMMAND", default_value = "show")]
    pub(crate) command: Vec<String>,
}

fn modes() -> impl TypedValueParser<Value = Simulated> {
    let modes = Simulated::ALL.map(|mode| PossibleValue::new(mode.name()).help(mode.about()));
    PossibleValuesParser::new(modes).try_map(|name| name.parse())
}

/// Checks that it is one; it is set later.
fn knob(text: &str) -> Result<String, pleg_sim::KnobError> {
    let mut trial = pleg_sim::Chaos::default();
    trial.set(text).map(|_| text.to_owned())
}

fn sim_help() -> String {
    let mut text = String::from("Modes:\n");
    for mode in Simulated::ALL {
        let _ = writeln!(
            text,
            "  {mode:<15} {} ({})",
            mode.about(),
            mode.default_version()
        );
    }
    text.push_str("\nKnobs of chaos, by --chaos, or while it runs by ctl:\n");
    for knob in pleg_sim::help() {
        let _ = writeln!(text, "  {:<25} {}", knob.usage, knob.about);
    }
    text.push_str(
        "
  RATE is 5%, on, or #3 for the third from now; CALLS is all, a call such as list_containers,
  pod.UID or pod.* (calls that name that pod's, or any pod's, sandbox or containers)

Examples:
  pleg sim --socket /tmp/cri.sock --mode crio --runtime-version 1.31.0
  pleg sim --socket /tmp/cri.sock --chaos drop=5% --chaos list_containers.latency=300ms
  pleg sim ctl --socket /tmp/cri.sock list_containers.hang=30s
  pleg watch -r unix:///tmp/cri.sock",
    );
    text
}

fn ctl_help() -> String {
    let mut text = String::from("Commands:\n");
    for (command, about) in pleg_sim::COMMANDS {
        let _ = writeln!(text, "  {command}\n      {about}");
    }
    text.push_str(
        "
Examples:
  pleg sim ctl --socket /tmp/cri.sock
  pleg sim ctl --socket /tmp/cri.sock drop=5% duplicate=#1
  pleg sim ctl --socket /tmp/cri.sock restart kill down=5s starting=2s
  echo calm | nc -UN /tmp/cri.sock.ctl",
    );
    text
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
