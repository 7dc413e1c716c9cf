//! The screen: draws once per interval, and acts on keys.

use std::{
    env,
    io::{self, IsTerminal},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ratatui::{
    DefaultTerminal,
    crossterm::{
        cursor::Show,
        event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
        execute,
    },
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
    iterator::Signals,
    low_level,
};

use crate::{
    figures::{Look, now},
    find::{Found, Hidden},
    view::{self, Sort, View},
};

/// The shortest interval.
const SHORTEST: f64 = 0.1;
/// The longest interval.
const LONGEST: f64 = 3600.0;
/// The interval at the start.
const INTERVAL: f64 = 1.0;

/// Held while the program draws, and by the thread of signals until the program ends.
static TERMINAL: Mutex<()> = Mutex::new(());

fn lock() -> MutexGuard<'static, ()> {
    TERMINAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether standard output is a terminal that can be drawn on.
pub fn is_there() -> bool {
    let is_dumb =
        env::var_os("TERM").is_none_or(|terminal| terminal.is_empty() || terminal == "dumb");
    !is_dumb && io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// Returns whether to use colors: see no-color.org.
fn has_colors() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The next step after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Draw again.
    Draw,
    /// Look again, and draw.
    Look,
    /// Leave.
    Leave,
}

/// What the user has set by keys.
#[derive(Debug)]
pub struct State {
    /// The order of domains.
    pub sort: Sort,
    /// True for the reverse order.
    pub reverse: bool,
    /// Seconds between looks.
    pub interval: f64,
    /// The first line that is shown.
    pub first: usize,
    /// Whether the help is shown.
    pub help: bool,
    /// The interval that is being typed.
    pub typed: Option<String>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            sort: Sort::Process,
            reverse: false,
            interval: INTERVAL,
            first: 0,
            help: false,
            typed: None,
        }
    }
}

impl State {
    /// Applies a key, while `page` of `lines` lines are shown.
    pub fn key(&mut self, key: KeyEvent, page: usize, lines: usize) -> Step {
        if key.kind == KeyEventKind::Release {
            return Step::Draw;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Step::Leave;
        }
        if self.help {
            self.help = false;
            return Step::Draw;
        }
        if self.typed.is_some() {
            self.type_interval(key.code);
            return Step::Draw;
        }
        let last = lines.saturating_sub(page);
        let sort = |state: &mut Self, by| {
            state.sort = by;
            state.first = 0;
        };
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Step::Leave,
            KeyCode::Char(' ') => return Step::Look,
            KeyCode::Char('h' | '?') => self.help = true,
            KeyCode::Char('s' | 'd') => self.typed = Some(String::new()),
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Char('p') => sort(self, Sort::Process),
            KeyCode::Char('u') => sort(self, Sort::Unreclaimed),
            KeyCode::Char('g') => sort(self, Sort::GracePeriods),
            KeyCode::Char('m') => sort(self, Sort::Barriers),
            KeyCode::Char('w') => sort(self, Sort::Waits),
            KeyCode::Char('n') => sort(self, Sort::Name),
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.first += 1,
            KeyCode::PageUp => self.first = self.first.saturating_sub(page.max(1)),
            KeyCode::PageDown => self.first = self.first.saturating_add(page.max(1)),
            KeyCode::Home => self.first = 0,
            KeyCode::End => self.first = last,
            _ => {}
        }
        self.first = self.first.min(last);
        Step::Draw
    }

    fn type_interval(&mut self, key: KeyCode) {
        let Some(typed) = &mut self.typed else { return };
        match key {
            KeyCode::Char(letter @ ('0'..='9' | '.')) if typed.len() < 8 => typed.push(letter),
            KeyCode::Backspace => _ = typed.pop(),
            KeyCode::Enter => {
                if let Ok(seconds) = typed.parse::<f64>() {
                    self.interval = seconds.clamp(SHORTEST, LONGEST);
                }
                self.typed = None;
            }
            KeyCode::Esc => self.typed = None,
            _ => {}
        }
    }

    /// Returns the end of the second line.
    pub fn note(&self) -> String {
        match &self.typed {
            Some(typed) => format!("; seconds between looks: {typed}_"),
            None => format!(", every {} s; h for help, q to leave", self.interval),
        }
    }
}

/// Shows what `look` finds until a key ends it, or `look` fails.
///
/// # Errors
///
/// Fails if the terminal cannot be used. The inner result is an error of `look`.
pub fn run(look: impl Fn() -> Result<Found, Hidden>) -> io::Result<Result<(), Hidden>> {
    restore_at_signals()?;
    let terminal = {
        let _lock = lock();
        ratatui::try_init()
    };
    let mut terminal = terminal.inspect_err(|_| restore())?;
    let shown = show(&mut terminal, look);
    ratatui::try_restore()?;
    shown
}

/// Starts a thread that restores the terminal at the first SIGHUP, SIGINT or SIGTERM, and then lets the
/// signal end the program. Once it has seen that one, another ends the program at once, even if the
/// terminal takes no output.
///
/// It is a thread because crossterm's `poll` polls again after a signal, and never returns once the
/// terminal has hung up.
fn restore_at_signals() -> io::Result<()> {
    let signals = [SIGHUP, SIGINT, SIGTERM];
    let is_second = Arc::new(AtomicBool::new(false));
    for signal in signals {
        flag::register_conditional_default(signal, Arc::clone(&is_second))?;
    }
    let mut signals = Signals::new(signals)?;
    thread::Builder::new().spawn(move || {
        for signal in &mut signals {
            // Nothing is published with it.
            is_second.store(true, Ordering::Relaxed);
            // Until the end, so that nothing is drawn on the restored terminal.
            let _lock = lock();
            restore();
            let _ = low_level::emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

/// Restores the terminal, as far as it can be.
fn restore() {
    let _ = ratatui::try_restore();
    let _ = execute!(io::stdout(), Show);
}

fn show(
    terminal: &mut DefaultTerminal,
    look: impl Fn() -> Result<Found, Hidden>,
) -> io::Result<Result<(), Hidden>> {
    let (mut state, colors) = (State::default(), has_colors());
    let mut before = Look::default();
    loop {
        let found = match look() {
            Ok(found) => found,
            Err(hidden) => return Ok(Err(hidden)),
        };
        let (now, looked) = (now(), Instant::now());
        loop {
            let view = View {
                found: &found,
                now,
                before: &before,
                sort: state.sort,
                reverse: state.reverse,
                note: state.note(),
            };
            let mut page = 0;
            let lock = lock();
            terminal.draw(|frame| {
                page = usize::from(frame.area().height.saturating_sub(3));
                if state.help {
                    view::draw_help(frame);
                } else {
                    view::draw(frame, &view, state.first, colors);
                }
            })?;
            drop(lock);
            let left = Duration::from_secs_f64(state.interval).saturating_sub(looked.elapsed());
            if !event::poll(left)? {
                break;
            }
            if let Event::Key(key) = event::read()? {
                match state.key(key, page, view::lines(&view).len()) {
                    Step::Draw => {}
                    Step::Look => break,
                    Step::Leave => return Ok(Ok(())),
                }
            }
        }
        before = Look::of(&found, now);
    }
}
