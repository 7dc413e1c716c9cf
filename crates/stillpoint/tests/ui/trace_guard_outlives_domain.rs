//! A guard lives no longer than the handle that it came from.

use stillpoint::tasks_trace::{Guard, TraceDomain};

fn enter(domain: TraceDomain) -> Guard<'static> {
    domain.read_lock()
}

fn main() {
    drop(enter(TraceDomain::new()));
}
