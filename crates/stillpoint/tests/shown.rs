//! The Debug output of each public type contains what distinguishes it from others of its kind.

mod common;

use common::{Hear, Tally, number, panic_message};
use std::{sync::mpsc::channel, time::Duration};
use stillpoint::{CallbackHead, Domain, Rcu, RcuOption, tasks_trace::TraceDomain};

#[test]
fn readers_name_their_domain() {
    let (one, two) = (Domain::new(), TraceDomain::default());
    assert_ne!(number(&one), number(&two));
    assert!(format!("{one:?}").contains("objects_pending: 0"), "{one:?}");
    let names = |shown: &str, kind: &str, domain: &Domain| {
        assert!(shown.starts_with(kind), "{shown}");
        assert!(
            shown.contains(&format!("domain: {}", number(domain))),
            "{shown}, in a domain {}",
            number(domain)
        );
    };
    names(&format!("{:?}", one.read_lock()), "Guard", &one);
    names(&format!("{:?}", two.read_lock()), "Guard", &two);
    two.read(|guard| names(&format!("{guard:?}"), "Guard", &two));
    names(&format!("{:?}", two.read_lock_owned()), "OwnedGuard", &two);
    let mut reader = one.qsbr_reader();
    names(&format!("{reader:?}"), "QsbrReader", &one);
    assert!(format!("{reader:?}").contains("online: true"), "{reader:?}");
    names(&format!("{:?}", reader.offline()), "Offline", &one);
}

#[test]
fn waits_name_their_cookie() {
    let domain = Domain::new();
    let guard = domain.read_lock();
    let future = domain.synchronize_async();
    assert!(!domain.poll(future.cookie()), "the section holds it up");
    let shown = format!("{future:?}");
    assert!(
        shown.contains(&format!("{:?}", future.cookie()))
            && shown.contains(&number(&domain).to_string()),
        "{shown}"
    );
    drop(guard);
    domain.cond_synchronize(future.cookie());
    assert!(domain.poll(future.cookie()));
}

#[test]
fn handles_of_the_same_are_equal_and_of_others_are_not() {
    let domain = Domain::new();
    assert_eq!(domain, domain.clone());
    assert_ne!(domain, Domain::default());
    let trace = TraceDomain::new();
    assert_eq!(trace.as_ref(), &*trace.clone());
    assert_ne!(trace, TraceDomain::with_fences());
}

#[test]
fn values_are_shown_where_they_can_be_seen() {
    let cell = RcuOption::new(String::from("limits"));
    let retired = cell.take().expect("just made");
    assert_eq!(format!("{retired:?}"), "Retired(\"limits\")");
    // What is queued is the queue's alone, so nothing of it is shown.
    assert_eq!(
        format!("{:?}", CallbackHead::default()),
        "CallbackHead { .. }"
    );
}

#[test]
fn a_budget_and_a_policy_are_what_was_set() {
    let domain = Domain::new();
    assert_eq!(domain.budget(), 8 << 20);
    domain.set_budget(123_456);
    assert_eq!(domain.budget(), 123_456);
    assert_eq!(
        Domain::new().budget(),
        8 << 20,
        "another domain's is its own"
    );
    // The functions of the crate are those of the global domain.
    let cookie = stillpoint::global().get_state();
    stillpoint::synchronize_expedited();
    assert!(stillpoint::global().poll(cookie));
}

#[test]
fn a_section_is_one_however_it_is_borrowed() {
    let (domain, other) = (Domain::new(), Domain::new());
    let tally = Tally::new();
    let cell = Rcu::new_in(&domain, tally.value(3));
    let guard = domain.read_lock();
    let by_reference = &&guard;
    assert_eq!(cell.load(by_reference).get(), 3);
    let stranger = other.read_lock();
    assert!(panic_message(|| cell.load(&&stranger).get()).contains("domain"));
}

#[test]
fn a_builder_makes_a_domain_as_it_was_told() {
    let (tell, told) = channel();
    let domain = Domain::builder()
        .name("routes")
        .with_fences()
        .budget(123_456)
        .build_trace();
    assert_eq!((domain.name(), domain.budget()), (Some("routes"), 123_456));
    domain.set_stall_timeout(Duration::from_millis(1));
    domain.on_stall(move |report| {
        let _ = tell.send(report.clone());
    });
    let shown = format!("{domain:?}");
    assert!(shown.contains("name: \"routes\""), "{shown}");
    let guard = domain.read_lock_owned();
    let _ = domain.start_poll();
    let report = told.hear("a stall");
    assert_eq!(report.domain_name.as_deref(), Some("routes"));
    let number = report.domain;
    assert!(
        report
            .to_string()
            .contains(&format!("of domain {number} 'routes' stalled"))
    );
    drop(guard);
    assert_eq!(Domain::builder().build().budget(), Domain::new().budget());
    assert_eq!(Domain::new().name(), None);
    assert!(panic_message(|| Domain::builder().name("a\0b")).contains("null byte"));
}
