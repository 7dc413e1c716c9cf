//! The wrapper of frees that no thread has asked for, in domains that free on demand.

use super::policy::Policy;
use crate::{
    gp::{Engine, Flavour, Record},
    platform::thread,
};

/// A domain's wrapper of frees that no thread has asked for: it calls its argument, unless no user code
/// may run any more.
pub type Around = fn(&mut dyn FnMut());

/// Calls `free` inside a section, through `around`, which may leave it out: for objects of a domain
/// that frees on demand, on a thread that has not asked for it.
pub(super) fn call_around<P: Policy>(engine: &Engine<P>, around: Around, free: &mut dyn FnMut()) {
    /// Also if a destructor panics.
    struct Section<'a>(&'a Record);
    impl Drop for Section<'_> {
        fn drop(&mut self) {
            self.0.unlock();
            self.0.depart();
        }
    }
    let record = engine.register(thread::token(), Flavour::Thread);
    record.lock();
    let _section = Section(record);
    around(free);
}
