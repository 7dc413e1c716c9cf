//! C's statistics are copies of Rust's: none is missing, and they arrive.

use std::{
    fmt::Debug,
    future::Future,
    panic,
    pin::pin,
    ptr,
    task::{Context, Waker},
};
use stillpoint_c::{arena, domain, tenant};

/// The names of a struct's fields.
fn fields(of: &impl Debug) -> Vec<String> {
    let text = format!("{of:?}");
    let inner = text.split_once('{').map_or("", |(_, inner)| inner);
    let mut names: Vec<_> = inner.split(',').filter_map(|field| Some(field.split_once(':')?.0.trim().to_owned())).collect();
    names.sort();
    names
}

#[test]
fn every_field_is_there() {
    assert!(fields(&stillpoint::Statistics::default()).len() > 10);
    assert_eq!(fields(&domain::Statistics::default()), fields(&stillpoint::Statistics::default()));
    let tenant = stillpoint_lru::Hierarchy::new().root().statistics();
    assert_eq!(fields(&tenant::TenantStatistics::default()), fields(&tenant));
    let arena = stillpoint_vmap::Arena::builder().capacity(1 << 20).build().expect("a small arena");
    assert_eq!(fields(&arena::ArenaStatistics::default()), fields(&arena.statistics()));
}

#[test]
fn panics_of_the_process_are_counted() {
    stillpoint::global().call(|| panic::resume_unwind(Box::new("without a message")));
    stillpoint::barrier();
    let mut statistics = domain::Statistics::default();
    // SAFETY: null is the global domain; the statistics can be written to.
    let outcome = unsafe { domain::stillpoint_domain_statistics(ptr::null_mut(), &raw mut statistics, size_of_val(&statistics)) };
    assert_eq!((outcome, statistics.panics, statistics.objects_leaked), (0, 1, 0));
}

#[test]
fn tasks_of_the_process_are_counted() {
    let section = stillpoint::global().read_lock();
    let mut task = pin!(stillpoint::global().synchronize_async());
    assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut statistics = domain::Statistics::default();
    // SAFETY: null is the global domain; the statistics can be written to.
    let outcome = unsafe { domain::stillpoint_domain_statistics(ptr::null_mut(), &raw mut statistics, size_of_val(&statistics)) };
    assert_eq!((outcome, statistics.futures_pending, statistics.service_failures), (0, 1, 0));
    drop(section);
}
