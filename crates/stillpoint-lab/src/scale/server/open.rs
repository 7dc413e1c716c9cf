//! An open loop: requests are sent when they are due, however long earlier ones take, and a latency
//! counts from then. A server that pauses has every request of the pause counted.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::client::Connection;
use crate::scale::timing::{Times, no_times};

/// Requests a second.
pub const RATE: u32 = 20_000;

/// Latencies, in nanoseconds.
pub struct Latencies(Times);

impl Latencies {
    /// The latency below which that part of the requests is, in microseconds.
    pub fn quantile_us(&self, part: f64) -> f64 {
        self.0.value_at_quantile(part) as f64 / 1e3
    }

    /// The figures of a table.
    pub fn figures(&self) -> [(&'static str, f64); 3] {
        [("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999)]
            .map(|(name, part)| (name, self.quantile_us(part)))
    }
}

/// When requests are due.
pub struct Schedule {
    between: Duration,
    left: u64,
    begun: Instant,
    next: Duration,
}

impl Schedule {
    /// So many requests a second, for that long, from now on.
    pub fn new(rate: u32, time: Duration) -> Self {
        let between = Duration::from_secs(1) / rate;
        let left = (time.as_nanos() / between.as_nanos()).max(1) as u64;
        Self {
            between,
            left,
            begun: Instant::now(),
            next: Duration::ZERO,
        }
    }

    /// When the next request that is due now was due.
    fn due(&mut self) -> Option<Duration> {
        if self.left == 0 || self.next > self.begun.elapsed() {
            return None;
        }
        self.left -= 1;
        let due = self.next;
        self.next += self.between;
        Some(due)
    }
}

/// Sends what `push` appends, on one connection after the other, as the schedule has it, and waits
/// for the last answer. Calls `between` with the time since the beginning again and again.
pub fn run(
    connections: &mut [Connection],
    schedule: &mut Schedule,
    mut push: impl FnMut(&mut Connection),
    mut between: impl FnMut(Duration) -> Result<()>,
) -> Result<Latencies> {
    for connection in &*connections {
        connection.do_not_block()?;
    }
    let mut latencies = no_times();
    let mut waiting = vec![VecDeque::new(); connections.len()];
    let mut turn = 0;
    loop {
        while let Some(due) = schedule.due() {
            push(&mut connections[turn]);
            waiting[turn].push_back(due);
            turn = (turn + 1) % connections.len();
        }
        for (connection, waiting) in connections.iter_mut().zip(&mut waiting) {
            if !connection.output.is_empty() {
                connection.send_some()?;
            }
            if waiting.is_empty() || !connection.receive()? {
                continue;
            }
            let now = schedule.begun.elapsed();
            while let Some(&due) = waiting.front() {
                if connection.next()?.is_none() {
                    break;
                }
                waiting.pop_front();
                let took = u64::try_from((now - due).as_nanos()).unwrap_or(u64::MAX);
                latencies.saturating_record(took.max(1));
            }
        }
        between(schedule.begun.elapsed())?;
        if schedule.left == 0 && waiting.iter().all(VecDeque::is_empty) {
            return Ok(Latencies(latencies));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is left out because the client was late.
    #[test]
    fn what_was_due_while_nobody_looked_is_due_still() {
        let mut schedule = Schedule::new(1_000_000, Duration::from_millis(5));
        let mut due = Vec::new();
        while due.len() < 5000 {
            due.extend(schedule.due());
        }
        assert_eq!(schedule.due(), None);
        assert!(
            due.iter()
                .zip(0..)
                .all(|(&due, number)| due == Duration::from_micros(number))
        );
    }
}
