//! What an item takes beside its key and its value: [`ITEMS`] items, with values of 1 to 200 bytes.
//! `bytes_per_item` is what the server's resident memory grows by for each, less the two.

use anyhow::Result;

use super::process::{Server, Settings};
use super::{Work, keys, load};
use crate::peers::servers::Kind;
use crate::run::Sample;

const ITEMS: u64 = 1_000_000;

/// The longest value.
const LONGEST: usize = 200;

/// Measures it.
pub fn measure(work: &Work, kind: Kind) -> Result<Sample> {
    let server = Server::start(kind, &Settings::new(work, 1024))?;
    let mut connection = server.connect()?;
    // What a first request allocates.
    load::fill(&mut connection, 0..1, 1, 1)?;
    let before = server.resident()?;
    let items = work.divided(ITEMS);
    let bytes = load::fill(&mut connection, 1..items + 1, 1, LONGEST)?;
    let grown = server.resident()?.saturating_sub(before);
    let content = bytes + items * keys::LEN as u64;
    let each = grown.saturating_sub(content) as f64 / items as f64;
    Ok(Sample::of([("bytes_per_item", each)]))
}
