//! Waiting for what passes of the service thread do.

use super::serves;
use crate::{
    gp::{
        engine::{
            Engine,
            wait::{FIRST_SLEEP, Haste, LONGEST_SLEEP, Waited},
        },
        policy::Policy,
        seq::Cookie,
        work::{Work, WouldDeadlock},
    },
    platform::{clock, fork, thread, user_code},
};

impl<P: Policy> Engine<P> {
    /// Waits until `done`, which passes will make true. Where no service thread could be had, or it
    /// is down, the caller runs the passes, and so does that thread itself, in a task that it
    /// wakes. Refused inside user code of the domain, which would wait for itself (but a task that
    /// is woken may wait), and as soon as a section of the caller's is what its passes wait for (a
    /// callback that they ran may have left one open). If such a pass forks there is nothing left
    /// to wait for in the child.
    pub(crate) fn wait_for_passes(
        &self,
        work: &impl Work,
        done: impl Fn() -> bool,
    ) -> Result<(), WouldDeadlock> {
        if user_code::runs_for(self.domain) {
            return Err(WouldDeadlock);
        }
        let (me, process) = (thread::token(), fork::process());
        let serves = serves(self.domain);
        let mut listed = None;
        while !done() && fork::process() == process {
            // It may have ended idle, and user code of others is not for the caller to run.
            self.ensure_service();
            if self.service_runs() && !serves {
                let now = clock::now();
                let due = self.note_service(now);
                let waiter = self.shared.waiters.prepare();
                self.kick();
                // The pass that makes it true signals, and so does the thread when it goes down;
                // the bound is a safety net.
                if done() || !self.service_runs() {
                    waiter.leave()
                } else {
                    waiter.sleep(Some(due.min(now + LONGEST_SLEEP)))
                }
                listed.get_or_insert_with(|| self.stalls.list_waiter());
            } else if let Some(cookie) = Cookie::oldest(self.pass(work).cookie, self.wake_futures())
            {
                let until = clock::now() + LONGEST_SLEEP;
                if !done()
                    && self.wait_for(cookie, me, Some(until), Haste::Normal) == Waited::HeldUpBySelf
                    && !done()
                {
                    return Err(WouldDeadlock);
                }
            } else {
                // No thread, and nothing to wait for: there was no memory.
                self.sleep_until(clock::now() + FIRST_SLEEP, &done);
            }
        }
        Ok(())
    }

    /// Wakes those in `wait_for_passes`; for the pass to call when it has finished something that
    /// was asked for.
    pub(crate) fn signal_waiters(&self) {
        self.shared.waiters.signal();
    }
}

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests {
    use super::super::{Served, Server, State};
    use super::*;
    use crate::gp::{
        barrier_mode::BarrierMode,
        loom_tests::{FIRST, model},
        policy::Sound,
        seq::Sequence,
        work::Outlook,
    };
    use crate::platform::sync::{Arc, AtomicBool, Ordering, lock};

    struct Passes(AtomicBool);

    impl Work for Passes {
        fn pass(&self) -> Outlook {
            self.0.store(true, Ordering::Relaxed);
            Outlook::default()
        }
    }

    /// A thread that waits for passes while the service thread goes down makes them itself. Time
    /// stands still here, so a waiter that sleeps then is a deadlock.
    #[test]
    fn loom_service_that_goes_down_is_not_waited_for() {
        model(|| {
            let engine = Arc::new(Engine::<Sound>::new(
                1,
                BarrierMode::Membarrier,
                Sequence::new(FIRST),
            ));
            *lock(&engine.service.state) = State::Running {
                server: Server::Forked,
                ended: Vec::new(),
            };
            engine.service.signs.set_runs();
            let theirs = Arc::clone(&engine);
            let goes = loom::thread::spawn(move || assert_eq!(theirs.stay_down(), Served::Down));
            let passes = Passes(AtomicBool::new(false));
            assert_eq!(
                engine.wait_for_passes(&passes, || passes.0.load(Ordering::Relaxed)),
                Ok(())
            );
            goes.join().unwrap();
        });
    }
}
