//! A generator for a CRI runtime, by its endpoint (feature `cri`).

use pleg_cri::{ConfigError, CriConfig, CriRuntime, EndpointError};

use crate::builder::Builder;
use crate::handle::Pleg;

/// An invalid endpoint or CRI configuration.
///
/// A runtime that does not respond is not such an error: the generator connects lazily and waits
/// for its runtime for ever. `pleg_cri::diagnose` finds out what is wrong with an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ConnectError {
    reason: String,
}

impl From<EndpointError> for ConnectError {
    fn from(error: EndpointError) -> Self {
        Self {
            reason: error.to_string(),
        }
    }
}

impl From<ConfigError> for ConnectError {
    fn from(error: ConfigError) -> Self {
        Self {
            reason: error.to_string(),
        }
    }
}

impl Pleg {
    /// A builder for a generator of the pods of the CRI runtime at `endpoint`, for example
    /// `unix:///run/containerd/containerd.sock`. Needs a tokio runtime. It connects when it is
    /// started, and reconnects when necessary.
    ///
    /// # Errors
    /// If the endpoint is not the address of a unix socket.
    pub fn connect(endpoint: &str) -> Result<Builder<CriRuntime>, ConnectError> {
        let config = CriConfig::new(endpoint.parse()?);
        Ok(Self::builder(CriRuntime::new(config)?))
    }
}
