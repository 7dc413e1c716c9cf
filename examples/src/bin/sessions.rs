//! A table of sessions that workers share: concurrent look-ups, log-ins and log-outs, a request
//! count in each session, and a sweep that ends idle sessions.
//!
//! `cargo example sessions` checks all this, and fails otherwise.

use std::{
    process::ExitCode,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    thread,
};
use stillpoint_map::{Cursor, HashMap};

const WORKERS: u64 = 4;
const SESSIONS: u64 = 20_000;
const REQUESTS: u64 = 5;

/// Number of sessions that exist.
static ALIVE: AtomicUsize = AtomicUsize::new(0);

struct Session {
    user: String,
    /// Entries never move, so a growing table loses no increment.
    requests: AtomicU64,
}

impl Session {
    fn of(user: String) -> Self {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        let requests = AtomicU64::new(0);
        Self { user, requests }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Each worker logs in its own users, and sends requests of all workers' users.
fn work(sessions: &HashMap<u64, Session>, worker: u64) {
    for number in 0..SESSIONS {
        let id = number * WORKERS + worker;
        let user = format!("user {id}");
        // One section per request, so that sessions removed meanwhile are freed soon.
        sessions.pin().insert(id, Session::of(user));
        for request in 0..REQUESTS {
            let pinned = sessions.pin();
            let asked = id.saturating_sub(request);
            if let Some(session) = pinned.get(&asked) {
                assert_eq!(session.user, format!("user {asked}"));
                session.requests.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Visits the sessions in steps, leaving the section between steps. Returns their number.
fn sweep(sessions: &HashMap<u64, Session>) -> usize {
    let (mut cursor, mut visited) = (Cursor::start(), 0);
    while sessions.scan(&mut cursor, 100, |_, _| visited += 1) {
        thread::yield_now();
    }
    visited
}

fn main() -> ExitCode {
    let sessions = HashMap::new();
    let done = AtomicBool::new(false);
    let sweeps = thread::scope(|scope| {
        let sweeper = scope.spawn(|| {
            let mut sweeps = 0;
            while !done.load(Ordering::Relaxed) {
                sweep(&sessions);
                sweeps += 1;
            }
            sweeps
        });
        thread::scope(|scope| {
            for worker in 0..WORKERS {
                let sessions = &sessions;
                scope.spawn(move || work(sessions, worker));
            }
        });
        done.store(true, Ordering::Relaxed);
        sweeper.join().expect("it does not panic")
    });

    let all = (WORKERS * SESSIONS) as usize;
    assert_eq!((sessions.len(), sweep(&sessions)), (all, all));
    let requests = |session: &Session| session.requests.load(Ordering::Relaxed);
    let sum: u64 = sessions.pin().values().map(requests).sum();
    // Each worker's own request finds its session.
    assert!((all as u64..=all as u64 * REQUESTS).contains(&sum));

    // End the odd-numbered sessions, one by one, if they have not changed since they were seen.
    for id in (1..WORKERS * SESSIONS).step_by(2) {
        let ended = sessions
            .pin()
            .remove_if(&id, |_, session| requests(session) > 0)
            .is_ok();
        assert!(ended, "it was asked by its own worker");
    }
    stillpoint::kvfree_barrier();
    assert_eq!(sessions.len(), all / 2);
    assert_eq!(
        ALIVE.load(Ordering::Relaxed),
        all / 2,
        "the others have been dropped"
    );
    drop(sessions);
    assert_eq!(ALIVE.load(Ordering::Relaxed), 0);
    println!("{all} sessions, {sum} requests counted, beside {sweeps} sweeps; all dropped");
    ExitCode::SUCCESS
}
