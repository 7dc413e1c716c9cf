//! Only `unsafe` reaches deferred frees with parts left out, were those of grace periods all there.

enum Broken {}

// SAFETY: every constant keeps its default.
unsafe impl stillpoint::lab::GracePeriodPolicy for Broken {}

impl stillpoint::lab::Policy for Broken {
    const PARK_BARRIER: bool = false;
}

fn main() {}
