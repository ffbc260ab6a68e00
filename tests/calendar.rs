//! Slots as people meet them, through `next`, `slots` and `check`: intervals, counted weekdays, excluded days, zones.

mod support;

use support::{Scenario, has_program, is_root, skip};

fn job(keys: &str) -> Scenario {
    Scenario::new(&format!("[jobs.j]\n{keys}\ncommand = ['true']\n"))
}

/// The slots of a range in UTC, as `slots` lists them, without their seconds.
fn slots(scenario: &Scenario, from: &str, to: &str) -> Vec<String> {
    column(scenario, from, to, "slot")
}

fn column(scenario: &Scenario, from: &str, to: &str, name: &str) -> Vec<String> {
    let line = format!("slots j --from {from} --to {to} --json");
    let answer = scenario.run(&line).exits(0).json();
    let slots = answer["slots"].as_array().expect("slots").iter();
    slots
        .map(|slot| slot[name].as_str().expect(name).to_owned())
        .collect()
}

/// Days of March 2025 on which there is a slot.
fn march(keys: &str) -> Vec<u32> {
    let days = column(&job(keys), "2025-03-01", "2025-03-31", "slot_local");
    days.iter()
        .map(|slot| slot[8..10].parse().expect("a day"))
        .collect()
}

#[test]
fn days_counted_from_the_end_and_weekdays_of_a_month() {
    for (schedule, days) in [
        ("0 9 L * *", vec![31]),
        ("0 9 * * 5L", vec![28]),
        ("0 9 * * 1#1", vec![3]),
        ("0 9 * * SUN#1", vec![2]),
        ("0 9 * * 6#5", vec![29]),
        ("0 9 15W * *", vec![14]),
        ("0 9 1W * *", vec![3]),
        ("0 9 * * 1#1,1#3", vec![3, 17]),
    ] {
        let keys = format!("schedule = '{schedule}'\ntimezone = 'Europe/Berlin'");
        assert_eq!(march(&keys), days, "{schedule}");
    }
}

#[test]
fn every_two_weeks_keeps_its_wall_clock_across_the_change_to_summer_time() {
    let scenario = job("every = '2w'\nanchor = '2025-01-06T09:00'\ntimezone = 'Europe/Berlin'");
    assert_eq!(
        slots(&scenario, "2025-03-01", "2025-04-15"),
        [
            "2025-03-03T08:00:00Z",
            "2025-03-17T08:00:00Z",
            "2025-03-31T07:00:00Z",
            "2025-04-14T07:00:00Z"
        ]
    );
    // Before its anchor there is none, and hours are elapsed time.
    assert!(slots(&scenario, "2024-12-01", "2025-01-05").is_empty());
    let scenario = job("every = '90m'\nanchor = '2025-03-30T00:00'\ntimezone = 'Europe/Berlin'");
    assert_eq!(
        column(&scenario, "2025-03-30", "2025-03-30T06:00", "slot_local"),
        [
            "00:00:00+01:00",
            "01:30:00+01:00",
            "04:00:00+02:00",
            "05:30:00+02:00"
        ]
        .map(|time| format!("2025-03-30T{time}"))
    );
}

#[test]
fn an_interval_needs_a_start_and_a_sound_pace() {
    for (keys, said) in [
        ("every = '2w'", "`every = \"2w\"` needs an `anchor`"),
        ("every = '1mo'", "jobs.toml:2:"),
        ("every = '500ms'", "jobs.toml:2:"),
        (
            "every = '1d'\nanchor = '2025-01-06T09:00:00Z'",
            "has an offset from UTC",
        ),
        (
            "every = '1d'\nanchor = '2025-01-06T09:00+01:00'",
            "has an offset from UTC",
        ),
        (
            "every = '1d'\nanchor = '2025-01-06'\nschedule = '0 9 * * *'",
            "`schedule` and `every` are both given",
        ),
        (
            "anchor = '2025-01-06'\nschedule = '0 9 * * *'",
            "`anchor` is given without `every`",
        ),
    ] {
        job(&format!("{keys}\ntimezone = 'UTC'"))
            .run("check")
            .exits(78)
            .says(&[said]);
    }
}

