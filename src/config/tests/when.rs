//! Intervals, excluded days, and the warnings that need a clock.

use super::*;
use crate::domain::schedule::{Instant, Timetable};

fn now() -> Instant {
    "2026-11-30T18:00:00Z".parse().expect("an instant")
}

fn timetable(lines: &str) -> Timetable {
    let mut config = config(&job_with(lines));
    config.jobs.remove(0).timetable.expect("a timetable")
}

/// The warnings of a file as of 2026-11-30, as `line:column message (hint)`.
fn warnings(mut config: Config) -> Vec<String> {
    config.look_ahead(now());
    said(&config.faults, Level::Warning)
}

/// A file with one daily job that leaves out the days of `days.txt`, which is beside it.
fn with_days(days: &str) -> (tempfile::TempDir, Result<Config, Error>) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("days.txt"), days).expect("written");
    let text = job_with("schedule = \"@daily\"\nexclude_file = \"days.txt\"");
    let path = folder.path().join("jobs.toml");
    let config = parse(&path, &text, &around(), TzData::newest());
    (folder, config)
}

#[test]
fn an_interval_counts_from_its_anchor() {
    for (lines, texts) in [
        ("every = \"90m\"", "every 1h 30m from 1970-01-01T00:00"),
        (
            "every = \"90m\"\nanchor = \"2026-01-05T09:00:30\"",
            "every 1h 30m from 2026-01-05T09:00:30",
        ),
        (
            "every = \"2w\"\nanchor = 2026-01-05T09:00:00",
            "every 2w from 2026-01-05T09:00",
        ),
        (
            "every = \"2d\"\nanchor = 2026-01-05",
            "every 2d from 2026-01-05T00:00",
        ),
    ] {
        assert_eq!(timetable(lines).texts(), [texts]);
    }
}

#[test]
fn an_interval_of_the_job_takes_the_place_of_the_defaults_schedule() {
    let config = config(
        "[defaults]\ntimezone = \"UTC\"\nschedule = \"@daily\"\nanchor = \"2026-01-05\"\nshell = \"x\"\n\
         [jobs.a]\nevery = \"2d\"\n[jobs.b]\n[jobs.c]\nschedule = \"@hourly\"\n",
    );
    let texts: Vec<String> = config
        .jobs
        .iter()
        .flat_map(|job| job.timetable.as_ref().expect("a timetable").texts())
        .collect();
    assert_eq!(
        texts,
        ["every 2d from 2026-01-05T00:00", "0 0 * * *", "0 * * * *"]
    );
}

#[test]
fn a_wrong_interval_says_what_would_be_right() {
    for (lines, message) in [
        (
            "every = \"1M\"\nanchor = \"2026-01-01\"",
            "4:9 `1M`: months differ in length, so they are no interval (write it as cron",
        ),
        (
            "every = \"500ms\"",
            "4:9 `500ms` is not a whole number of seconds",
        ),
        (
            "every = 90",
            "4:9 `every` is a number without a unit (write the unit",
        ),
        (
            "every = \"1d\"",
            "4:9 `every = \"1d\"` needs an `anchor` (add a line such as `anchor = \"2026-",
        ),
        ("every = \"36h\"", "needs an `anchor`"),
        (
            "every = \"1d\"\nanchor = \"noon\"",
            "5:10 `noon` is not a local date-time such as",
        ),
        (
            "every = \"1d\"\nanchor = 2026-01-05T09:00:00Z",
            "has an offset from UTC",
        ),
        (
            "every = \"1d\"\nanchor = 2026-01-05\nschedule = \"@daily\"",
            "4:9 `schedule` and `every` are both given (keep one",
        ),
        (
            "schedule = \"@daily\"\nanchor = \"2026-01-05\"",
            "5:10 `anchor` is given without `every`",
        ),
        (
            "anchor = \"2026-01-05\"",
            "4:10 `anchor` is given without `every` (an interval has one",
        ),
    ] {
        let said = faults(&job_with(lines)).join("\n");
        assert!(said.contains(message), "{lines}: {said}");
    }
    let said = faults("[jobs.j]\nshell = \"x\"\nevery = \"90m\"\n");
    assert!(
        said[0].starts_with("3:9 `every` needs a `timezone` (add a line"),
        "{said:?}"
    );
}

