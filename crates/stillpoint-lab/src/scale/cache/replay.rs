//! The hit ratio over a trace: each request reads, and inserts on a miss, as in mokabench. Six
//! clients take parts of [`PART`] requests in turn, each the next one that is left.
//!
//! So the requests of six come in another order than the trace's, and where a client waits for a
//! processor, some of its requests come much later. What that alone costs is not the cache's: `hit_ratio_one`
//! is that of one client which then makes the requests in the same order, in another cache. If the
//! two differ, the cache loses something where threads use it at once.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use anyhow::Result;

use super::{SCENARIOS, Work, leak};
use crate::cache::{Cache, request};
use crate::choice::scenarios;
use crate::run::Sample;
use crate::scale::threads::in_threads;
use crate::scale::traces::Trace;

/// The names of the traces.
const TRACES: [&str; 3] = ["oltp", "p3", "p6"];

/// As many requests are in a part.
const PART: u64 = 200;

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The trace's name.
    pub trace: &'static str,
    entries: usize,
    clients: usize,
}

impl Plan {
    /// The plan of a scenario of this name, if it is one of a trace.
    pub fn of(scenario: &str) -> Option<Self> {
        let mut words = scenario.split('-');
        let name = words.next()?;
        let trace = TRACES.into_iter().find(|trace| *trace == name)?;
        Some(Self {
            trace,
            entries: words.next()?.parse().ok()?,
            clients: words
                .next()
                .map_or(Some(1), |clients| clients.parse().ok())?,
        })
    }

    /// Returns whether one client makes all requests.
    pub fn is_of_one(&self) -> bool {
        self.clients == 1
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = (&'static str, Self)> {
        scenarios(SCENARIOS).filter_map(|name| Some((name, Self::of(name)?)))
    }
}

/// Measures a hit ratio.
pub fn measure<C: Cache>(work: &Work, plan: Plan) -> Result<Sample> {
    let trace = work.traces.read(plan.trace)?.divided(work.divide);
    let cache: &C = leak(C::with_entries(plan.entries));
    if plan.is_of_one() {
        let counted = replay(cache, trace.blocks());
        return Ok(Sample::of([("hit_ratio", counted.ratio())]));
    }
    let (counted, order) = by_clients(cache, &trace, plan.clients)?;
    let other: &C = leak(C::with_entries(plan.entries));
    let one = replay(other, order.into_iter());
    Ok(Sample::of([
        ("hit_ratio", counted.ratio()),
        ("hit_ratio_one", one.ratio()),
    ]))
}

/// Hits, and requests.
#[derive(Default)]
pub struct Counted {
    hits: u64,
    requests: u64,
}

impl Counted {
    /// Counts a request.
    #[inline]
    pub fn note(&mut self, is_hit: bool) {
        self.hits += u64::from(is_hit);
        self.requests += 1;
    }

    fn add(&mut self, other: &Self) {
        self.hits += other.hits;
        self.requests += other.requests;
    }

    /// Requests that were no hit.
    pub fn missed(&self) -> u64 {
        self.requests - self.hits
    }

    /// Hits for each request.
    pub fn ratio(&self) -> f64 {
        self.hits as f64 / self.requests as f64
    }
}

/// Requests each block in turn.
pub fn replay<C: Cache>(mut cache: &C, blocks: impl Iterator<Item = u64>) -> Counted {
    let mut counted = Counted::default();
    for block in blocks {
        counted.note(request(&mut cache, block, block));
    }
    counted
}

/// Also returns the order in which the requests were begun.
fn by_clients<C: Cache>(cache: &C, trace: &Trace, clients: usize) -> Result<(Counted, Vec<u64>)> {
    let parts = trace.parts(PART);
    let order: Vec<_> = trace.blocks().map(|_| AtomicU64::new(0)).collect();
    let (next, begun) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let client = |_| {
        let mut counted = Counted::default();
        let note = |block| {
            // Relaxed: each place is written once, and read when the clients have ended.
            order[begun.fetch_add(1, Ordering::Relaxed)].store(block, Ordering::Relaxed);
        };
        // Relaxed: a part is taken once, and the parts themselves do not change.
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let blocks = trace.in_part(part.clone()).inspect(|&block| note(block));
            counted.add(&replay(cache, blocks));
        }
        counted
    };
    let mut all = Counted::default();
    in_threads(clients, client)?
        .iter()
        .for_each(|counted| all.add(counted));
    Ok((all, order.into_iter().map(AtomicU64::into_inner).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trace_has_three_sizes_and_oltp_six_clients_too() {
        let plans: Vec<_> = Plan::all().map(|(_, plan)| plan).collect();
        assert_eq!(plans.len(), 12);
        assert_eq!(plans.iter().filter(|plan| plan.clients == 6).count(), 3);
        let expected = Plan {
            trace: "oltp",
            entries: 2_000,
            clients: 6,
        };
        assert_eq!(Plan::of("oltp-2000-6"), Some(expected));
        assert_eq!(Plan::of("read-1"), None);
    }
}
