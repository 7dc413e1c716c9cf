//! Only `unsafe` reaches a machinery with parts left out.

enum Broken {}

impl stillpoint::lab::GracePeriodPolicy for Broken {
    const HEAVY_BARRIER: bool = false;
}

fn main() {}
