//! What a command finds when it starts, and why it could not.

use super::super::sys::BlockedSignals;
use super::super::{Exit, How, Leash, StartFailure};
use super::*;
use std::path::PathBuf;

fn failure(command: &Command) -> StartFailure {
    let ended = run(command);
    assert_eq!((ended.exit, ended.pid), (None, None));
    match ended.how {
        How::NotStarted(failure) => failure,
        how => panic!("{how:?}"),
    }
}

/// Written by another process: a fork of a test beside this one could else hold the file open for writing, and no
/// kernel executes such a file.
fn file(directory: &Path, name: &str, content: &str, mode: &str) -> PathBuf {
    let path = directory.join(name);
    let status = std::process::Command::new("sh")
        .args(["-c", "printf %b \"$2\" > \"$1\"; chmod \"$3\" \"$1\"", "sh"])
        .args([path.as_os_str(), content.as_ref(), mode.as_ref()])
        .status()
        .unwrap();
    assert!(status.success());
    path
}

#[test]
fn the_exit_code_is_passed_unchanged() {
    for code in [0, 3, 255] {
        let ended = run(&shell(&format!("exit {code}")));
        assert!(matches!(ended.how, How::Exited));
        assert_eq!(ended.exit, Some(Exit::Code(code)));
        assert!(!ended.was_killed && ended.leftover_count == 0);
    }
}

#[test]
fn death_by_a_signal_is_told_from_an_exit() {
    let ended = run(&shell("kill -9 $$"));
    assert!(matches!(ended.how, How::Exited));
    assert_eq!(ended.exit, Some(Exit::Signal(9)));
}

#[test]
fn the_environment_is_exactly_the_given_one() {
    let mut command = command(&["/usr/bin/env"]);
    command.env = vec![("A".into(), "1=2".into()), ("EMPTY".into(), "".into())];
    assert_eq!(text(&run(&command)), "A=1=2\nEMPTY=\n");
}

#[test]
fn stdin_is_empty_and_the_directory_the_given_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = shell("cat; pwd -P");
    command.cwd = Some(directory.path().to_path_buf());
    let wanted = format!("{}\n", directory.path().canonicalize().unwrap().display());
    assert_eq!(text(&run(&command)), wanted);
}

#[test]
fn no_descriptor_but_the_three_is_inherited() {
    // Without CLOEXEC, as a careless caller of jobrun may leave one.
    let _leaked = rustix::io::dup(rustix::stdio::stderr()).unwrap();
    assert_eq!(
        text(&run(&shell(
            "for fd in /proc/$$/fd/*; do [ -e $fd ] && echo ${fd##*/}; done"
        ))),
        "0\n1\n2\n"
    );
}

#[test]
fn signals_are_neither_blocked_nor_ignored_and_the_session_is_its_own() {
    let blocked = BlockedSignals::all();
    let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status; \
                  read -r _ _ _ _ group session rest < /proc/$$/stat; \
                  [ $group = $$ ] && [ $session = $$ ] && echo own";
    let ended = run(&shell(script));
    drop(blocked);
    assert_eq!(
        text(&ended),
        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nown\n"
    );
}

#[test]
fn a_missing_command_is_not_found() {
    let searched = failure(&command(&["no-such-command-anywhere"]));
    assert_eq!(
        searched.to_string(),
        format!("command `no-such-command-anywhere` not found in PATH `{PATH}`")
    );
    let full = failure(&command(&["/no/such/command"]));
    assert_eq!(full.to_string(), "command `/no/such/command` not found");
    let empty = failure(&command(&[""]));
    assert!(matches!(empty, StartFailure::NotFound { .. }));
}

#[test]
fn the_path_searched_is_that_of_the_command() {
    let directory = tempfile::tempdir().unwrap();
    file(directory.path(), "tool", "#!/bin/sh\\necho found\\n", "755");
    let mut command = command(&["tool"]);
    let path = format!("/nowhere:{}", directory.path().display());
    command.env = vec![("PATH".into(), path.into())];
    assert_eq!(text(&run(&command)), "found\n");
}

