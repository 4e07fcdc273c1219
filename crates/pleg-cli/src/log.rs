//! What a command writes to standard error: log, notices and the error that ends the command, all as text, or all as
//! one JSON object per line. If standard error is the journal, each line begins with its priority: see `sd-daemon(3)`.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::OnceLock;
use std::{env, fmt};

use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use pleg::runtime::clock;
use serde::Serialize;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_serde::fields::AsMap as _;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::kubelet::identity;
use crate::text::safe;
use crate::{json, table};

const VARIABLE: &str = "PLEG_LOG";
/// The variable that systemd sets to the device and the inode of the journal's socket.
const JOURNAL: &str = "JOURNAL_STREAM";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text
    #[default]
    Text,
    /// One JSON object per line, with the fields time, level, target and message, and others
    Json,
}

static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Prints a message for the user to standard error, at any level of the log.
pub(crate) fn notice(message: &str) {
    print(Level::INFO, table::dim(), "", message);
}

pub(crate) fn show_error(error: &anyhow::Error) {
    let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    print(Level::ERROR, style, "error:", &format!("{error:#}"));
}

/// Prints a line. In the text format, `style` applies to the label or, if the label is empty, to the message.
fn print(level: Level, style: Style, label: &str, message: &str) {
    let line = match FORMAT.get().copied().unwrap_or_default() {
        LogFormat::Text if label.is_empty() => format!("{style}{}{style:#}\n", safe(message)),
        LogFormat::Text => format!("{style}{label}{style:#} {}\n", safe(message)),
        LogFormat::Json => json_line(level, "pleg", HashMap::from([("message", message)])),
    };
    let priority = is_journal().then(|| format!("<{}>", priority(level)));
    // Ignore the error if standard error is closed.
    let _ = write!(anstream::stderr(), "{}{line}", priority.unwrap_or_default());
}

/// Logs to standard error at the level in `PLEG_LOG` or `verbose`. `quiet`: no warnings, as the command shows them.
pub(crate) fn to_stderr(verbose: u8, format: LogFormat, quiet: bool) -> anyhow::Result<()> {
    FORMAT.get_or_init(|| format);
    // Escapes the fields, because a message may contain text from a runtime.
    let fields = debug_fn(|writer, field, value| {
        let text = format!("{value:?}");
        match field.name() {
            "message" => write!(writer, "{}", safe(&text)),
            name => write!(writer, "{name}={}", safe(&text)),
        }
    });
    tracing_subscriber::fmt()
        .with_env_filter(filter(verbose, quiet)?)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .fmt_fields(fields.delimited(" "))
        .event_format(Lines(format, is_journal()))
        .init();
    Ok(())
}

fn is_journal() -> bool {
    let own = identity(Path::new("/proc/self/fd/2"));
    let own = own.map(|(device, inode)| format!("{device}:{inode}"));
    env::var_os(JOURNAL).is_some_and(|stream| own.is_some_and(|own| *stream == *own))
}

/// Formats log lines as text or JSON. With `true` (for the journal), lines begin with a priority such as `<4>`.
struct Lines(LogFormat, bool);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        let Self(format, is_journal) = *self;
        if is_journal {
            write!(writer, "<{}>", priority(level))?;
        }
        let text = tracing_subscriber::fmt::format().with_target(false);
        match format {
            LogFormat::Json => writer.write_str(&json_line(level, target, event.field_map())),
            LogFormat::Text if !is_journal => text.format_event(context, writer, event),
            // Leaves out the time, because the journal adds its own.
            LogFormat::Text => text.without_time().format_event(context, writer, event),
        }
    }
}

const fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// A line of the log. Field names are stable.
#[derive(Serialize)]
struct Line<'a, T> {
    time: String,
    level: String,
    target: &'a str,
    #[serde(flatten)]
    fields: T,
}

fn json_line(level: Level, target: &str, fields: impl Serialize) -> String {
    let line = Line {
        time: json::utc(clock::wall()).to_string(),
        level: level.as_str().to_lowercase(),
        target,
        fields,
    };
    String::from_utf8_lossy(&json::line(&line)).into_owned()
}

fn filter(verbose: u8, quiet: bool) -> anyhow::Result<EnvFilter> {
    let default = match verbose {
        0 if quiet => "error",
        0 => "warn",
        1 => "info",
        2 => "info,pleg=debug,pleg_cri=debug,pleg_evented=debug,pleg_sim=debug",
        _ => "debug",
    };
    let Some(value) = env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(EnvFilter::new(default));
    };
    let invalid = || format!("invalid value of {VARIABLE}; use for example info or pleg=debug");
    let value = value.to_str().context("not UTF-8").with_context(invalid)?;
    parse(value).with_context(invalid)
}

fn parse(filter: &str) -> anyhow::Result<EnvFilter> {
    for directive in filter.split(',').map(str::trim) {
        // `EnvFilter` would take an unknown level for the name of a module, and log nothing else.
        let is_level = directive.parse::<LevelFilter>().is_ok() || directive.starts_with("pleg");
        let is_word = !directive.contains(['=', '[', ':']);
        ensure!(!is_word || is_level, "{directive:?} is not a level");
        // `EnvFilter` would ignore the second value.
        let has_one = directive.contains(['[', '{']) || directive.matches('=').count() < 2;
        ensure!(has_one, "{directive:?} has two values");
    }
    Ok(EnvFilter::builder().parse(filter)?)
}
