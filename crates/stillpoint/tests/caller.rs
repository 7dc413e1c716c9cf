//! A panic for misuse names the caller's line.

mod common;

use common::told;
use stillpoint::{Domain, Rcu, RcuOption, read_lock, tasks_trace};

#[test]
fn misuse_is_told_of_with_the_line_of_the_caller() {
    let other = Domain::new();
    let (mut cell, mut option) = (Rcu::new(1), RcuOption::new(1));
    let wrong = other.read_lock();
    told(|| *cell.load(&wrong));
    told(|| *cell.load_owned(&wrong));
    told(|| cell.compare_exchange(&1, Box::new(2), &wrong).is_ok());
    told(|| option.load(&wrong).is_some());
    told(|| option.load_owned(&wrong).is_some());
    told(|| option.compare_exchange(None, None, &wrong).is_ok());
    told(|| *option.load_or_init(&wrong, || 1));
    told(|| other.synchronize());
    told(|| other.synchronize_expedited());
    told(|| other.cond_synchronize(other.start_poll()));
    told(|| other.qsbr_reader().synchronize());
    let _guard = read_lock();
    told(|| stillpoint::synchronize());
    told(|| stillpoint::synchronize_expedited());
    told(|| *cell.get_mut());
    told(|| option.get_mut().copied());
    told(|| cell.swap(2).wait());
    told(|| cell.into_inner());
    told(|| option.into_inner());
    told(|| stillpoint::kvfree_barrier());
    let _guard = tasks_trace::read_lock();
    told(|| tasks_trace::synchronize());
}
