//! Sockets: one thread that listens, and a thread for each processor that serves.
//!
//! | file | what it has |
//! |---|---|
//! | `listen` | sockets that are listened on, and the thread that accepts |
//! | `worker` | a thread that serves its connections: which of them has its turn |
//! | `worker/serve` | a turn |
//! | `buffers` | which connection is ended when connections keep too much |
//! | `connection` | a connection: what of it waits between events |
//! | `socket` | reading and sending, without waiting |
//! | `tls` | TLS; `no_tls` stands for it in a build without |
//! | `wake` | an eventfd |
//!
//! Nothing is sent or received inside a read-side section: a response is put together from copies and pins, the section is left, then it is sent. A section waits
//! for no client. It may wait for the lock of a bucket or of statistics, which another thread has for a moment, and then make the system call of a contended lock.

mod buffers;
pub(crate) mod connection;
pub(crate) mod listen;
mod socket;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
pub(crate) mod tls;
pub(crate) mod wake;
pub(crate) mod worker;
