//! What becomes smaller with the entries.

use super::State;

impl State {
    /// Has tables become smaller where entries have gone, of a tenant and all below it.
    pub fn fit(&mut self, above: u32) {
        let mut next = Some(above);
        while let Some(number) = next {
            self.tenant_mut(number).policy.fit();
            next = self.after(number, above, true);
        }
    }
}
