//! A guard lives no longer than the handle that it came from.

fn enter(domain: stillpoint::Domain) -> stillpoint::Guard<'static> {
    domain.read_lock()
}

fn main() {
    enter(stillpoint::Domain::new());
}
