//! Edits of a file: `check` says beforehand what the next start makes of them; nothing runs that was not due, and
//! nothing due is lost.

mod support;

use support::{Scenario, has_program, is_root, skip};

/// Nights of a week long ago, the slots from the 5th to the 7th owed; nothing here depends on the day of the test.
const NIGHTS: &str = "
schedule = '0 0 * * *'
timezone = 'UTC'
end_at = '2025-03-07'
catch_up = 'each'
start_grace = '0s'
";
const OWED: [&str; 3] = [
    "2025-03-05T00:00:00Z",
    "2025-03-06T00:00:00Z",
    "2025-03-07T00:00:00Z",
];

/// The warning on the second host.
const WARNED: &str = "are two hosts using different files?";

fn job(keys: &str) -> String {
    format!("[jobs.j]\n{keys}\nshell = 'echo $JOBRUN_SLOT_UTC >> runs'\n")
}

fn three_nights_owed() -> Scenario {
    let scenario = Scenario::new(&job(NIGHTS));
    scenario.run("cursor j --set 2025-03-04T12:00").exits(0);
    scenario
}

/// What `check` says of the edit, in both of its forms; none: nothing.
fn foretold(scenario: &Scenario) -> Option<String> {
    let before = scenario.files();
    let document = scenario.run("check --json").exits(0).json();
    let edit = document["jobs"][0]["edit"].as_str().map(str::to_owned);
    let text = scenario.run("check").exits(0).stdout;
    match &edit {
        Some(edit) => assert!(text.contains(&format!("  the edit {edit}\n")), "{text}"),
        None => assert!(!text.contains("the edit"), "{text}"),
    }
    assert!(scenario.files() == before, "foretelling changes nothing");
    edit
}

#[test]
fn an_unchanged_or_reworded_schedule_is_no_edit() {
    let scenario = three_nights_owed();
    assert_eq!(foretold(&scenario), None);
    scenario.configure(&job(&NIGHTS.replace("0 0 * * *", "@daily")));
    assert_eq!(foretold(&scenario), None);
    scenario.configure(&job(&format!(
        "{NIGHTS}\nexclude = ['2025-03-06']\nstart_at = '2025-01-01'"
    )));
    assert_eq!(foretold(&scenario), None);
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs"), [OWED[0], OWED[2]]);
}

#[test]
fn an_edit_is_foretold_with_what_it_leaves_out() {
    for edited in [
        NIGHTS.replace("0 0 * * *", "30 0 * * *"),
        NIGHTS.replace("UTC", "Asia/Tokyo"),
        NIGHTS.replace(
            "schedule = '0 0 * * *'",
            "every = '1d'\nanchor = '2025-01-01'",
        ),
        // The end moved later: what lay between is not due all of a sudden.
        NIGHTS.replace("03-07", "03-20"),
    ] {
        let scenario = three_nights_owed();
        scenario.configure(&job(&edited));
        let edit = foretold(&scenario).expect("an edit");
        assert!(
            edit.starts_with("replaces the schedule in force since 20"),
            "{edit}"
        );
        assert!(
            edit.contains("slots before now are not owed; left out: 3 slots (anchored), 2025-03-0"),
            "{edit}"
        );
        scenario
            .run("run j")
            .exits(0)
            .says(&["left out 3 slots (anchored)"]);
        assert!(scenario.lines("runs").is_empty());
        assert_eq!(
            scenario.skips(),
            ["2025-03-05T00:00Z..2025-03-07T00:00Z 3 anchored"]
        );
        assert_eq!(foretold(&scenario), None);
        // What was left out can still be run.
        scenario.run("run j").exits(0).says_nothing();
        assert!(scenario.lines("runs").is_empty());
    }
}

#[test]
fn an_end_moved_earlier_runs_nothing_and_loses_nothing_unsaid() {
    let scenario = three_nights_owed();
    scenario.configure(&job(&NIGHTS.replace("03-07", "03-05")));
    let edit = foretold(&scenario).expect("an edit");
    assert!(edit.contains("left out: 3 slots (anchored)"), "{edit}");
    scenario.run("run j").exits(0);
    assert!(scenario.lines("runs").is_empty());
    assert_eq!(
        scenario.skips(),
        ["2025-03-05T00:00Z..2025-03-07T00:00Z 3 anchored"]
    );
}

