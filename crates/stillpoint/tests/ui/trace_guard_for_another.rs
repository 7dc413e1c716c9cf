//! A function that asks for a guard of one kind refuses the other.

use stillpoint::{Domain, Guard, tasks_trace};

fn short(_: &Guard<'_>) {}
fn sleeps(_: &tasks_trace::Guard<'_>) {}

fn main() {
    let domain = tasks_trace::TraceDomain::new();
    short(&tasks_trace::read_lock());
    short(&domain.read_lock());
    domain.read(short);
    sleeps(&stillpoint::read_lock());
    sleeps(&Domain::new().read_lock());
}
