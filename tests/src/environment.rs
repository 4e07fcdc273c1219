//! Environment variables that set the length of a test, and the paths of programs that cargo has built.

use std::path::PathBuf;

use anyhow::Context as _;

/// Reads a number from an environment variable. Returns `default` if the variable is not set.
pub fn number(variable: &str, default: u32) -> anyhow::Result<u32> {
    match std::env::var(variable) {
        Ok(text) => Ok(text
            .parse()
            .map_err(|error| anyhow::anyhow!("{variable}={text}: {error}"))?),
        Err(_) => Ok(default),
    }
}

/// The path of a program (`pleg` or `static_pods`) that cargo has built in the same profile as this test.
pub fn built(program: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let mut candidates = own.ancestors().map(|dir| dir.join(program));
    candidates.find(|path| path.is_file()).with_context(|| {
        let own = own.display();
        format!(
            "no {program} next to {own}: `just test-real` builds it first, with the same profile"
        )
    })
}
