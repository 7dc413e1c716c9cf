//! Model-checked tests of threads that count at once. The model has one processor, and so two stripes
//! beside the first. Loom tries more of what a thread can see if another one has run before it: so
//! those that look are spawned, and what has been counted before them is by the model's first thread,
//! with other tokens.
//!
//! Detects each release and acquire weakened, stripes made twice, shared counts without a read-
//! modify-write, and a stripe with two owners.

use super::*;
use stillpoint_platform::{
    model::{self as loom, thread},
    sync::Arc,
};

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

/// Counts `times` times as the thread with `token`.
fn count(counters: &Counters, token: u64, times: u64) {
    for _ in 0..times {
        counters.add_as(token, Event::Hit, 1);
    }
}

/// Checks that no count is lost: two threads with `tokens` count twice each, after those of `before` have
/// counted once.
fn is_all_there(before: &'static [u64], tokens: [u64; 2]) {
    model(move || {
        let counters = Arc::new(Counters::default());
        before.iter().for_each(|&token| count(&counters, token, 1));
        let theirs = Arc::clone(&counters);
        let other = thread::spawn(move || count(&theirs, tokens[1], 2));
        count(&counters, tokens[0], 2);
        other.join().unwrap();
        assert_eq!(counters.get(Event::Hit), 4 + before.len() as u64);
    });
}

#[test]
fn loom_the_first_two_threads_that_count() {
    is_all_there(&[], [1, 2]);
    is_all_there(&[], [1, 3]);
}

/// Both find one stripe, which is another thread's, and make the others.
#[test]
fn loom_two_threads_that_make_the_others() {
    is_all_there(&[5], [1, 2]);
    is_all_there(&[5], [1, 3]);
}

/// Neither owns the stripe.
#[test]
fn loom_two_threads_that_share_a_stripe() {
    is_all_there(&[5, 7], [1, 3]);
}

/// A thread that looks finds stripes that are complete, the first one where there are others, and
/// never less than before.
#[test]
fn loom_what_is_counted_is_seen_to_grow() {
    model(|| {
        let counters = Arc::new(Counters::default());
        let seen = Arc::clone(&counters);
        let looks = thread::spawn(move || {
            let before = seen.get(Event::Hit);
            let has_others = !seen.others().is_empty();
            assert!(!has_others || seen.first().is_some());
            let after = seen.get(Event::Hit);
            assert!(before <= after && after <= 3, "{before}, {after}");
        });
        count(&counters, 1, 1);
        count(&counters, 2, 2);
        looks.join().unwrap();
        assert_eq!(counters.get(Event::Hit), 3);
    });
}
