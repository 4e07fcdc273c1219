//! Control at run time: text commands, in code or over a separate unix socket.
//!
//! The protocol serves `pleg sim ctl` and scripts. A request is one line. The response is any
//! number of lines, followed by `ok` or by `error: ` and the reason. A connection may send any
//! number of requests.

use std::{fmt::Write as _, path::Path, sync::Arc};

use futures::StreamExt as _;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    engine::Engine,
    error::SimError,
    fault_profile::{self, FaultProfile, KnobError},
    process::{ContainersWhileDown, Restart, Termination},
    programs::ExitStatus,
    server::{Serving, Socket},
};

/// The maximum length of a command.
const MAX_LINE: u64 = 64 << 10;
/// The maximum number of concurrent connections. Others wait.
const MAX_CONNECTIONS: usize = 8;

const RESTART: &str = "restart [kill] [down=5s] [starting=2s] [containers=run|end:CODE|lost]";
const DOWN: &str = "down [kill]";
const EXIT: &str = "exit CONTAINER [CODE]";
const OOM: &str = "oom CONTAINER";
const KILL_SANDBOX: &str = "kill-sandbox SANDBOX";
const WITHOUT_ARGUMENTS: [&str; 6] = ["show", "help", "reset", "cut", "up", "ready"];

/// The commands and their descriptions.
pub const CONTROL_COMMANDS: &[(&str, &str)] = &[
    (
        "show",
        "show the mode, the number of objects, the knobs that are on and what fired",
    ),
    (
        "KNOB=VALUE …",
        "set knobs (all, or none if one is not valid); KNOB=off unsets",
    ),
    ("reset", "turn all knobs off; hanging calls proceed"),
    ("cut", "cut all connections"),
    (
        RESTART,
        "restart the runtime with SIGTERM (kill: with SIGKILL). down and starting are how long it is \
         down and how long it then starts, 0 s by default. Meanwhile the containers keep running \
         (containers=run, the default), exit with CODE (end:CODE) or with 255 and the reason \
         Unknown (lost). Queued events and those of the downtime are lost",
    ),
    (DOWN, "stop the runtime with SIGTERM (kill: with SIGKILL)"),
    (
        "up",
        "start a runtime that is down; it does not answer calls yet",
    ),
    ("ready", "let a runtime that is starting answer calls"),
    (
        EXIT,
        "make a container exit with CODE, 1 by default; CONTAINER is the beginning of its id",
    ),
    (OOM, "kill a container because it is out of memory"),
    (KILL_SANDBOX, "kill the pause process of a sandbox"),
    ("help", "show the commands and the knobs"),
];

/// Why a command fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The command does not exist.
    #[error(
        "no command {0:?}; the commands are show, reset, cut, restart, down, up, ready, exit, oom, \
             kill-sandbox, help, and knobs as KNOB=VALUE"
    )]
    Unknown(String),
    /// A knob is not valid; no knob was set.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// An argument is missing or not valid.
    #[error("{command}: {what}; usage: {usage}")]
    Usage {
        /// The command.
        command: &'static str,
        /// What is wrong.
        what: String,
        /// How to write the command.
        usage: &'static str,
    },
    /// The command is valid but not possible in the current state.
    #[error("{0}")]
    Impossible(String),
}

type CommandResult = Result<String, ControlError>;

