//! A closure cannot keep the old value, whose section ends with the call.

fn main() {
    let cell = stillpoint::Rcu::new(1);
    let mut kept = None;
    cell.update(|old| {
        kept = Some(old);
        old + 1
    });
    println!("{kept:?}");
}
