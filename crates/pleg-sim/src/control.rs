//! Text commands that control a running simulator: from Rust code, or over a unix socket from `pleg sim ctl` and
//! scripts.

use std::{path::Path, sync::Arc, time::Duration};

use futures::StreamExt as _;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;

use crate::{
    engine::Engine,
    error::SimError,
    knobs::{check_knob, duration, knob_help},
    programs::ExitStatus,
    server::{Serving, SocketFile},
    sim::Sim,
};

/// The maximum length of a command.
const MAX_LINE: u64 = 64 << 10;
/// The maximum number of concurrent connections. Further clients wait.
const MAX_CONNECTIONS: usize = 8;

/// One command per line, and its description.
const COMMANDS: &str = "\
show: show the mode, the number of objects, the knobs that are on and how often each knob fired
KNOB=VALUE …: set knobs (all, or none if one is not valid); KNOB=off turns one off
reset: turn all knobs off; hanging calls proceed
cut: cut all connections
restart [kill] [down=5s] [starting=2s] [containers=run|end:CODE|lost]: restart the runtime with \
SIGTERM (kill: with SIGKILL). down and starting are how long it is down and then starting, \
0 s by default. Meanwhile the containers keep running (containers=run, the default), exit with CODE \
(end:CODE) or with 255 and the reason Unknown (lost). Queued events and those of the downtime are lost
down [kill]: stop the runtime with SIGTERM (kill: with SIGKILL)
up: start a runtime that is down; it does not answer calls yet
ready: let a runtime that is starting answer calls
exit CONTAINER [CODE]: make a container exit with CODE, 1 by default; CONTAINER is the beginning of \
its id
oom CONTAINER: kill a container because it is out of memory
kill-sandbox SANDBOX: kill the pause process of a sandbox
help: show the commands and the knobs";

/// The control commands and their descriptions.
pub fn control_commands() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.lines().filter_map(|line| line.split_once(": "))
}

/// Executes a command and returns the lines of the response.
async fn execute(engine: &Arc<Engine>, line: &str) -> Result<String, SimError> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some((&command, args)) = words.split_first() else {
        return Ok(String::new());
    };
    let mut usages = control_commands().map(|(usage, _)| usage);
    let Some(usage) = usages.find(|usage| usage.split(' ').next() == Some(command)) else {
        let is_knob = |word: &&str| check_knob(word).is_ok();
        if command.contains(['=', '.']) || words.iter().all(is_knob) {
            return engine.set_knobs(&words).map(|()| String::new());
        }
        return Err(SimError(format!(
            "no command {command:?}; the commands are show, reset, cut, restart, down, up, ready, exit, \
             oom, kill-sandbox, help, and knobs as KNOB=VALUE"
        )));
    };
    let invalid = |what: String| SimError(format!("{command}: {what}; usage: {usage}"));
    match (command, args) {
        ("show", []) => return Ok(show(engine)),
        ("help", []) => return Ok(help()),
        ("reset", []) => engine.reset_knobs(),
        ("cut", []) => engine.sever_connections(),
        ("up", []) => engine.come_up().await,
        ("ready", []) => engine.ready(),
        ("restart", options) => {
            let restart = Restart::parse(options).map_err(invalid)?;
            engine.go_down(restart.kill).await;
            if let Some(exit) = restart.exit {
                engine.exit_all(exit).await;
            }
            engine.pause(restart.downtime).await;
            engine.come_up().await;
            engine.pause(restart.startup).await;
            engine.ready();
        }
        ("down", []) => engine.go_down(false).await,
        ("down", ["kill"]) => engine.go_down(true).await,
        ("exit", [id]) => kill(engine, id, ExitStatus::from_code(1)).await?,
        ("exit", [id, code]) => {
            let what = |_| invalid(format!("{code:?} is not an exit code (0 to 255)"));
            let code: u8 = code.parse().map_err(what)?;
            kill(engine, id, ExitStatus::from_code(code.into())).await?;
        }
        ("oom", [id]) => kill(engine, id, ExitStatus::OOM).await?,
        ("kill-sandbox", [id]) => {
            let id = find_id(engine.world().sandboxes.keys(), id)?;
            if !engine.kill_sandbox(&id) {
                let reason = format!("sandbox {id} is not ready, or has no pause process");
                return Err(SimError(reason));
            }
        }
        (_, [.., word]) => return Err(invalid(unexpected(word))),
        (_, []) => return Err(invalid("an argument is missing".to_owned())),
    }
    Ok(String::new())
}

fn unexpected(word: &str) -> String {
    format!("unexpected argument {word:?}")
}

