//! The neighbour of the scenario `beside-flood`: a thread that retires without a pause.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};

use anyhow::Result;

use crate::scale::{SetAtEnd, spawn};
use crate::subject::Reclaimer;

/// Bytes of an object.
const SIZE: usize = 32;

/// Objects between two looks whether it is over.
const BATCH: usize = 1000;

/// Runs `measured` while another thread retires objects by means of `F`.
pub fn beside<F: Reclaimer>(measured: impl FnOnce() -> Result<f64>) -> Result<f64> {
    let over = AtomicBool::new(false);
    let has_begun = Barrier::new(2);
    thread::scope(|scope| {
        let _end = SetAtEnd(&over);
        spawn(Builder::new(), scope, || {
            let mut part = F::register_thread();
            retire_some(&mut part);
            has_begun.wait();
            while !over.load(Ordering::Relaxed) {
                retire_some(&mut part);
            }
        });
        has_begun.wait();
        measured()
    })
}

fn retire_some<F: Reclaimer>(part: &mut F) {
    (0..BATCH).for_each(|_| part.allocate_and_retire::<SIZE>());
    part.end_loop::<SIZE>();
}