#[test]
fn files_that_cannot_be_executed_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let start = |name, content, mode| {
        let path = file(directory.path(), name, content, mode);
        (failure(&command(&[path.to_str().unwrap()])), path)
    };
    let (plain, path) = start("plain", "#!/bin/sh\\n", "644");
    assert_eq!(plain, StartFailure::NotExecutable { file: path });
    let (bare, path) = start("bare", "echo hello\\n", "755");
    assert_eq!(bare, StartFailure::NoShebang { file: path });
    let (lost, path) = start("lost", "#! /no/such/shell -e\\n", "755");
    let interpreter = Some("/no/such/shell".into());
    assert_eq!(
        lost,
        StartFailure::BadInterpreter {
            file: path,
            interpreter
        }
    );
    let (windows, path) = start("windows", "#!/bin/sh\\r\\necho\\r\\n", "755");
    let interpreter = Some("/bin/sh\r".into());
    assert!(windows.hint().unwrap().contains("dos2unix"));
    assert!(windows.to_string().contains(r"`/bin/sh\r`"));
    assert_eq!(
        windows,
        StartFailure::BadInterpreter {
            file: path,
            interpreter
        }
    );
}

#[test]
fn a_relative_command_is_meant_from_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    file(directory.path(), "bare", "echo hello\\n", "755");
    let mut command = command(&["./bare"]);
    command.cwd = Some(directory.path().to_path_buf());
    let wanted = StartFailure::NoShebang {
        file: "./bare".into(),
    };
    assert_eq!(failure(&command), wanted);
}

#[test]
fn a_directory_that_cannot_be_entered_is_named() {
    let mut command = shell("true");
    command.cwd = Some("/no/such/directory".into());
    let failure = failure(&command);
    assert!(matches!(failure, StartFailure::BadCwd { .. }));
    assert!(
        failure
            .to_string()
            .starts_with("cannot enter directory `/no/such/directory`: ")
    );
}

#[test]
fn a_nul_byte_in_an_argument_is_refused() {
    let failure = failure(&command(&["echo", "a\0b"]));
    assert_eq!(
        failure,
        StartFailure::Other {
            errno: libc::EINVAL
        }
    );
}

#[test]
fn nothing_is_begun_once_the_leash_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = shell("echo x > ran; sleep 60");
    command.cwd = Some(folder.path().to_owned());
    let leash = Leash::new().unwrap();
    leash.cut();
    let shared = Shared {
        locks: &[],
        leash: Some(&leash),
    };
    let (signals, _sender) = Signals::pretended();
    let mut sink = Sink::new(LiveStream::Discard);
    let ended = supervise(&command, shared, &signals, &mut sink, &mut || {}).unwrap();
    assert!(matches!(ended.how, How::LockLost), "{:?}", ended.how);
    assert_eq!(ended.pid, None);
    assert!(!folder.path().join("ran").exists());
}

#[test]
fn a_leash_that_ends_takes_the_tree_with_it() {
    let leash = Leash::new().unwrap();
    leash.extend(crate::clock::since_boot() + Duration::from_millis(200));
    let shared = Shared {
        locks: &[],
        leash: Some(&leash),
    };
    let (signals, _sender) = Signals::pretended();
    let mut sink = Sink::new(LiveStream::Discard);
    let command = shell("sleep 60 & sleep 60");
    let ended = supervise(&command, shared, &signals, &mut sink, &mut || {}).unwrap();
    assert!(matches!(ended.how, How::LockLost), "{:?}", ended.how);
    assert!(ended.duration < Duration::from_secs(10));
}

#[test]
fn a_payload_arrives_whole_and_a_second_time_as_well() {
    let payload: Vec<u8> = (0..=250).cycle().take(1024 * 1024).collect();
    let mut command = command(&["cat"]);
    command.stdin = Some(payload.clone());
    command.output_keep = 2 * payload.len();
    for _ in 0..2 {
        assert!(run(&command).output.bytes == payload);
    }
}

#[test]
fn a_payload_that_nobody_reads_holds_nobody_up() {
    let mut command = shell("exec <&-; exit 3");
    command.stdin = Some(vec![b'x'; 1024 * 1024]);
    let ended = run(&command);
    assert_eq!(ended.exit, Some(Exit::Code(3)));
    assert!(matches!(ended.how, How::Exited));
}

#[test]
fn an_empty_payload_is_an_empty_file_and_none_is_the_null_device() {
    let mut command = shell("readlink /proc/$$/fd/0; cat; [ -c /dev/stdin ] && echo device");
    assert_eq!(text(&run(&command)), "/dev/null\ndevice\n");
    command.stdin = Some(Vec::new());
    let found = text(&run(&command));
    assert!(found.ends_with("jobrun-payload (deleted)\n"), "{found}");
}
