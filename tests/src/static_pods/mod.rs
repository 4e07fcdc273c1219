//! The mini-kubelet `static_pods`, an example of `pleg-kubelet`, as a process on a private daemon.
//!
//! [`process`] runs it, [`manifests`] are its pods, and [`poller`] observes the runtime without it. The
//! checks: [`crashes`] while daemon and kubelet are killed, by a [`plan`], the time from a death to its
//! [`replacement`], and the [`growth`] of the process over hours.

pub mod crashes;
pub mod growth;
pub mod manifests;
pub mod plan;
pub mod poller;
pub mod process;
pub mod replacement;

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
