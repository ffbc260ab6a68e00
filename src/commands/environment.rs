//! What a command is told: its environment, and the names in braces in its arguments.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use crate::domain::job::{Job, Work};
use crate::exec::Secrets;
use crate::plain;
use crate::report::text;
use crate::store::Claimed;

/// The shell of `shell = "…"`.
const SHELL: &str = "/bin/sh";

/// Longer values are not in the environment: the kernel takes no single one above 128 KiB, and not many such.
pub const VALUE_MAX_BYTES: usize = 64 * 1024;

/// What describes a run, by name; what a run does not have is not in it.
pub type Facts = BTreeMap<&'static str, String>;

/// The facts of a run: its environment variables without `JOBRUN_`. `socket` is where `jobrun checkpoint` is answered.
pub fn facts(job: &Job, config: &Path, claimed: &Claimed, socket: Option<&Path>) -> Facts {
    let task = &claimed.task;
    let mut facts = BTreeMap::from([
        ("JOB", job.name.clone()),
        ("RUN_ID", claimed.run.clone()),
        ("ATTEMPT", claimed.attempt.to_string()),
        ("TRIGGER", claimed.trigger.to_string()),
        ("CONFIG", config.display().to_string()),
        ("TASK", task.name(&job.name)),
        ("TOKEN", claimed.token.clone()),
        ("FENCE", claimed.fence.to_string()),
    ]);
    if let (Some(slot), Some(zone)) = (task.slot, job.zone.as_ref()) {
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
    let item = Some(task).filter(|task| task.is_item());
    let own = [
        ("KEY", item.map(|task| task.key.as_str())),
        ("PAYLOAD", item.and_then(|task| task.payload.as_deref())),
        ("CHECKPOINT", task.checkpoint.as_deref()),
        ("SOCKET", socket.and_then(Path::to_str)),
    ];
    let own = own.map(|(name, value)| Some((name, value.filter(fits)?.to_owned())));
    facts.extend(own.into_iter().flatten());
    facts
}

/// Whether a variable can have the value.
fn fits(value: &&str) -> bool {
    value.len() <= VALUE_MAX_BYTES && !value.contains('\0')
}

/// Names of variables and their values.
pub type Variables = Vec<(OsString, OsString)>;

/// What the job's `env_file` sets; the error says why it cannot be used.
pub fn of_file(job: &Job) -> Result<Variables, String> {
    let path = job.surroundings.env_file.as_deref();
    path.map_or(Ok(Vec::new()), read_env_file)
}

/// The values that are never shown.
pub fn secrets(of_file: &Variables) -> Secrets {
    Secrets::new(of_file.iter().map(|(_, value)| value.as_bytes().to_vec()))
}

/// The complete environment: what jobrun inherited but `JOBRUN_*`, what the job's `env_file` sets, its `env`, and the
/// facts.
pub fn environment(
    inherited: impl Iterator<Item = (OsString, OsString)>,
    of_file: Variables,
    job: &Job,
    facts: &Facts,
) -> Variables {
    let is_ours = |name: &OsStr| name.as_bytes().starts_with(b"JOBRUN_");
    let mut environment: BTreeMap<OsString, OsString> =
        inherited.filter(|(name, _)| !is_ours(name)).collect();
    environment.extend(of_file);
    let before = environment.clone();
    for (name, value) in &job.surroundings.env {
        let value = expand(value, |name| before.get(OsStr::new(name)).cloned());
        environment.insert(name.into(), value);
    }
    for (name, value) in facts {
        environment.insert(format!("JOBRUN_{name}").into(), value.into());
    }
    environment.into_iter().collect()
}

/// What each process of a run has in its environment, and no other.
pub fn run_id(run: &str) -> String {
    format!("JOBRUN_RUN_ID={run}")
}

/// Reads `NAME=value` lines: blank ones and those that start with `#` are passed over, `export ` and a pair of quotes
/// around the value are taken off, nothing is expanded. Values are never in a message.
fn read_env_file(path: &Path) -> Result<Variables, String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        format!(
            "cannot read env_file `{}`: {}",
            path.display(),
            plain::error(&error)
        )
    })?;
    let mut variables = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = line
            .split_once('=')
            .filter(|(name, _)| is_variable(name.trim()))
        else {
            return Err(format!(
                "env_file `{}` line {}: not `NAME=value`",
                path.display(),
                number + 1
            ));
        };
        let value = value.trim();
        let quoted = ['"', '\'']
            .into_iter()
            .find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
        variables.push((name.trim().into(), quoted.unwrap_or(value).into()));
    }
    Ok(variables)
}

