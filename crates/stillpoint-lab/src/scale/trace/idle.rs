//! idle: the calling thread has read before, and there are no readers now. It waits again and
//! again, and then the pair of a thread's guard is timed.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Work;
use crate::run::Sample;
use crate::scale::read::ns_per_pair;
use crate::scale::sync::figures::{repeat, time};
use crate::subject::ReadSide;

/// Times `wait`, where the subject has one, and the pairs of `R`.
pub fn measure<R: ReadSide>(wait: Option<impl Fn()>, work: &Work) -> Result<Sample> {
    let mut sample = Sample::default();
    if let Some(wait) = wait {
        R::register_thread().pairs(1);
        wait();
        let times = repeat(Instant::now() + Duration::from_millis(work.span_ms), || {
            time(&wait)
        });
        sample.add(super::of_waits(&times));
    }
    sample.add([("read_ns", ns_per_pair::<R>(1)?)]);
    Ok(sample)
}