#[test]
fn excluded_days_have_no_slot_and_are_recorded() {
    let scenario = Scenario::new(
        "[jobs.j]\nschedule = '0 9 * * *'\ntimezone = 'Europe/Berlin'\nstart_at = '2025-03-01'\nend_at = '2025-03-10'
         exclude = ['sat', '2025-03-05', '03-06']\nexclude_file = 'holidays'\ncatch_up = 'each'
         shell = 'echo $JOBRUN_SLOT $JOBRUN_INTERVAL_START >> runs'",
    );
    scenario.write("holidays", "# of the town\n2025-03-10  # fair\n\n");
    scenario
        .run("run j -v")
        .exits(0)
        .says(&["left out 5 slots (excluded)"]);
    let runs = scenario.lines("runs");
    let days: Vec<&str> = runs.iter().map(|run| &run[8..10]).collect();
    assert_eq!(days, ["02", "03", "04", "07", "09"]);
    // The next run covers what was left out.
    assert_eq!(runs[3], "2025-03-07T09:00:00+01:00 2025-03-04T08:00:00Z");
    assert_eq!(
        scenario.skips(),
        ["2025-03-01T08:00Z..2025-03-10T08:00Z 5 excluded"]
    );
    let states = column(&scenario, "2025-03-01", "2025-03-10", "state");
    let states: Vec<&str> = states.iter().map(|state| &state[..3]).collect();
    assert_eq!(
        states,
        [
            "ski", "suc", "suc", "suc", "ski", "ski", "suc", "ski", "suc", "ski"
        ]
    );
}

#[test]
fn excluded_days_are_not_among_the_next() {
    let scenario = job(
        "schedule = '0 9 * * *'\ntimezone = 'UTC'\nexclude = ['mon', 'tue', 'wed', 'thu', 'fri']",
    );
    let next = scenario.run("next j -n 6 --json").exits(0).json();
    for slot in next["slots"].as_array().expect("slots") {
        let date: chrono::NaiveDate = slot["nominal"].as_str().expect("a time")[..10]
            .parse()
            .expect("a date");
        assert!(
            chrono::Datelike::weekday(&date).number_from_monday() > 5,
            "{date}"
        );
    }
    let all = job("schedule = '0 9 * * 6'\ntimezone = 'UTC'\nexclude = ['sat']");
    all.run("next j").exits(0).answers(&["j: no further slot"]);
    all.run("check")
        .exits(0)
        .says(&["every slot of the next year is excluded"]);
    all.run("status").exits(0);
}

#[test]
fn a_fault_in_a_file_of_days_is_shown_in_that_file() {
    let scenario = job("schedule = '0 9 * * *'\ntimezone = 'UTC'\nexclude_file = 'holidays'");
    scenario
        .run("check")
        .exits(78)
        .says(&["cannot read `", "holidays`", "relative to jobs.toml"]);
    scenario.write("holidays", "2025-03-10\n2025-02-30\nsaturdya\n");
    scenario.run("check").exits(78).says(&[
        "holidays:2:1",
        "holidays:3:1",
        "did you mean `saturday`?",
    ]);
}

/// P19
#[test]
fn a_schedule_that_never_fires_hangs_nowhere() {
    let scenario = job("schedule = '0 0 31 2 *'\ntimezone = 'UTC'");
    scenario
        .run("check")
        .exits(0)
        .says(&["it never fires", "leave `schedule` out"]);
    for line in [
        "run j",
        "run j --dry-run",
        "status",
        "slots j --from 1970-01-01 --to 2100-01-01",
        "cursor j --set 2025-01-01",
        "run j",
    ] {
        scenario.run(line).exits(0);
    }
    scenario
        .run("next j")
        .exits(0)
        .answers(&["j: no further slot"]);
    scenario.run("run j --slot 2025-02-28").exits(64);
}

