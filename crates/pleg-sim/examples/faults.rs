//! A simulated CRI-O whose lists hang, and which restarts.
//!
//! ```console
//! $ cargo run -p pleg-sim --example faults
//! ```

#![allow(clippy::print_stdout, reason = "an example")]

use pleg_sim::{Mode, Sim};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let socket = std::env::temp_dir().join(format!("pleg-sim-{}.sock", std::process::id()));
    let sim = Sim::builder()
        .mode(Mode::Crio)
        .runtime_version("1.31.0")
        .seed(7)
        .build();
    let serving = sim.serve_unix(&socket, std::future::pending())?;
    println!("serves CRI v1 at {}", socket.display());

    // While it runs, `pleg sim ctl` sets knobs likewise.
    sim.set_knob("list_containers.hang=10s")?;
    println!("a list of its containers would hang for 10 s now");
    sim.control("restart down=1s").await?;
    println!("after a restart it is {:?}", sim.phase());

    serving.stop().await;
    sim.shutdown().await;
    Ok(())
}
