//! Runs the program and reads what it prints.

use std::process::{Command, Output};

/// What one run gave.
pub struct Run {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Runs `stillpoint` with these arguments, separated by spaces.
pub fn stillpoint(arguments: &str) -> Run {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_stillpoint"))
        .args(arguments.split(' '))
        .output()
        .expect("the program starts");
    Run {
        code: status.code().expect("the program was not killed"),
        out: String::from_utf8(stdout).expect("the output is text"),
        err: String::from_utf8(stderr).expect("the messages are text"),
    }
}
