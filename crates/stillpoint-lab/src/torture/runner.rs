//! One run from its beginning to its end: starts the threads, gives the disturbances their turns,
//! watches the writers, prints lines.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use stillpoint::lab::Policy;

use super::disturb::Disturbance;
use super::harness::{self, Harness, ThreadSpec};
use super::options::{Plan, Turns};
use super::session::{Session, ThreadCtx};
use super::tally::{Fault, add};
use super::{disturb, report, signals};
use crate::interrupt;
use crate::run::bar_shown;

/// How often the runner looks.
const TICK: Duration = Duration::from_millis(20);

/// So long a turn of the disturbances lasts at most.
const TURN: Duration = Duration::from_millis(300);

/// So many looks in a row find a writer where it was, and it counts as stalled. Looks and not
/// seconds, because a machine that does not run the runner does not run the writer either.
const STALLED: u32 = 500;

/// The same for isolated flavours, whose one reader never holds anything up for longer than
/// microseconds.
const STALLED_SOON: u32 = 100;

/// Runs the threads until the time is over, a fault is found or the program is interrupted, and
/// returns when all have ended.
pub fn run<P: Policy>(session: &Arc<Session>, harness: &Harness<P>, threads: Vec<ThreadSpec>) {
    let stalls = Arc::clone(session);
    harness
        .domain
        .on_stall(move |_| add(&stalls.tally.stalls, 1));
    if session.plan.has(Disturbance::StallReader) {
        harness
            .domain
            .set_stall_timeout(Duration::from_secs_f64(session.plan.stall_reader_s / 2.0));
    }
    let before = harness.domain.statistics();
    let handler = harness.visit_in_handler.map(signals::Handler::new);
    thread::scope(|scope| {
        for spec in threads {
            harness::start(scope, session, harness, spec);
        }
        disturb::start(scope, session, harness);
        supervise(session);
        session.end();
        wait_for_threads(session);
        while session.live() > 0 {
            // A thread that has missed its wake-up is woken by the end of a grace period. How long
            // this may take is the watchdog's business.
            let _ = harness.domain.poll(harness.domain.get_state());
            thread::sleep(Duration::from_millis(2));
        }
    });
    drop(handler);
    let statistics = harness.domain.statistics();
    add(
        &session.tally.grace_periods,
        statistics.grace_periods - before.grace_periods,
    );
    let panics = statistics.panics - before.panics;
    if panics > 0 {
        session.tally.fault(Fault::Panic, || {
            format!("{panics} callbacks, destructors or stall handlers panicked")
        });
    }
    harness.domain.set_stall_timeout(Duration::from_secs(10));
}

/// Waits for the threads of a run that is over, and ends no grace period meanwhile: a thread that
/// comes back only when another one ends a grace period has missed its wake-up. A run that has
/// found a fault has seen enough, and does not wait.
fn wait_for_threads(session: &Session) {
    let limit = stall_limit(&session.plan);
    for _ in 0..limit {
        if session.live() == 0 || session.tally.is_faulty() {
            return;
        }
        thread::sleep(TICK);
    }
    let live = session.live();
    if live > 0 {
        session.tally.fault(Fault::WriterStall, || {
            format!(
                "{live} threads have not come back by themselves for {limit} looks after the end"
            )
        });
    }
}

/// Looks after which a thread that has not come back counts as stalled.
fn stall_limit(plan: &Plan) -> u32 {
    let held_up = [Disturbance::StallReader, Disturbance::StallService]
        .iter()
        .any(|&one| plan.has(one));
    let extra = if held_up {
        (plan.stall_reader_s + plan.stall_service_s) / TICK.as_secs_f64()
    } else {
        0.0
    };
    (extra as u32).saturating_add(if plan.isolated { STALLED_SOON } else { STALLED })
}

fn supervise(session: &Session) {
    let plan = &session.plan;
    let mut random = session.thread_ctx("runner", 0);
    let bar = progress_bar(plan);
    let beats = session.beats();
    let mut watch = Watch {
        limit: stall_limit(plan),
        since: vec![0; beats.len()],
        beats,
    };
    let mut next_turn = Duration::ZERO;
    let mut next_line = Duration::from_secs_f64(plan.stat_interval_s);
    let (mut schedule, mut stutter) = (Schedule::default(), false);
    loop {
        let elapsed = session.start.elapsed();
        if elapsed >= plan.duration()
            || session.tally.is_faulty()
            || interrupt::received().is_some()
        {
            break;
        }
        if elapsed >= next_turn {
            session.set_active(&schedule.next_turn(plan, &mut random));
            next_turn = elapsed + turn_of(plan);
        }
        if session.is_active(Disturbance::Stutter) {
            stutter = !stutter;
            session.pause(stutter);
        }
        if elapsed >= next_line {
            bar.suspend(|| report::say_counts(session));
            next_line = elapsed + Duration::from_secs_f64(plan.stat_interval_s);
        }
        watch.look(session);
        bar.set_position(elapsed.as_millis() as u64);
        thread::sleep(TICK.min(plan.duration().saturating_sub(elapsed)));
    }
    bar.finish_and_clear();
}

/// Hands the disturbances out, some at a time, all of them before any comes again: also a short run
/// has each.
#[derive(Default)]
struct Schedule(Vec<Disturbance>);

impl Schedule {
    /// Those of the next turn.
    fn next_turn(&mut self, plan: &Plan, ctx: &mut ThreadCtx) -> Vec<Disturbance> {
        if plan.turns == Turns::Whole {
            return plan.disturbances.clone();
        }
        if self.0.is_empty() {
            self.0.clone_from(&plan.disturbances);
            ctx.random.shuffle(&mut self.0);
            // A turn without any between two rounds.
            return Vec::new();
        }
        let count = ctx.random.usize(1..=3).min(self.0.len());
        self.0.split_off(self.0.len() - count)
    }
}

/// How long a turn lasts: a run has time for two rounds at least.
fn turn_of(plan: &Plan) -> Duration {
    TURN.min(plan.duration() / 24)
}

/// A bar on standard error, hidden where that is no terminal.
fn progress_bar(plan: &Plan) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {elapsed} of {msg}")
        .expect("the template is a constant and well formed");
    let length = plan.duration().as_millis() as u64;
    let bar = ProgressBar::new(length)
        .with_style(style)
        .with_message(format!("{} s: {}", plan.duration_s, plan.flavour));
    bar_shown(bar)
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
                let what =
                    || format!("writer {number} has not come back from its wait for {limit} looks");
                session.tally.fault(Fault::WriterStall, what);
            }
        }
    }
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
