//! The Linux kernel's RCU grace periods in virtual time: a machine of CPUs that tick or idle,
//! timers, threads and the grace-period thread, as a queue of events. It uses nothing of the
//! Stillpoint library.
//!
//! [`Kernel`] is the machine, [`Setup`] what it is made of, [`Constants`] every number that it
//! depends on. A workload drives it from outside:
//!
//! ```
//! use kernel_sim::{Constants, Kernel, Setup, Size};
//!
//! let size = Size { cpus: 32, hz: 1000 };
//! let constants = Constants::of_kernel(size.cpus, size.hz);
//! let mut kernel = Kernel::boot(Setup { size, constants, seed: 1 });
//! let cpu = kernel.any_cpu();
//! let caller = kernel.add_caller(cpu);
//! kernel.next_caller(); // the caller runs
//! let start = kernel.now();
//! kernel.synchronize_rcu(caller);
//! kernel.next_caller(); // it has come back from the grace period
//! assert!(kernel.now() - start > 5_000_000, "several ticks of a millisecond");
//! ```

pub mod constants;
mod kernel;

pub use constants::Constants;
pub use kernel::{GracePeriod, Kernel, Setup, Size, Stream, Time, tasks_trace};
