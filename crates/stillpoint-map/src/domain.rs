//! The domain of a map.

use stillpoint::{
    Domain, Guard, Section, global,
    internal::{self, Kept},
    read_lock,
    tasks_trace::OwnedGuard,
};

/// The domain of a map: the global one for `None`, or one that the map keeps alive.
#[derive(Clone, Debug)]
pub struct Home(pub Option<Kept>);

impl Home {
    #[inline]
    pub fn domain(&self) -> &Domain {
        match &self.0 {
            Some(domain) => domain,
            None => global(),
        }
    }

    /// Begins a section of the calling thread.
    #[inline(always)]
    pub fn read_lock(&self) -> Guard<'_> {
        match &self.0 {
            Some(domain) => domain.read_lock(),
            None => read_lock(),
        }
    }

    /// Begins a section that belongs to its guard. Panics if the domain has no such sections.
    #[track_caller]
    pub fn read_lock_owned(&self) -> OwnedGuard<'_> {
        match internal::trace_domain(self.domain()) {
            Some(domain) => domain.read_lock_owned(),
            None => panic!(
                "the map's domain has no owned guards: make the map with `new_in`, in a `TraceDomain`"
            ),
        }
    }

    /// Panics if `section` is of another domain: it would protect nothing.
    #[inline(always)]
    #[track_caller]
    pub fn check(&self, section: &impl Section) {
        if !internal::is_of(section, self.0.as_ref()) {
            wrong_domain();
        }
    }
}

#[cold]
#[track_caller]
fn wrong_domain() -> ! {
    panic!(
        "the guard is of another domain than the map, or offline, and would protect nothing: use \
         the map's `pin`, or a guard of the domain that the map was made in"
    )
}
