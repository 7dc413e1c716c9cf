//! The program `stillcache`: see `stillcache --help` and the manual's chapter "Run stillcache".

use std::process::ExitCode;
use stillpoint_server::{config::flags::Flags, server};

fn main() -> ExitCode {
    let flags = Flags::parse_from(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let (settings, notes) = match flags.settings() {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("stillcache: {error}");
            return ExitCode::from(2);
        }
    };
    match server::main(settings, &notes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stillcache: {error}");
            ExitCode::FAILURE
        }
    }
}
