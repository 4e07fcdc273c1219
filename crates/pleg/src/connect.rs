//! Reaching a CRI runtime by its endpoint (feature `cri`).

use pleg_cri::{ConfigError, CriConfig, CriRuntime, EndpointError};

use crate::builder::Builder;
use crate::handle::Pleg;

/// A CRI runtime that cannot be meant.
///
/// That nobody answers is no error here: connecting is lazy, and the generator waits for its
/// runtime for ever. `pleg_cri::diagnose` says what is wrong with an endpoint.
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
    /// A generator of the pods of the CRI runtime at `endpoint`, for example
    /// `unix:///run/containerd/containerd.sock`. Needs a tokio runtime; connects when it is
    /// started, and again whenever it must.
    ///
    /// # Errors
    /// If the endpoint is no unix socket's address.
    pub fn connect(endpoint: &str) -> Result<Builder<CriRuntime>, ConnectError> {
        let config = CriConfig::new(endpoint.parse()?);
        Ok(Self::builder(CriRuntime::new(config)?))
    }
}
