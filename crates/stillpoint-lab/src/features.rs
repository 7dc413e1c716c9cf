//! Commands and options that need a feature, and what a build without it says of them.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A feature, whether this build has it, and the commands and options that need it.
type Feature = (&'static str, bool, &'static [&'static str]);

const FEATURES: &[Feature] = &[
    (
        "peers",
        cfg!(feature = "peers"),
        &[
            "cache",
            "epoch",
            "map",
            "scaling",
            "server",
            "--count",
            "async10000",
        ],
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
    let kinds = [
        ContextKind::InvalidSubcommand,
        ContextKind::InvalidArg,
        ContextKind::InvalidValue,
    ];
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(names)) => names.split(','),
        _ => "".split(','),
    };
    let lacking = |name| {
        let lacks = |(_, present, names): &&Feature| !present && names.contains(&name);
        features
            .iter()
            .find(lacks)
            .map(|(feature, ..)| (name, feature))
    };
    let (name, feature) = kinds.into_iter().flat_map(named).find_map(lacking)?;
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
        let program = program.arg(Arg::new("of").long("of").value_parser(["idle"]));
        let lacking: &[Feature] = &[("torture", false, &["torture", "--count", "busy"])];
        let having: &[Feature] = &[("torture", true, &["torture", "--count", "busy"])];
        for asked in ["torture", "--count", "--of=idle,busy"] {
            let error = program.clone().try_get_matches_from(["stillpoint", asked]);
            let error = error.expect_err("there is none");
            let told = missing(&error, lacking).expect("it is known");
            assert_eq!(told.exit_code(), 2);
            let told = told.to_string();
            let name = asked.rsplit(',').next().unwrap_or(asked);
            assert!(
                told.contains(name) && told.contains("feature `torture`"),
                "{told}"
            );
            assert!(missing(&error, having).is_none());
        }
        let error = program.try_get_matches_from(["stillpoint", "other"]);
        assert!(missing(&error.expect_err("there is none"), lacking).is_none());
    }
}
