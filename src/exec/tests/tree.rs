//! How a tree ends, and what is kept and passed on of its output.

use super::super::{Exit, How};
use super::*;
use std::io::Read;

fn timed(script: &str, timeout_ms: u64) -> Ended {
    let mut command = shell(script);
    command.timeout = Some(Duration::from_millis(timeout_ms));
    run(&command)
}

#[test]
fn a_timeout_ends_a_grandchild_that_ignores_term() {
    let mut command = shell("trap '' TERM; sh -c 'echo $$; exec sleep 60' & wait; sleep 60");
    command.timeout = Some(Duration::from_millis(300));
    command.kill_after = Duration::from_millis(200);
    let ended = run(&command);
    assert!(matches!(ended.how, How::TimedOut));
    assert_eq!(ended.exit, Some(Exit::Signal(9)));
    assert!(ended.was_killed && ended.unkillable.is_empty());
    assert!(!lives(text(&ended).trim().parse().unwrap()));
}

#[test]
fn a_timeout_is_one_though_the_command_then_exits_with_0() {
    let ended = timed("trap 'exit 0' TERM; sleep 60 & wait", 300);
    assert!(matches!(ended.how, How::TimedOut));
    assert_eq!(ended.exit, Some(Exit::Code(0)));
    assert!(!ended.was_killed);
}

#[test]
fn a_timeout_reaches_a_grandchild_in_another_session() {
    let ended = timed("setsid sh -c 'echo $$; exec sleep 60' & wait", 300);
    assert!(matches!(ended.how, How::TimedOut));
    assert!(!ended.was_killed, "TERM was enough");
    assert!(!lives(text(&ended).trim().parse().unwrap()));
}

#[test]
fn a_stopped_process_still_gets_its_term() {
    let ended = timed("kill -STOP $$", 100);
    assert!(!ended.was_killed);
    assert_eq!(ended.exit, Some(Exit::Signal(15)));
}

#[test]
fn a_grandchild_that_holds_the_pipe_costs_a_second_and_is_named() {
    let start = Instant::now();
    let mut command = shell("sleep 61 & echo $!; exit 3");
    command.timeout = Some(Duration::from_millis(300));
    let ended = run(&command);
    assert!(matches!(ended.how, How::Exited), "ended before its limit");
    assert_eq!(ended.exit, Some(Exit::Code(3)));
    assert!(start.elapsed() < Duration::from_secs(3));
    assert!(ended.duration < Duration::from_millis(300));
    assert_eq!(ended.leftover_count, 1);
    let leftover = &ended.leftovers[0];
    assert_eq!(leftover.argv, ["sleep", "61"]);
    assert_eq!(leftover.pid.to_string(), text(&ended).trim());
    assert!(!lives(leftover.pid));
}

#[test]
fn a_daemon_that_detached_itself_is_ended_as_well() {
    let ended = run(&shell(
        "(setsid sh -c 'echo $$; exec sleep 60 >/dev/null 2>&1 </dev/null' &) ; exit 0",
    ));
    assert_eq!(ended.exit, Some(Exit::Code(0)));
    assert_eq!(ended.leftover_count, 1);
    assert!(!lives(text(&ended).trim().parse().unwrap()));
}

