//! Lists the sandboxes and containers of a container runtime.
//!
//! ```console
//! $ cargo run -p pleg-cri --example pods -- unix:///run/containerd/containerd.sock
//! ```

#![allow(clippy::print_stdout, reason = "an example")]

use pleg_cri::{CriConfig, CriRuntime};
use pleg_runtime::{Row, Runtime as _, Scope};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let endpoint = std::env::args().nth(1).ok_or("the endpoint is missing")?;
    let runtime = CriRuntime::new(CriConfig::new(endpoint.parse()?))?;
    // An error of `diagnose` names the problem of the endpoint and a solution.
    let version = runtime
        .diagnose()
        .await
        .map_err(|error| error.to_string())?;
    println!("{} {}", version.name, version.version);

    let mut show = |row: Row<'_>| println!("{} {:?}", row.id(), row.shown());
    runtime.list_sandboxes(&Scope::Node, &mut show).await?;
    runtime.list_containers(&Scope::Node, &mut show).await?;
    Ok(())
}
