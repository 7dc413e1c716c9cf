//! Names picked from a list on the command line: the peers, the variants, the scenarios that a run
//! is about.

use clap::Arg;
use serde::{Serialize, Serializer};

/// What can be picked for one option.
#[derive(Clone, Copy)]
pub struct PossibleValues {
    /// The option, without its dashes.
    option: &'static str,
    /// What a name stands for, in messages.
    kind: &'static str,
    /// What the option is for, in its help.
    purpose: &'static str,
    names: Names,
    may_be_none: bool,
}

#[derive(Clone, Copy)]
enum Names {
    Listed(&'static [&'static str]),
    /// Each with what it is.
    Explained(&'static [(&'static str, &'static str)]),
    Scenarios(&'static [Family]),
    /// Those that a registry has.
    Registered(fn() -> Vec<&'static str>),
}

/// Scenarios that differ by a size, or by who takes part: they have a table together.
#[derive(Clone, Copy)]
pub struct Family {
    /// The scenarios, in the table's order.
    pub names: &'static [&'static str],
    /// Description of the scenarios, in one line.
    pub about: &'static str,
    /// Whether one round is enough, unless a scenario is asked for by its name.
    pub once: bool,
}

impl Family {
    /// Scenarios that run in all rounds.
    pub const fn of(names: &'static [&'static str], about: &'static str) -> Self {
        Self {
            names,
            about,
            once: false,
        }
    }

    /// Scenarios that find the same in each round, or take long.
    pub const fn once(names: &'static [&'static str], about: &'static str) -> Self {
        Self {
            names,
            about,
            once: true,
        }
    }
}

impl PossibleValues {
    /// For `--peers`.
    pub const fn of_peers(names: &'static [&'static str]) -> Self {
        Self::peers(Names::Listed(names))
    }

    /// The same for peers that are registered.
    pub const fn of_registered_peers(names: fn() -> Vec<&'static str>) -> Self {
        Self::peers(Names::Registered(names))
    }

    const fn peers(names: Names) -> Self {
        let purpose = "Peers to measure beside Stillpoint and the limit";
        Self {
            option: "peers",
            kind: "peer",
            purpose,
            names,
            may_be_none: true,
        }
    }

    /// For `--variants`: each with what it is.
    pub const fn of_variants(names: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            option: "variants",
            kind: "variant",
            purpose: "Stillpoint's own variants to measure",
            names: Names::Explained(names),
            may_be_none: false,
        }
    }

    /// For the `--variants` of a simulation.
    pub const fn of_simulated(names: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            option: "variants",
            kind: "variant",
            purpose: "Variants to simulate",
            names: Names::Explained(names),
            may_be_none: false,
        }
    }

    /// For `--scenarios`.
    pub const fn of_scenarios(families: &'static [Family]) -> Self {
        Self {
            option: "scenarios",
            kind: "scenario",
            purpose: "Scenarios to measure",
            names: Names::Scenarios(families),
            may_be_none: false,
        }
    }

    /// For the `--parts` of a report.
    pub const fn of_parts(names: &'static [&'static str]) -> Self {
        Self {
            option: "parts",
            kind: "part",
            purpose: "Parts of the report",
            names: Names::Listed(names),
            may_be_none: false,
        }
    }

    /// Every name.
    pub fn names(&self) -> Vec<&'static str> {
        match self.names {
            Names::Listed(names) => names.to_vec(),
            Names::Explained(names) => names.iter().map(|(name, _)| *name).collect(),
            Names::Scenarios(families) => scenarios(families).collect(),
            Names::Registered(names) => names(),
        }
    }

    /// Returns the names that have an explanation, each with it.
    pub fn explained(&self) -> Vec<(String, &'static str)> {
        match self.names {
            Names::Listed(_) | Names::Registered(_) => Vec::new(),
            Names::Explained(names) => names
                .iter()
                .map(|&(name, about)| (name.to_owned(), about))
                .collect(),
            Names::Scenarios(families) => families
                .iter()
                .map(|family| (family.names.join(", "), family.about))
                .collect(),
        }
    }

    /// The option, for a command line; its value is a [`Choice`].
    pub fn arg(self) -> Arg {
        let values = if self.names().is_empty() {
            "all|none"
        } else if self.may_be_none {
            "all|none|NAME,..."
        } else {
            "all|NAME,..."
        };
        Arg::new(self.option)
            .long(self.option)
            .value_name(values)
            .default_value("all")
            .help(self.help())
            .value_parser(move |text: &str| self.parse(text))
    }

    /// Reads the option's value.
    pub fn parse(&self, text: &str) -> Result<Choice, String> {
        let all = |names: Vec<&'static str>| Choice {
            names,
            by_name: false,
        };
        match text {
            "all" => return Ok(all(self.names())),
            "none" if self.may_be_none => return Ok(all(Vec::new())),
            _ => {}
        }
        let find = |name: &str| {
            self.names()
                .into_iter()
                .find(|&known| known == name)
                .ok_or_else(|| {
                    let names = self.names().join(", ");
                    if names.is_empty() {
                        return format!("no {} '{name}' here; say all or none", self.kind);
                    }
                    format!(
                        "no {} '{name}' here; say {}or some of {names} with commas between",
                        self.kind,
                        self.all_or_none()
                    )
                })
        };
        let names = text.split(',').map(find).collect::<Result<_, _>>()?;
        Ok(Choice {
            names,
            by_name: true,
        })
    }

    /// The option's help text.
    pub fn help(&self) -> String {
        if self.names().is_empty() {
            return "Taken for scripts, all or none: there is no peer that does this work"
                .to_owned();
        }
        format!(
            "{}: {}or some of {}",
            self.purpose,
            self.all_or_none(),
            self.names().join(",")
        )
    }

    fn all_or_none(&self) -> &'static str {
        if self.may_be_none {
            "all, none, "
        } else {
            "all, "
        }
    }
}

/// The names of all scenarios.
pub fn scenarios(families: &'static [Family]) -> impl Iterator<Item = &'static str> {
    families
        .iter()
        .flat_map(|family| family.names.iter().copied())
}

/// Explains names in a help text, under a heading.
pub fn explain(heading: &str, names: &[(String, &str)]) -> String {
    let mut text = format!("{heading}:\n");
    for (names, about) in names {
        text += &format!("  {names}\n          {about}\n");
    }
    text
}

/// What was picked.
#[derive(Clone)]
pub struct Choice {
    names: Vec<&'static str>,
    /// True if each was asked for by its name, and not all at once.
    by_name: bool,
}

impl Choice {
    /// Returns whether `name` was picked.
    pub fn includes(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// Returns whether `name` was picked by itself, and not as one of all.
    pub fn names_one(&self, name: &str) -> bool {
        self.by_name && self.includes(name)
    }

    /// Strikes out those of `names` that were picked only as some of all.
    pub fn keep_only_if_named(&mut self, names: &[&'static str]) {
        if !self.by_name {
            self.names.retain(|name| !names.contains(name));
        }
    }

    /// Strikes out what `keep` says no to.
    pub fn retain(&mut self, keep: impl FnMut(&&'static str) -> bool) {
        self.names.retain(keep);
    }

    /// What was picked, in the order of the command line.
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }
}

impl Serialize for Choice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.names.serialize(serializer)
    }
}
