//! The command line arguments, their help texts and their validation.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use pleg_cri::Endpoint;
use pleg_sim::Mode as Simulated;

use crate::agent_client::AgentUrl;
use crate::filter::{Filters, PodFilter, Selector};
use crate::http::Listen;
use crate::log::LogFormat;
use crate::picture::host::ASK_MOUNT;
use crate::text::{width, wrapped};

/// Show and export the lifecycle events of the pods on a node, without delay and without loss.
#[derive(Debug, Parser)]
#[command(name = "pleg", version, max_term_width = 100)]
#[command(arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  pleg watch                       show the lifecycle events of this node's pods
  pleg watch --sim                 the same, for an embedded simulated runtime
  pleg watch -o json --for 10s     events of ten seconds, one JSON object a line
  pleg watch --failed -n shop      show failed containers in one namespace
  pleg watch --since 10m           begin with the agent's last ten minutes
  pleg top                         show pods, events and health, live
  pleg pods                        show all sandboxes and containers
  pleg agent                       serve metrics and health on port 9394
  pleg check                       ask the agent whether there is a problem
  pleg sim --socket /tmp/cri.sock  run a simulated runtime for other tools")]
pub(crate) struct Args {
    /// Log more to standard error (-v: info, -vv: debug); PLEG_LOG sets a filter
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    /// The format of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT", global = true)]
    pub(crate) log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show lifecycle events as they happen
    Watch(WatchArgs),
    /// Show pods, events and health on the terminal, live
    Top(TopArgs),
    /// Show all sandboxes and containers that exist now
    Pods(PodsArgs),
    /// Run until stopped; serve metrics, liveness and readiness
    Agent(AgentArgs),
    /// Ask the agent whether there is a problem: a plugin of the node-problem-detector
    Check(CheckArgs),
    /// Find out whether PLEG is unhealthy or will be, why, and what to do
    Doctor(DoctorArgs),
    /// Run a simulated container runtime for other tools
    Sim(SimArgs),
    /// Read one mount, in a process of its own, because the mount may hang
    #[command(hide = true, name = ASK_MOUNT)]
    AskMount { path: PathBuf },
    /// Check a configuration file of the agent
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages
    Man {
        /// The directory for the pages. It is created if it does not exist
        dir: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration file of pleg agent, and the token and certificates that it names
    ///
    /// Flags and environment variables of the agent are not considered.
    Check {
        /// The configuration file
        file: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConnectionArgs {
    #[command(flatten)]
    pub(crate) runtime: RuntimeArgs,
    /// Whether to subscribe to the runtime's events; auto: unless that may do harm
    #[arg(long, value_enum, default_value_t = EventsPolicy::Auto, value_name = "WHEN")]
    pub(crate) events: EventsPolicy,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RuntimeArgs {
    /// The socket of the runtime, as in crictl [env: PLEG_RUNTIME_ENDPOINT or CONTAINER_RUNTIME_ENDPOINT].
    /// Without this setting: the socket in /etc/crictl.yaml, or the kubelet's, or the first well-known one. If none
    /// exists, pleg agent waits and is not ready, and pleg watch shows simulated pods if its output is a terminal
    #[arg(short, long, value_name = "ENDPOINT")]
    pub(crate) runtime_endpoint: Option<Endpoint>,
    /// Use the embedded simulated runtime, with a workload of pods that are created, crash and are
    /// removed. It simulates containerd 2, or another runtime: --sim=crio (see pleg sim --help)
    #[arg(long, value_name = "MODE", value_parser = modes(), hide_possible_values = true)]
    #[arg(num_args = 0..=1, require_equals = true, conflicts_with = "runtime_endpoint")]
    #[arg(default_missing_value = Simulated::Containerd2.name())]
    pub(crate) sim: Option<Simulated>,
    /// The configuration file or environment variable that set `runtime_endpoint`. `None` if the flag set it.
    #[arg(skip)]
    pub(crate) origin: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EventsPolicy {
    /// Subscribe, unless that may do harm. containerd 1.x, and CRI-O up to 1.27, give each event to one
    /// subscriber only: there, poll while a kubelet with EventedPLEG runs or cannot be ruled out. CRI-O 1.28 to 1.32
    /// may crash when a client ends its event stream: there, poll
    Auto,
    /// Always
    Always,
    /// Never. Poll: list every second, like the kubelet's generic PLEG
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A table
    Table,
    /// One JSON object per line
    Json,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
What existed at the start is shown first, marked initial. Then come the line Synced and changes. \
A pod that could not be inspected before Synced is shown after it, marked initial.

Changes of health are shown among the events: Degraded and Recovered, NotReady and Ready. \
docs/runbook.md explains their codes.

Examples:
  pleg watch shop/cart-7f9         follow one pod
  pleg watch -n shop -l app=web    pods with a label
  pleg watch --failed --no-initial exits with a code other than 0 from now on
  pleg watch --type Degraded,Recovered
  pleg watch --since 10m --agent unix:///run/pleg/agent.sock")]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// Exit after this time, for example 10s or 1m30s
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Show what a running agent sees, instead of the runtime: http://HOST:PORT, https://HOST:PORT or
    /// unix:///PATH
    #[arg(long, value_name = "URL", conflicts_with_all = ["runtime_endpoint", "sim", "selector"])]
    pub(crate) agent: Option<AgentUrl>,
    /// Begin with what the agent recorded in the last DURATION, for example 10m. Without --agent, ask the
    /// agent on 127.0.0.1:9394
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    #[arg(conflicts_with_all = ["runtime_endpoint", "sim", "selector"])]
    pub(crate) since: Option<Duration>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    #[command(flatten)]
    pub(crate) filters: Filters,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The key ? shows all keys. Colours are not used if NO_COLOR is set. A simulated node, old data, an \
unreachable runtime and degraded reasons are named in the first lines.

Examples:
  pleg top                         the pods of this node
  pleg top -n shop -l app=web      pods of one namespace with a label
  pleg top --agent unix:///run/pleg/agent.sock
  pleg top --sim                   a simulated node")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Show what a running agent sees, instead of the runtime: http://HOST:PORT, https://HOST:PORT or
    /// unix:///PATH
    #[arg(long, value_name = "URL", conflicts_with_all = ["runtime_endpoint", "sim", "events"])]
    pub(crate) agent: Option<AgentUrl>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// Only pods in this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Only pods with these labels, for example app=web,tier!=cache,canary
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(crate) selector: Option<Selector>,
}

/// Access to an agent.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ClientArgs {
    /// A file with a bearer token that the agent accepts: the token itself, not its digest
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The authorities that sign the certificates of https:// agents (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The certificate to show to an https:// agent (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["ca", "key"])]
    pub(crate) cert: Option<PathBuf>,
    /// The private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command prints a line and exits with 0 if there is no problem, 1 if there is one, and 2 if the \
agent does not answer, as the node-problem-detector requires of a custom plugin (type permanent).")]
pub(crate) struct CheckArgs {
    /// The agent: http://HOST:PORT, https://HOST:PORT or unix:///PATH
    #[arg(long, value_name = "URL", default_value_t)]
    pub(crate) agent: AgentUrl,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// Ignore degraded reasons: report a problem only if the node's pods are not known
    #[arg(long)]
    pub(crate) ready_only: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command only reads: the runtime's lists, statuses and events, /proc, the kubelet's health and \
log. To see the host's processes, run it on the node itself, or in a container with hostPID. \
docs/runbook.md explains each finding.

The exit code is 0 if nothing was found, or only information, 1 for a warning, 2 if PLEG is unhealthy \
or pods are stuck, and 3 if nothing could be examined.

Examples:
  pleg doctor                      this node, for 20 s
  pleg doctor -o json | jq -r '.findings[].code'
  pleg doctor --record node.json   to show it to somebody else; without names
  pleg doctor --replay node.json")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// How long to observe the node
    #[arg(long = "for", value_name = "DURATION", default_value = "20s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// The output format; JSON contains all evidence
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// Write the evidence to this file. Names of pods, containers and mounts are replaced by numbers, and
    /// messages of the runtime are left out
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Record names and messages as well
    #[arg(long, requires = "record")]
    pub(crate) names: bool,
    /// Show the findings of this recording, instead of this node's
    #[arg(long, value_name = "FILE", conflicts_with_all = ["runtime_endpoint", "sim", "record", "duration"])]
    pub(crate) replay: Option<PathBuf>,
    /// The root of the host's file system
    #[arg(long, hide = true, default_value = "/")]
    pub(crate) root: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PodsArgs {
    #[command(flatten)]
    pub(crate) runtime: RuntimeArgs,
    #[command(flatten)]
    pub(crate) filter: PodFilter,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each setting is also an environment variable and a key of the configuration file: --relist-period is \
PLEG_RELIST_PERIOD and relist-period. Flags override variables, which override the file.

Examples:
  pleg agent --listen unix:///run/pleg/agent.sock
  pleg agent --config /etc/pleg/agent.toml
  pleg config check /etc/pleg/agent.toml")]
pub(crate) struct AgentArgs {
    /// Read settings from this file (TOML) [env: PLEG_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Where to serve the page for people at /, and /metrics, /healthz, /readyz (also /readyz?verbose),
    /// /debug/pods, /debug/view, /debug/live and /debug/events: an address or unix:///path. An address that
    /// is not a loopback address needs --token-file or --tls-client-ca
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9394")]
    pub(crate) listen: Listen,
    /// Where else to serve /healthz and /readyz, and nothing else: without TLS, without a token and
    /// without names of pods. For the kubelet's probes, which have no certificate, if --tls-client-ca is set
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) health_listen: Option<Listen>,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// The relist period until the event stream has been open for 1 s and a list was read in that time, and
    /// after a missed event
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    pub(crate) relist_period: Duration,
    /// The maximum relist period. The period grows up to it while no event is missed
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub(crate) relist_period_max: Duration,
    /// Report not ready after this time without a complete list
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = duration)]
    pub(crate) unready_after: Duration,
    /// How often the runtime is probed with a status call. A hanging runtime is reported within this
    /// period plus 3 s
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub(crate) probe_period: Duration,
    /// On /metrics, also show the kubelet's names (kubelet_*) and the buckets of all histograms: some
    /// 350 series instead of 100. Sums over kubelet_* then count this node twice
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "false", default_missing_value = "true")]
    pub(crate) kubelet_names: bool,
}

/// Who may read what the agent serves.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct AccessArgs {
    /// A file with the SHA-256 of each bearer token that is accepted (printf %s TOKEN | sha256sum), one in
    /// a line. To a client without a token, /healthz and /readyz answer without details. SIGHUP makes the agent
    /// read this file and the files of tls-cert, tls-key and tls-client-ca again
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Serve TLS 1.3 with this chain of certificates (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the first certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Accept only clients whose certificate an authority in this file has signed (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_client_ca: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = sim_help(), subcommand_value_name = "ctl")]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SimCommand>,
    /// The path of the socket. The control socket is PATH.ctl
    #[arg(long, value_name = "PATH", required = true)]
    pub(crate) socket: Option<PathBuf>,
    /// The runtime to simulate (see below)
    #[arg(long, value_name = "MODE", value_parser = modes(), hide_possible_values = true)]
    #[arg(default_value = Simulated::Containerd2.name())]
    pub(crate) mode: Simulated,
    /// The version of the runtime, which selects its behavior
    #[arg(long, value_name = "VERSION")]
    pub(crate) runtime_version: Option<String>,
    /// Set a fault (see below); may be repeated
    #[arg(long, value_name = "KNOB=VALUE", value_parser = knob)]
    pub(crate) chaos: Vec<String>,
    /// Run no workload: only clients create pods
    #[arg(long)]
    pub(crate) empty: bool,
    /// The number of pods of the workload, created at the start. By default six pods are created
    /// one by one
    #[arg(long, value_name = "NUMBER", conflicts_with = "empty")]
    pub(crate) pods: Option<usize>,
    /// The seed of the simulated ids, the workload and the random faults
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Send a command to a running simulated runtime
    #[command(after_help = ctl_help())]
    Ctl {
        /// The socket of the simulated runtime
        #[arg(long, value_name = "PATH")]
        socket: PathBuf,
        /// The command (see below)
        #[arg(value_name = "COMMAND", default_value = "show")]
        command: Vec<String>,
    },
}

fn modes() -> impl TypedValueParser<Value = Simulated> {
    let modes = Simulated::ALL.map(|mode| PossibleValue::new(mode.name()).help(mode.about()));
    PossibleValuesParser::new(modes).try_map(|name| name.parse())
}

/// Checks a `KNOB=VALUE`, which names a fault. The simulated runtime sets this fault when it starts.
fn knob(text: &str) -> Result<String, pleg_sim::SimError> {
    pleg_sim::check_knob(text).map(|()| text.to_owned())
}

fn sim_help() -> String {
    let about = |mode: Simulated| format!("{} ({})", mode.about(), mode.default_version());
    let modes = Simulated::ALL.map(|mode| entry(mode.name(), &about(mode)));
    let modes = modes.concat();
    let faults = pleg_sim::knob_help().into_iter();
    let faults: String = faults.map(|(usage, about)| entry(&usage, about)).collect();
    format!(
        "\
Modes:
{modes}
Faults, for --chaos and for pleg sim ctl:
{faults}
RATE is 5%, on (always), or #3 (the third case from now). CALLS is all, a call (list_containers), \
or pod.UID or pod.* for calls that name a sandbox or container of this pod or of any pod.

Examples:
  pleg sim --socket /tmp/cri.sock --mode crio --runtime-version 1.31.0
  pleg sim --socket /tmp/cri.sock --chaos drop=5% --chaos all.latency=300ms
  pleg sim ctl --socket /tmp/cri.sock list_containers.hang=30s
  pleg watch -r unix:///tmp/cri.sock"
    )
}

fn ctl_help() -> String {
    let commands = pleg_sim::control_commands().map(|(name, about)| entry(name, about));
    let commands: String = commands.collect();
    format!(
        "\
Commands:
{commands}
Examples:
  pleg sim ctl --socket /tmp/cri.sock
  pleg sim ctl --socket /tmp/cri.sock drop=5% duplicate=#1
  pleg sim ctl --socket /tmp/cri.sock restart kill down=5s starting=2s
  echo reset | nc -UN /tmp/cri.sock.ctl"
    )
}

/// An entry of a help text: a name and its explanation, in lines of at most 80 characters.
fn entry(name: &str, about: &str) -> String {
    let indent = " ".repeat(26);
    let about = wrapped(about, 54).join(&format!("\n{indent}"));
    match width(name) {
        0..23 => format!("  {name:24}{about}\n"),
        _ => format!("  {name}\n{indent}{about}\n"),
    }
}

/// Parses a duration such as `10s`, `1m30s` or `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let error = |reason: &str| format!("{reason}; use for example 500ms, 10s or 1m30s");
    let signed: jiff::SignedDuration = text.parse().map_err(|_| error("not a duration"))?;
    match Duration::try_from(signed) {
        Ok(Duration::ZERO) => Err(error("a duration cannot be zero")),
        Ok(duration) => Ok(duration),
        Err(_) => Err(error("a duration cannot be negative")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn clap_accepts_the_commands_and_their_examples_fit_80_columns() {
        let mut args = Args::command();
        args.build();
        let mut commands = vec![args];
        while let Some(command) = commands.pop() {
            let after = command.get_after_help().map(ToString::to_string);
            for line in after.unwrap_or_default().lines() {
                assert!(!line.starts_with("  ") || width(line) <= 80, "{line}");
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }
}