/// Makes a container exit, and returns when it has exited.
async fn kill(engine: &Engine, id: &str, exit: ExitStatus) -> Result<(), SimError> {
    let id = find_id(engine.world().containers.keys(), id)?;
    if !engine.kill_container(&id, exit) {
        let reason = format!("container {id} is not running");
        return Err(SimError(reason));
    }
    engine.stop_program(&id, Duration::ZERO).await;
    Ok(())
}

/// The only id with the prefix `prefix`.
fn find_id<'a>(ids: impl Iterator<Item = &'a String>, prefix: &str) -> Result<String, SimError> {
    let found: Vec<_> = ids.filter(|id| id.starts_with(prefix)).collect();
    let why = match found[..] {
        [id] => return Ok(id.clone()),
        [] => format!("no id begins with {prefix:?}"),
        _ => format!("{} ids begin with {prefix:?}", found.len()),
    };
    Err(SimError(why))
}

/// The options of `restart`.
#[derive(Default)]
struct Restart {
    kill: bool,
    downtime: Duration,
    startup: Duration,
    /// How all containers exit while the runtime is down; `None` if the containers keep running.
    exit: Option<ExitStatus>,
}

impl Restart {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let duration = |text: &str| {
            let duration = duration(text);
            duration.ok_or_else(|| format!("{text:?} is not a duration, such as 5s"))
        };
        let mut options = Self::default();
        for word in words {
            match word.split_once('=') {
                None if *word == "kill" => options.kill = true,
                Some(("down", text)) => options.downtime = duration(text)?,
                Some(("starting", text)) => options.startup = duration(text)?,
                Some(("containers", "run")) => options.exit = None,
                Some(("containers", "lost")) => options.exit = Some(ExitStatus::LOST),
                Some(("containers", text)) => {
                    let code = text.strip_prefix("end:").and_then(|c| c.parse::<u8>().ok());
                    let code = code.ok_or_else(|| format!("{word:?} is not valid"))?;
                    options.exit = Some(ExitStatus::from_code(code.into()));
                }
                _ => return Err(unexpected(word)),
            }
        }
        Ok(options)
    }
}

fn show(engine: &Engine) -> String {
    let profile = &engine.profile;
    let counts = *engine.counts.borrow();
    let (sandboxes, containers) = {
        let world = engine.world();
        (world.sandboxes.len(), world.containers.len())
    };
    let phase = format!("{:?}", engine.phase()).to_lowercase();
    let text = format!(
        "mode {}: {} {}, {phase}\n\
         {sandboxes} sandboxes, {containers} containers\n\
         {} subscribers; events: {} queued, {} discarded, {} dropped\n",
        profile.mode,
        profile.node.name,
        profile.version,
        counts.subscribers,
        counts.queued,
        counts.discarded,
        counts.dropped,
    );
    let faults = engine.faults();
    let fired = faults.fired.iter();
    let fired = fired.map(|(knob, times)| format!("{knob} {times}"));
    text + &section("faults", "no faults\n", faults.shown()) + &section("fired", "", fired)
}

fn section(title: &str, if_empty: &str, lines: impl Iterator<Item = String>) -> String {
    match &Vec::from_iter(lines)[..] {
        [] => if_empty.to_owned(),
        lines => format!("{title}:\n  {}\n", lines.join("\n  ")),
    }
}

fn help() -> String {
    let knobs = knob_help().into_iter();
    let knobs = knobs.map(|(knob, about)| format!("{knob}: {about}"));
    let commands = COMMANDS.lines().map(str::to_owned);
    section("commands", "", commands) + &section("knobs", "", knobs)
}

impl Sim {
    /// Executes one command of [`control_commands`] and returns the lines of the response.
    ///
    /// # Errors
    /// If the command is not valid, or not possible in the current state.
    pub async fn control(&self, line: &str) -> Result<String, SimError> {
        execute(&self.engine, line).await
    }

    /// Serves control commands on a separate unix socket until the returned handle is stopped or the
    /// simulator ends. A request is one line (`help` lists the commands). The response is any
    /// number of lines, followed by `ok` or by `error: ` and the reason. A connection may send any number of
    /// requests. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The errors of [`Sim::serve_unix`].
    pub fn serve_control(&self, path: impl AsRef<Path>) -> Result<Serving, SimError> {
        let path = path.as_ref();
        let (listener, file) = SocketFile::bind(path)?;
        let engine = Arc::clone(&self.engine);
        Ok(Serving::start(&self.engine, path, async move |stop| {
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
            file.remove();
        }))
    }
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
            // The line is longer than the limit: do not execute a part of a command.
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
