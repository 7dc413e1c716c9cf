//! `scale kfree --count`: counts a retire's writes to cache lines that threads share, instruction by instruction.
//!
//! The retire that fills a page is what is counted: it seals the page and frees another. Those before
//! it write to the thread's page alone, so its count is shared by a page's objects. What is retired
//! goes through a domain whose policy is the shipped one, but for the service thread, which is held
//! meanwhile: one instruction at a time every thread looks idle, and it would take their pages from
//! them.

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use stillpoint::lab::{Domain, GracePeriodPolicy, Policy};

use crate::object::Object;
use crate::scale::shared_lines::{self, Operation, Plan, THREADS};

/// Objects of a page.
const SLOTS: usize = 253;

/// The shipped policy, and the service thread can be held.
enum Counted {}

/// The service thread of [`Counted`] domains makes no pass.
static HELD: AtomicBool = AtomicBool::new(false);

// SAFETY: every constant keeps its default; the hook only waits.
unsafe impl GracePeriodPolicy for Counted {
    fn service_comes() {
        // Relaxed: nothing is published with it.
        while HELD.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

// SAFETY: as above.
unsafe impl Policy for Counted {}

fn domain() -> &'static Domain<Counted> {
    static DOMAIN: OnceLock<Domain<Counted>> = OnceLock::new();
    DOMAIN.get_or_init(|| {
        let domain = Domain::new();
        // A held thread is late.
        domain.set_stall_timeout(Duration::from_secs(86_400));
        domain
    })
}

/// The retire that fills a page.
struct Seal;

impl Seal {
    fn retire(&self) {
        let object = NonNull::from(Box::leak(Object::<32>::allocate()));
        // SAFETY: it was never published, and is retired once.
        unsafe { domain().retire(object) };
    }
}

impl Operation for Seal {
    fn before(&mut self) {
        (1..SLOTS).for_each(|_| self.retire());
    }

    fn run(&mut self) {
        self.retire();
    }
}

/// Counts read-modify-writes for an object where `threads` retire.
pub fn count(threads: usize) -> Result<f64> {
    let plan = Plan {
        warm_up: 64,
        // A thread's runs for the frees of all that it had retired before.
        calls: 17,
        beside: threads.saturating_sub(THREADS),
    };
    // From the first run on, so that where other work delays the threads nothing is different.
    HELD.store(true, Ordering::Relaxed);
    let totals = shared_lines::count(plan, || {
        drop(domain().read_lock());
        Seal
    });
    HELD.store(false, Ordering::Relaxed);
    let totals = totals?;
    let retired = totals.runs as f64 * SLOTS as f64;
    Ok(totals.read_modify_writes as f64 / retired)
}
