//! A domain's end where its last handle is kept by an arena or an area: who drops that does not
//! wait.
#![cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::keeps::{self, Keep};
use stillpoint::Domain;
use stillpoint_vmap::Arena;

fn arena(domain: &Domain) -> Arena {
    Arena::builder()
        .capacity(1 << 30)
        .domain(domain)
        .build()
        .expect("addresses")
}

const KEEPS: &[Keep] = &[
    |domain| Box::new(arena(domain)),
    |domain| Box::new(arena(domain).alloc(1, 1).expect("memory")),
];

#[test]
fn drop_does_not_wait_for_the_service_thread() {
    keeps::drop_does_not_wait(KEEPS);
}

#[test]
fn drop_in_a_thread_local_destructor() {
    keeps::nor_in_a_thread_local_destructor(KEEPS);
}

#[test]
fn drop_in_a_callback() {
    keeps::nor_in_a_callback_of_its_own(KEEPS);
}

#[test]
fn drop_in_a_child_of_fork() {
    keeps::in_the_child_of_a_fork_it_just_ends(KEEPS);
}
