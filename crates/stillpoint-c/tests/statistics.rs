//! What C gets of the library's statistics: as much of the struct as the caller knows, and what
//! Rust code of the process has counted.

use std::{
    future::Future,
    panic,
    pin::pin,
    ptr,
    task::{Context, Waker},
};
use stillpoint::Statistics;
use stillpoint_c::domain;

fn global_statistics() -> Statistics {
    let mut statistics = Statistics::default();
    // SAFETY: null is the global domain; the statistics can be written to.
    let outcome = unsafe {
        domain::stillpoint_domain_statistics(
            ptr::null_mut(),
            &raw mut statistics,
            size_of_val(&statistics),
        )
    };
    assert_eq!(outcome, 0);
    statistics
}

#[test]
fn a_caller_may_know_fewer_fields_or_more() {
    const FIELDS: usize = size_of::<Statistics>() / size_of::<u64>();
    let domain = domain::stillpoint_domain_new();
    for known in [1, 3, FIELDS, FIELDS + 2] {
        let mut fields = [u64::MAX; FIELDS + 3];
        // SAFETY: the domain is alive, and `size` bytes can be written to.
        let outcome = unsafe {
            domain::stillpoint_domain_statistics(
                domain,
                fields.as_mut_ptr().cast(),
                known * size_of::<u64>(),
            )
        };
        assert_eq!(outcome, 0);
        assert!(
            fields[..known].iter().all(|&field| field == 0),
            "a new domain has counted nothing: {fields:?}"
        );
        assert!(
            fields[known..].iter().all(|&field| field == u64::MAX),
            "nothing is written past what is known"
        );
    }
    // SAFETY: made above, and not used again.
    assert_eq!(unsafe { domain::stillpoint_domain_destroy(domain) }, 0);
}

#[test]
fn panics_of_the_process_are_counted() {
    stillpoint::global().call(|| panic::resume_unwind(Box::new("without a message")));
    stillpoint::barrier();
    let statistics = global_statistics();
    assert_eq!((statistics.panics, statistics.objects_leaked), (1, 0));
}

#[test]
fn tasks_of_the_process_are_counted() {
    let section = stillpoint::global().read_lock();
    let mut task = pin!(stillpoint::global().synchronize_async());
    assert!(
        task.as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    let statistics = global_statistics();
    assert_eq!(
        (statistics.futures_pending, statistics.service_failures),
        (1, 0)
    );
    drop(section);
}
