//! `pleg completions` and `pleg man`: what a package installs beside the program.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Args;
use crate::text::safe;

pub(crate) fn completions(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "pleg", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(dir: &Path) -> anyhow::Result<ExitCode> {
    let context = || format!("cannot write to {}", safe(&dir.to_string_lossy()));
    fs::create_dir_all(dir).with_context(context)?;
    clap_mangen::generate_to(Args::command(), dir).with_context(context)?;
    Ok(ExitCode::SUCCESS)
}
