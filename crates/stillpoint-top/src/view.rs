//! The lines of text, each with a mark, which the terminal may show by a color. A line can be
//! understood without its color.

use ratatui::{
    Frame,
    layout::{Constraint, Layout},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::Paragraph,
};

use crate::{
    figures::{Figures, Look, short_bytes, short_number, short_time},
    find::{Found, Process},
};

/// The order of domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Process, then number.
    Process,
    /// Unreclaimed bytes.
    Unreclaimed,
    /// Grace periods a second.
    GracePeriods,
    /// Barriers a second.
    Barriers,
    /// Waits a second.
    Waits,
    /// The domain's name.
    Name,
}

impl Sort {
    const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Unreclaimed => "unreclaimed",
            Self::GracePeriods => "grace periods",
            Self::Barriers => "barriers",
            Self::Waits => "waits",
            Self::Name => "name",
        }
    }
}

/// Everything that is drawn.
pub struct View<'a> {
    /// The processes that were found.
    pub found: &'a Found,
    /// The time in nanoseconds of the monotonic clock.
    pub now: u64,
    /// The look before.
    pub before: &'a Look,
    /// The order of domains.
    pub sort: Sort,
    /// True for the reverse order.
    pub reverse: bool,
    /// The end of the second line: the interval, for example.
    pub note: String,
}

/// The meaning of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Names of columns.
    Heading,
    /// All is well.
    Plain,
    /// Something needs attention.
    Alarm,
}

/// The help.
pub const HELP: &str = "\
Keys

  q, Esc, Ctrl-C   leave
  h, ?             this help; any key leaves it
  up, down         one line; also j and k
  PgUp, PgDn       a screen; Home, End: to the ends
  s                set the interval in seconds, as in top
  Space            look again now
  p u g m w n      sort by process, unreclaimed bytes, grace periods,
                   membarriers, waits, name
  r                reverse the order

GP/s grace periods a second      MB/s membarriers a second
P50, P99 how long they took      UNRECL unreclaimed, of BUDGET
WAIT/s waits of threads that retire, past the budget
A domain with ! has a stalled grace period: see below the domains.";

/// Returns all lines but the first two.
pub fn lines(view: &View) -> Vec<(Mark, String)> {
    let mut lines = Vec::new();
    domains(view, &mut lines);
    refused(view, &mut lines);
    for (pid, hidden) in &view.found.unreadable {
        lines.push((Mark::Alarm, format!("{pid:>7} {hidden}")));
    }
    lines
}

/// Returns the first two lines.
pub fn title(view: &View) -> [String; 2] {
    let Found {
        processes, denied, ..
    } = view.found;
    let domains: usize = processes
        .iter()
        .map(|process| process.page.things.len())
        .sum();
    let counted = |count: usize, one: &str, more: &str| {
        format!("{count} {}", if count == 1 { one } else { more })
    };
    let denied = match denied {
        0 => String::new(),
        denied => format!(
            "; {} may not be looked at",
            counted(*denied, "process", "processes")
        ),
    };
    [
        format!(
            "stillpoint-top: {}, {}{denied}",
            counted(processes.len(), "process", "processes"),
            counted(domains, "domain", "domains"),
        ),
        format!(
            "sorted by {}{}{}",
            view.sort.name(),
            if view.reverse { ", reversed" } else { "" },
            view.note
        ),
    ]
}

fn figures<'a>(view: &View<'a>) -> Vec<Figures<'a>> {
    let (now, before) = (view.now, view.before);
    let of = |process: &'a Process| {
        process
            .page
            .things
            .iter()
            .map(move |thing| Figures::new(now, process, thing, before))
    };
    view.found.processes.iter().flat_map(of).collect()
}

