//! Which processors threads may use.

/// Pins a thread to processor number `cpu` of those that the calling one may use.
pub fn pin(tid: libc::pid_t, cpu: usize) {
    if let Some((_, allowed)) = allowed() {
        move_to(tid, &only(allowed[cpu % allowed.len()]));
    }
}

/// The processors that the calling thread may use, as a set and as a list. `None` if the system
/// does not say.
pub fn allowed() -> Option<(libc::cpu_set_t, Vec<usize>)> {
    // SAFETY: zeroes are an empty set.
    let mut all: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a place for the set, of its size; 0 is the calling thread.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut all) } != 0 {
        return None;
    }
    // SAFETY: numbers below the set's size.
    let list: Vec<usize> = (0..libc::CPU_SETSIZE as usize)
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &all) })
        .collect();
    (!list.is_empty()).then_some((all, list))
}

/// A set of one processor.
pub fn only(cpu: usize) -> libc::cpu_set_t {
    // SAFETY: zeroes are an empty set; the number is one of those that the system has named.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut one);
        one
    }
}

/// Moves a thread to a set of processors. One that has just ended, or that the system does not let
/// us move, stays where it is.
pub fn move_to(tid: libc::pid_t, cpus: &libc::cpu_set_t) {
    // SAFETY: a valid set of its size.
    unsafe { libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), cpus) };
}
