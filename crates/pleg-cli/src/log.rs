//! The log on standard error.

use std::env;
use std::io;

use anyhow::{Context as _, bail};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::debug_fn;

use crate::text::safe;

const VARIABLE: &str = "PLEG_LOG";

/// Logs to standard error, as much as `PLEG_LOG` or `verbose` says.
pub(crate) fn to_stderr(verbose: u8) -> anyhow::Result<()> {
    // A message may contain text of a runtime.
    let fields = debug_fn(|writer, field, value| {
        let text = format!("{value:?}");
        match field.name() {
            "message" => write!(writer, "{}", safe(&text)),
            name => write!(writer, "{name}={}", safe(&text)),
        }
    });
    tracing_subscriber::fmt()
        .with_env_filter(filter(verbose)?)
        .with_writer(io::stderr)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .with_target(false)
        .fmt_fields(fields.delimited(" "))
        .init();
    Ok(())
}

fn filter(verbose: u8) -> anyhow::Result<EnvFilter> {
    let default = match verbose {
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
        // The filter would take the word for the name of a module, and log nothing else.
        let is_word = !directive.contains(['=', '[', ':']);
        if is_word && directive.parse::<LevelFilter>().is_err() && !directive.starts_with("pleg") {
            bail!("{directive:?} is not a level");
        }
        // The filter would ignore what follows.
        if !directive.contains(['[', '{']) && directive.matches('=').count() > 1 {
            bail!("{directive:?} has two values");
        }
    }
    Ok(EnvFilter::builder().parse(filter)?)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn invalid_filter_is_an_error() {
        for valid in ["info", "pleg=debug", "warn,pleg_cri=trace", "pleg", "off"] {
            assert!(parse(valid).is_ok(), "{valid}");
        }
        for invalid in ["garbage=foo=bar", "dbug", "pleg=loud", "pleg=debug,infoo"] {
            assert!(parse(invalid).is_err(), "{invalid}");
        }
    }
}
