//! The documentation tells what the program does: all of it, nothing else, and its examples work.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

const README: &str = include_str!("../README.md");
const EXAMPLE: &str = include_str!("../jobs.example.toml");
const COMMAND_PAGE: &str = include_str!("../man/jobrun.1");
const FILE_PAGE: &str = include_str!("../man/jobs.toml.5");
const STORE_PAGE: &str = include_str!("../man/jobrun-store.7");
const SQLITE_SQL: &str = include_str!("../src/store/sqlite/001_core.sql");
const POSTGRES_SQL: &str = include_str!("../src/store/postgres/001_core.sql");
const RAW_RS: &str = include_str!("../src/config/raw.rs");
const ERROR_RS: &str = include_str!("../src/error.rs");
const STATUS_RS: &str = include_str!("../src/report/status.rs");
const DUE_RS: &str = include_str!("../src/domain/due/mod.rs");
const LIFECYCLE_RS: &str = include_str!("../src/domain/lifecycle.rs");
const STEP_RS: &str = include_str!("../src/store/sqlite/step.rs");
const RECORDS_RS: &str = include_str!("../src/store/records.rs");
const BINDING_RS: &str = include_str!("../src/store/binding.rs");
const VERDICT_RS: &str = include_str!("../src/commands/run/verdict.rs");
const ATTEMPT_RS: &str = include_str!("../src/commands/run/attempt.rs");
const FAN_OUT_RS: &str = include_str!("../src/commands/run/fan_out.rs");
const ENVIRONMENT_RS: &str = include_str!("../src/commands/environment.rs");

/// What the defaults of items and SQL have an effect on.
const FAN_OUT: &str = "
schedule = \"0 0 * * *\"
items = \"SELECT id FROM t WHERE at < :slot\"
sql = \"DELETE FROM t WHERE id IN (SELECT value FROM json_each(:keys))\"
";
/// Options in the documentation that are those of other programs.
const FOREIGN_OPTIONS: [&str; 4] = ["--day", "--locked", "--path", "--release"];
/// Variables that jobrun itself reads.
const OWN_VARIABLES: [&str; 2] = ["CONFIG", "STORE"];
/// A job that fails, leaves a process behind and has a note, to fill its JSON.
const FAULTY_JOB: &str = r#"
[jobs.faulty]
schedule = "0 0 1 * 1"
timezone = "UTC"
pause_after = 1
shell = "sleep 100 & echo failed >&2; exit 3"
"#;

#[test]
fn every_command_and_option_is_in_the_manual_and_no_other() {
    let page = Page::parse(COMMAND_PAGE);
    let global = options_of(&[]);
    assert_eq!(page.options("OPTIONS", ""), global);
    let commands = commands();
    let documented = page.subsections("COMMANDS");
    let named: BTreeSet<String> = documented
        .iter()
        .filter_map(|title| title.split_whitespace().nth(1).map(str::to_owned))
        .collect();
    assert_eq!(named, commands);
    for title in documented {
        let command = title.split_whitespace().nth(1).expect("checked above");
        let own: BTreeSet<String> = options_of(&[command])
            .difference(&global)
            .cloned()
            .collect();
        assert_eq!(page.options("COMMANDS", &title), own, "{title}");
    }
}

#[test]
fn no_option_is_made_up() {
    let mut known: BTreeSet<String> = FOREIGN_OPTIONS.map(str::to_owned).into();
    known.extend(options_of(&[]));
    for command in commands() {
        known.extend(options_of(&[&command]));
    }
    let is_option = |c: char| c.is_ascii_lowercase() || c == '-';
    for text in [
        plain(COMMAND_PAGE),
        plain(FILE_PAGE),
        plain(STORE_PAGE),
        README.to_owned(),
    ] {
        for (place, _) in text.match_indices("--") {
            let option: String = text[place..]
                .chars()
                .take_while(|c| is_option(*c))
                .collect();
            let is_word =
                option[2..].starts_with(char::is_alphabetic) && !text[..place].ends_with('-');
            assert!(
                !is_word || known.contains(&option),
                "there is no `{option}`"
            );
        }
    }
}

