//! The end of a run that does not come by itself: a thread that never returns, a barrier, a domain
//! that waits for its last callback.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::session::Session;

/// How often the watchdog looks.
const LOOK: Duration = Duration::from_millis(100);

/// Looks that the end of a run may take, a minute and a half: longer than the child of a fork is
/// given. Looks and not seconds, as for stalled writers.
pub const LONGEST_END: u32 = 900;

/// Does `work`, a run of the session, and `give_up` in another thread if the run has been over for
/// `longest` looks, or should have been, and `work` has not come back.
pub fn guard(session: &Session, longest: u32, give_up: impl FnOnce() + Send, work: impl FnOnce()) {
    let (at_work, back) = mpsc::channel::<()>();
    thread::scope(move |scope| {
        let watch = move || {
            if !returns_in_time(session, longest, &back) {
                give_up();
            }
        };
        let watchdog = thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn_scoped(scope, watch);
        watchdog.expect("a thread can be started");
        // Dropped when the work has come back, or has panicked.
        let _at_work = at_work;
        work();
    });
}

fn returns_in_time(session: &Session, longest: u32, back: &Receiver<()>) -> bool {
    let mut looks = 0;
    while looks <= longest {
        match back.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return true,
        }
        if session.is_over() || session.start.elapsed() >= session.plan.duration() {
            looks += 1;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torture::options::tests::plan_for;

    #[test]
    fn an_end_that_does_not_come_is_noticed() {
        let session = Session::new(plan_for("rcu"));
        let (given_up, noticed) = mpsc::channel();
        // It returns only because the watchdog intervened.
        guard(
            &session,
            1,
            move || given_up.send(()).expect("a receiver waits"),
            || {
                session.end();
                noticed.recv().expect("it is noticed");
            },
        );
    }

    #[test]
    fn a_run_that_never_ends_by_itself_is_noticed_after_its_time() {
        let session = Session::new(plan_for("rcu --duration 0.001"));
        let (given_up, noticed) = mpsc::channel();
        guard(
            &session,
            1,
            move || given_up.send(()).expect("a receiver waits"),
            || noticed.recv().expect("it is noticed"),
        );
    }

    #[test]
    fn an_end_that_comes_is_not() {
        let session = Session::new(plan_for("rcu"));
        guard(
            &session,
            LONGEST_END,
            || panic!("it came"),
            || session.end(),
        );
    }
}