/// P20
#[test]
fn a_time_that_comes_twice_is_one_slot() {
    let scenario = job("schedule = '0 2 * * *'\ntimezone = 'Europe/Berlin'");
    assert_eq!(
        slots(&scenario, "2025-10-25", "2025-10-27"),
        [
            "2025-10-25T00:00:00Z",
            "2025-10-26T00:00:00Z",
            "2025-10-27T01:00:00Z"
        ]
    );
    let scenario = job("schedule = '30 1 * * *'\ntimezone = 'America/New_York'");
    assert_eq!(
        slots(&scenario, "2025-11-01", "2025-11-03"),
        [
            "2025-11-01T05:30:00Z",
            "2025-11-02T05:30:00Z",
            "2025-11-03T06:30:00Z"
        ]
    );
}

/// P21
#[test]
fn a_time_that_does_not_exist_is_one_slot_later_and_marked() {
    let scenario = job("schedule = '30 2 * * *'\ntimezone = 'Europe/Berlin'");
    assert_eq!(
        slots(&scenario, "2025-03-29", "2025-03-31"),
        [
            "2025-03-29T01:30:00Z",
            "2025-03-30T01:00:00Z",
            "2025-03-31T00:30:00Z"
        ]
    );
    let table = scenario
        .run("slots j --from 2025-03-30 --to 2025-03-30")
        .exits(0);
    assert!(
        table.stdout.contains("2025-03-30T03:00:00+02:00")
            && table.stdout.contains("02:30 does not exist that day")
    );
}

/// P22
#[test]
fn quarters_of_an_hour_follow_real_time() {
    let scenario = job("schedule = '*/15 * * * *'\ntimezone = 'Europe/Berlin'");
    for (day, count) in [("2025-10-26", 100), ("2025-03-30", 92)] {
        let slots = slots(&scenario, day, day);
        assert_eq!(slots.len(), count, "{day}");
        let millis: Vec<i64> = slots.iter().map(|slot| support::millis(slot)).collect();
        assert!(
            millis
                .windows(2)
                .all(|pair| pair[1] - pair[0] == 15 * 60 * 1000)
        );
    }
}

/// P23
#[test]
fn a_change_of_clocks_is_no_flood_of_lines() {
    let scenario = Scenario::job(
        "schedule = '0 * * * *'\ntimezone = 'America/Los_Angeles'\nstart_at = '2025-03-09'\nend_at = '2025-03-09'
         catch_up = 'each'\nshell = 'echo $JOBRUN_SLOT >> runs'",
    );
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 23);
}

/// P24
#[test]
fn every_time_has_its_offset_whatever_the_hosts_zone() {
    let scenario = job("schedule = '0 9 * * *'\ntimezone = 'America/New_York'").env("TZ", "UTC");
    let hours: Vec<String> = slots(&scenario, "2025-03-07", "2025-03-11")
        .iter()
        .map(|slot| slot[11..13].to_owned())
        .collect();
    assert_eq!(hours, ["14", "14", "13", "13", "13"]);
    let local = column(&scenario, "2025-03-08", "2025-03-09", "slot_local");
    assert_eq!(
        local,
        ["2025-03-08T09:00:00-05:00", "2025-03-09T09:00:00-04:00"]
    );
}

