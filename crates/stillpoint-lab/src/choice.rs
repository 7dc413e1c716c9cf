//! Names picked from a list on the command line: the peers, the variants, the scenarios that a run is about.

use serde::{Serialize, Serializer};

/// What can be picked for one option.
pub struct Menu {
    /// What a name stands for, in messages.
    kind: &'static str,
    /// What the option is for, in its help.
    purpose: &'static str,
    names: &'static [&'static str],
    may_be_none: bool,
}

impl Menu {
    /// For `--peers`.
    pub const fn of_peers(names: &'static [&'static str]) -> Self {
        Self { kind: "peer", purpose: "Peers to measure beside Stillpoint and the limit", names, may_be_none: true }
    }

    /// For `--variants`.
    pub const fn of_variants(names: &'static [&'static str]) -> Self {
        Self { kind: "variant", purpose: "Stillpoint's own variants to measure", names, may_be_none: false }
    }

    /// For the `--variants` of a simulation.
    pub const fn of_simulated(names: &'static [&'static str]) -> Self {
        Self { kind: "variant", purpose: "Variants to simulate", names, may_be_none: false }
    }

    /// For `--scenarios`.
    pub const fn of_scenarios(names: &'static [&'static str]) -> Self {
        Self { kind: "scenario", purpose: "Scenarios to measure", names, may_be_none: false }
    }

    /// For the `--parts` of a report.
    pub const fn of_parts(names: &'static [&'static str]) -> Self {
        Self { kind: "part", purpose: "Parts of the report", names, may_be_none: false }
    }

    /// Every name.
    pub const fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// Reads the option's value.
    pub fn parse(&self, text: &str) -> Result<Choice, String> {
        match text {
            "all" => return Ok(Choice(self.names.to_vec())),
            "none" if self.may_be_none => return Ok(Choice(Vec::new())),
            _ => {}
        }
        let find = |name: &str| {
            self.names.iter().copied().find(|&known| known == name).ok_or_else(|| {
                let names = self.names.join(", ");
                format!("no {} '{name}' here; say {}or some of {names} with commas between", self.kind, self.wholesale())
            })
        };
        text.split(',').map(find).collect::<Result<_, _>>().map(Choice)
    }

    /// The option's help text.
    pub fn help(&self) -> String {
        format!("{}: {}or some of {}", self.purpose, self.wholesale(), self.names.join(","))
    }

    fn wholesale(&self) -> &'static str {
        if self.may_be_none { "all, none, " } else { "all, " }
    }
}

/// What was picked.
#[derive(Clone)]
pub struct Choice(Vec<&'static str>);

impl Choice {
    /// Whether `name` was picked.
    pub fn includes(&self, name: &str) -> bool {
        self.0.contains(&name)
    }

    /// Strikes out what `keep` says no to.
    pub fn retain(&mut self, keep: impl FnMut(&&'static str) -> bool) {
        self.0.retain(keep);
    }

    /// What was picked, in the order of the command line.
    pub fn names(&self) -> &[&'static str] {
        &self.0
    }
}

impl Serialize for Choice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
