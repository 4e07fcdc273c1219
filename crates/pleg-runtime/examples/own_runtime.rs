//! Implements `Runtime`, which is all that a generator needs of a runtime. `pleg::Pleg::builder` takes an `EmptyNode`.
//!
//! ```console
//! $ cargo run -p pleg-runtime --example own_runtime
//! ```

#![allow(clippy::print_stdout, reason = "an example")]

use futures::stream::{self, BoxStream};
use pleg_runtime::core::{CallError, CallErrorKind, Id, Report, RuntimeEvent};
use pleg_runtime::{Row, Runtime, RuntimeVersion, Scope};

/// A runtime on which nothing runs.
struct EmptyNode;

fn not_found(operation: &'static str) -> CallError {
    CallError::new(operation, CallErrorKind::NotFound, "nothing runs here")
}

impl Runtime for EmptyNode {
    type Events = BoxStream<'static, Result<RuntimeEvent, CallError>>;

    async fn list_sandboxes(
        &self,
        _scope: &Scope,
        _row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        // An empty list is a complete list: the generator removes all ids that it knew.
        Ok(())
    }

    async fn list_containers(
        &self,
        _scope: &Scope,
        _row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        Ok(())
    }

    async fn sandbox_status(&self, _id: &Id) -> Result<Report, CallError> {
        Err(not_found("PodSandboxStatus"))
    }

    async fn container_status(&self, _id: &Id) -> Result<Report, CallError> {
        Err(not_found("ContainerStatus"))
    }

    async fn subscribe(&self) -> Result<Self::Events, CallError> {
        // This stream never ends, because after its end the generator would subscribe again.
        Ok(Box::pin(stream::pending()))
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        Ok(RuntimeVersion::new("empty", "1.0.0"))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), CallError> {
    let version = EmptyNode.version().await?;
    println!("{} {}", version.name, version.version);
    let mut rows = 0;
    let mut count = |_row: Row<'_>| rows += 1;
    EmptyNode.list_sandboxes(&Scope::Node, &mut count).await?;
    println!("{rows} sandboxes");
    Ok(())
}
