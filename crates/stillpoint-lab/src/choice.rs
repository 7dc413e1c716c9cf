//! Names picked from a list on the command line: the peers, the variants, the scenarios that a run
//! is about.

use std::fmt::Display;

use clap::Arg;
use serde::Serialize;

/// A name, and its explanation in one line.
pub type Explained = (&'static str, &'static str);

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

/// Returns a table of families, a line each; behind the text of scenarios that find the same in each
/// round, or take long, stands `, once`.
macro_rules! families {
    ($($($name:expr),+ => $about:literal $(, $once:ident)?;)*) => {
        &[$($crate::choice::Family { names: &[$($name),+], about: $about, once: <[&str]>::len(&[$(stringify!($once))?]) == 1 }),*]
    };
}
pub(crate) use families;

/// Returns a table of names with their explanations, a line each.
macro_rules! explained {
    ($($name:literal => $about:literal;)*) => { &[$(($name, $about)),*] };
}
pub(crate) use explained;

/// Returns the names of all scenarios.
pub fn scenarios(families: &'static [Family]) -> impl Iterator<Item = &'static str> {
    families.iter().flat_map(|family| family.names).copied()
}

/// Explains names in a help text, under a heading.
pub fn explain(
    heading: &str,
    names: impl IntoIterator<Item = (impl Display, &'static str)>,
) -> String {
    let mut text = format!("{heading}:\n");
    for (name, about) in names {
        text += &format!("  {name}\n          {about}\n");
    }
    text
}

/// The names that one option accepts.
#[derive(Clone)]
pub struct Menu {
    /// The option without its dashes: the plural of what a name stands for.
    option: &'static str,
    /// The option's purpose, for its help.
    purpose: &'static str,
    names: Vec<&'static str>,
}

impl Menu {
    /// Creates the menu of an option. Of `peers`, none can be picked too.
    pub fn new(
        option: &'static str,
        purpose: &'static str,
        names: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        let names = names.into_iter().collect();
        Self {
            option,
            purpose,
            names,
        }
    }

    fn may_be_none(&self) -> bool {
        self.option == "peers"
    }

    /// Returns the option for a command line; its value is a [`Choice`].
    pub fn arg(self) -> Arg {
        let values = match (self.may_be_none(), self.names.is_empty()) {
            (true, true) => "all|none",
            (true, false) => "all|none|NAME,...",
            (false, _) => "all|NAME,...",
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
        let (by_name, names) = match text {
            "all" => (false, self.names.clone()),
            "none" if self.may_be_none() => (false, Vec::new()),
            _ => (
                true,
                text.split(',')
                    .map(|name| self.find(name))
                    .collect::<Result<_, _>>()?,
            ),
        };
        Ok(Choice { names, by_name })
    }

    fn find(&self, name: &str) -> Result<&'static str, String> {
        let found = self.names.iter().copied().find(|known| *known == name);
        found.ok_or_else(|| {
            let kind = self.option.trim_end_matches('s');
            if self.names.is_empty() {
                return format!("no {kind} '{name}' here; say all or none");
            }
            let (all, names) = (self.all_or_none(), self.names.join(", "));
            format!("no {kind} '{name}' here; say {all}or some of {names} with commas between")
        })
    }

    /// Returns the option's help text.
    pub fn help(&self) -> String {
        if self.names.is_empty() {
            return "Taken for scripts, all or none: there is no peer that does this work"
                .to_owned();
        }
        format!(
            "{}: {}or some of {}",
            self.purpose,
            self.all_or_none(),
            self.names.join(",")
        )
    }

    fn all_or_none(&self) -> &'static str {
        if self.may_be_none() {
            "all, none, "
        } else {
            "all, "
        }
    }
}

/// What was picked.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct Choice {
    names: Vec<&'static str>,
    /// True if each was asked for by its name, and not all at once.
    #[serde(skip)]
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

    /// Removes those of `names` that were picked only as some of all.
    pub fn keep_only_if_named(&mut self, names: &[&'static str]) {
        let by_name = self.by_name;
        self.retain(|name| by_name || !names.contains(name));
    }

    /// Removes each name for which `keep` returns false.
    pub fn retain(&mut self, keep: impl FnMut(&&'static str) -> bool) {
        self.names.retain(keep);
    }

    /// Returns what was picked, in the order of the command line.
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }
}
