//! Connects a generator and a client to a CRI runtime, by its endpoint (feature `cri`).

use pleg_cri::{ConfigError, CriClient, CriConfig, CriRuntime, EndpointError};

use crate::builder::Builder;
use crate::handle::Pleg;

/// An invalid endpoint or CRI configuration.
///
/// A runtime that does not respond is not an error here: the generator connects lazily and waits for its runtime
/// indefinitely. [`diagnose`](pleg_cri::diagnose) finds out why an endpoint does not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The endpoint is not the address of a unix socket.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A setting of the client is invalid, or there is no tokio runtime.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Pleg {
    /// A builder for a generator of the pods of the CRI runtime at `endpoint`, for example
    /// `unix:///run/containerd/containerd.sock`, and a client for the write side of that runtime.
    /// Needs a tokio runtime. Both connect with the first call, and reconnect when necessary.
    ///
    /// The generator's mode is [`Auto`](pleg_core::Mode::Auto): the generator does not subscribe to runtimes for which
    /// [`quirks::stream_hazard`](pleg_cri::quirks::stream_hazard) returns a reason.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # async fn example(uid: pleg::PodUid, id: pleg::Id) -> Result<(), Box<dyn std::error::Error>> {
    /// let (builder, client) = pleg::Pleg::connect("unix:///run/containerd/containerd.sock")?;
    /// let pleg = builder.spawn()?;
    ///
    /// let started = client.start_container(&id).await;
    /// // Even if the call failed: it may have started the container.
    /// let view = pleg.newer_than(&uid, started.ended, Duration::from_secs(10)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the endpoint is not the address of a unix socket, or if this is called outside of a tokio runtime.
    pub fn connect(endpoint: &str) -> Result<(Builder<CriRuntime>, CriClient), ConnectError> {
        let config = CriConfig::new(endpoint.parse()?);
        Ok(Self::connect_with(CriRuntime::new(config)?))
    }

    /// Like [`connect`](Self::connect), for a runtime that the caller configured: with settings, layers or a connector.
    pub fn connect_with(runtime: CriRuntime) -> (Builder<CriRuntime>, CriClient) {
        let (client, clock) = (runtime.client(), runtime.clock());
        (Self::builder(runtime).clock(clock), client)
    }
}
