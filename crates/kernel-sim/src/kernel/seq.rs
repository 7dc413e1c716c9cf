//! The kernel's grace-period sequence numbers (`rcu_seq`): a counter whose two low bits say whether
//! a grace period is under way. They are also its cookies.

/// The bits of the state.
const STATE: u64 = 3;

/// A sequence number, or a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seq(pub u64);

impl Seq {
    /// Where a machine starts here. (The kernel starts just below zero, for the sake of the wrap;
    /// here time ends before it.)
    pub const FIRST: Self = Self(4);

    /// A grace period starts.
    pub fn start(&mut self) {
        assert!(!self.in_progress());
        self.0 += 1;
    }

    /// It ends.
    pub fn end(&mut self) {
        assert!(self.in_progress());
        self.0 = self.ended().0;
    }

    /// Returns the value of this counter once the grace period under way has ended.
    pub fn ended(self) -> Self {
        Self((self.0 | STATE) + 1)
    }

    /// Returns whether a grace period is under way.
    pub fn in_progress(self) -> bool {
        self.0 & STATE != 0
    }

    /// Returns the cookie of a full grace period from now: the rest of one under way is not enough.
    pub fn snap(self) -> Self {
        Self((self.0 + 2 * STATE + 1) & !STATE)
    }

    /// Returns whether the grace period of `cookie` has ended.
    pub fn done(self, cookie: Self) -> bool {
        self >= cookie
    }

    /// Returns whether a grace period has ended since the counter was `old`.
    pub fn completed_since(self, old: Self) -> bool {
        self.0 & !STATE > old.0 & !STATE
    }

    /// Returns whether a grace period has started since the counter was `old`.
    pub fn new_since(self, old: Self) -> bool {
        (self.0 + STATE) & !STATE > (old.0 + STATE) & !STATE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_needs_a_whole_grace_period() {
        let mut seq = Seq::FIRST;
        let idle = seq.snap();
        seq.start();
        let running = seq.snap();
        assert!(!seq.done(idle));
        seq.end();
        assert!(seq.done(idle) && !seq.done(running));
        seq.start();
        assert!(!seq.done(running));
        seq.end();
        assert!(seq.done(running));
    }

    #[test]
    fn who_looks_later_sees_ends_and_starts() {
        let mut seq = Seq::FIRST;
        let before = seq;
        seq.start();
        assert!(seq.new_since(before) && !seq.completed_since(before));
        let during = seq;
        seq.end();
        assert!(
            seq.completed_since(during) && seq.completed_since(before) && !seq.new_since(during)
        );
        seq.start();
        assert!(seq.completed_since(during) && seq.new_since(during));
    }
}
