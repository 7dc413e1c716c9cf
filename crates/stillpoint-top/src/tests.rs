//! What is drawn on a screen, and what keys do.

use crate::{
    figures::{Look, json, short_bytes, short_number, short_time},
    find::{Found, Hidden, Process},
    screen::{State, Step},
    view::{self, Sort, View},
};
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::{Color, Modifier},
};
use std::time::Duration;
use stillpoint_platform::stats::read::{Page, Thing, Value};

const SECOND: u64 = 1_000_000_000;
/// The moment of the look.
const NOW: u64 = 100 * SECOND;

fn domain(name: &str, grace_periods: u64, unreclaimed: u64, stalled_since: u64) -> Thing {
    let mut buckets = vec![0; 156];
    // 4 to 5 us.
    buckets[44] = grace_periods;
    let stall = if stalled_since > 0 {
        "thread 'sleeper' (tid 7) holds a guard, and more that is so long that it takes two lines here"
    } else {
        ""
    };
    Thing {
        number: name.len() as u64,
        name: name.to_owned(),
        made: NOW - 10 * SECOND,
        values: vec![
            ("grace_periods", Value::Counter(grace_periods)),
            ("heavy_barriers", Value::Counter(2000)),
            ("unreclaimed_bytes", Value::Bytes(unreclaimed)),
            ("budget_bytes", Value::Bytes(u64::MAX)),
            ("waits", Value::Counter(0)),
            ("stalled_since", Value::Moment(stalled_since)),
            ("grace_period_times", Value::Times(0, buckets)),
            ("stall", Value::Text(stall.to_owned())),
        ],
    }
}

fn found() -> Found {
    let process = |pid, command: &str, things| Process {
        pid,
        command: command.to_owned(),
        page: Page {
            pid: pid.into(),
            made: 1,
            refused: 0,
            changing: 0,
            things,
        },
    };
    let domains = vec![
        domain("global", 500, 1 << 20, 0),
        domain("世界世界世界世界世界", 9, 2 << 20, NOW - 65 * SECOND),
    ];
    let mut other = process(4_194_304, "a", vec![domain("b", 0, 0, 0)]);
    other.page.refused = 5;
    Found {
        processes: vec![process(77, "stillcache", domains), other],
        unreadable: vec![(5, Hidden::Impostor("it is not sealed"))],
        denied: 3,
    }
}

fn view<'a>(found: &'a Found, before: &'a Look, sort: Sort, reverse: bool) -> View<'a> {
    let (now, note) = (NOW, State::default().note());
    View {
        found,
        now,
        before,
        sort,
        reverse,
        note,
    }
}

fn screen(width: u16, height: u16, first: usize, colors: bool, sort: Sort) -> TestBackend {
    let (found, before) = (found(), Look::default());
    let view = view(&found, &before, sort, false);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is memory");
    terminal
        .draw(|frame| view::draw(frame, &view, first, colors))
        .expect("it is memory");
    terminal.backend().clone()
}

#[test]
fn a_screen_of_80_columns_has_all() {
    let expected = [
        "stillpoint-top: 2 processes, 3 domains; 3 processes may not be looked at",
        "sorted by process, every 1 s; h for help, q to leave",
        "",
        "    PID COMMAND      DOMAIN           GP/s   P50   P99 UNRECL BUDGET WAIT/  MB/s",
        "     77 stillcache   global             50 5.1us 5.1us   1.0M      -     0   200",
        "     77 stillcache   !世界世界世界世  0.9 5.1us 5.1us   2.0M      -     0   200",
        "4194304 a            b                   0     -     -      0      -     0   200",
        "",
        "    PID STALLED",
        "     77 世界世界世界世界世界: grace period, for 65s, by",
        "          thread 'sleeper' (tid 7) holds a guard, and more that is so long that",
        "          it takes two lines here",
        "4194304 has or had 5 more, which its page had no space for",
        "      5 it has a file that is called like a statistics page, but it is not seale",
    ];
    let screen = screen(80, 24, 0, false, Sort::Process);
    let buffer = screen.buffer();
    // Without blanks: wide letters have one behind them.
    let squeezed = |text: &str| text.replace(' ', "");
    for (row, expected) in (0..24).zip(expected.iter().chain([""].iter().cycle())) {
        let line: String = (0..80)
            .map(|column| buffer[(column, row)].symbol())
            .collect();
        assert_eq!(squeezed(&line), squeezed(expected), "line {row}");
    }
}

#[test]
fn no_line_needs_its_colour() {
    for colors in [true, false] {
        let screen = screen(80, 24, 0, colors, Sort::Process);
        let buffer = screen.buffer();
        let is_red = |row: u16| buffer[(9, row)].fg == Color::Red;
        assert_eq!((is_red(4), is_red(5)), (false, colors));
        assert!(buffer[(9, 5)].modifier.contains(Modifier::BOLD));
        if !colors {
            assert!(buffer.content.iter().all(|cell| cell.fg == Color::Reset));
        }
    }
}

#[test]
fn small_and_scrolled_screens_are_drawn() {
    for (width, height) in [(1, 1), (3, 2), (20, 4), (200, 100)] {
        for first in [0, 1, 1000] {
            let _ = screen(width, height, first, true, Sort::Name);
        }
    }
    let scrolled = screen(80, 5, 4, false, Sort::Process);
    let line: String = (0..11)
        .map(|column| scrolled.buffer()[(column, 3)].symbol())
        .collect();
    assert_eq!(line, "           ", "the empty line is the first");
}