#[test]
fn every_key_is_in_the_manual_and_no_other() {
    let page = Page::parse(FILE_PAGE);
    let mut keys = page.keys("JOB KEYS");
    keys.extend(page.keys("DEFAULTS"));
    assert_eq!(keys, array_of(RAW_RS, "JOB_KEYS"));
    assert_eq!(page.keys("STORE"), array_of(RAW_RS, "STORE_KEYS"));
}

#[test]
fn every_default_in_the_manual_can_be_written_down() {
    let page = Page::parse(FILE_PAGE);
    let defaults: Vec<&str> = page
        .tags("JOB KEYS")
        .filter(|tag| tag.contains(" = "))
        .collect();
    assert!(defaults.len() > 10, "{defaults:?}");
    let of_items = page.keys_of("JOB KEYS", "SQL and items");
    let (of_items, others): (Vec<&str>, Vec<&str>) = defaults
        .into_iter()
        .partition(|tag| of_items.contains(&names_in(tag)[0]));
    assert_passes(&as_file(&others.join("\n")));
    assert!(!of_items.is_empty());
    assert_passes(&as_file(&format!("{FAN_OUT}{}", of_items.join("\n"))));
}

#[test]
fn every_exit_status_is_documented_and_no_other() {
    let body = between(ERROR_RS, "pub fn exit_code", "\n}\n");
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    let code: String = body.lines().filter(|line| !is_comment(line)).collect();
    let is_no_digit = |c: char| !c.is_ascii_digit();
    // `u8` is a type, not a number.
    let code = code.replace("u8", "");
    let used: BTreeSet<u8> = code
        .split(is_no_digit)
        .filter_map(|n| n.parse().ok())
        .collect();
    let page = Page::parse(COMMAND_PAGE);
    let in_the_manual = page.tags("EXIT STATUS").map(first_status);
    assert_eq!(in_the_manual.collect::<BTreeSet<u8>>(), used);
    let table = between(README, "| status | when |\n|---|---|\n", "\n\n");
    let cells = table.lines().filter_map(|row| row.split('|').nth(1));
    let in_the_readme = cells.flat_map(|cell| cell.split(',')).map(first_status);
    assert_eq!(in_the_readme.collect::<BTreeSet<u8>>(), used);
}

/// 128 of `128+n`, 1 of `1-123`.
fn first_status(text: &str) -> u8 {
    let start = text.split(['-', '+']).next().unwrap_or_default().trim();
    start
        .parse()
        .unwrap_or_else(|_| panic!("`{text}` is not an exit status"))
}

#[test]
fn every_state_outcome_and_reason_is_in_the_manual_and_no_other() {
    let page = Page::parse(COMMAND_PAGE);
    let states = words_after(between(STATUS_RS, "fn word", "\n    }\n"), "=> \"");
    assert_eq!(page.keys_of("COMMANDS", "jobrun status [JOB...]"), states);

    let skips = words_after(between(DUE_RS, "stored_words!(Reason {", "});"), "= \"");
    assert_eq!(page.keys_of("WHAT IS OWED", "Skip reasons"), skips);

    let mut reasons = BTreeSet::new();
    for source in [VERDICT_RS, ATTEMPT_RS, FAN_OUT_RS] {
        for call in [
            "failed(\"",
            "failed(\n                \"",
            "interrupted(\"",
            "interrupted(\n            \"",
            "Some(\"",
            "=> (\"",
        ] {
            reasons.extend(words_after(source, call));
        }
    }
    let rules = LIFECYCLE_RS
        .split("#[cfg(test)]")
        .next()
        .unwrap_or_default();
    reasons.extend(words_after(rules, "fail(&mut update, \""));
    // Words that have a name.
    for source in [LIFECYCLE_RS, RECORDS_RS, BINDING_RS] {
        for name in ["ITEMS_FAILED", "COMPLETED_EARLY", "NOTHING_TO_DO"] {
            reasons.extend(words_after(source, &format!("const {name}: &str = \"")));
        }
    }
    let lost = STEP_RS.split("outcome = 'lost', reason = '").skip(1);
    reasons.extend(lost.map(|rest| between(rest, "", "'").to_owned()));
    // What is given up for want of a reason has that of its outcome.
    reasons.extend(["timed_out", "interrupted", "lost"].map(str::to_owned));
    assert!(reasons.len() > 15, "{reasons:?}");
    assert_eq!(page.keys_of("REASONS", ""), reasons);

    let text = page.text_of("JSON DOCUMENTS");
    for outcome in words_after(
        between(LIFECYCLE_RS, "stored_words!(Outcome {", "});"),
        "= \"",
    ) {
        assert!(text.contains(&outcome), "outcome `{outcome}`");
    }
}