/// Executes a command and returns the lines of the response.
pub(crate) async fn execute(engine: &Arc<Engine>, line: &str) -> CommandResult {
    let words: Vec<&str> = line.split_whitespace().collect();
    match &words[..] {
        [] => {}
        ["show"] => return Ok(show(engine)),
        ["help"] => return Ok(help()),
        ["reset"] => engine.injector.replace(FaultProfile::default()),
        ["cut"] => engine.sever_connections(),
        ["up"] => engine.come_up().await,
        ["ready"] => engine.ready(),
        ["restart", options @ ..] => engine.restart(parse_restart(options)?).await,
        ["down"] => engine.go_down(Termination::Sigterm).await,
        ["down", "kill"] => engine.go_down(Termination::Sigkill).await,
        ["down", "kill", word, ..] | ["down", word, ..] => return Err(unexpected(DOWN, word)),
        ["exit", id] => kill(engine, id, ExitStatus::from_code(1))?,
        ["exit", id, code] => {
            let invalid = |_| usage(EXIT, format!("{code:?} is not an exit code (0 to 255)"));
            let code: u8 = code.parse().map_err(invalid)?;
            kill(engine, id, ExitStatus::from_code(code.into()))?;
        }
        ["exit", args @ ..] => {
            let what = format!(
                "it takes an id and at most one code, not {} arguments",
                args.len()
            );
            return Err(usage(EXIT, what));
        }
        ["oom", id] => kill(engine, id, ExitStatus::OOM)?,
        ["oom", args @ ..] => return Err(not_one_id(OOM, args)),
        ["kill-sandbox", id] => {
            let id = find_id(engine.world().sandboxes.keys(), id)?;
            if !engine.kill_sandbox(&id) {
                let reason = format!("sandbox {id} is not ready, or has no pause process");
                return Err(ControlError::Impossible(reason));
            }
        }
        ["kill-sandbox", args @ ..] => return Err(not_one_id(KILL_SANDBOX, args)),
        [command, word, ..]
            if let Some(known) = WITHOUT_ARGUMENTS.iter().find(|c| *c == command) =>
        {
            return Err(unexpected(known, word));
        }
        [word, ..] if word.contains(['=', '.']) || words.iter().all(|w| is_knob(w)) => {
            engine.injector.set_all(&words)?;
        }
        [word, ..] => return Err(ControlError::Unknown((*word).to_owned())),
    }
    Ok(String::new())
}

fn is_knob(word: &str) -> bool {
    FaultProfile::default().set(word).is_ok()
}

/// The error of a command that is not written as its usage says.
fn usage(usage: &'static str, what: String) -> ControlError {
    let command = usage.split(' ').next().unwrap_or(usage);
    ControlError::Usage {
        command,
        what,
        usage,
    }
}

fn unexpected(of: &'static str, word: &str) -> ControlError {
    usage(of, format!("unexpected argument {word:?}"))
}

fn not_one_id(of: &'static str, args: &[&str]) -> ControlError {
    usage(of, format!("it takes one id, not {} arguments", args.len()))
}

fn kill(engine: &Engine, id: &str, exit: ExitStatus) -> Result<(), ControlError> {
    let id = find_id(engine.world().containers.keys(), id)?;
    match engine.kill_container(&id, exit) {
        true => Ok(()),
        false => Err(ControlError::Impossible(format!(
            "container {id} is not running"
        ))),
    }
}

/// The only id with that prefix.
fn find_id<'a>(
    ids: impl Iterator<Item = &'a String>,
    prefix: &str,
) -> Result<String, ControlError> {
    let found: Vec<_> = ids.filter(|id| id.starts_with(prefix)).collect();
    let why = match found[..] {
        [id] => return Ok(id.clone()),
        [] => format!("no id begins with {prefix:?}"),
        _ => format!("{} ids begin with {prefix:?}", found.len()),
    };
    Err(ControlError::Impossible(why))
}

fn parse_restart(words: &[&str]) -> Result<Restart, ControlError> {
    let mut options = Restart::default();
    for word in words {
        let duration = |text: &str| {
            let duration = fault_profile::duration(text);
            duration
                .ok_or_else(|| usage(RESTART, format!("{text:?} is not a duration, such as 5s")))
        };
        match word.split_once('=') {
            None if *word == "kill" => options.termination = Termination::Sigkill,
            Some(("down", text)) => options.downtime = duration(text)?,
            Some(("starting", text)) => options.startup = duration(text)?,
            Some(("containers", "run")) => options.containers = ContainersWhileDown::KeepRunning,
            Some(("containers", "lost")) => options.containers = ContainersWhileDown::Lost,
            Some(("containers", text)) => {
                let code = text.strip_prefix("end:").and_then(|c| c.parse::<u8>().ok());
                let code = code.ok_or_else(|| usage(RESTART, format!("{word:?} is not valid")))?;
                options.containers = ContainersWhileDown::Exit(i32::from(code));
            }
            _ => return Err(unexpected(RESTART, word)),
        }
    }
    Ok(options)
}

