//! A callback runs on another thread: it must be `Send`.

fn main() {
    let shared = std::rc::Rc::new(1);
    stillpoint::call(move || drop(shared));
}
