//! A guard of `tasks_trace` belongs to its thread too: it is not `Send`.

fn main() {
    let guard = stillpoint::tasks_trace::read_lock();
    std::thread::spawn(move || drop(guard));
}
