//! `pleg sim`, and the simulated runtime that `--sim` embeds: always behind a real socket.

use crate::args::SimArgs;
use pleg_cri::Endpoint;

pub(crate) async fn run(_args: SimArgs) -> anyhow::Result<()> {
    anyhow::bail!("to come")
}

pub(crate) struct Embedded {}

impl Embedded {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        anyhow::bail!("to come")
    }

    pub(crate) fn endpoint(&self) -> anyhow::Result<Endpoint> {
        anyhow::bail!("to come")
    }

    pub(crate) async fn stop(self) {}
}
