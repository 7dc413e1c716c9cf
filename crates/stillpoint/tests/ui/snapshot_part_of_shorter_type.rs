//! A type with a separate lifetime would let the closure take what it has captured for a part.

use stillpoint::{Guard, Rcu, Snapshot, read_lock};

fn captured() {
    let text = String::from("gone");
    let part: &str = &text;
    let snapshot: Snapshot<&str, _> = Snapshot::map(Rcu::new(1).load_owned(read_lock()), |_| &part);
    let kept: Snapshot<str, _> = Snapshot::map(snapshot, |part| *part);
    drop(text);
    println!("{}", &*kept);
}

fn tried<'x>(
    snapshot: Snapshot<&'static str, Guard<'static>>, other: &'x String,
) -> Result<Snapshot<String, Guard<'static>>, Snapshot<&'static str, Guard<'static>>> {
    Snapshot::try_map(snapshot, |_| Some(other))
}

fn main() {}
