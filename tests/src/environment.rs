//! What the environment sets: how long a check runs.

/// A number from the environment, or the default.
///
/// # Errors
/// If it is not a number.
pub fn number(variable: &str, default: u32) -> anyhow::Result<u32> {
    match std::env::var(variable) {
        Ok(text) => Ok(text
            .parse()
            .map_err(|error| anyhow::anyhow!("{variable}={text}: {error}"))?),
        Err(_) => Ok(default),
    }
}