#[test]
fn it_sorts_by_what_is_asked_for() {
    let names = |sort, reverse| {
        let (found, before) = (found(), Look::default());
        let lines = view::lines(&view(&found, &before, sort, reverse));
        let rows = lines[1..4].iter();
        rows.filter_map(|(_, line)| line[21..].trim_start_matches('!').chars().next())
            .collect::<String>()
    };
    assert_eq!(names(Sort::Process, false), "g世b");
    assert_eq!(names(Sort::Process, true), "b世g");
    assert_eq!(names(Sort::Unreclaimed, false), "世gb");
    assert_eq!(names(Sort::GracePeriods, false), "g世b");
    assert_eq!(names(Sort::Name, false), "bg世");
}

/// Rates and quantiles are those since the look before, if the thing was there.
#[test]
fn rates_are_those_between_two_looks() {
    let (earlier, mut now) = (found(), found());
    now.processes[0].page.things[0] = domain("global", 900, 0, 0);
    let before = Look::of(&earlier, NOW - 2 * SECOND);
    let lines = view::lines(&view(&now, &before, Sort::Process, false));
    let columns: Vec<_> = lines[1].1.split_whitespace().collect();
    assert_eq!(columns[3..], ["200", "5.1us", "5.1us", "0", "-", "0", "0"]);
}

/// Numbers that no honest page has.
#[test]
fn hostile_numbers_are_shown_somehow() {
    let mut found = found();
    for thing in &mut found.processes[0].page.things {
        thing.made = u64::MAX;
        for (_, value) in &mut thing.values {
            *value = match value {
                Value::Counter(_) => Value::Counter(u64::MAX),
                Value::Gauge(_) => Value::Gauge(u64::MAX - 1),
                Value::Bytes(_) => Value::Bytes(u64::MAX - 1),
                Value::Moment(_) => Value::Moment(u64::MAX),
                Value::Times(..) => Value::Times(u64::MAX, vec![u64::MAX; 156]),
                Value::Text(_) => Value::Text("x".repeat(3000)),
            };
        }
    }
    found.processes[0].page.made = u64::MAX;
    let before = Look::of(&found, u64::MAX);
    assert!(view::lines(&view(&found, &before, Sort::Waits, true)).len() > 5);
    assert!(json(&found, NOW)["processes"][0]["things"].is_array());
}

fn press(state: &mut State, key: KeyCode) -> Step {
    state.key(KeyEvent::new(key, KeyModifiers::NONE), 10, 30)
}

#[test]
fn keys_do_as_in_top() {
    let mut state = State::default();
    for (key, sort) in [
        ('u', Sort::Unreclaimed),
        ('g', Sort::GracePeriods),
        ('m', Sort::Barriers),
        ('w', Sort::Waits),
        ('n', Sort::Name),
        ('p', Sort::Process),
    ] {
        assert_eq!(press(&mut state, KeyCode::Char(key)), Step::Draw);
        assert_eq!(state.sort, sort);
    }
    for (key, first) in [
        (KeyCode::Down, 1),
        (KeyCode::PageDown, 11),
        (KeyCode::PageDown, 20),
        (KeyCode::Down, 20),
        (KeyCode::Up, 19),
        (KeyCode::Home, 0),
        (KeyCode::Up, 0),
        (KeyCode::End, 20),
        (KeyCode::PageUp, 10),
    ] {
        press(&mut state, key);
        assert_eq!(state.first, first, "{key:?}");
    }
    press(&mut state, KeyCode::Char('r'));
    assert!(state.reverse);
    press(&mut state, KeyCode::Char('h'));
    assert!(state.help);
    let leaves_help = press(&mut state, KeyCode::Char('q'));
    assert_eq!(leaves_help, Step::Draw);
    assert!(!state.help);
    assert_eq!(press(&mut state, KeyCode::Char(' ')), Step::Look);
    assert_eq!(press(&mut state, KeyCode::Char('q')), Step::Leave);
    assert_eq!(press(&mut state, KeyCode::Esc), Step::Leave);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    state.typed = Some(String::new());
    let while_typing = state.key(interrupt, 10, 30);
    assert_eq!(while_typing, Step::Leave);
}

#[test]
fn an_interval_is_typed() {
    let mut state = State::default();
    for (typed, expected) in [
        ("s2.5\n", 2.5),
        ("s0\n", 0.1),
        ("d99999999\n", 3600.0),
        ("s1.2.3\n", 3600.0),
        ("s\n", 3600.0),
        ("s7\u{1b}", 3600.0),
        ("s12\u{8}\n", 1.0),
        ("snan\n", 1.0),
    ] {
        for letter in typed.chars() {
            let key = match letter {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '\u{8}' => KeyCode::Backspace,
                letter => KeyCode::Char(letter),
            };
            press(&mut state, key);
        }
        assert_eq!(
            (state.interval, state.typed.clone()),
            (expected, None),
            "{typed:?}"
        );
    }
}

#[test]
fn figures_are_short() {
    let bytes = [0, 1023, 1024, 10 << 20, 1 << 40, u64::MAX].map(short_bytes);
    assert_eq!(bytes, ["0", "1023", "1.0K", "10M", "1.0T", "-"]);
    let times = [999, 1000, 15_000_000, 61 * SECOND, 900 * SECOND].map(Duration::from_nanos);
    let times = times.map(|time| short_time(Some(time)));
    assert_eq!(times, ["999ns", "1.0us", "15ms", "61s", "15min"]);
    assert_eq!(short_time(None), "-");
    let numbers = [0.0, 0.25, 10.4, 1500.0, 2e9].map(short_number);
    assert_eq!(numbers, ["0", "0.2", "10", "1.5k", "2.0G"]);
}
