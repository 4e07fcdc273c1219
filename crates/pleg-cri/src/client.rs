//! [`CriClient`]: the CRI calls that a kubelet makes but its PLEG does not. Each call has a deadline, metrics, a span
//! and errors that name the operation.

mod containers;
mod images;
mod runtime;
mod sandboxes;
mod written;

use std::fmt;
use std::time::Duration;

use futures::TryFutureExt as _;
use futures::future::BoxFuture;
use pleg_runtime::clock::Clock;
use pleg_runtime::core::{CallError, Id};
use tonic::{Response, Status};

pub use self::written::Written;
use crate::config::CriConfig;
use crate::connection::Connection;
use crate::error::malformed;
use crate::metrics::Operation;

/// All CRI calls that change something, and those reads that a kubelet makes outside of its PLEG.
///
/// [`CriRuntime::client`](crate::CriRuntime::client) creates a client. A client has its own connection, connects with
/// the first call, and reconnects after it has lost the connection. Clones share the connection.
///
/// # Writes
///
/// A call that changes what a list or a status shows returns [`Written`]: the call's result, and the instant at which
/// the call ended. Pass this instant to `Pleg::newer_than`, so that the next decision uses a status that contains the
/// change. Do so even after a failure: a write that failed or timed out may have taken effect, or may take effect
/// later. So read the pod before you repeat a write, and never repeat a create with the same attempt number.
///
/// # Deadlines
///
/// Every call has a deadline, at which the client cancels the call and returns an error of the kind
/// [`DeadlineExceeded`](pleg_runtime::core::CallErrorKind::DeadlineExceeded). The kubelet's CRI client
/// (`k8s.io/cri-client`) has the same deadlines, except where the table says otherwise:
///
/// | call | deadline | by default |
/// | --- | --- | --- |
/// | `RunPodSandbox` | 2 × [`call_deadline`](CriConfig::call_deadline) | 4 min |
/// | `StopContainer` | its grace period + `call_deadline` | grace period + 2 min |
/// | `ExecSync` | its timeout + `call_deadline` | timeout + 2 min |
/// | `PullImage` | [`pull_deadline`](CriConfig::pull_deadline); the kubelet has none | 30 min |
/// | all others | `call_deadline`; the kubelet has none for `ImageFsInfo` | 2 min |
///
/// # Cancel safety
///
/// Dropping the future of a call cancels the call. The runtime may then stop the work, or complete it. A dropped write
/// returns no instant: read [`clock`](Self::clock) after the drop, and pass that instant to `Pleg::newer_than`.
///
/// # Errors, metrics and spans
///
/// A [`CallError`] has a kind, the name of the call and the message of the runtime. Calls are counted in
/// `kubelet_runtime_operations_*` with the kubelet's values of `operation_type`
/// ([`describe_metrics`](crate::describe_metrics)). Each call runs in a `tracing` span `cri` of level debug with the
/// fields `operation` (the name of the call) and `id` (the sandbox or container; the pod's uid for `RunPodSandbox`; the
/// image for image calls).
///
/// ```no_run
/// use std::time::Duration;
/// use pleg_cri::{CriConfig, CriRuntime};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let config = CriConfig::new("unix:///run/containerd/containerd.sock".parse()?);
/// let client = CriRuntime::new(config)?.client();
/// let stopped = client.stop_container(&"8b9c7f0e".into(), Duration::from_secs(30)).await;
/// // Whether or not the container stopped: the next decision needs a status that is newer than this.
/// let changed = stopped.ended;
/// stopped.into_result()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct CriClient {
    connection: Connection,
}

impl CriClient {
    pub(crate) const fn new(connection: Connection) -> Self {
        Self { connection }
    }

    /// The settings.
    pub fn config(&self) -> &CriConfig {
        &self.connection.config
    }

    /// The clock that sets [`Written::ended`], shared with the [`CriRuntime`](crate::CriRuntime) that made this client.
    pub const fn clock(&self) -> Clock {
        self.connection.clock
    }

    fn deadline(&self) -> Duration {
        self.config().call_deadline
    }

    /// Makes a call that does not change what lists and statuses show. `call` is boxed, because its future is large if
    /// the request is large.
    async fn read<T>(
        &self,
        operation: Operation,
        id: &str,
        deadline: Duration,
        call: BoxFuture<'_, Result<Response<T>, Status>>,
    ) -> Result<T, CallError> {
        let call = call.map_ok(Response::into_inner);
        let connection = &self.connection;
        connection.operation(operation, id, deadline, call).await
    }

    /// Makes a call that changes `id`, or creates something for `id`: a sandbox for a pod, a container for a sandbox.
    async fn write<T>(
        &self,
        operation: Operation,
        id: &str,
        deadline: Duration,
        call: BoxFuture<'_, Result<Response<T>, Status>>,
    ) -> Written<T> {
        let result = self.read(operation, id, deadline, call).await;
        Written {
            result,
            ended: self.connection.clock.now(),
        }
    }
}

impl fmt::Debug for CriClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CriClient")
            .field("config", self.config())
            .finish_non_exhaustive()
    }
}

/// The id of a created sandbox or container. An empty id is an error, as in the kubelet.
fn created(operation: Operation, id: String) -> Result<Id, CallError> {
    if id.is_empty() {
        return Err(malformed(operation, "the response has no id"));
    }
    Ok(id.into())
}

/// Converts a duration to whole seconds. Rounds up, because 0 has a special meaning in the CRI.
fn seconds(duration: Duration) -> i64 {
    let rest = u64::from(duration.subsec_nanos() > 0);
    i64::try_from(duration.as_secs().saturating_add(rest)).unwrap_or(i64::MAX)
}