fn domains(view: &View, lines: &mut Vec<(Mark, String)>) {
    let mut all = figures(view);
    let descending = |by: fn(&Figures) -> f64| {
        move |one: &Figures, other: &Figures| by(other).total_cmp(&by(one))
    };
    match view.sort {
        // As they were found.
        Sort::Process => {}
        Sort::Name => all.sort_by(|one, other| one.thing.name.cmp(&other.thing.name)),
        Sort::Unreclaimed => {
            all.sort_by(descending(|one| {
                one.thing.number_of("unreclaimed_bytes") as f64
            }));
        }
        Sort::GracePeriods => all.sort_by(descending(|one| one.rate("grace_periods"))),
        Sort::Barriers => all.sort_by(descending(|one| one.rate("heavy_barriers"))),
        Sort::Waits => all.sort_by(descending(|one| one.rate("waits"))),
    }
    if view.reverse {
        all.reverse();
    }
    lines.push((
        Mark::Heading,
        format!(
            "{:>7} {:<12} {:<15} {:>5} {:>5} {:>5} {:>6} {:>6} {:>5} {:>5}",
            "PID", "COMMAND", "DOMAIN", "GP/s", "P50", "P99", "UNRECL", "BUDGET", "WAIT/", "MB/s"
        ),
    ));
    for one in &all {
        let (thing, alarm) = (one.thing, is_stalled(one));
        let number = |name| short_bytes(thing.number_of(name));
        let rate = |name| short_number(one.rate(name));
        let time = |q| short_time(one.quantile("grace_period_times", q));
        lines.push((
            if alarm { Mark::Alarm } else { Mark::Plain },
            format!(
                "{:>7} {} {}{} {:>5} {:>5} {:>5} {:>6} {:>6} {:>5} {:>5}",
                one.process.pid,
                fitted(&one.process.command, 12),
                if alarm { "!" } else { "" },
                fitted(&thing.name, if alarm { 14 } else { 15 }),
                rate("grace_periods"),
                time(0.5),
                time(0.99),
                number("unreclaimed_bytes"),
                number("budget_bytes"),
                rate("waits"),
                rate("heavy_barriers"),
            ),
        ));
    }
    stalls(&all, lines);
}

fn is_stalled(one: &Figures) -> bool {
    ["stalled_since", "service_stalled_since"]
        .iter()
        .any(|time| one.ago(time).is_some())
}

/// Says what holds up grace periods or the service thread, and for how long.
fn stalls(all: &[Figures], lines: &mut Vec<(Mark, String)>) {
    if !all.iter().any(is_stalled) {
        return;
    }
    lines.push((Mark::Plain, String::new()));
    lines.push((Mark::Heading, format!("{:>7} STALLED", "PID")));
    for one in all {
        let (pid, name) = (one.process.pid, &one.thing.name);
        if let Some(ago) = one.ago("stalled_since") {
            let lasted = short_time(Some(ago));
            lines.push((
                Mark::Alarm,
                format!("{pid:>7} {name}: grace period, for {lasted}, by"),
            ));
            let text = one.thing.text_of("stall");
            lines.extend(wrapped(text, 70).map(|line| (Mark::Alarm, format!("{:10}{line}", ""))));
        }
        if let Some(ago) = one.ago("service_stalled_since") {
            let lasted = short_time(Some(ago));
            let what = "service thread, by a callback, destructor or waker";
            lines.push((
                Mark::Alarm,
                format!("{pid:>7} {name}: {what}, for {lasted}"),
            ));
        }
    }
}

/// Says how many domains of a process have no space in its page.
fn refused(view: &View, lines: &mut Vec<(Mark, String)>) {
    for process in &view.found.processes {
        if process.page.refused > 0 {
            let (pid, refused) = (process.pid, process.page.refused);
            let text =
                format!("{pid:>7} has or had {refused} more, which its page had no space for");
            lines.push((Mark::Plain, text));
        }
    }
}

/// Cuts or pads `text` to `width` columns; a character may take two.
fn fitted(text: &str, width: usize) -> String {
    let mut line = String::new();
    let wide = |line: &str| Span::raw(line.to_owned()).width();
    for letter in text.chars() {
        line.push(letter);
        if wide(&line) > width {
            line.pop();
            break;
        }
    }
    let missing = width - wide(&line);
    line.extend(std::iter::repeat_n(' ', missing));
    line
}

/// Wraps `text` at blanks, into lines of `width` characters; a longer word gets a line.
fn wrapped(text: &str, width: usize) -> impl Iterator<Item = String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.into_iter()
}

/// Draws the lines from `first` on, in colors if `colors`.
pub fn draw(frame: &mut Frame, view: &View, first: usize, colors: bool) {
    let [head, body] =
        Layout::vertical([Constraint::Length(3), Constraint::Min(0)]).areas(frame.area());
    let mut top: Vec<Line> = title(view).into_iter().map(Line::from).collect();
    top[0] = top[0].clone().style(Modifier::BOLD);
    frame.render_widget(Paragraph::new(top), head);
    let shown = lines(view).into_iter().skip(first).take(body.height.into());
    let styled = shown.map(|(mark, text)| Line::styled(text, style(mark, colors)));
    frame.render_widget(Paragraph::new(styled.collect::<Vec<_>>()), body);
}

/// Draws the help.
pub fn draw_help(frame: &mut Frame) {
    frame.render_widget(Paragraph::new(HELP), frame.area());
}

fn style(mark: Mark, colors: bool) -> Style {
    match mark {
        Mark::Heading => Style::new().add_modifier(Modifier::REVERSED),
        Mark::Plain => Style::new(),
        Mark::Alarm if colors => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        Mark::Alarm => Style::new().add_modifier(Modifier::BOLD),
    }
}