fn show(engine: &Engine) -> String {
    let profile = &engine.profile;
    let counts = *engine.counts.borrow();
    let (sandboxes, containers) = {
        let world = engine.world();
        (world.sandboxes.len(), world.containers.len())
    };
    let mut text = format!(
        "mode {}: {} {}, {}\n\
         {sandboxes} sandboxes, {containers} containers\n\
         {} subscribers; events: {} held, {} discarded, {} dropped\n",
        profile.mode,
        profile.node.name,
        profile.version,
        engine.phase().name(),
        counts.subscribers,
        counts.held,
        counts.discarded,
        counts.dropped,
    );
    let faults = engine.injector.fault_profile().to_string();
    text.push_str(if faults.is_empty() {
        "no faults\n"
    } else {
        "faults:\n"
    });
    for line in faults.lines() {
        let _ = writeln!(text, "  {line}");
    }
    let fired = engine.injector.fired();
    if !fired.is_empty() {
        text.push_str("fired:\n");
    }
    for (knob, times) in fired {
        let _ = writeln!(text, "  {knob} {times}");
    }
    text
}

fn help() -> String {
    let mut text = String::from("commands:\n");
    for (command, about) in CONTROL_COMMANDS {
        let _ = writeln!(text, "  {command}: {about}");
    }
    text.push_str("knobs:\n");
    for knob in fault_profile::knob_help() {
        let _ = writeln!(text, "  {}: {}", knob.usage, knob.about);
    }
    text
}

// === over a socket ===

/// Serves commands on a socket until the simulator ends or the returned handle stops it.
pub(crate) fn serve(engine: &Arc<Engine>, path: &Path) -> Result<Serving, SimError> {
    let Socket {
        path,
        listener,
        file,
    } = Socket::bind(path)?;
    let (stop, task) = (engine.stop.child_token(), TaskTracker::new());
    let serving = Serving::new(path.clone(), stop.clone(), task.clone());
    let (engine, all) = (Arc::clone(engine), engine.tasks.clone());
    all.spawn(task.track_future(async move {
        let connections = UnixListenerStream::new(listener)
            .filter_map(|accepted| std::future::ready(accepted.ok()))
            .for_each_concurrent(MAX_CONNECTIONS, |connection| {
                let (engine, stop) = (&engine, &stop);
                async move {
                    if let Err(error) = serve_connection(engine, stop, connection).await {
                        tracing::debug!(%error, "a control connection failed");
                    }
                }
            });
        tokio::select! {
            () = connections => {}
            () = stop.cancelled() => {}
        }
        file.remove(&path);
    }));
    task.close();
    Ok(serving)
}

async fn serve_connection(
    engine: &Arc<Engine>,
    stop: &CancellationToken,
    connection: UnixStream,
) -> std::io::Result<()> {
    let (read, mut write) = connection.into_split();
    let mut read = BufReader::new(read.take(MAX_LINE));
    let mut line = String::new();
    while !stop.is_cancelled() && read.read_line(&mut line).await? > 0 {
        if !line.ends_with('\n') && read.get_ref().limit() == 0 {
            // Do not execute a part of a command.
            let response = format!("error: a command has at most {MAX_LINE} bytes\n");
            return write.write_all(response.as_bytes()).await;
        }
        let response = match execute(engine, &line).await {
            Ok(response) => format!("{response}ok\n"),
            Err(error) => format!("error: {error}\n"),
        };
        write.write_all(response.as_bytes()).await?;
        line.clear();
        read.get_mut().set_limit(MAX_LINE);
    }
    Ok(())
}
