//! `pleg top`: shows the pods of a node, their events and their health on the terminal, live.
//!
//! `source` gets views, `app` has the state of the screen, `keys` changes this state, and `screen` draws it.

mod app;
mod keys;
mod screen;
mod source;

use std::collections::HashSet;
use std::io::{self, IsTerminal as _};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{panic, thread};

use anyhow::{Context as _, ensure};
use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures::StreamExt as _;
use pleg::core::Instant;
use pleg::runtime::clock::Clock;
use ratatui::{DefaultTerminal, Frame};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::TopArgs;
use crate::filter::Selector;
use crate::view::{MOST_ROWS, PodRow, Query, View};
use app::{App, Field, Page, Prompt};
use source::{Answer, Source};

/// The screen is drawn at least this often: ages grow even if the node does not change.
const REDRAW_PERIOD: Duration = Duration::from_secs(1);
/// The exit code that shells expect after SIGHUP.
const HUNG_UP: u8 = 129;

pub(crate) async fn run(args: TopArgs) -> anyhow::Result<ExitCode> {
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    let needs = "pleg top needs a terminal; use pleg watch or pleg pods instead";
    ensure!(is_terminal, needs);
    let mut hangup = signal(SignalKind::hangup())?;
    // Uses no colours if `NO_COLOR` is set, like the other commands.
    let colour = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
    let mut app = App::new(args.namespace.clone(), args.selector.clone(), colour);
    let mut source = Source::start(&args, app.wanted()).await?;
    let mut terminal = Terminal::open().context("cannot use the terminal")?;
    let (mut events, clock) = (EventStream::new(), Clock::start());
    let mut interval = tokio::time::interval(REDRAW_PERIOD);
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) => if app.key(key).is_break() { break },
                // After a change of the terminal's size, for example, only draw again.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error).context("cannot read from the terminal"),
                None => break,
            },
            answer = source.answers.recv() => app.answer(answer.context("the view has ended")?),
            _ = interval.tick() => {}
            _ = hangup.recv() => return Ok(ExitCode::from(HUNG_UP)),
        }
        source.ask(app.wanted());
        let now = clock.now();
        let draw = |frame: &mut Frame<'_>| screen::draw(frame, &mut app, now);
        terminal.0.draw(draw)?;
    }
    drop(terminal);
    source.close().await;
    Ok(ExitCode::SUCCESS)
}

/// The open terminal. Dropping it restores the terminal: on every exit, and after a panic or a signal.
struct Terminal(DefaultTerminal);

impl Terminal {
    fn open() -> io::Result<Self> {
        let opened = ratatui::try_init().inspect_err(|_| drop(ratatui::try_restore()))?;
        // ratatui's hook restores the terminal and reports the panic. Call it for this thread only: a panic of another
        // thread ends one task, which is restarted or ends this command, and a report would garble the screen.
        let own = thread::current().id();
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if thread::current().id() == own {
                report(info);
            }
        }));
        Ok(Self(opened))
    }
}

impl Drop for Terminal {
    /// Ignores errors: the terminal may be gone.
    fn drop(&mut self) {
        drop(ratatui::try_restore());
    }
}
