//! Compares the interface with the original's, item by item, as rustdoc sees both: names, generics,
//! bounds, signatures, `const`s, `unsafe`, deprecations, and trait implementations, including auto
//! traits.
//!
//! Needs a nightly toolchain, and the original's source in cargo's registry: the lab, whose peer it is,
//! downloads it. `cargo test --test interface -- --ignored` in this folder.

use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The original's version whose interface this package has; `scripts/drop-in` names it too.
const VERSION: &str = "0.9.21";

/// Returns rustdoc's JSON for the package in `folder`.
fn documented(folder: &Path, target: &Path) -> Value {
    let output = Command::new("cargo")
        // Not offline: the original has no lock file, and may want newer packages than were fetched.
        .args(["+nightly", "doc", "--no-deps", "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .env(
            "RUSTDOCFLAGS",
            "-Zunstable-options --output-format json --cap-lints warn",
        )
        .env_remove("RUSTUP_TOOLCHAIN")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let file = target.join("doc/crossbeam_epoch.json");
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

/// Copies the original out of any workspace.
fn original(at: &Path) -> PathBuf {
    let home = env::var_os("CARGO_HOME").map_or_else(
        || PathBuf::from(env::var_os("HOME").unwrap()).join(".cargo"),
        PathBuf::from,
    );
    let name = format!("crossbeam-epoch-{VERSION}");
    let sources = fs::read_dir(home.join("registry/src")).unwrap();
    let found = sources
        .map(|registry| registry.unwrap().path().join(&name))
        .find(|folder| folder.exists())
        .expect("the original in cargo's registry: `cargo fetch` has it");
    let copy = at.join("original");
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir_all(at).unwrap();
    let copied = Command::new("cp")
        .args(["-r", "--no-preserve=mode"])
        .args([&found, &copy])
        .status();
    assert!(copied.unwrap().success());
    let manifest = copy.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(manifest, text + "\n[workspace]\n").unwrap();
    copy
}

struct Docs(Value);

impl Docs {
    fn item(&self, id: &Value) -> &Value {
        &self.0["index"][id.to_string()]
    }

    /// Returns the name of an item: without the path for our own, since modules are private.
    fn name(&self, id: &Value) -> String {
        let path = &self.0["paths"][id.to_string()];
        let parts: Vec<_> = path["path"]
            .as_array()
            .map(|path| path.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        match path["crate_id"].as_u64() {
            Some(0) => (*parts.last().unwrap()).to_owned(),
            _ => parts.join("::"),
        }
    }

    /// Returns `value` without parts in which two sources of the same interface differ.
    fn plain(&self, value: &Value) -> Value {
        match value {
            Value::Object(object) => {
                let mut plain = Map::new();
                for (key, value) in object {
                    match key.as_str() {
                        "docs" | "span" | "links" | "attrs" | "crate_id" | "visibility"
                        | "has_body" | "id" | "is_stripped" | "is_synthetic" => {}
                        // The path as written: the id tells what it is.
                        "path" if object.contains_key("id") => {
                            let name = self.name(&object["id"]);
                            plain.insert(key.clone(), json!(name));
                        }
                        // Names and types of parameters.
                        "inputs" => {
                            let types = value.as_array().unwrap().iter();
                            let types = types.map(|input| {
                                self.plain(if input.is_array() { &input[1] } else { input })
                            });
                            plain.insert(key.clone(), Value::Array(types.collect()));
                        }
                        _ => {
                            plain.insert(key.clone(), self.plain(value));
                        }
                    }
                }
                Value::Object(plain)
            }
            Value::Array(values) => values.iter().map(|value| self.plain(value)).collect(),
            other => other.clone(),
        }
    }

    /// Returns an item without its parts, and whether it is deprecated.
    fn signature(&self, item: &Value) -> Value {
        let mut plain = self.plain(&item["inner"]);
        for kind in plain.as_object_mut().unwrap().values_mut() {
            if let Some(parts) = kind.as_object_mut() {
                for part in [
                    "items",
                    "impls",
                    "implementations",
                    "kind",
                    "provided_trait_methods",
                ] {
                    parts.remove(part);
                }
            }
        }
        json!({ "is": plain, "deprecated": !item["deprecation"].is_null() })
    }

    /// Returns everything that a user can name or rely on, by name.
    fn interface(&self) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        for id in self.children(self.item(&self.0["root"]), "module", "items") {
            let mut item = self.item(&id);
            let name = item["inner"]["use"]["name"].as_str().map(str::to_owned);
            if name.is_some() {
                item = self.item(&item["inner"]["use"]["id"]);
            }
            let Some(name) = name.or_else(|| item["name"].as_str().map(str::to_owned)) else {
                continue;
            };
            all.insert(name.clone(), self.signature(item));
            for id in self.children(item, "trait", "items") {
                let part = self.item(&id);
                all.insert(format!("{name}::{}", part["name"]), self.signature(part));
            }
            for id in self.children(item, "struct", "impls") {
                self.implementation(&name, self.item(&id), &mut all);
            }
            if let Some(fields) = item["inner"]["struct"]["kind"]["plain"]["fields"].as_array() {
                for field in fields.iter().map(|id| self.item(id)) {
                    all.insert(format!("{name}.{}", field["name"]), self.signature(field));
                }
            }
            for id in self.children(item, "trait", "implementations") {
                let of = self.plain(&self.item(&id)["inner"]["impl"]["for"]);
                all.insert(format!("{name} for {of}"), self.signature(self.item(&id)));
            }
        }
        all
    }

    fn children(&self, item: &Value, kind: &str, part: &str) -> Vec<Value> {
        let children = item["inner"][kind][part].as_array();
        children.cloned().unwrap_or_default()
    }

    fn implementation(&self, name: &str, item: &Value, all: &mut BTreeMap<String, Value>) {
        let implementation = &item["inner"]["impl"];
        if !implementation["blanket_impl"].is_null() {
            return;
        }
        let of = match &implementation["trait"] {
            Value::Null => None,
            of => Some(self.plain(of)),
        };
        let generics = self.plain(&implementation["generics"]);
        for id in self.children(item, "impl", "items") {
            let part = self.item(&id);
            // For a trait, only the types: which provided methods an implementation overrides is no
            // promise.
            if of.is_none() || !part["inner"]["assoc_type"].is_null() {
                let key = format!(
                    "{name}::{}{}",
                    part["name"],
                    of.as_ref()
                        .map_or_else(String::new, |of| format!(" of {of}"))
                );
                let signature = json!({ "in": generics, "item": self.signature(part) });
                all.insert(key, signature);
            }
        }
        if let Some(of) = of {
            let negative = implementation["is_negative"].as_bool() == Some(true);
            let key = format!("{name}: {}{of}", if negative { "!" } else { "" });
            all.insert(key, self.signature(item));
        }
    }
}

#[test]
#[ignore = "compiles the original with a nightly toolchain"]
fn it_is_the_originals() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = here.join("../../target/interface");
    let theirs = Docs(documented(&original(&target), &target.join("theirs"))).interface();
    let ours = Docs(documented(here, &target.join("ours"))).interface();
    assert!(theirs.len() > 150, "{} items", theirs.len());
    let mut differences = Vec::new();
    for (name, item) in &theirs {
        match ours.get(name) {
            None => differences.push(format!("{name}: missing")),
            Some(other) if other != item => {
                differences.push(format!("{name}:\n  theirs {item}\n  ours   {other}"));
            }
            Some(_) => {}
        }
    }
    differences.extend(
        ours.keys()
            .filter(|name| !theirs.contains_key(*name))
            .map(|name| format!("{name}: the original has none")),
    );
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
