//! What a command is told: its environment, and the names in braces in its arguments.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use crate::domain::job::{Job, Work};
use crate::domain::schedule::Timetable;
use crate::report::text;
use crate::store::Claimed;

/// The shell of `shell = "…"`.
const SHELL: &str = "/bin/sh";

/// The variables that describe a run, by name, without `JOBRUN_`. What a run does not have is not in it.
pub fn facts(job: &Job, config: &Path, claimed: &Claimed) -> BTreeMap<&'static str, String> {
    let task = &claimed.task;
    let mut facts = BTreeMap::from([
        ("JOB", job.name.clone()),
        ("RUN_ID", claimed.run.clone()),
        ("ATTEMPT", claimed.attempt.to_string()),
        ("TRIGGER", claimed.trigger.to_string()),
        ("CONFIG", config.display().to_string()),
        ("TASK", task_key(job, claimed)),
        ("TOKEN", claimed.token.clone()),
        ("FENCE", claimed.fence.to_string()),
    ]);
    if let (Some(slot), Some(zone)) = (task.slot, job.timetable.as_ref().map(Timetable::zone)) {
        let nominal = task
            .nominal
            .unwrap_or_else(|| zone.local(slot).naive_local());
        facts.insert("SLOT", text::local(zone, slot));
        facts.insert("SLOT_UTC", text::utc(slot));
        facts.insert("SLOT_NOMINAL", text::nominal(nominal));
        facts.insert("TIMEZONE", zone.name().to_owned());
        facts.insert(
            "INTERVAL_START",
            text::utc(task.interval_start.unwrap_or(slot)),
        );
        facts.insert("INTERVAL_END", text::utc(slot));
        facts.insert("COALESCED", task.coalesced.to_string());
    }
    facts
}

/// The idempotency key: the same for every attempt.
fn task_key(job: &Job, claimed: &Claimed) -> String {
    let task = &claimed.task;
    match (task.slot, task.key.as_str()) {
        (Some(slot), "") => format!("{}/{}", job.name, text::utc(slot)),
        (Some(slot), key) => format!("{}/{}/{key}", job.name, text::utc(slot)),
        (None, key) => format!("{}//{key}", job.name),
    }
}

/// The complete environment: what jobrun inherited but `JOBRUN_*`, the job's `env`, and the facts.
pub fn environment(
    inherited: impl Iterator<Item = (OsString, OsString)>,
    job: &Job,
    facts: &BTreeMap<&'static str, String>,
) -> Vec<(OsString, OsString)> {
    let inherited: BTreeMap<OsString, OsString> = inherited
        .filter(|(name, _)| !name.as_bytes().starts_with(b"JOBRUN_"))
        .collect();
    let mut environment = inherited.clone();
    for (name, value) in &job.env {
        environment.insert(
            name.into(),
            expand(value, |name| inherited.get(OsStr::new(name)).cloned()),
        );
    }
    for (name, value) in facts {
        environment.insert(format!("JOBRUN_{name}").into(), value.into());
    }
    environment.into_iter().collect()
}

/// Replaces `$NAME` and `${NAME}`; `$$` is a dollar, an unknown name is empty as in a shell, and any other `$`
/// stays.
fn expand(value: &str, lookup: impl Fn(&str) -> Option<OsString>) -> OsString {
    let mut out: Vec<u8> = Vec::new();
    let mut rest = value;
    while let Some(place) = rest.find('$') {
        out.extend_from_slice(&rest.as_bytes()[..place]);
        let after = &rest[place + 1..];
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let braced = after
            .strip_prefix('{')
            .and_then(|inner| inner.split_once('}'));
        let bare = &after[..after.find(|c| !is_name(c)).unwrap_or(after.len())];
        if let Some(after) = after.strip_prefix('$') {
            out.push(b'$');
            rest = after;
        } else if let Some((name, after)) =
            braced.filter(|(name, _)| !name.is_empty() && name.chars().all(is_name))
        {
            out.extend(lookup(name).unwrap_or_default().into_vec());
            rest = after;
        } else if !bare.is_empty() && !bare.starts_with(|c: char| c.is_ascii_digit()) {
            out.extend(lookup(bare).unwrap_or_default().into_vec());
            rest = &after[bare.len()..];
        } else {
            out.push(b'$');
            rest = after;
        }
    }
    out.extend_from_slice(rest.as_bytes());
    OsString::from_vec(out)
}

/// The argument vector of a run: names in braces replaced in `command`, nothing in `shell` (it has the
/// environment). The error names what has no value.
pub fn argv(job: &Job, facts: &BTreeMap<&'static str, String>) -> Result<Vec<OsString>, String> {
    match &job.work {
        Work::Shell(script) => Ok(vec![SHELL.into(), "-c".into(), script.into()]),
        Work::Command(words) => words
            .iter()
            .map(|word| substitute(word, facts).map(OsString::from))
            .collect(),
    }
}

/// Every name that may stand in braces.
const NAMES: [&str; 17] = [
    "JOB",
    "RUN_ID",
    "ATTEMPT",
    "TRIGGER",
    "CONFIG",
    "TASK",
    "TOKEN",
    "FENCE",
    "SLOT",
    "SLOT_UTC",
    "SLOT_NOMINAL",
    "TIMEZONE",
    "INTERVAL_START",
    "INTERVAL_END",
    "COALESCED",
    "KEY",
    "PAYLOAD",
];

/// Replaces `{slot}` and the like; unknown braces are left alone.
fn substitute(word: &str, facts: &BTreeMap<&'static str, String>) -> Result<String, String> {
    let mut out = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(place) = rest.find('{') {
        out.push_str(&rest[..place]);
        rest = &rest[place..];
        let name = rest[1..].split_once('}').map(|(name, _)| name);
        let known = name.and_then(|name| NAMES.iter().find(|known| known.to_lowercase() == name));
        match known.map(|known| (known, facts.get(known))) {
            Some((known, Some(value))) => {
                out.push_str(value);
                rest = &rest[known.len() + 2..];
            }
            Some((known, None)) => {
                return Err(format!(
                    "`{{{}}}` has no value in this run",
                    known.to_lowercase()
                ));
            }
            None => {
                out.push('{');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(value: &str) -> String {
        let lookup = |name: &str| (name == "PATH").then(|| OsString::from("/usr/bin:/bin"));
        expand(value, lookup).into_string().expect("text")
    }

    #[test]
    fn variables_are_expanded_as_a_shell_would() {
        assert_eq!(expanded("$PATH:/opt/x"), "/usr/bin:/bin:/opt/x");
        assert_eq!(expanded("/a:${PATH}b"), "/a:/usr/bin:/binb");
        assert_eq!(expanded("$NO_SUCH.x"), ".x");
        assert_eq!(expanded("5$$ 5$ $1 ${ }"), "5$ 5$ $1 ${ }");
    }

    #[test]
    fn names_in_braces_are_replaced_and_others_left_alone() {
        let facts = BTreeMap::from([("SLOT", "2026".to_owned()), ("JOB", "j".to_owned())]);
        assert_eq!(
            substitute("--at={slot} {job}", &facts),
            Ok("--at=2026 j".to_owned())
        );
        assert_eq!(
            substitute("{print $1} {} {x", &facts),
            Ok("{print $1} {} {x".to_owned())
        );
        assert_eq!(
            substitute("awk '{slot", &facts),
            Ok("awk '{slot".to_owned())
        );
        assert!(
            substitute("{key}", &facts)
                .expect_err("no key")
                .contains("{key}")
        );
    }
}
