//! The program `stillcache`: see `stillcache --help` and the manual's chapter "Run stillcache".

use std::process::ExitCode;
use stillpoint_server::{config::flags::Flags, server};

fn main() -> ExitCode {
    let flags = Flags::parse_from(std::env::args_os()).unwrap_or_else(|error| error.exit());
    server::main(flags)
}
