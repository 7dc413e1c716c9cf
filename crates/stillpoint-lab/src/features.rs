//! Commands and options that need a feature, and what a build without it says of them.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A feature, whether this build has it, and the commands and options that need it.
type Feature = (&'static str, bool, &'static [&'static str]);

const FEATURES: &[Feature] = &[
    (
        "peers",
        cfg!(feature = "peers"),
        &["cache", "epoch", "map", "server", "--count"],
    ),
    ("report", cfg!(feature = "report"), &["report"]),
    ("torture", cfg!(feature = "torture"), &["torture"]),
];

/// Ends the program as clap does, and names the feature where the command line asked for something
/// that this build lacks.
pub fn exit(error: Error) -> ! {
    missing(&error, FEATURES).unwrap_or(error).exit()
}

fn missing(error: &Error, features: &[Feature]) -> Option<Error> {
    let kinds = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg];
    let name = kinds.iter().find_map(|&kind| match error.get(kind) {
        Some(ContextValue::String(name)) => Some(name.as_str()),
        _ => None,
    })?;
    let lacks = |(_, present, names): &&Feature| !present && names.contains(&name);
    let (feature, ..) = features.iter().find(lacks)?;
    let message = format!(
        "this build has no `{name}`, which needs the feature `{feature}` of stillpoint-lab; `cargo lab` has it\n"
    );
    Some(Error::raw(ErrorKind::InvalidSubcommand, message))
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    #[test]
    fn a_command_that_is_left_out_names_its_feature() {
        let program = Command::new("stillpoint").subcommand(Command::new("sim"));
        let program = program.arg(Arg::new("quiet").long("quiet").num_args(0));
        let lacking: &[Feature] = &[("torture", false, &["torture", "--count"])];
        let having: &[Feature] = &[("torture", true, &["torture", "--count"])];
        for asked in ["torture", "--count"] {
            let error = program.clone().try_get_matches_from(["stillpoint", asked]);
            let error = error.expect_err("there is none");
            let told = missing(&error, lacking).expect("it is known");
            assert_eq!(told.exit_code(), 2);
            let told = told.to_string();
            assert!(
                told.contains(asked) && told.contains("feature `torture`"),
                "{told}"
            );
            assert!(missing(&error, having).is_none());
        }
        let error = program.try_get_matches_from(["stillpoint", "other"]);
        assert!(missing(&error.expect_err("there is none"), lacking).is_none());
    }
}