/// The words that stand behind `start` in the source.
fn words_after(source: &str, start: &str) -> BTreeSet<String> {
    let places = source.split(start).skip(1);
    let words = places.map(|rest| between(rest, "", "\""));
    let is_word = |word: &&str| {
        word.chars()
            .all(|c| c.is_ascii_lowercase() || "_-".contains(c))
    };
    words.filter(is_word).map(str::to_owned).collect()
}

#[test]
fn every_command_of_the_manual_has_an_example_that_works() {
    let folder = folder_with(EXAMPLE);
    let run = jobrun(folder.path(), &["run", "setup", "daily_points"]);
    assert!(run.status.success(), "{run:?}");
    let sections = COMMAND_PAGE.split("\n.SS \"jobrun ").skip(1);
    let mut names = BTreeSet::new();
    for section in sections {
        let verb = section.split([' ', '"']).next().expect("a verb");
        let examples = between(
            section.split("\n.S").next().unwrap_or(section),
            ".EX\n",
            ".EE",
        );
        for line in examples.lines().map(unescaped) {
            assert!(line.contains(&format!(" {verb}")), "{line}");
            let output = shell(folder.path(), &line);
            // `resume` comes after `pause`.
            assert!(output.status.success(), "{line}: {output:?}");
        }
        names.insert(verb.to_owned());
    }
    assert_eq!(names, commands());
}

#[test]
fn every_variable_is_in_the_manual_and_no_other() {
    let facts = between(ENVIRONMENT_RS, "pub fn facts", "\n}\n");
    let is_name =
        |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let told: BTreeSet<String> = facts
        .split('"')
        .filter(is_name)
        .map(str::to_owned)
        .collect();
    assert!(told.len() > 10, "{told:?}");
    let page = Page::parse(COMMAND_PAGE);
    let tags: Vec<&str> = page.tags("ENVIRONMENT").collect();
    for name in told.iter().map(String::as_str).chain(OWN_VARIABLES) {
        let is_documented = |tag: &&str| tag.split(", ").any(|one| one == format!("JOBRUN_{name}"));
        assert!(tags.iter().any(is_documented), "JOBRUN_{name}");
    }
    let text = plain(COMMAND_PAGE);
    for name in array_of(ENVIRONMENT_RS, "NAMES") {
        assert!(
            text.contains(&format!("{{{}}}", name.to_lowercase())),
            "{{{name}}}"
        );
    }
    for text in [
        text,
        plain(FILE_PAGE),
        README.to_owned(),
        EXAMPLE.to_owned(),
    ] {
        for piece in text.split("JOBRUN_").skip(1) {
            let is_part = |c: &char| c.is_ascii_uppercase() || *c == '_';
            let name: String = piece.chars().take_while(is_part).collect();
            let is_known =
                name.is_empty() || told.contains(&name) || OWN_VARIABLES.contains(&name.as_str());
            assert!(is_known, "there is no JOBRUN_{name}");
        }
    }
}

#[test]
fn every_name_in_a_json_document_is_in_the_manual() {
    let folder = folder_with(&format!("{EXAMPLE}{FAULTY_JOB}"));
    fs::write(folder.path().join("faults.toml"), "[jobs.a]\ncomand = 1\n").expect("a file");
    let section = Page::parse(COMMAND_PAGE).text_of("JSON DOCUMENTS");
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: BTreeSet<&str> = section.split(|c| !is_part(c)).collect();
    let documents = [
        "run daily_points --dry-run --json",
        "run daily_points faulty --json",
        "run faulty --now --json",
        "status --json",
        "history faulty --json",
        "logs faulty --json",
        "next daily_points --json",
        "slots daily_points --from 2026-01-01 --to 2026-01-02 --json",
        "enqueue daily_points order-17 --json",
        "check --json",
        "--config faults.toml check --json",
        "--log-format json --verbose run faulty --now",
        "--log-format json --config faults.toml check",
        "--log-format json run nobody",
    ];
    for line in documents {
        let output = shell(folder.path(), &format!("jobrun {line} 2>&1"));
        let mut count = 0;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        for line in printed.lines().filter(|line| line.starts_with('{')) {
            count += 1;
            let document: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let is_log = document["level"].is_string();
            assert!(is_log || document["schema"] == 1, "{line}");
            let mut names = BTreeSet::new();
            collect_names(&document, &mut names);
            // Names of skip reasons are data.
            names.remove("expired");
            for name in names {
                assert!(words.contains(name.as_str()), "{line}: `{name}`");
            }
        }
        assert!(count > 0, "{line}: {output:?}");
    }
}

