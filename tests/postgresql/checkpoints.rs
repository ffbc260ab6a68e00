//! Checkpoints in PostgreSQL: saved by a session of their own, and found by the next attempt.

use crate::support::pg_store::PgStore;
use crate::support::postgres::Stop;
use crate::support::{ONE_SLOT, together};

const JOBRUN: &str = env!("CARGO_BIN_EXE_jobrun");

/// Saves one more `x` each time it is told to, in the file `steps`, until it finds `done`.
const STEPS: &str = "
    echo \"found ${JOBRUN_CHECKPOINT-none}\" >> notes
    value=${JOBRUN_CHECKPOINT-}
    for step in 1 2 3; do
        until [ -e \"step$step\" ] || [ -e done ]; do sleep 0.02; done
        [ -e done ] && exit 0
        value=${value}x
        $JOBRUN checkpoint set \"$value\" || exit 9
        $JOBRUN checkpoint get >> notes
    done
    exec sleep 300";

#[test]
fn checkpoints_on_postgresql() {
    together(&[(
        "a_checkpoint_survives_a_restart_of_the_server_and_kill_9",
        a_checkpoint_survives_a_restart_of_the_server_and_kill_9,
    )]);
}

fn a_checkpoint_survives_a_restart_of_the_server_and_kill_9() {
    let Some(store) = PgStore::alone() else {
        return;
    };
    let env = format!("env = {{ JOBRUN = '{JOBRUN}' }}");
    let host = store.job(&format!("{ONE_SLOT}\n{env}\nshell = '''{STEPS}'''"));
    let jobrun = host.start("run j");
    host.write("step1", "");
    host.wait_for_lines("notes", 2);
    store.cluster().restart(Stop::Fast);
    host.write("step2", "");
    host.wait_for_lines("notes", 3);
    jobrun.kill();
    host.write("done", "");
    host.run("run j --lock-wait 60s").exits(0);
    let notes = ["found none", "x", "xx", "found xx"];
    assert_eq!(host.lines("notes"), notes);
    let saved = "SELECT coalesce(checkpoint, 'none') FROM task";
    assert_eq!(store.text(saved), "none", "its task has succeeded");
}
