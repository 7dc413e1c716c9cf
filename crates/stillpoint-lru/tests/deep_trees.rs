//! Trees of tenants that are deeper than a stack.

use std::thread;
use stillpoint_lru::{Hierarchy, Tenant};

const LEVELS: usize = if cfg!(miri) { 300 } else { 20_000 };

/// Stack size in bytes: less than a frame of 16 bytes for each level.
const STACK: usize = 256 << 10;

/// Returns the only handle of the lowest of a chain of tenants, each below the one before.
fn deepest(hierarchy: &Hierarchy) -> Tenant {
    let mut tenant = hierarchy.root().create().unwrap();
    for _ in 1..LEVELS {
        tenant = tenant.create().unwrap();
    }
    tenant
}

fn with_a_small_stack(work: impl FnOnce() + Send + 'static) {
    thread::Builder::new()
        .stack_size(STACK)
        .spawn(work)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn deep_tree_ends_with_its_last_handle() {
    let hierarchy = Hierarchy::new();
    let tenant = deepest(&hierarchy);
    assert_eq!(hierarchy.tenants(), LEVELS + 1);
    with_a_small_stack(move || drop(tenant));
    assert_eq!(hierarchy.tenants(), 1);
    // Frees what they have left, on a thread with a stack of the usual size.
    stillpoint::barrier();
}

#[test]
fn deep_tree_ends_with_its_last_charge() {
    let hierarchy = Hierarchy::new();
    let tenant = deepest(&hierarchy);
    let charge = tenant.charge(100_000).unwrap();
    assert!(!format!("{tenant:?} {:?}", tenant.parent()).is_empty());
    drop(tenant);
    drop(hierarchy);
    stillpoint::barrier();
    with_a_small_stack(move || drop(charge));
}