#[test]
fn every_table_and_column_of_the_stores_is_in_the_manual_and_no_other() {
    let mut tables = tables_of(SQLITE_SQL, "jobrun_");
    for (table, columns) in tables_of(POSTGRES_SQL, "jobrun.") {
        tables.entry(table).or_default().extend(columns);
    }
    assert!(tables.len() > 8, "{tables:?}");
    let page = Page::parse(STORE_PAGE);
    let named: BTreeSet<String> = tables.keys().cloned().collect();
    assert_eq!(page.subsections("TABLES"), named);
    for (table, columns) in tables {
        assert_eq!(page.keys_of("TABLES", &table), columns, "{table}");
    }
}

/// The columns of each table that the statements make, by its name after `prefix`.
fn tables_of(sql: &str, prefix: &str) -> BTreeMap<String, BTreeSet<String>> {
    let start = format!("CREATE TABLE {prefix}");
    let made = sql.split(&start).skip(1);
    let table = |text: &str| {
        let (name, rest) = text.split_once(" (\n").expect("a list of columns");
        let lines = rest.lines().take_while(|line| !line.starts_with(')'));
        let is_column = |line: &&str| !line.starts_with("     ") && !line.contains("    CHECK");
        let columns = lines.filter(is_column).filter_map(|line| {
            let column = line.split_whitespace().next()?;
            Some(column.trim_matches('"').to_owned())
        });
        (name.to_owned(), columns.collect())
    };
    made.map(table).collect()
}

#[test]
fn every_function_and_view_of_the_stores_is_in_the_manual_and_no_other() {
    let made = |sql: &str, what: &str| {
        let made = sql.split(what).skip(1);
        let names = made.map(|rest| rest.split([' ', '(']).next().unwrap_or_default().to_owned());
        names.collect::<BTreeSet<String>>()
    };
    let mut made_by_us = made(POSTGRES_SQL, "CREATE FUNCTION ");
    made_by_us.extend(made(SQLITE_SQL, "CREATE VIEW "));
    assert_eq!(made_by_us.len(), 8, "{made_by_us:?}");
    let page = Page::parse(STORE_PAGE);
    let tags = page.tags("FUNCTIONS");
    let named = tags.map(|tag| tag.split([' ', '(']).next().unwrap_or_default().to_owned());
    assert_eq!(named.collect::<BTreeSet<String>>(), made_by_us);
}

#[test]
fn every_example_passes_the_check() {
    assert_passes(EXAMPLE);
    let blocks = code_blocks(README, "toml");
    assert!(!blocks.is_empty());
    for block in blocks {
        assert_passes(&block);
    }
    let mut count = 0;
    for (is_by_line, example) in marked_examples(FILE_PAGE) {
        count += 1;
        if is_by_line {
            example
                .lines()
                .for_each(|line| assert_passes(&as_file(line)));
        } else {
            assert_passes(&as_file(&example));
        }
    }
    assert!(count > 5, "{count} examples");
}

#[test]
fn the_readme_shows_the_example_as_it_is() {
    for line in code_blocks(README, "toml")[0].lines() {
        assert!(EXAMPLE.lines().any(|known| known == line), "{line}");
    }
}

#[test]
fn the_readme_begins_with_a_run_and_the_tests() {
    let commands = code_blocks(README, "sh");
    assert_eq!(
        commands[0],
        "cargo run --release --quiet -- --verbose --config jobs.example.toml run setup daily_points\n"
    );
    assert_eq!(commands[1], "tests/run\n");
}

