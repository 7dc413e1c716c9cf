//! Only `unsafe` reaches a machinery with parts left out.

enum Broken {}

impl stillpoint::torture::Policy for Broken {
    const HEAVY_BARRIER: bool = false;
}

fn main() {}
