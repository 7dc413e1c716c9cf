//! One run from its beginning to its end: starts the threads, gives the disturbances their turns, watches the writers, prints lines.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{self, Scope};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use stillpoint::torture::{Domain, Policy};

use super::disturb;
use super::flavours;
use super::options::{Disturbance, Plan, Turns};
use super::report;
use super::session::{Seat, Session};
use super::tally::{Fault, add};

/// How often the conductor looks.
const TICK: Duration = Duration::from_millis(20);

/// So long a turn of the disturbances lasts at most.
const TURN: Duration = Duration::from_millis(300);

/// So many looks in a row find a writer where it was, and it counts as stalled. Looks and not seconds, because a machine that does not run the
/// conductor does not run the writer either.
const STALLED: u32 = 500;

/// The same for duels, whose one reader never holds anything up for longer than microseconds.
const STALLED_SOON: u32 = 100;

/// What the disturbances need to know of a flavour.
pub struct Ground<'d, P: Policy> {
    /// Whose readers and grace periods it is about.
    pub domain: &'d Domain<P>,
    /// A short section, with all of its checks, on whatever thread.
    pub visit: &'d (dyn Fn(&mut Seat) + Sync),
    /// The same in a signal handler: it may not allocate.
    pub visit_in_handler: Option<&'d (dyn Fn() + Sync)>,
    /// What the child of a fork does first.
    pub in_child: &'d (dyn Fn() + Sync),
}

/// A thread of a flavour.
pub struct Part<'env> {
    name: String,
    handlers: bool,
    place: Option<usize>,
    work: Box<dyn FnOnce() + Send + 'env>,
}

impl<'env> Part<'env> {
    /// A thread that does `work`.
    pub fn new(name: impl Into<String>, work: impl FnOnce() + Send + 'env) -> Self {
        Self { name: name.into(), handlers: false, place: None, work: Box::new(work) }
    }

    /// The same, of which signal handlers may read once it has registered by a first section of its own.
    pub fn for_handlers(self) -> Self {
        Self { handlers: true, ..self }
    }

    /// The same on a processor of its own, as far as there are any: number `place` of those that the process may use. For parts that must run at
    /// the same instant to show anything, which a busy machine would let take turns on one processor.
    pub fn on(self, place: usize) -> Self {
        Self { place: Some(place), ..self }
    }
}

/// Runs the parts until the time is over or something is wrong, and returns when all have ended.
pub fn perform<P: Policy>(session: &Arc<Session>, ground: &Ground<P>, parts: Vec<Part>) {
    let stalls = Arc::clone(session);
    ground.domain.on_stall(move |_| add(&stalls.tally.stalls, 1));
    if session.plan.has(Disturbance::StallReader) {
        ground.domain.set_stall_timeout(Duration::from_secs_f64(session.plan.stall_reader_s / 2.0));
    }
    let before = ground.domain.statistics();
    let handler = ground.visit_in_handler.map(disturb::signals::Handler::new);
    thread::scope(|scope| {
        for part in parts {
            start(scope, session, ground, part);
        }
        disturb::start(scope, session, ground);
        conduct(session);
        session.end();
        leave_alone(session);
        while session.live() > 0 {
            // Who sleeps and has been forgotten is found by whoever ends a grace period. How long this may take is the watchdog's business.
            let _ = ground.domain.poll(ground.domain.get_state());
            thread::sleep(Duration::from_millis(2));
        }
    });
    drop(handler);
    let statistics = ground.domain.statistics();
    add(&session.tally.grace_periods, statistics.grace_periods - before.grace_periods);
    let panics = statistics.panics - before.panics;
    if panics > 0 {
        session.tally.fault(Fault::Panic, || format!("{panics} callbacks, destructors or stall handlers panicked"));
    }
    ground.domain.set_stall_timeout(Duration::from_secs(10));
}

/// Starts a thread that counts as live, is registered while it runs, and whose panic is a fault.
pub fn start<'scope, 'env, P: Policy>(
    scope: &'scope Scope<'scope, 'env>, session: &'env Arc<Session>, ground: &'env Ground<P>, part: Part<'env>,
) {
    let Part { name, handlers, place, work } = part;
    let live = session.enter();
    let spawned = thread::Builder::new().name(name.clone()).spawn_scoped(scope, move || {
        let _live = live;
        // A thread that has read once can read in a handler, too.
        drop(ground.domain.read_lock());
        let registered = disturb::signals::register(session, handlers);
        if let Some(place) = place {
            disturb::processors::stay_on(registered.tid, place);
        }
        if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(work)) {
            let what = payload.downcast_ref::<String>().cloned();
            let what = what.or_else(|| payload.downcast_ref::<&str>().map(|&what| what.to_owned())).unwrap_or_default();
            session.tally.fault(Fault::Panic, || format!("{name} panicked: {what}"));
        }
        disturb::signals::deregister(session, registered);
    });
    if let Err(error) = spawned {
        session.tally.fault(Fault::Panic, || format!("cannot start a thread ({error}); lower --readers or --writers"));
    }
}

