//! Destructors: they panic, they retire, they run where they are told to.

use std::{
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self},
};

use stillpoint::Domain;

use crate::{
    SOME,
    common::{Bomb, Tally, Tracked, eventually, retire_inline, returns},
    retire, retire_some,
};

#[test]
fn destructor_panic_is_counted_and_the_others_run() {
    struct Sometimes(
        bool,
        #[expect(dead_code, reason = "counts its drop")] Tracked,
    );
    impl Drop for Sometimes {
        fn drop(&mut self) {
            if self.0 {
                panic::resume_unwind(Box::new("without a message"));
            }
        }
    }
    let (domain, tally) = (Domain::new(), Tally::new());
    for round in 1..=3 {
        (0..SOME).for_each(|number| retire(&domain, Sometimes(number % 3 == 0, tally.value(1))));
        domain.kvfree_barrier();
        assert!(tally.all_dropped(), "unwinding drops the fields");
        assert_eq!(domain.statistics().panics, round * SOME.div_ceil(3) as u64);
        assert_eq!(domain.statistics().objects_freed, round * SOME as u64);
    }
    retire_some(&domain, &tally);
    drop(domain);
    assert!(tally.all_dropped());
}

#[test]
fn inline_destructor_panic_is_contained() {
    let (domain, tally) = (Domain::new(), Tally::new());
    for _ in 0..SOME {
        retire_inline(&domain, Bomb(tally.value(1)));
    }
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
    assert_eq!(domain.statistics().panics, SOME as u64);
}

/// An object whose destructor retires the next one.
struct Chain {
    left: usize,
    domain: Domain,
    tally: Tally,
    #[expect(dead_code, reason = "counts its drop")]
    own: Tracked,
}

impl Chain {
    fn new(left: usize, domain: &Domain, tally: &Tally) -> Self {
        Self {
            left,
            domain: domain.clone(),
            tally: tally.clone(),
            own: tally.value(left as u64),
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        if self.left > 0 {
            retire(
                &self.domain,
                Chain::new(self.left - 1, &self.domain, &self.tally),
            );
        }
    }
}

#[test]
fn destructor_retires_on_service_thread() {
    let (domain, tally) = (Domain::new(), Tally::new());
    (0..100).for_each(|_| retire(&domain, Chain::new(10, &domain, &tally)));
    eventually(|| tally.dropped() == 1_100);
    // The last objects' own handles of the domain are gone when they are freed.
    domain.kvfree_barrier();
    assert_eq!(domain.statistics().objects_freed, 1_100);
}

#[test]
fn domain_lives_until_destructors_retires_are_freed() {
    let (domain, tally) = (Domain::new(), Tally::new());
    (0..100).for_each(|_| retire(&domain, Chain::new(10, &domain, &tally)));
    drop(domain);
    eventually(|| tally.dropped() == 1_100);
}

#[test]
fn inline_destructor_retires_on_retiring_thread() {
    let (domain, tally) = (Domain::new(), Tally::new());
    for _ in 0..SOME {
        retire_inline(&domain, Chain::new(2, &domain, &tally));
    }
    eventually(|| tally.dropped() == 3 * SOME);
}

#[test]
fn inline_destructor_retires_during_a_barrier() {
    /// Retires, on the retiring thread, what is to be dropped on the service thread.
    struct Handover(Domain, Tally);
    impl Drop for Handover {
        fn drop(&mut self) {
            retire(&self.0, self.1.value(1));
        }
    }
    let domain = Domain::new();
    domain.set_budget(64 << 10);
    let tally = Tally::new();
    let threads = if cfg!(miri) { 2 } else { 300 };
    let over = Arc::new(AtomicBool::new(false));
    let waiter = {
        let (domain, over) = (domain.clone(), Arc::clone(&over));
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                domain.kvfree_barrier();
            }
        })
    };
    let (theirs, counted) = (domain.clone(), tally.clone());
    returns(move || {
        for _ in 0..threads {
            let (domain, tally) = (theirs.clone(), counted.clone());
            let retirer = thread::spawn(move || {
                for _ in 0..SOME {
                    retire_inline(&domain, Handover(domain.clone(), tally.clone()));
                }
            });
            retirer.join().expect("no panic");
        }
    });
    over.store(true, Ordering::Relaxed);
    returns(move || waiter.join().expect("no panic"));
    eventually(|| tally.dropped() == threads * SOME);
}

#[test]
fn inline_destructors_free_nested_memory() {
    let (domain, tally) = (Domain::new(), Tally::new());
    for number in 0..SOME {
        retire_inline(&domain, vec![tally.value(number as u64), tally.value(0)]);
        retire_inline(&domain, number.to_string());
    }
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
    assert_eq!(domain.statistics().objects_freed, 2 * SOME as u64);
}
