//! Opens the terminal for `pleg top`, and restores it on every exit: after a signal, because then the command is dropped,
//! and after a panic.

use std::{io, panic, thread};

use pleg::core::Instant;
use ratatui::DefaultTerminal;

use super::app::App;
use super::screen;

/// The open terminal. Dropping it restores the terminal.
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        let opened = ratatui::try_init().inspect_err(|_| drop(ratatui::try_restore()))?;
        // The hook of ratatui restores the terminal and reports the panic. A panic of another thread ends one task, which
        // is restarted or ends this command; its report would only garble the screen.
        let own = thread::current().id();
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if thread::current().id() == own {
                report(info);
            }
        }));
        Ok(Self(opened))
    }

    /// Draws what has changed since the last time.
    pub(super) fn draw(&mut self, app: &mut App, now: Instant) -> io::Result<()> {
        self.0.draw(|frame| screen::draw(frame, app, now))?;
        Ok(())
    }
}

impl Drop for Screen {
    /// There is nothing to do about errors: the terminal may be gone.
    fn drop(&mut self) {
        drop(ratatui::try_restore());
    }
}
