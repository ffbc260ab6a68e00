//! Output that goes to a file of the caller, which needs all of it.

use super::super::{Exit, How};
use super::*;
use std::fs::File;
use std::sync::Arc;

fn into(file: File, script: &str) -> Command {
    Command {
        stdout_file: Some(Arc::new(file)),
        ..shell(script)
    }
}

#[test]
fn all_of_standard_output_and_nothing_else_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list");
    let command = into(
        File::create(&path).unwrap(),
        "echo first; echo no >&2; seq 1000000; echo nor this >&2",
    );
    let ended = run(&command);
    assert_eq!(ended.stdout_file_error, None);
    let list = std::fs::read_to_string(path).unwrap();
    assert_eq!(list.len() as u64, ended.bytes_stdout);
    assert!(list.starts_with("first\n1\n") && list.ends_with("\n1000000\n"));
    assert_eq!(list.lines().count(), 1_000_001);
    assert!(ended.output.bytes.len() <= 2 * 4096, "kept as ever");
}

#[test]
fn what_a_descendant_writes_at_the_very_end_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list");
    let script = "(sleep 0.2; seq 10000) & exit 0";
    run(&into(File::create(&path).unwrap(), script));
    let list = std::fs::read_to_string(path).unwrap();
    assert!(list.ends_with("\n10000\n"));
}

#[test]
fn a_full_disk_ends_the_command_and_is_told() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ended = run(&into(full, "echo begin; sleep 60 & sleep 60"));
    assert_eq!(ended.stdout_file_error, Some(libc::ENOSPC));
    assert_eq!(ended.exit, Some(Exit::Signal(libc::SIGTERM)));
    assert!(matches!(ended.how, How::Exited));
    assert!(ended.duration < Duration::from_secs(10));
    assert!(!ended.was_killed && ended.leftover_count == 0);
}

#[test]
fn a_full_disk_is_told_though_the_command_ended_well() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ended = run(&into(full, "echo all of it"));
    assert_eq!(ended.stdout_file_error, Some(libc::ENOSPC));
}
