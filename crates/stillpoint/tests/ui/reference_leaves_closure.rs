//! A reference does not leave the closure in which it was found.

fn main() {
    let cell = stillpoint::Rcu::new(1);
    let mut value = None;
    stillpoint::read(|guard| value = Some(cell.load(guard)));
    println!("{value:?}");
}