#[test]
fn an_edit_with_nothing_owed_says_so_and_the_slot_just_due_runs() {
    let scenario = three_nights_owed();
    scenario.run("run j").exits(0);
    scenario.configure(&job(&NIGHTS.replace("03-07", "03-20")));
    let edit = foretold(&scenario).expect("an edit");
    assert!(edit.ends_with("slots before now are not owed"), "{edit}");
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("runs"), OWED);
    assert!(scenario.skips().is_empty());
    // Within `start_grace` the newest slot of the new schedule is on time, and that is foretold too.
    let scenario = three_nights_owed();
    scenario.run("run j").exits(0);
    scenario.configure(&job(
        "schedule = '* * * * *'\ntimezone = 'UTC'\ncatch_up = 'each'\nearly_wait = '0s'",
    ));
    let edit = foretold(&scenario).expect("an edit");
    assert!(
        edit.contains("slots before now are not owed; runs: 20"),
        "{edit}"
    );
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("runs").len(), 4);
}

#[test]
fn a_roll_back_is_foretold_with_what_it_owes() {
    let scenario = three_nights_owed();
    scenario.configure(&job(&NIGHTS.replace("0 0 *", "30 0 *")));
    // Rolled back before any start saw the edit: as if it had not been.
    foretold(&scenario).expect("an edit");
    scenario.configure(&job(NIGHTS));
    assert_eq!(foretold(&scenario), None);
    // Rolled back after one did.
    scenario.configure(&job(&NIGHTS.replace("0 0 *", "30 0 *")));
    scenario.run("run j").exits(0);
    scenario.configure(&job(NIGHTS));
    let edit = foretold(&scenario).expect("an edit");
    assert!(
        edit.starts_with("goes back to a schedule of less than a day ago: what it owes since 20"),
        "{edit}"
    );
    scenario.run("run j").exits(0);
    // What the edit had left out stays on record, and nothing is due twice.
    assert!(scenario.lines("runs").is_empty());
    assert_eq!(
        scenario.skips(),
        ["2025-03-05T00:00Z..2025-03-07T00:00Z 3 anchored"]
    );
}

#[test]
fn a_job_put_back_after_a_month_owes_what_its_policy_says() {
    for (policy, runs) in [("each", 3), ("once", 1), ("skip", 0)] {
        let nights = NIGHTS.replace("each", policy);
        let scenario = Scenario::new(&job(&nights));
        scenario.run("cursor j --set 2025-03-04T12:00").exits(0);
        scenario.configure("[jobs.other]\ncommand = ['true']\n");
        scenario.run("run --all").exits(0).says_nothing();
        scenario.run("status").exits(0).answers(&["not-configured"]);
        scenario.configure(&job(&nights));
        assert_eq!(foretold(&scenario), None);
        scenario.run("run j").exits(0).says_nothing();
        assert_eq!(scenario.lines("runs").len(), runs, "{policy}");
        let left_out = i64::try_from(3 - runs).expect("small");
        assert_eq!(
            scenario.number("SELECT ifnull(sum(count), 0) FROM jobrun_skip"),
            left_out
        );
    }
}

#[test]
fn a_job_put_back_with_another_schedule_is_an_edit() {
    let scenario = three_nights_owed();
    scenario.configure("[jobs.other]\ncommand = ['true']\n");
    scenario.run("run --all").exits(0);
    scenario.configure(&job(&NIGHTS.replace("0 0 *", "30 0 *")));
    let edit = foretold(&scenario).expect("an edit");
    assert!(edit.contains("left out: 3 slots (anchored)"), "{edit}");
    scenario.run("run j").exits(0);
    assert!(scenario.lines("runs").is_empty());
}

