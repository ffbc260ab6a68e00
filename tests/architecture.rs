//! The shape of the sources: imports run one way, and what is kept in one place stays there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Which parts of the program each part may import from; `error` is below `commands` and names what can go wrong
/// in the parts below it.
const MAY_IMPORT: [(&str, &[&str]); 10] = [
    (
        "main",
        &[
            "cli", "clock", "commands", "config", "domain", "error", "exec", "plain", "report",
            "store",
        ],
    ),
    (
        "commands",
        &[
            "cli", "clock", "config", "domain", "error", "exec", "plain", "report", "store",
        ],
    ),
    ("cli", &[]),
    ("report", &["domain", "error", "store"]),
    ("error", &["config", "exec", "plain", "store"]),
    ("config", &["domain", "error", "plain", "store"]),
    ("store", &["clock", "domain", "plain"]),
    ("exec", &["clock", "plain"]),
    ("clock", &[]),
    ("plain", &[]),
];
/// Rules only: they import nothing of ours.
const RULES: &str = "domain";

struct Source {
    /// Below `src`.
    path: PathBuf,
    text: String,
}

impl Source {
    /// `src/store/sqlite/open.rs` belongs to `store`.
    fn part(&self) -> String {
        let first = self.path.components().next().expect("a path").as_os_str();
        let first = Path::new(first).file_stem().expect("a name");
        first.to_string_lossy().into_owned()
    }

    /// Names of the module the file is, from the root of the crate.
    fn module(&self) -> Vec<String> {
        let path = self.path.with_extension("");
        let names = path.iter().map(|name| name.to_string_lossy().into_owned());
        names
            .filter(|name| !matches!(name.as_str(), "mod" | "main"))
            .collect()
    }

    /// Parts of the program it names, in paths that start with `crate::` or that go up to the root with `super::`.
    fn imports(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut inner = 0;
        for (line, code) in self.code() {
            // A module inside of the file, such as its tests, is one deeper.
            match line.as_str() {
                "}" => inner = 0,
                _ if line.starts_with("mod ") && line.ends_with('{') => inner = 1,
                _ => {}
            }
            for (place, name) in code.match_indices("crate::") {
                found.insert(first_name(&code[place + name.len()..], &line));
            }
            let depth = self.module().len() + inner;
            for path in code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':') {
                let ups = path.split("::").take_while(|name| *name == "super").count();
                if ups > 0 && ups >= depth {
                    found.insert(first_name(&path[ups * "super::".len()..], &line));
                }
            }
        }
        found
    }

    /// Lines without comments, each with its original.
    fn code(&self) -> Vec<(String, String)> {
        let lines = self.text.lines();
        lines
            .map(|line| {
                (
                    line.to_owned(),
                    line.split("//").next().unwrap_or_default().to_owned(),
                )
            })
            .collect()
    }
}

/// The name a path goes on with.
fn first_name(path: &str, line: &str) -> String {
    let name: String = path
        .chars()
        .take_while(|c| c.is_ascii_lowercase() || *c == '_')
        .collect();
    assert!(!name.is_empty(), "write one import a line, not `{line}`");
    name
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = rust_files(&root).into_iter();
    files
        .map(|path| Source {
            text: fs::read_to_string(&path).expect("text"),
            path: path.strip_prefix(&root).expect("below src").to_owned(),
        })
        .collect()
}

#[test]
fn imports_run_one_way() {
    let mut seen = BTreeSet::new();
    for source in sources() {
        let part = source.part();
        seen.insert(part.clone());
        let allowed = MAY_IMPORT.iter().find(|(name, _)| *name == part);
        let allowed = allowed.map_or(&[][..], |(_, allowed)| allowed);
        for import in source.imports() {
            assert!(
                import == part || allowed.contains(&import.as_str()),
                "src/{}: `{part}` must not import `{import}`",
                source.path.display()
            );
        }
    }
    let known: BTreeSet<String> = MAY_IMPORT
        .iter()
        .map(|(name, _)| *name)
        .chain([RULES])
        .map(str::to_owned)
        .collect();
    assert_eq!(seen, known, "every part of the program has its place");
}

#[test]
fn the_way_down_has_no_way_back() {
    // Only `config` and `error` know each other: faults are an error, and reading a file can fail.
    let reaches = |from: &str, to: &str| {
        let mut found = BTreeSet::from([from.to_owned()]);
        let mut open = vec![from.to_owned()];
        while let Some(part) = open.pop() {
            let next = MAY_IMPORT.iter().find(|(name, _)| *name == part);
            for import in next.map_or(&[][..], |(_, allowed)| allowed) {
                if found.insert((*import).to_owned()) {
                    open.push((*import).to_owned());
                }
            }
        }
        found.contains(to)
    };
    for (part, allowed) in MAY_IMPORT {
        for below in allowed {
            let is_pair = BTreeSet::from([part, *below]) == BTreeSet::from(["config", "error"]);
            assert!(is_pair || !reaches(below, part), "`{part}` and `{below}`");
        }
    }
    assert!(!reaches("store", "exec") && !reaches("exec", "store"));
}

#[test]
fn what_is_unsafe_stays_in_one_place() {
    for source in sources().iter().filter(|source| source.part() != "exec") {
        for (line, code) in source.code() {
            let words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let is_unsafe = words
                .into_iter()
                .any(|word| word == "unsafe" || word == "unsafe_code");
            assert!(!is_unsafe, "src/{}: {line}", source.path.display());
        }
    }
}

#[test]
fn only_reports_print() {
    for source in sources().iter().filter(|source| source.part() != "report") {
        for (line, code) in source.code() {
            let words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '!');
            let prints = ["print!", "println!", "eprint!", "eprintln!", "dbg!"];
            assert!(
                words.into_iter().all(|word| !prints.contains(&word)),
                "src/{}: {line}",
                source.path.display()
            );
        }
    }
}

#[test]
fn every_file_says_what_it_is_and_none_is_unfinished() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Put together here, so that this file does not find itself.
    let marks = [("TO", "DO"), ("FIX", "ME"), ("XX", "X"), ("to", "do!(")];
    let marks = marks.map(|(start, end)| format!("{start}{end}"));
    for path in ["src", "tests"]
        .iter()
        .flat_map(|folder| rust_files(&root.join(folder)))
    {
        let text = fs::read_to_string(&path).expect("text");
        assert!(
            text.starts_with("//! "),
            "{}: no `//!` line",
            path.display()
        );
        for mark in &marks {
            assert!(!text.contains(mark.as_str()), "{}: {mark}", path.display());
        }
    }
}
