//! What models of Stillpoint's other crates need: grace periods, without thread-local state.

pub use crate::gp::{
    Cookie,
    policy::{Policy, Sound},
};

use crate::{
    gp::{BarrierMode, Engine, Flavour, Progress, Record, Seq, Sequence},
    platform::thread::Token,
};

/// Grace periods for models: an engine without thread-local state.
#[derive(Debug)]
pub struct GracePeriods<P: Policy>(Engine<P>);

impl<P: Policy> GracePeriods<P> {
    /// Makes an engine in which no grace period has begun.
    #[expect(clippy::new_without_default, reason = "tests say what they make")]
    pub fn new() -> Self {
        Self(Engine::new(
            1,
            BarrierMode::Membarrier,
            Sequence::new(Seq::from_bits(0)),
        ))
    }

    /// Begins a section of the model's thread of this number.
    pub fn enter(&self, thread: u64) -> Reader<'_> {
        let record = self.0.register(Token::for_model(thread), Flavour::Thread);
        record.lock();
        Reader(record)
    }

    /// Returns the grace period that ends after all sections that have begun by now.
    pub fn get_state(&self) -> Cookie {
        self.0.get_state()
    }

    /// Starts the grace period: sections that begin from now on do not hold it up.
    pub fn begin(&self, cookie: Cookie) {
        self.0.begin(cookie);
    }

    /// Tries to end the grace period, by the model's thread of this number. Returns whether it has ended.
    pub fn try_complete(&self, cookie: Cookie, thread: u64) -> bool {
        self.0.try_complete(cookie, Token::for_model(thread)) == Progress::Ended
    }
}

/// A section, until this is dropped.
#[derive(Debug)]
pub struct Reader<'a>(&'a Record);

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}
