//! What the conductor sees, and what it may not see.

use stillpoint::torture::{Domain, Sound};

use super::super::options::tests::plan;
use super::*;

/// A run with one part, and nothing around it.
fn run(arguments: &str, work: impl FnOnce(&Session, &Domain<Sound>) + Send) -> Arc<Session> {
    let session = Arc::new(Session::new(plan(arguments)));
    let domain = Domain::<Sound>::starting_at(session.first_cookie());
    let visit = |_: &mut Seat| ();
    let ground = Ground { domain: &domain, visit: &visit, visit_in_handler: None, in_child: &|| () };
    perform(&session, &ground, vec![Part::new("part", || work(&session, &domain))]);
    session
}

#[test]
fn who_comes_back_only_with_help_has_been_forgotten() {
    let session = run("wake --duration 0.01", |_, domain| {
        let before = domain.statistics().grace_periods;
        while domain.statistics().grace_periods == before {
            thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(session.tally.count_of(Fault::WriterStall), 1);
}

#[test]
fn who_comes_back_by_itself_has_not() {
    let session = run("wake --duration 0.01", |session, _| {
        while !session.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(session.tally.faults(), 0);
}

#[test]
fn only_who_has_started_is_watched() {
    let session = Session::new(plan("rcu --writers 2 --fakewriters 0"));
    let mut watch = Watch { limit: 3, since: vec![0; 2], beats: session.beats() };
    session.beat(1);
    (0..4).for_each(|_| watch.look(&session));
    assert_eq!(session.tally.faults(), 0, "the first look has seen the beat");
    (0..4).for_each(|_| watch.look(&session));
    assert_eq!(session.tally.count_of(Fault::WriterStall), 1);
    assert!(session.tally.first().is_some_and(|first| first.what.starts_with("writer 1 ")));
}

#[test]
fn only_duels_are_lost_soon() {
    for flavour in flavours::FLAVOURS {
        let soon = patience(&plan(flavour.name)) < STALLED;
        assert_eq!(soon, ["wake", "busted-wake", "busted-poll"].contains(&flavour.name), "{}", flavour.name);
        assert!(soon || !flavour.guilty_of.contains(&Fault::WriterStall), "{}", flavour.name);
    }
}
