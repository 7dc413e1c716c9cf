//! Only `unsafe` reaches a machinery with parts left out.

enum Broken {}

impl stillpoint::torture::GracePeriodPolicy for Broken {
    const HEAVY_BARRIER: bool = false;
}

fn main() {}