fn is_variable(name: &str) -> bool {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_plain && !name.is_empty() && !name.starts_with("JOBRUN_")
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
pub fn argv(work: &Work, facts: &Facts) -> Result<Vec<OsString>, String> {
    match work {
        // Nothing of SQL is run as a process.
        Work::Sql(_) => Err("SQL is not a command".to_owned()),
        Work::Shell(script) => Ok(vec![SHELL.into(), "-c".into(), script.into()]),
        Work::Command(words) => words
            .iter()
            .map(|word| substitute(word, facts).map(OsString::from))
            .collect(),
    }
}

/// Every name that may stand in braces.
const NAMES: [&str; 19] = [
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
    "CHECKPOINT",
    "SOCKET",
];

/// Replaces `{slot}` and the like; unknown braces are left alone. The error names what has no value.
pub fn substitute(word: &str, facts: &Facts) -> Result<String, String> {
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
    use crate::domain::due::testing::{job, task};
    use crate::domain::lifecycle::Trigger;
    use crate::domain::state::Task;

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
    fn an_env_file_is_read_without_expanding() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("e");
        std::fs::write(&path, "# c\n\nA=1\nexport B = \"x y\"\nC='$A'\nD=\n").expect("written");
        let read = read_env_file(&path).expect("sound");
        let read: Vec<String> = read
            .iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        assert_eq!(read, ["A=1", "B=x y", "C=$A", "D="]);
        std::fs::write(&path, "A=1\nsecret\n").expect("written");
        let error = read_env_file(&path).expect_err("not a variable");
        assert!(
            error.contains("line 2") && !error.contains("secret"),
            "{error}"
        );
    }

    fn claimed(task: Task) -> Claimed {
        Claimed {
            run: "r".into(),
            attempt: 1,
            trigger: task.trigger,
            token: "t".into(),
            fence: 1,
            started_at: task.due_at,
            task,
        }
    }

    fn facts_of(task: Task) -> Facts {
        let job = job("0 * * * *", "UTC");
        facts(&job, Path::new("/c"), &claimed(task), None)
    }

    #[test]
    fn an_item_is_told_its_key_and_a_payload_of_moderate_size() {
        let due = "2026-03-29T01:00:00Z".parse().expect("an instant");
        let payload = format!("\"{}\"", "x".repeat(VALUE_MAX_BYTES - 2));
        let item = Task {
            key: "a/7".into(),
            payload: Some(payload.clone()),
            checkpoint: Some("half".into()),
            ..task(1, due)
        };
        let told = facts_of(item.clone());
        assert_eq!(told["TASK"], "j/2026-03-29T01:00:00Z/a/7");
        assert_eq!((&told["KEY"][..], &told["PAYLOAD"]), ("a/7", &payload));
        assert_eq!(told["CHECKPOINT"], "half");
        assert_eq!(substitute("{key}", &told), Ok("a/7".to_owned()));
        let large = Task {
            payload: Some(payload + " "),
            ..item.clone()
        };
        assert!(!facts_of(large).contains_key("PAYLOAD"));
        let ad_hoc = facts_of(Task {
            slot: None,
            ..item.clone()
        });
        assert_eq!((&ad_hoc["TASK"][..], &ad_hoc["KEY"][..]), ("j//a/7", "a/7"));
        assert!(!ad_hoc.contains_key("SLOT"));
        let by_hand = facts_of(Task {
            slot: None,
            trigger: Trigger::Manual,
            ..item
        });
        assert!(!by_hand.contains_key("KEY"), "its key is the id of its run");
        assert!(substitute("{key}", &by_hand).is_err());
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
            substitute("{timezone}", &facts)
                .expect_err("no zone")
                .contains("{timezone}")
        );
    }
}
