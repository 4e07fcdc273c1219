//! `pleg completions` and `pleg man`: what a package installs beside the program.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Args;
use crate::text::safe;

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// The directory for the pages. It is created if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Prints the script.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "pleg", &mut script);
    Ok(std::io::stdout().write_all(&script)?)
}

/// Writes one page for each command.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<()> {
    let dir = safe(&args.dir.to_string_lossy()).into_owned();
    let context = || format!("cannot write to {dir}");
    fs::create_dir_all(&args.dir).with_context(context)?;
    clap_mangen::generate_to(Args::command(), &args.dir).with_context(context)
}
