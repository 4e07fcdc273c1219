//! The signals that end a command: SIGINT (Ctrl-C) and SIGTERM. SIGHUP is not handled here, so that
//! `nohup` works; it makes the agent read its files again.

use std::io;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// A signal that ends this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT, usually from Ctrl-C.
    Interrupt,
    /// SIGTERM, usually from a service manager.
    Terminate,
}

impl Signal {
    /// The exit code that shells expect for a process that a signal has ended.
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Interrupt => ExitCode::from(130),
            Self::Terminate => ExitCode::from(143),
        }
    }

    /// The exit code of a service: a stop by a service manager is a success.
    pub(crate) fn service_exit_code(self) -> ExitCode {
        match self {
            Self::Interrupt => self.exit_code(),
            Self::Terminate => ExitCode::SUCCESS,
        }
    }
}

/// Returns the first signal. Signals before the first poll of the future count.
pub(crate) fn first() -> io::Result<impl Future<Output = Signal>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => Signal::Interrupt,
            _ = terminate.recv() => Signal::Terminate,
        }
    })
}