#[test]
fn the_first_command_of_the_readme_prints_what_it_shows() {
    // A slot that is seconds away would be waited for, and be one more than shown.
    let example = EXAMPLE.replace("[defaults]", "[defaults]\nearly_wait = \"0s\"");
    let line = "jobrun --verbose run setup daily_points 2>&1";
    let shown = &code_blocks(README, "text")[0];
    // Where output is passed on, as on a terminal.
    let folder = folder_with(&example);
    let printed = shell(folder.path(), &format!("KUBERNETES_SERVICE_HOST=1 {line}"));
    assert_eq!(masked(&stdout(&printed)), masked(shown));
    // Into a pipe.
    let folder = folder_with(&example);
    let printed = shell(folder.path(), line);
    let is_ours = |line: &&str| line.starts_with("jobrun: ");
    let ours: Vec<&str> = shown.lines().filter(is_ours).collect();
    assert_eq!(ours.len(), 12);
    assert_eq!(masked(&stdout(&printed)), masked(&ours.join("\n")));
}

#[test]
fn the_tour_of_the_readme_prints_what_it_shows() {
    let folder = tempfile::tempdir().expect("a folder");
    let tour = &code_blocks(README, "console")[0];
    let mut count = 0;
    for step in tour.split("$ ").skip(1) {
        let (line, shown) = step.split_once('\n').expect("a line and its output");
        let output = shell(folder.path(), &format!("{{ {line}; }} 2>&1"));
        assert!(output.status.success(), "{line}: {output:?}");
        let here = folder.path().display().to_string();
        let printed = stdout(&output)
            .replace(env!("CARGO_BIN_EXE_jobrun"), "/usr/local/bin/jobrun")
            .replace(&here, "/srv/app");
        let sorted = |text: &str| {
            let mut lines: Vec<String> = masked(text).lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&printed), sorted(shown), "{line}");
        count += 1;
    }
    assert_eq!(count, 8);
}

#[test]
fn the_manual_pages_render_without_warnings() {
    for page in ["man/jobrun.1", "man/jobs.toml.5", "man/jobrun-store.7"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
        let groff = Command::new("groff")
            .args(["-man", "-Tutf8", "-ww", "-z"])
            .arg(path)
            .output();
        let Ok(output) = groff else {
            assert!(std::env::var_os("CI").is_none(), "groff is not installed");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}

// The program.

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobrun"));
    command
        .args(["--config", "jobs.toml"])
        .args(arguments)
        .current_dir(folder)
        .env_remove("JOBRUN_CONFIG")
        .env_remove("JOBRUN_STORE");
    command
}

fn jobrun(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("jobrun starts")
}

/// A line as somebody called ops types it in that folder, away from a terminal.
fn shell(folder: &Path, line: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_jobrun"));
    let before = std::env::var_os("PATH").unwrap_or_default();
    let own = program.parent().expect("its folder").to_owned();
    let path = std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&before)));
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .current_dir(folder)
        .env("PATH", path.expect("a search path"))
        .env("LOGNAME", "ops");
    for name in [
        "JOBRUN_CONFIG",
        "JOBRUN_STORE",
        "KUBERNETES_SERVICE_HOST",
        "SUDO_USER",
    ] {
        command.env_remove(name);
    }
    command.output().expect("a shell")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A new folder with that `jobs.toml`.
fn folder_with(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.toml");
    fs::write(&file, text).expect("a file");
    // Whatever the umask: what everybody can write is refused.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("its mode");
    folder
}

fn assert_passes(text: &str) {
    let output = jobrun(folder_with(text).path(), &["check", "--json"]);
    let said = stdout(&output);
    let document: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let warnings = document["warnings"].as_array().expect("warnings");
    // The programs of examples are nobody's.
    let is_known = |warning: &serde_json::Value| {
        let message = warning["message"].as_str().expect("text");
        message.starts_with("command `") && message.contains(" not found")
    };
    // Nor are their servers anybody's: what is wrong then is the store, and nothing in the file.
    let is_expected = if text.contains("postgres://") {
        output.status.code() == Some(125)
    } else {
        output.status.success()
    };
    assert!(
        is_expected && warnings.iter().all(is_known),
        "{text}\n{said}"
    );
}