#[test]
fn a_command_without_descendants_is_over_at_once() {
    let start = Instant::now();
    for _ in 0..10 {
        run(&command(&["true"]));
    }
    // A second each, should the guard not see that nothing lives.
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_descendant_that_ends_soon_is_no_leftover() {
    let ended = run(&shell("(sleep 0.2; echo late) & exit 0"));
    assert_eq!((ended.leftover_count, text(&ended).as_str()), (0, "late\n"));
}

#[test]
fn orphans_are_reaped_while_the_command_runs() {
    let ended = run(&shell(
        "for i in 1 2 3; do (sh -c 'exit 0' &); done; sleep 0.3; \
         grep -l '^PPid:.'$PPID'$' /proc/[0-9]*/status 2>/dev/null | wc -l",
    ));
    assert_eq!(text(&ended).trim(), "1", "only the command itself");
}

#[test]
fn a_signal_to_jobrun_goes_to_the_tree() {
    let (signals, sender) = Signals::pretended();
    rustix::io::write(&sender, &[2]).unwrap();
    // Not by a shell: dash catches INT, and forgets it if it comes just before its exec.
    let sleep = command(&["sleep", "60"]);
    let ended = run_with(&sleep, &signals, &mut Sink::new(LiveStream::Discard));
    assert!(matches!(ended.how, How::Stopped(2)));
    assert_eq!(ended.exit, Some(Exit::Signal(2)));
}

#[test]
fn output_is_kept_in_order_with_its_streams() {
    let ended = run(&shell(
        "echo a; sleep 0.1; echo b >&2; sleep 0.1; printf 'c\\0\\377'",
    ));
    assert_eq!(ended.output.bytes, b"a\nb\nc\0\xff");
    assert_eq!(
        ended.output.index,
        [(Tag::Stdout, 2), (Tag::Stderr, 2), (Tag::Stdout, 3)]
    );
    assert_eq!((ended.bytes_stdout, ended.bytes_stderr), (5, 2));
}

#[test]
fn a_hundred_megabytes_leave_head_and_tail_in_bounded_memory() {
    let resident = || -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let before = resident();
    let mut command = shell("printf head; head -c 100000000 /dev/zero; printf tail");
    command.output_keep = 16;
    let ended = run(&command);
    assert_eq!(ended.output.bytes, b"head\0\0\0\0\0\0\0\0tail");
    assert_eq!(
        ended.output.index,
        [
            (Tag::Stdout, 4),
            (Tag::StdoutLeftOut, 99_999_992),
            (Tag::Stdout, 12)
        ]
    );
    assert_eq!(ended.bytes_stdout, 100_000_008);
    assert!(resident() - before < 30_000, "kB more");
}

#[test]
fn output_passes_unchanged_to_its_own_stream() {
    let (mut out, out_end) = std::io::pipe().unwrap();
    let (mut err, err_end) = std::io::pipe().unwrap();
    let mut sink = Sink::to(out_end.into(), err_end.into());
    let (signals, _sender) = Signals::pretended();
    let ended = run_with(&shell("printf 'o\\0'; printf e >&2"), &signals, &mut sink);
    assert_eq!((ended.stream_error, ended.stream_dropped), (None, 0));
    drop(sink);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    out.read_to_end(&mut stdout).unwrap();
    err.read_to_end(&mut stderr).unwrap();
    assert_eq!((&stdout[..], &stderr[..]), (&b"o\0"[..], &b"e"[..]));
}

#[test]
fn a_closed_stdout_neither_fails_the_command_nor_loses_what_is_kept() {
    let (out, out_end) = std::io::pipe().unwrap();
    let (_err, err_end) = std::io::pipe().unwrap();
    drop(out);
    let mut sink = Sink::to(out_end.into(), err_end.into());
    let (signals, _sender) = Signals::pretended();
    let ended = run_with(&shell("echo 1; echo 2; exit 5"), &signals, &mut sink);
    assert_eq!(ended.exit, Some(Exit::Code(5)));
    assert_eq!(ended.output, stdout_only(b"1\n2\n"));
    assert_eq!(ended.stream_error, Some(libc::EPIPE));
    assert_eq!(ended.stream_dropped, 4);
}

#[test]
fn a_reader_that_stalls_does_not_stop_the_clock() {
    let (_out, out_end) = std::io::pipe().unwrap();
    let (_err, err_end) = std::io::pipe().unwrap();
    let mut sink = Sink::to(out_end.into(), err_end.into());
    let (signals, _sender) = Signals::pretended();
    let mut command = command(&["yes"]);
    command.timeout = Some(Duration::from_millis(300));
    let start = Instant::now();
    let ended = run_with(&command, &signals, &mut sink);
    assert!(matches!(ended.how, How::TimedOut));
    assert!(start.elapsed() < Duration::from_secs(3));
    assert!(ended.stream_dropped > 0);
    assert!(ended.bytes_stdout < 10_000_000, "the command was held back");
}
