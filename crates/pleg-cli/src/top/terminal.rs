//! Opens the terminal for `pleg top`, and restores it on every exit: also after a signal, because then the
//! command is dropped, and after a panic.

use std::io::{self, Stdout, Write as _};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crossterm::cursor::{Hide, Show};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use pleg::core::Instant;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::app::App;
use super::screen;

/// Whether the terminal must be restored.
static OPEN: AtomicBool = AtomicBool::new(false);

/// The open terminal. Dropping it restores the terminal.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        restore_on_panic();
        OPEN.store(true, Ordering::SeqCst);
        let opened = enable_raw_mode()
            .and_then(|()| execute!(io::stdout(), EnterAlternateScreen, Hide))
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match opened {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Draws what has changed since the last time.
    pub(super) fn draw(&mut self, app: &mut App, now: Instant) -> io::Result<()> {
        queue!(io::stdout(), BeginSynchronizedUpdate)?;
        self.terminal.draw(|frame| screen::draw(frame, app, now))?;
        execute!(io::stdout(), EndSynchronizedUpdate)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal, once. There is nothing to do about errors: the terminal may be gone.
fn restore() {
    if OPEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(
            io::stdout(),
            EndSynchronizedUpdate,
            LeaveAlternateScreen,
            Show
        );
        let _ = disable_raw_mode();
        let _ = io::stdout().flush();
    }
}

/// Restores the terminal before a panic of this thread is reported. A panic of another thread ends one
/// task, which is restarted or ends this command; its report would only garble the screen.
fn restore_on_panic() {
    let own = thread::current().id();
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() == own {
            restore();
        }
        if !OPEN.load(Ordering::SeqCst) {
            report(info);
        }
    }));
}