/// P26
#[test]
fn without_the_systems_zones_slots_are_right() {
    if !is_root() || !has_program("unshare") {
        skip("the system's zones are hidden in a mount namespace, which needs root");
        return;
    }
    let scenario = job("schedule = '0 9 * * *'\ntimezone = 'Europe/Madrid'");
    let hidden = |line: &str| {
        let script = format!(
            "mount -t tmpfs none /usr/share/zoneinfo && [ -z \"$(ls /usr/share/zoneinfo)\" ] || exit 99; exec {} {line}",
            env!("CARGO_BIN_EXE_jobrun")
        );
        scenario
            .spawn(scenario.program("unshare", ["-m", "sh", "-c", &script]))
            .wait()
    };
    if !std::path::Path::new("/usr/share/zoneinfo").is_dir() {
        skip("there are no zones of the system to hide");
        return;
    }
    let answer = hidden("slots j --from 2025-03-29 --to 2025-03-30 --json");
    if answer.code() == Some(1) && answer.stderr.contains("unshare") {
        skip("a mount namespace cannot be made here");
        return;
    }
    let answer = answer.exits(0).json();
    let utc: Vec<&str> = (0..2)
        .map(|place| answer["slots"][place]["slot"].as_str().expect("a slot"))
        .collect();
    assert_eq!(utc, ["2025-03-29T08:00:00Z", "2025-03-30T07:00:00Z"]);
    hidden("check").exits(0).answers(&["(bundled)"]);
    scenario.configure(
        "[jobs.j]\nschedule = '0 9 * * *'\ntimezone = 'Europe/Madird'\ncommand = ['true']",
    );
    hidden("run j")
        .exits(78)
        .says(&["Europe/Madird", "did you mean `Europe/Madrid`?"]);
}

/// P69
#[test]
fn two_day_fields_are_warned_about_in_words_and_dates() {
    for (schedule, count, warns) in [
        ("0 0 1-7 * 1", 124, true),
        ("30 4 1,15 * 5", 74, true),
        ("0 0 */2 * 3", 27, false),
    ] {
        let scenario = job(&format!("schedule = '{schedule}'\ntimezone = 'UTC'"));
        assert_eq!(
            slots(&scenario, "2025-01-01", "2025-12-31").len(),
            count,
            "{schedule}"
        );
        let said = scenario.run("check").exits(0).stderr;
        assert_eq!(said.contains("it runs when either fits"), warns, "{said}");
        // A date a comma, and the way out after the last.
        let dates = said.split("the next dates are ").nth(1).map_or(0, |dates| {
            dates
                .split(';')
                .next()
                .unwrap_or_default()
                .split(", ")
                .count()
        });
        assert_eq!(dates, if warns { 5 } else { 0 }, "{said}");
    }
}

/// P70
#[test]
fn steps_and_fields_of_other_dialects_are_answered() {
    let scenario = job("schedule = '*/45 * * * *'\ntimezone = 'UTC'");
    scenario
        .run("check")
        .exits(0)
        .says(&["gaps of 45 and 15 minutes"]);
    let scenario = job("schedule = '*/7 * * * *'\ntimezone = 'UTC'");
    scenario
        .run("check")
        .exits(0)
        .says(&["gaps of 7 and 4 minutes"]);
    for (schedule, said) in [
        ("*/90 * * * *", "every = \"90m\""),
        ("*/45 11-2 * * *", "11-23,0-2"),
        ("0 30 * * *", "minute and hour swapped?"),
        ("0 0 12 * * ?", "seconds"),
        ("0 0 12 * * ? *", "this one has 7"),
    ] {
        job(&format!("schedule = '{schedule}'\ntimezone = 'UTC'"))
            .run("check")
            .exits(78)
            .says(&["jobs.toml:2:", said]);
    }
}

/// P68
#[test]
fn every_typo_of_a_file_is_found_in_one_go() {
    let scenario = Scenario::new(
        "timeout = '1h'\n[job.backup]\ncommand = ['true']\n[jobs.a]\ntimout = '5m'\nshell = 'echo x >> runs'\n\
         [jobs.b]\ntimeout = '5 minuts'\nshell = 'echo x >> runs'\n[jobs.c]\ntimeout = 5\nshell = 'echo x >> runs'\n",
    );
    scenario.run("run a").exits(78).says(&[
        "jobs.toml:1:1",
        "jobs.toml:2:2",
        "jobs.toml:5:1",
        "did you mean `timeout`?",
        "did you mean `jobs`?",
        "jobs.toml:8:11",
        "jobs.toml:11:11",
        "5 faults in ",
    ]);
    assert!(scenario.lines("runs").is_empty() && !scenario.path("jobrun.db").exists());
    Scenario::new("[jobs.a]\ncommand = ['true']\n[jobs.a]\ncommand = ['true']\n")
        .run("run a")
        .exits(78)
        .says(&["jobs.toml:3:"]);
}