#[test]
fn two_hosts_with_different_files_run_each_slot_once_and_are_warned() {
    if !is_root() || !has_program("unshare") {
        skip("a second host is made with `unshare --uts`, which needs root");
        return;
    }
    let scenario = three_nights_owed();
    let other = NIGHTS
        .replace("0 0 * * *", "0 0,12 * * *")
        .replace("03-07", "03-08");
    scenario.write(
        "other.toml",
        &format!("[store]\nurl = 'sqlite:jobrun.db'\n{}", job(&other)),
    );
    let on_other_host = |line: &str| {
        let script = format!(
            "hostname elsewhere && exec {} --config other.toml {line}",
            env!("CARGO_BIN_EXE_jobrun")
        );
        scenario
            .spawn(scenario.program("unshare", ["--uts", "sh", "-c", &script]))
            .wait()
    };
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs"), OWED);
    let edit = on_other_host("check").exits(0).stdout;
    assert!(
        edit.contains("the edit replaces the schedule in force"),
        "{edit}"
    );
    on_other_host("run j").exits(0);
    // Back and forth: neither anchors from now on, so what falls due is owed, to whoever starts.
    scenario.move_cursor("j", "2025-03-04T12:00:00Z");
    scenario.run("run j").exits(0);
    let noons = ["05", "06", "07"].map(|day| format!("2025-03-{day}T12:00:00Z"));
    for round in 0..3 {
        scenario.move_cursor("j", "2025-03-05T06:00:00Z");
        let check = on_other_host("check").exits(0).stdout;
        assert!(
            check.contains("the edit goes back to a schedule of less than a day ago: what it owes since 2025-03-05T06:00"),
            "{check}"
        );
        on_other_host("run j").exits(0).says(&[WARNED]);
        scenario.move_cursor("j", "2025-03-04T12:00:00Z");
        scenario
            .run("run j")
            .exits(0)
            .says(&["the one last used by `elsewhere`", WARNED]);
        let mut runs = scenario.lines("runs");
        runs.sort();
        // The slots of both, and none other, each once.
        let mut all: Vec<String> = OWED.iter().map(|slot| (*slot).to_owned()).collect();
        all.extend(noons.iter().cloned().chain([
            "2025-03-08T00:00:00Z".to_owned(),
            "2025-03-08T12:00:00Z".to_owned(),
        ]));
        all.sort();
        assert_eq!(runs, all, "round {round}");
    }
    let hosts = scenario.query::<String>("SELECT DISTINCT host FROM jobrun_schedule ORDER BY id");
    assert_eq!(hosts.len(), 2);
}

#[test]
fn both_hosts_are_named_when_their_files_differ() {
    if !is_root() || !has_program("unshare") {
        skip("a second host is made with `unshare --uts`, which needs root");
        return;
    }
    let scenario = three_nights_owed();
    scenario.configure(&job(&NIGHTS.replace("0 0 *", "30 0 *")));
    scenario.run("run j").exits(0);
    scenario.move_cursor("j", "2025-03-04T12:00:00Z");
    scenario.configure(&job(NIGHTS));
    let first = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let script = format!(
        "hostname elsewhere && exec {} run j",
        env!("CARGO_BIN_EXE_jobrun")
    );
    let ended = scenario
        .spawn(scenario.program("unshare", ["--uts", "sh", "-c", &script]))
        .wait();
    ended
        .exits(0)
        .says(&[WARNED, &format!("`{first}`"), "`elsewhere`"]);
}

#[test]
fn a_roll_back_is_in_force_again_though_nothing_is_owed_then() {
    let scenario = three_nights_owed();
    scenario.run("run j").exits(0);
    scenario.configure(&job(&NIGHTS.replace("0 0 *", "30 0 *")));
    scenario.run("run j").exits(0);
    // Rolled back an hour later, and triggered ever since.
    scenario.configure(&job(NIGHTS));
    scenario.run("run j").exits(0);
    assert_eq!(foretold(&scenario), None, "it is in force");
    // More than a day later a slot falls due, and is missed for a while: it is owed as any other.
    scenario.execute("UPDATE jobrun_schedule SET from_at = from_at - 30 * 3600000; DELETE FROM jobrun_task WHERE slot = (SELECT max(slot) FROM jobrun_task)");
    scenario.move_cursor("j", "2025-03-06T12:00:00Z");
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("runs").len(), 4, "{:?}", scenario.skips());
}

#[test]
fn a_job_put_back_is_foretold_with_what_it_owes() {
    let scenario = three_nights_owed();
    scenario.configure("[jobs.other]\ncommand = ['true']\n");
    scenario.run("run --all").exits(0);
    scenario.configure(&job(NIGHTS));
    scenario
        .run("check")
        .exits(0)
        .answers(&["3 slots", "2025-03-05T00:00"]);
}