/// Waits for the threads of a run that is over, and lends no hand: who comes back only when somebody else ends a grace period has been forgotten.
/// A run that has found a fault has seen enough, and does not wait.
fn leave_alone(session: &Session) {
    let limit = patience(&session.plan);
    for _ in 0..limit {
        if session.live() == 0 || session.tally.is_faulty() {
            return;
        }
        thread::sleep(TICK);
    }
    let live = session.live();
    if live > 0 {
        session.tally.fault(Fault::WriterStall, || {
            format!("{live} threads have not come back by themselves for {limit} looks after the end")
        });
    }
}

/// Looks after which who has not come back counts as stalled.
fn patience(plan: &Plan) -> u32 {
    let held_up = [Disturbance::StallReader, Disturbance::StallService].iter().any(|&one| plan.has(one));
    let extra = if held_up { (plan.stall_reader_s + plan.stall_service_s) / TICK.as_secs_f64() } else { 0.0 };
    (extra as u32).saturating_add(if flavours::is_duel(&plan.flavour) { STALLED_SOON } else { STALLED })
}

fn conduct(session: &Session) {
    let plan = &session.plan;
    let mut random = session.seat("conductor", 0);
    let bar = progress_bar(plan);
    let beats = session.beats();
    let mut watch = Watch { limit: patience(plan), since: vec![0; beats.len()], beats };
    let mut next_turn = Duration::ZERO;
    let mut next_line = Duration::from_secs_f64(plan.stat_interval_s);
    let (mut deck, mut stutter) = (Deck::default(), false);
    loop {
        let elapsed = session.start.elapsed();
        if elapsed >= plan.duration() || session.tally.is_faulty() {
            break;
        }
        if elapsed >= next_turn {
            session.put_in_force(&deck.deal(plan, &mut random));
            next_turn = elapsed + turn_of(plan);
        }
        if session.is_on(Disturbance::Stutter) {
            stutter = !stutter;
            session.pause(stutter);
        }
        if elapsed >= next_line {
            bar.suspend(|| report::lines(session));
            next_line = elapsed + Duration::from_secs_f64(plan.stat_interval_s);
        }
        watch.look(session);
        bar.set_position(elapsed.as_millis() as u64);
        thread::sleep(TICK.min(plan.duration().saturating_sub(elapsed)));
    }
    bar.finish_and_clear();
}

/// Deals the disturbances out, some at a time, all of them before any comes again: also a short run has each.
#[derive(Default)]
struct Deck(Vec<Disturbance>);

impl Deck {
    /// Those of the next turn.
    fn deal(&mut self, plan: &Plan, seat: &mut Seat) -> Vec<Disturbance> {
        if plan.turns == Turns::Whole {
            return plan.disturbances.clone();
        }
        if self.0.is_empty() {
            self.0.clone_from(&plan.disturbances);
            seat.random.shuffle(&mut self.0);
            // A turn of peace between two deals.
            return Vec::new();
        }
        let count = seat.random.usize(1..=3).min(self.0.len());
        self.0.split_off(self.0.len() - count)
    }
}

/// How long a turn lasts: a run has time for two deals at least.
fn turn_of(plan: &Plan) -> Duration {
    TURN.min(plan.duration() / 24)
}

/// A bar on standard error, hidden where that is no terminal.
fn progress_bar(plan: &Plan) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {elapsed} of {msg}").expect("the template is a constant and well formed");
    let length = plan.duration().as_millis() as u64;
    ProgressBar::new(length).with_style(style).with_message(format!("{} s: {}", plan.duration_s, plan.flavour))
}

/// Where the writers were at the last looks.
struct Watch {
    limit: u32,
    beats: Vec<u64>,
    since: Vec<u32>,
}

impl Watch {
    fn look(&mut self, session: &Session) {
        let limit = self.limit;
        for (number, beat) in session.beats().into_iter().enumerate() {
            let started = beat > 0;
            let well = !started || beat != self.beats[number];
            self.beats[number] = beat;
            self.since[number] = if well { 0 } else { self.since[number] + 1 };
            if self.since[number] > limit {
                self.since[number] = 0;
                let what = || format!("writer {number} has not come back from its wait for {limit} looks");
                session.tally.fault(Fault::WriterStall, what);
            }
        }
    }
}

#[cfg(test)]
#[path = "conductor_tests.rs"]
mod tests;