/// What `--help` says, of a command or of all.
fn help(arguments: &[&str]) -> String {
    let output = jobrun(Path::new("."), &[arguments, &["--help"]].concat());
    String::from_utf8(output.stdout).expect("text")
}

fn commands() -> BTreeSet<String> {
    let help = help(&[]);
    let list = between(&help, "Commands:\n", "\n\n");
    let names = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

fn options_of(command: &[&str]) -> BTreeSet<String> {
    let help = help(command);
    let list = between(&help, "Options:\n", "\nExample");
    list.lines()
        .map(str::trim)
        .filter(|line| line.starts_with('-'))
        .flat_map(|line| options_in(line.split("  ").next().unwrap_or_default()))
        .collect()
}

/// `-n` and `--limit` of `-n, --limit <N>`.
fn options_in(text: &str) -> BTreeSet<String> {
    text.split([' ', ','])
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.starts_with('-'))
        .map(str::to_owned)
        .collect()
}

/// A part of a jobs.toml as a whole one.
fn as_file(part: &str) -> String {
    if part.contains("[jobs.") {
        return part.to_owned();
    }
    let has = |key: &str| part.lines().any(|line| line.starts_with(key));
    let mut file = format!("[jobs.example]\n{part}\n");
    if !has("command") && !has("shell") && !has("sql") {
        file.push_str("command = [\"true\"]\n");
    }
    if (has("schedule") || has("every")) && !has("timezone") {
        file.push_str("timezone = \"UTC\"\n");
    }
    file
}

fn collect_names(value: &serde_json::Value, names: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(object) => {
            for (name, value) in object {
                names.insert(name.clone());
                collect_names(value, names);
            }
        }
        serde_json::Value::Array(items) => {
            for item in items {
                collect_names(item, names);
            }
        }
        _ => {}
    }
}

// The sources.

/// The text after `start` up to `end`, or to the end of all.
fn between<'t>(text: &'t str, start: &str, end: &str) -> &'t str {
    let (_, rest) = text
        .split_once(start)
        .unwrap_or_else(|| panic!("no `{start}`"));
    rest.split_once(end).map_or(rest, |(inside, _)| inside)
}

/// The strings of `const NAME: [&str; N] = [...];`.
fn array_of(source: &str, name: &str) -> BTreeSet<String> {
    let list = between(source, &format!("const {name}: [&str;"), "];");
    let words = list.split('"').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

// The documentation.

/// The bodies of the README's code blocks in that language.
fn code_blocks(text: &str, language: &str) -> Vec<String> {
    let start = format!("```{language}\n");
    let blocks = text.split(&start).skip(1);
    blocks
        .map(|block| between(block, "", "```").to_owned())
        .collect()
}

/// Output without what differs from day to day: numbers, run ids, lateness, the width of columns.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    for line in text.lines() {
        let line = line.split(" [run ").next().unwrap_or_default();
        let line = match (line.find(" ("), line.find(" late)")) {
            (Some(start), Some(end)) => format!("{}{}", &line[..start], &line[end + 6..]),
            _ => line.to_owned(),
        };
        for c in line.chars() {
            let c = if c.is_ascii_digit() { '0' } else { c };
            let is_repeated = "0 ".contains(c) && masked.ends_with(c);
            if !is_repeated {
                masked.push(c);
            }
        }
        let end = masked.trim_end_matches(' ').len();
        masked.truncate(end);
        masked.push('\n');
    }
    // Seconds are left out where they are zero.
    masked.replace("0:0:0", "0:0")
}

/// A manual page, as far as it is looked at here.
struct Page {
    lines: Vec<Line>,
}

struct Line {
    section: String,
    subsection: String,
    is_tag: bool,
    text: String,
}

impl Page {
    fn parse(source: &str) -> Self {
        let mut lines: Vec<Line> = Vec::new();
        let (mut section, mut subsection, mut is_tag) = (String::new(), String::new(), false);
        for written in source.lines() {
            let text = rendered(written);
            if written.starts_with(".SH") {
                (section, subsection) = (text, String::new());
            } else if written.starts_with(".SS") {
                subsection = text;
            } else if written == ".TP" {
                is_tag = true;
            } else if !text.is_empty() {
                lines.push(Line {
                    section: section.clone(),
                    subsection: subsection.clone(),
                    is_tag: std::mem::take(&mut is_tag),
                    text,
                });
            }
        }
        Self { lines }
    }

