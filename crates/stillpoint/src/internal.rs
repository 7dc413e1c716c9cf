//! What the crates of Stillpoint that stand on this one need beyond its interface. No part of the
//! stable interface.

#[cfg(stillpoint_loom)]
pub use {
    crate::gp::policy::{Policy, Sound},
    model::{GracePeriods, Reader},
};
#[cfg(not(stillpoint_loom))]
pub use {crate::rcu::Kept, domains::*};

#[cfg(not(stillpoint_loom))]
mod domains {
    use crate::{
        gp::Cookie,
        platform::{clock::Nanos, user_code},
        rcu::{self, Domain, Section, global},
    };
    use std::sync::Arc;

    /// Whether `section` is one of the global domain.
    #[inline(always)]
    pub fn is_global(section: &impl Section) -> bool {
        rcu::is_global(section)
    }

    /// The number of a domain.
    pub fn domain_id(domain: &Domain) -> u64 {
        domain.id()
    }

    /// Whether the calling thread is inside a section of the domain. Looks at all records.
    pub fn is_reading(domain: &Domain) -> bool {
        domain.is_reading()
    }

    /// Whether the calling thread may wait for grace periods and callbacks of the global domain:
    /// not inside one of either.
    pub fn can_wait() -> bool {
        !global().is_reading() && !user_code::runs_for(global().id())
    }

    /// Waits until a grace period has ended, or until `deadline`. Whether it has; it has not,
    /// either, if a section of the calling thread holds it up.
    pub fn wait_until(domain: &Domain, cookie: Cookie, deadline: Nanos) -> bool {
        domain.wait_until(cookie, deadline)
    }

    /// Drops a share of `object` after a grace period.
    pub fn retire_shared<T: Send + Sync + 'static>(domain: &Domain, object: Arc<T>) {
        domain.retire_shared(object);
    }
}

#[cfg(stillpoint_loom)]
mod model {
    use crate::{
        gp::{BarrierMode, Cookie, Engine, Flavour, Policy, Progress, Record, Seq, Sequence},
        platform::thread::Token,
    };

    /// Grace periods for models: an engine without what threads keep.
    #[derive(Debug)]
    pub struct GracePeriods<P: Policy>(Engine<P>);

    impl<P: Policy> GracePeriods<P> {
        /// None has begun.
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

        /// The grace period that ends after all sections that have begun by now.
        pub fn get_state(&self) -> Cookie {
            self.0.get_state()
        }

        /// Tries to end it, by the model's thread of this number. Whether it has ended.
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
}