#[test]
fn hours_that_make_days_are_warned_about() {
    let said = warnings(config(&job_with(
        "every = \"48h\"\nanchor = \"2026-01-05T09:00\"",
    )));
    assert!(
        said[0].starts_with("4:9 `48h` is elapsed time") && said[0].contains("`2d`"),
        "{said:?}"
    );
    assert!(
        warnings(config(&job_with(
            "every = \"2d\"\nanchor = \"2026-01-05T09:00\""
        )))
        .is_empty()
    );
}

#[test]
fn excluded_days_are_read_from_the_key_and_from_the_file() {
    let read = config(&job_with(
        "schedule = \"@daily\"\nexclude = [2026-12-24, \"12-25\", \"Sat\", \"sunday\"]",
    ));
    let exclusions = &read.jobs[0].catch_up.exclusions;
    let is_excluded = |date: &str| exclusions.is_excluded(date.parse().expect("a date"));
    assert!(
        ["2026-12-24", "2030-12-25", "2026-12-05", "2026-12-06"]
            .into_iter()
            .all(is_excluded)
    );
    assert!(!is_excluded("2026-12-04"));
    let (_folder, config) = with_days("# holidays\n\n2026-12-24 # eve\n02-29\n");
    let exclusions = &config.unwrap_or_else(|error| panic!("{error}")).jobs[0]
        .catch_up
        .exclusions;
    assert_eq!(
        (exclusions.dates.len(), exclusions.month_days.len()),
        (1, 1)
    );
}

#[test]
fn a_faulty_day_has_its_place_also_in_the_file_of_days() {
    let said = faults(&job_with(
        "schedule = \"@daily\"\nexclude = [\"12-25\", \"saturdy\"]",
    ));
    assert_eq!(
        said,
        ["5:21 `saturdy` is not a day to exclude (did you mean `saturday`?)"]
    );
    let (folder, config) = with_days("12-25\n  25-12 # swapped\n");
    let said = config.expect_err("faulty").to_string();
    let place = format!("--> {}:2:3\n", folder.path().join("days.txt").display());
    assert!(said.contains(&place), "{said}");
    assert!(
        said.contains("2 |   25-12 # swapped\n  |   ^^^^^\nhint: the month comes first: `12-25`"),
        "{said}"
    );
}

#[test]
fn a_file_of_days_that_cannot_be_read_is_a_fault_of_the_key() {
    let said = faults(&job_with(
        "schedule = \"@daily\"\nexclude_file = \"none.txt\"",
    ));
    assert!(
        said[0].starts_with("5:16 cannot read `/etc/jobrun/none.txt`: no such file"),
        "{said:?}"
    );
}

#[test]
fn two_day_fields_are_shown_with_their_next_dates() {
    let said = warnings(config(&job_with(
        "schedule = [\"@daily\", \"*/5 0 1-7 * 1\", \"0 0 13 * 5\"]",
    )));
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].starts_with("4:23 day of month and day of week are both given")
            && said[0].ends_with(
                "(the next dates are Tue 2026-12-01, Wed 2026-12-02, Thu 2026-12-03, Fri 2026-12-04, Sat 2026-12-05; \
                 if both are to hold, write `*/5 0 * * 1#1`)"
            ),
        "{said:?}"
    );
    assert!(
        said[1].ends_with(
            "(the next dates are Fri 2026-12-04, Fri 2026-12-11, Sun 2026-12-13, Fri 2026-12-18, Fri 2026-12-25; \
             start one of the two fields with `*` to have both hold)"
        ),
        "{said:?}"
    );
}

#[test]
fn a_schedule_whose_every_slot_is_excluded_is_warned_about() {
    for (lines, column) in [
        (
            "schedule = \"0 9 * * sat\"\nexclude = [\"sun\", \"sat\"]",
            "5:12",
        ),
        (
            "every = \"1w\"\nanchor = \"2026-01-03T09:00\"\nexclude = \"sat\"",
            "6:11",
        ),
        ("schedule = \"0 9 24 12 *\"\nexclude = \"12-24\"", "5:11"),
    ] {
        let said = warnings(config(&job_with(lines)));
        assert!(
            said[0].starts_with(&format!("{column} every slot of the next year is excluded")),
            "{said:?}"
        );
    }
    assert!(
        warnings(config(&job_with(
            "schedule = \"@daily\"\nexclude = [\"sat\", \"sun\"]"
        )))
        .is_empty()
    );
}
