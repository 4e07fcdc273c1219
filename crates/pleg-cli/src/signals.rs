//! Signals: Ctrl-C on a terminal, and SIGTERM from whoever manages a service. SIGHUP is left as it
//! is, or `nohup` would be overruled.

use std::io;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// What asks this process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// A service manager.
    Terminate,
}

impl Signal {
    /// The exit code that shells expect of what a signal has ended.
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Interrupt => ExitCode::from(130),
            Self::Terminate => ExitCode::from(143),
        }
    }

    /// The exit code of a service: one that was told to stop, and did, has not failed.
    pub(crate) fn exit_code_of_service(self) -> ExitCode {
        match self {
            Self::Interrupt => self.exit_code(),
            Self::Terminate => ExitCode::SUCCESS,
        }
    }
}

/// The first signal from now on, whenever it is awaited.
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