    fn tags(&self, section: &str) -> impl Iterator<Item = &str> {
        let lines = self
            .lines
            .iter()
            .filter(move |line| line.section == section && line.is_tag);
        lines.map(|line| line.text.as_str())
    }

    fn options(&self, section: &str, subsection: &str) -> BTreeSet<String> {
        let lines = self
            .lines
            .iter()
            .filter(|line| line.section == section && line.subsection == subsection && line.is_tag);
        lines.flat_map(|line| options_in(&line.text)).collect()
    }

    fn keys(&self, section: &str) -> BTreeSet<String> {
        self.tags(section).flat_map(names_in).collect()
    }

    /// As `keys`, of a subsection, without options.
    fn keys_of(&self, section: &str, subsection: &str) -> BTreeSet<String> {
        let lines = self
            .lines
            .iter()
            .filter(|line| line.section == section && line.subsection == subsection && line.is_tag);
        let names = lines.flat_map(|line| names_in(&line.text));
        names.filter(|name| !name.starts_with('-')).collect()
    }

    fn subsections(&self, section: &str) -> BTreeSet<String> {
        let lines = self.lines.iter().filter(|line| line.section == section);
        lines
            .map(|line| line.subsection.clone())
            .filter(|subsection| !subsection.is_empty())
            .collect()
    }

    fn text_of(&self, section: &str) -> String {
        let lines = self.lines.iter().filter(|line| line.section == section);
        let texts: Vec<&str> = lines.map(|line| line.text.as_str()).collect();
        texts.join("\n")
    }
}

/// `start_at` and `end_at` of `start_at, end_at`, `retry` of `retry = []`.
fn names_in(tag: &str) -> Vec<String> {
    let names = tag.split(" = ").next().unwrap_or_default();
    names.split(", ").map(str::to_owned).collect()
}

/// A whole page as text.
fn plain(source: &str) -> String {
    source.lines().map(|line| rendered(line) + "\n").collect()
}

/// A line of a page as text; empty for one that only lays out.
fn rendered(line: &str) -> String {
    let Some(request) = line.strip_prefix('.') else {
        return unescaped(line);
    };
    let (name, arguments) = request.split_once(' ').unwrap_or((request, ""));
    match name {
        "B" | "I" | "SH" | "SS" => words(arguments).join(" "),
        "BR" | "BI" | "IB" | "IR" | "RB" | "RI" => words(arguments).concat(),
        _ => String::new(),
    }
}

/// The arguments of a request: words, or strings in double quotes.
fn words(arguments: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = arguments.trim_start();
    while !rest.is_empty() {
        // An escaped blank does not end a word.
        let is_end = |&(at, _): &(usize, &str)| !rest[..at].ends_with('\\');
        let (word, after) = if let Some(quoted) = rest.strip_prefix('"') {
            quoted.split_once('"').unwrap_or((quoted, ""))
        } else if let Some((end, _)) = rest.match_indices(' ').find(is_end) {
            rest.split_at(end)
        } else {
            (rest, "")
        };
        words.push(unescaped(word));
        rest = after.trim_start();
    }
    words
}

fn unescaped(text: &str) -> String {
    let mut text = text.to_owned();
    for font in ["\\fB", "\\fI", "\\fP", "\\fR", "\\&"] {
        text = text.replace(font, "");
    }
    for (escape, character) in [
        ("\\-", "-"),
        ("\\(aq", "'"),
        ("\\(dq", "\""),
        ("\\(bu", "*"),
        ("\\ ", " "),
        ("\\e", "\\"),
    ] {
        text = text.replace(escape, character);
    }
    text
}

/// The examples after a `check` comment; `true` for one whose lines are each an example.
fn marked_examples(source: &str) -> Vec<(bool, String)> {
    let marked = source.split("\n.\\\" check").skip(1);
    marked
        .map(|rest| {
            let is_by_line = rest.starts_with(" lines\n");
            let example = between(rest, ".EX\n", ".EE");
            (
                is_by_line,
                example.lines().map(|line| unescaped(line) + "\n").collect(),
            )
        })
        .collect()
}
