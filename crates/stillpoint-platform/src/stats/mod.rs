//! The statistics page: what a process publishes about itself in a memory file that others find in
//! `/proc/PID/fd` and read.
//!
//! | file | holds |
//! |---|---|
//! | `layout`, `fields` | the place of each word, for the writer and the reader |
//! | `tap` | the words that a counter is copied to |
//! | `sequence` | the sequence count, by which a reader notices a change while it reads |
//! | `page` | the page of this process: domains come and go |
//! | `page/file` | its memory file |
//! | `read` | the page of any process, which may be hostile |
//!
//! `docs/design/027-statistics-page.md` says why it is as it is. No thread updates it periodically:
//! a word is written by the thread that counts the event. The process never reads its page.

pub mod fields;
pub mod layout;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
pub mod read;
mod sequence;
mod tap;

pub use tap::{Tap, Words};

#[cfg(all(target_os = "linux", not(miri), not(stillpoint_loom)))]
mod page;
#[cfg(not(all(target_os = "linux", not(miri), not(stillpoint_loom))))]
#[path = "none.rs"]
mod page;

#[cfg(not(stillpoint_loom))]
pub(crate) use page::reset_in_child;
pub use page::{Block, Subject, Unpublished, add, publish};
