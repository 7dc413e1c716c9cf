//! Cookies: true once every section that was open has ended, and for ever after, also where the
//! sequence wraps.

use super::{Sections, Steps};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use stillpoint::{Cookie, Domain};

/// The distance of two grace periods in a cookie's number.
const STEP: u64 = 1 << 16;

/// A cookie, which sections were open when it was taken, and whether it has come true.
struct Taken {
    cookie: Cookie,
    open: Vec<usize>,
    is_true: bool,
}

/// # Panics
///
/// If the domain differs from the model.
pub fn run(program: &[u8]) {
    let mut steps = Steps(program);
    // Some grace periods before the wrap.
    let first = Cookie::from_raw(
        STEP.wrapping_mul(u64::from(steps.byte().unwrap_or(0)))
            .wrapping_neg(),
    );
    let domain = if first.into_raw() & STEP == 0 {
        Domain::starting_at(first)
    } else {
        Domain::fencing_from(first)
    };
    let mut sections = Sections::new(&domain);
    let mut cookies: Vec<Taken> = Vec::new();
    let (called, mut queued) = (Arc::new(AtomicUsize::new(0)), 0);

    while let Some(step) = steps.byte() {
        match step % 8 {
            0 => sections.enter(),
            1 => sections.leave(usize::from(step / 8)),
            2 | 3 => {
                let cookie = if step % 8 == 2 {
                    domain.get_state()
                } else {
                    domain.start_poll()
                };
                cookies.push(Taken {
                    cookie,
                    open: sections.numbers(),
                    is_true: false,
                });
            }
            4 | 5 => {
                let at = usize::from(step / 8) % cookies.len().max(1);
                if let Some(taken) = cookies.get_mut(at) {
                    let is_true = domain.poll(taken.cookie);
                    assert!(is_true || !taken.is_true, "a cookie that was true is not");
                    assert!(
                        !is_true || !sections.any(&taken.open),
                        "a grace period ended in a section that was open before"
                    );
                    taken.is_true = is_true;
                }
            }
            6 if sections.is_empty() => {
                domain.synchronize();
                for taken in &mut cookies {
                    assert!(
                        domain.poll(taken.cookie),
                        "a cookie of before a whole grace period is not true"
                    );
                    taken.is_true = true;
                }
            }
            7 if queued < 64 => {
                let called = Arc::clone(&called);
                domain.call(move || {
                    called.fetch_add(1, Ordering::Relaxed);
                });
                queued += 1;
            }
            _ => {}
        }
    }
    sections.leave_all();
    for taken in &cookies {
        domain.cond_synchronize(taken.cookie);
        assert!(domain.poll(taken.cookie));
    }
    domain.barrier();
    assert_eq!(
        called.load(Ordering::Relaxed),
        queued,
        "callbacks are lost, or have come twice"
    );
}
