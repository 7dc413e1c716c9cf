//! What an operation would cost on more processors than this machine has: a **model**, not a
//! measurement.
//!
//! Each line that threads share is a server that one processor has at a time, for as long as a
//! transfer takes; the kernel's lock around a membarrier is one more. Each processor runs the
//! operation over and over: a closed queueing network, solved by exact mean value analysis
//! (M. Reiser, S. S. Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks", Journal
//! of the ACM 27(2), 1980). How often each line is transferred was counted; with n processors the
//! last one to have it was another in (n - 1) of n cases.

use super::lines::Totals;

/// A line's way from one processor's cache to another's, in ns: some 110 cycles at 2.13 GHz within
/// a socket of a Xeon (T. David, R. Guerraoui, V. Trigonakis, "Everything You Always Wanted to Know
/// About Synchronization but Were Afraid to Ask", SOSP 2013, table 2). Across sockets it is three
/// times as much.
const TRANSFER_NS: f64 = 52.0;

/// An instruction that waits for no other processor, in ns: two a cycle at 3 GHz, which is this
/// model's assumption.
const INSTRUCTION_NS: f64 = 1.0 / 6.0;

/// What an atomic instruction on a line in the processor's own cache takes more, in ns: some 20
/// cycles (A. Fog, "Instruction tables", Skylake: LOCK ADD, LOCK XADD, XCHG) at 3 GHz.
const ATOMIC_NS: f64 = 20.0 / 3.0;

/// A membarrier that interrupts nobody, in ns: `scale sync`, scenario idle, the subject `limit`.
const MEMBARRIER_NS: f64 = 150.0;

/// What it takes more for each processor that it interrupts, in ns, and what each of those loses.
/// The sender goes through them one by one under the kernel's lock; an interrupt and its return are
/// some 1,000 cycles at 3 GHz (this model's assumption; on virtual machines it is more: 16 us for
/// the first one, by `scale sync`, scenario busy1, the subject `limit`).
const INTERRUPT_NS: f64 = 330.0;

/// An operation, as far as the model knows it.
pub struct Operation {
    /// What it takes with nobody else about, in ns.
    alone_ns: f64,
    /// Transfers of each shared line.
    transfers: Vec<f64>,
    membarriers: f64,
}

impl Operation {
    /// Of runs of so many operations each.
    pub fn new(totals: &Totals, per_run: usize) -> Self {
        let per = |count: u64| count as f64 / (totals.runs as usize * per_run) as f64;
        Self {
            alone_ns: per(totals.instructions) * INSTRUCTION_NS
                + per(totals.read_modify_writes) * ATOMIC_NS,
            transfers: totals.transfers.iter().map(|&count| per(count)).collect(),
            membarriers: per(totals.membarriers),
        }
    }

    /// What one takes a processor, in ns, while so many run it over and over.
    pub fn ns_on(&self, processors: usize) -> f64 {
        let others = (processors - 1) as f64;
        let transferred = others / processors as f64;
        let interrupts = self.membarriers * others * INTERRUPT_NS;
        let mut demands: Vec<f64> = self
            .transfers
            .iter()
            .map(|transfers| transfers * transferred * TRANSFER_NS)
            .collect();
        demands.push(self.membarriers * MEMBARRIER_NS + interrupts);
        // Beside its own membarriers' time, each processor loses an interrupt to each of the others'.
        cycle_time(self.alone_ns + interrupts, &demands, processors)
    }
}

/// The mean time between two turns of a customer at the same place in a closed network: so many
/// customers, who spend `thinks` by themselves and these demands at servers with queues.
fn cycle_time(thinks: f64, demands: &[f64], customers: usize) -> f64 {
    let mut queued = vec![0.0; demands.len()];
    let mut cycle = 0.0;
    for present in 1..=customers {
        let times: Vec<f64> = demands
            .iter()
            .zip(&queued)
            .map(|(demand, queued)| demand * (1.0 + queued))
            .collect();
        cycle = thinks + times.iter().sum::<f64>();
        for (queued, time) in queued.iter_mut().zip(times) {
            *queued = present as f64 * time / cycle;
        }
    }
    cycle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_customer_alone_never_queues() {
        assert_eq!(cycle_time(5.0, &[2.0, 3.0], 1), 10.0);
    }

    /// The asymptotes: the sum of all where there are few, the slowest server where there are many.
    #[test]
    fn the_slowest_server_is_the_bound() {
        let many = cycle_time(1000.0, &[10.0, 3.0], 1000);
        assert!((many - 10_000.0).abs() < 1.0, "{many}");
        let few = cycle_time(1000.0, &[10.0, 3.0], 2);
        assert!((1013.0..1014.0).contains(&few), "{few}");
    }

    #[test]
    fn what_shares_nothing_costs_the_same_everywhere() {
        let totals = Totals {
            runs: 5,
            instructions: 600,
            ..Totals::default()
        };
        let operation = Operation::new(&totals, 2);
        assert_eq!(operation.ns_on(1), operation.ns_on(256));
        assert_eq!(operation.ns_on(1), 10.0);
    }
}
