//! Tables of ghosts and counts that are too large for what there is.

use super::State;
use stillpoint_platform::memory::refusable;

impl State {
    /// Makes what a tenant and all below it know beside their entries as small as these need it.
    pub fn trim(&mut self, above: u32) {
        let mut next = Some(above);
        while let Some(number) = next {
            self.tenant_mut(number).policy.trim();
            next = self.after(number, above, true);
        }
    }

    /// Has the service thread [trim](Self::trim) a tenant of which most entries have gone.
    #[inline]
    pub(super) fn consider_trim(&mut self, number: u32) {
        let tenant = self.tenant_mut(number);
        if tenant.policy.is_oversized() && !tenant.is_to_be_trimmed {
            self.queue_trim(number);
        }
    }

    #[cold]
    fn queue_trim(&mut self, number: u32) {
        if refusable(|| self.oversized.try_reserve(1)).is_ok() {
            self.oversized.push(number);
            self.tenant_mut(number).is_to_be_trimmed = true;
        }
    }

    /// Trims one tenant of those that are to be. Returns whether there was one.
    pub fn trim_oversized(&mut self) -> bool {
        let number = self.oversized.pop();
        if let Some(number) = number {
            let tenant = self.tenant_mut(number);
            tenant.is_to_be_trimmed = false;
            tenant.policy.trim();
        }
        number.is_some()
    }

    /// Whether the service thread is to come at once.
    pub fn has_work(&self) -> bool {
        self.has_high() || self.has_abandoned() || !self.oversized.is_empty()
    }
}
