//! What the runner sees, and what it may not see.

use stillpoint::lab::{Domain, Sound};

use super::super::options::tests::plan_for;
use super::*;

/// A run with one thread, and nothing around it.
fn run(arguments: &str, work: impl FnOnce(&Session, &Domain<Sound>) + Send) -> Arc<Session> {
    let session = Arc::new(Session::new(plan_for(arguments)));
    let domain = Domain::<Sound>::starting_at(session.first_cookie());
    let visit = |_: &mut ThreadCtx| ();
    let harness = Harness {
        domain: &domain,
        visit: &visit,
        visit_in_handler: None,
        in_child: &|| (),
    };
    super::run(
        &session,
        &harness,
        vec![ThreadSpec::new("thread", || work(&session, &domain))],
    );
    session
}

#[test]
fn thread_that_needs_help_to_return_is_a_stall() {
    let session = run("wake --duration 0.01", |_, domain| {
        let before = domain.statistics().grace_periods;
        while domain.statistics().grace_periods == before {
            thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(session.tally.count_of(Fault::WriterStall), 1);
}

#[test]
fn thread_that_returns_by_itself_is_not() {
    let session = run("wake --duration 0.01", |session, _| {
        while !session.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(session.tally.faults(), 0);
}

#[test]
fn only_started_writers_are_watched() {
    let session = Session::new(plan_for("rcu --writers 2 --fakewriters 0"));
    let mut watch = Watch {
        limit: 3,
        since: vec![0; 2],
        beats: session.beats(),
    };
    session.beat(1);
    (0..4).for_each(|_| watch.look(&session));
    assert_eq!(
        session.tally.faults(),
        0,
        "the first look has seen the beat"
    );
    (0..4).for_each(|_| watch.look(&session));
    assert_eq!(session.tally.count_of(Fault::WriterStall), 1);
    assert!(
        session
            .tally
            .first()
            .is_some_and(|first| first.what.starts_with("writer 1 "))
    );
}

#[test]
fn only_isolated_flavours_have_the_short_limit() {
    for flavour in crate::torture::flavours::FLAVOURS {
        let soon = stall_limit(&plan_for(flavour.name)) < STALLED;
        assert_eq!(
            soon,
            ["wake", "busted-wake", "busted-poll"].contains(&flavour.name),
            "{}",
            flavour.name
        );
        assert!(
            soon || !flavour.expected_faults.contains(&Fault::WriterStall),
            "{}",
            flavour.name
        );
    }
}
