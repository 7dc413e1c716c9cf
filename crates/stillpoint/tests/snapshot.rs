//! Snapshots: guard and value in one, which may be kept and sent like the guard.

mod common;

use common::{Tally, Tracked, elsewhere, panic_message};
use std::{collections::HashMap, fmt::Debug, thread};
use stillpoint::{
    Domain, Guard, QsbrReader, Rcu, RcuOption, Snapshot, read_lock,
    tasks_trace::{self, OwnedGuard, TraceDomain},
};

fn is_send_and_sync<T: Send + Sync + Unpin>() {}

/// What the compiler must accept; what it must refuse is under `ui/`.
#[test]
fn a_snapshot_is_what_its_parts_are() {
    is_send_and_sync::<Snapshot<String>>();
    is_send_and_sync::<Snapshot<str, OwnedGuard<'_>>>();
    is_send_and_sync::<Snapshot<dyn Debug + Sync>>();
    fn shorter<'a>(
        value: Snapshot<&'static str, OwnedGuard<'static>>,
    ) -> Snapshot<&'static str, OwnedGuard<'a>> {
        value
    }
    let cell = Rcu::new_in(tasks_trace::global(), "static");
    assert_eq!(
        *shorter(cell.load_owned(tasks_trace::read_lock_owned())),
        "static"
    );
    assert_eq!(size_of::<Snapshot<u8, Guard<'_>>>(), 2 * size_of::<usize>());
}

#[test]
fn a_snapshot_keeps_the_value_and_its_section_when_cell_and_domain_are_gone() {
    let (tally, domain) = (Tally::new(), TraceDomain::new());
    let cell = Rcu::new_in(&domain, tally.value(1));
    let snapshot = cell.load_owned(domain.read_lock_static());
    cell.store(tally.value(2));
    let later = cell.load_owned(domain.read_lock_static());
    drop(cell);
    assert!(
        !domain.poll(domain.start_poll()),
        "the snapshots are sections"
    );
    drop(domain);
    assert_eq!((snapshot.get(), later.get(), tally.dropped()), (1, 2, 0));
    thread::spawn(move || {
        assert_eq!((snapshot.get(), later.get()), (1, 2));
        drop((later, snapshot));
    })
    .join()
    .expect("no panic");
    common::eventually(|| tally.all_dropped());
}

#[test]
fn a_snapshot_may_be_shared_by_threads_and_outlive_them() {
    let cell = Rcu::new_in(tasks_trace::global(), vec![1, 2, 3]);
    let read = || cell.load_owned(tasks_trace::read_lock_owned().named("from elsewhere"));
    let snapshot = elsewhere(read);
    cell.store(Vec::new());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert_eq!(snapshot.iter().sum::<i32>(), 6));
        }
    });
    assert_eq!(format!("{snapshot:?}"), "Snapshot([1, 2, 3])");
}

#[test]
fn every_kind_of_section_makes_one() {
    let domain = Domain::new();
    let cell = Rcu::new_in(&domain, String::from("found"));
    let guard = domain.read_lock();
    assert_eq!(*cell.load_owned(&guard), "found");
    assert_eq!(cell.load_owned(domain.read_lock()).to_string(), "found");
    drop(guard);
    let snapshot = cell.load_owned(domain.qsbr_reader());
    assert_eq!(*snapshot, "found");
    let mut reader: QsbrReader<'_> = Snapshot::into_guard(snapshot);
    reader.quiescent_state();
    let option = RcuOption::<u32>::empty_in(&domain);
    assert!(option.load_owned(&reader).is_none());
    option.store(1);
    assert_eq!(option.load_owned(&reader).as_deref(), Some(&1));
    drop(reader);
    assert!(domain.poll(domain.start_poll()), "no section is left");
}

#[test]
fn a_guard_of_another_domain_makes_none() {
    let (mine, other) = (TraceDomain::new(), TraceDomain::new());
    let cell = Rcu::new_in(&mine, 1);
    assert!(
        panic_message(|| *cell.load_owned(other.read_lock_static())).contains("cannot protect")
    );
    assert!(panic_message(|| *cell.load_owned(read_lock())).contains("cannot protect"));
    assert!(
        other.poll(other.start_poll()),
        "the guard that was refused is dropped"
    );
    let option = RcuOption::<u32>::empty_in(&mine);
    assert!(
        panic_message(|| option.load_owned(other.read_lock_owned()).is_none())
            .contains("cannot protect")
    );
}

#[test]
fn parts_keep_the_section() {
    let (tally, domain) = (Tally::new(), TraceDomain::new());
    let cell = Rcu::new_in(
        &domain,
        HashMap::from([("a", tally.value(1)), ("b", tally.value(2))]),
    );
    let other = Rcu::new_in(&domain, "another");
    let all = cell.load_owned(domain.read_lock_static());
    let all = Snapshot::try_map(all, |all| all.get("c")).expect_err("it is not there");
    let b: Snapshot<Tracked> = Snapshot::try_map(all, |all| all.get("b")).expect("it is there");
    cell.store(HashMap::new());
    other.store("a third");
    assert_eq!(other.load(Snapshot::guard(&b)), &"a third");
    let number = Snapshot::map(b, |b| &b.number);
    assert!(!domain.poll(domain.start_poll()));
    assert_eq!((*number, tally.dropped()), (2, 0));
    let anything: Snapshot<dyn Debug + Sync> =
        Snapshot::map(number, |number| number as &(dyn Debug + Sync));
    assert_eq!(format!("{:?}", &*anything), "2");
    drop(anything);
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
}

#[test]
fn a_projection_that_panics_ends_the_section() {
    let domain = TraceDomain::new();
    let cell = Rcu::new_in(&domain, 1);
    let snapshot = cell.load_owned(domain.read_lock_static());
    common::quietly(|| {
        assert_eq!(
            panic_message(|| *Snapshot::map(snapshot, |_| -> &u32 { panic!("in map") })),
            "in map"
        )
    });
    assert!(domain.poll(domain.start_poll()));
}

#[test]
fn a_static_value_outlives_all() {
    let cell = Rcu::from_static(&5);
    let snapshot = cell.load_owned(read_lock());
    drop(cell);
    assert_eq!(*snapshot, 5);
}
