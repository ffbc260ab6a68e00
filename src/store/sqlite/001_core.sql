CREATE TABLE jobrun_meta (
    key   TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
);

CREATE TABLE jobrun_job (
    job           TEXT PRIMARY KEY NOT NULL,
    cursor        INTEGER,
    interval_end  INTEGER,
    first_seen_at INTEGER NOT NULL,
    busy_count    INTEGER NOT NULL DEFAULT 0,
    busy_since    INTEGER
);

CREATE TABLE jobrun_schedule (
    id          INTEGER PRIMARY KEY,
    job         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    spec        TEXT NOT NULL,
    from_at     INTEGER NOT NULL,
    host        TEXT NOT NULL
);
CREATE INDEX jobrun_schedule_job ON jobrun_schedule (job, id);

CREATE TABLE jobrun_task (
    id             INTEGER PRIMARY KEY,
    job            TEXT NOT NULL,
    slot           INTEGER,
    nominal        TEXT,
    is_fixed_time  INTEGER NOT NULL DEFAULT 0,
    key            TEXT NOT NULL DEFAULT '' CHECK (length(CAST(key AS BLOB)) <= 512),
    payload        TEXT,
    status         TEXT NOT NULL DEFAULT 'pending'
                   CHECK (status IN ('pending', 'running', 'succeeded', 'failed', 'skipped')),
    reason         TEXT,
    due_at         INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    attempts       INTEGER NOT NULL DEFAULT 0,
    interruptions  INTEGER NOT NULL DEFAULT 0,
    runs           INTEGER NOT NULL DEFAULT 0,
    first_tried_at INTEGER,
    claim_token    TEXT,
    claim_lease    TEXT,
    last_error     TEXT,
    "trigger"      TEXT NOT NULL DEFAULT 'enqueue',
    interval_start INTEGER,
    coalesced      INTEGER NOT NULL DEFAULT 0,
    checkpoint     TEXT,
    items          INTEGER,
    created_at     INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    completed_at   INTEGER,
    CHECK (slot IS NOT NULL OR key <> '')
);
CREATE UNIQUE INDEX jobrun_task_slot ON jobrun_task (job, slot, key) WHERE slot IS NOT NULL;
CREATE UNIQUE INDEX jobrun_task_key ON jobrun_task (job, key) WHERE slot IS NULL;
CREATE UNIQUE INDEX jobrun_task_nominal ON jobrun_task (job, nominal) WHERE is_fixed_time = 1 AND key = '';
CREATE INDEX jobrun_task_due ON jobrun_task (job, due_at, id) WHERE status = 'pending' AND key = '';
CREATE INDEX jobrun_task_item ON jobrun_task (job, slot, due_at, id) WHERE status = 'pending' AND key <> '';
CREATE INDEX jobrun_task_manual ON jobrun_task (job)
    WHERE status = 'pending' AND "trigger" = 'manual' AND (slot IS NULL OR key = '');
CREATE INDEX jobrun_task_running ON jobrun_task (job) WHERE status = 'running';
CREATE INDEX jobrun_task_failed ON jobrun_task (job) WHERE status = 'failed';
CREATE INDEX jobrun_task_skipped ON jobrun_task (job, reason) WHERE status = 'skipped';

CREATE TABLE jobrun_run (
    seq          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    job          TEXT NOT NULL,
    task_id      INTEGER,
    slot         INTEGER,
    key          TEXT NOT NULL DEFAULT '',
    attempt      INTEGER NOT NULL,
    "trigger"    TEXT NOT NULL,
    outcome      TEXT NOT NULL CHECK (outcome IN ('running', 'succeeded', 'failed', 'timed_out', 'interrupted',
                                                  'lost', 'lock_lost', 'snoozed')),
    exit_code    INTEGER,
    signal       INTEGER,
    reason       TEXT,
    started_at   INTEGER NOT NULL,
    finished_at  INTEGER,
    duration_ms  INTEGER,
    host         TEXT NOT NULL,
    pid          INTEGER NOT NULL,
    child_pid    INTEGER,
    backend_pid  INTEGER,
    tz_version   TEXT NOT NULL,
    fence        INTEGER NOT NULL,
    lease        TEXT,
    drain        TEXT,
    items_done   INTEGER,
    items_failed INTEGER,
    output       BLOB,
    output_index TEXT,
    stdout_bytes INTEGER NOT NULL DEFAULT 0,
    stderr_bytes INTEGER NOT NULL DEFAULT 0,
    leftovers    TEXT,
    killed       INTEGER NOT NULL DEFAULT 0,
    note         TEXT
);
-- Of many tasks each may have a run, which is part of another one, the drain.
CREATE INDEX jobrun_run_job ON jobrun_run (job, seq) WHERE drain IS NULL;
CREATE INDEX jobrun_run_outcome ON jobrun_run (job, outcome, seq) WHERE drain IS NULL;
CREATE INDEX jobrun_run_item ON jobrun_run (job, outcome, seq) WHERE drain IS NOT NULL;
CREATE INDEX jobrun_run_slot ON jobrun_run (job, slot, seq) WHERE slot IS NOT NULL;

CREATE TABLE jobrun_skip (
    id         INTEGER PRIMARY KEY,
    job        TEXT NOT NULL,
    from_slot  INTEGER NOT NULL,
    to_slot    INTEGER NOT NULL,
    count      INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    note       TEXT
);
CREATE INDEX jobrun_skip_job ON jobrun_skip (job, to_slot);

CREATE TABLE jobrun_pause (
    id           INTEGER PRIMARY KEY,
    job          TEXT NOT NULL,
    from_at      INTEGER NOT NULL,
    until_at     INTEGER,
    kind         TEXT NOT NULL CHECK (kind IN ('manual', 'disabled', 'failures')),
    is_caught_up INTEGER NOT NULL DEFAULT 0,
    user         TEXT,
    note         TEXT
);
CREATE INDEX jobrun_pause_job ON jobrun_pause (job, until_at);

CREATE TABLE jobrun_lease (
    name     TEXT PRIMARY KEY NOT NULL,
    fence    INTEGER NOT NULL,
    holder   TEXT NOT NULL,
    run_id   TEXT,
    host     TEXT NOT NULL,
    pid      INTEGER NOT NULL,
    taken_at INTEGER NOT NULL
);

CREATE TABLE jobrun_event (
    id     INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    job    TEXT NOT NULL,
    action TEXT NOT NULL,
    detail TEXT NOT NULL,
    user   TEXT NOT NULL,
    host   TEXT NOT NULL,
    note   TEXT
);
CREATE INDEX jobrun_event_job ON jobrun_event (job, id);

-- A command's own done-mark, in its own transaction, all of which is undone if the attempt is no longer the current
-- one, also where nobody looks at errors, as in a script of sqlite3's: INSERT INTO jobrun_complete (token) VALUES (…).
CREATE VIEW jobrun_complete AS SELECT NULL AS token WHERE FALSE;
CREATE TRIGGER jobrun_complete_insert INSTEAD OF INSERT ON jobrun_complete BEGIN
    SELECT RAISE(ROLLBACK, 'jobrun: the attempt is no longer the current one')
    WHERE NOT EXISTS (SELECT 1 FROM jobrun_task WHERE claim_token = NEW.token AND status = 'running');
    UPDATE jobrun_task SET status = 'succeeded', reason = NULL, checkpoint = NULL,
        completed_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
    WHERE claim_token = NEW.token AND status = 'running';
END;

-- How far a command is, saved in its own transaction: INSERT INTO jobrun_checkpoint (token, value) VALUES (…).
CREATE VIEW jobrun_checkpoint AS SELECT NULL AS token, NULL AS value WHERE FALSE;
CREATE TRIGGER jobrun_checkpoint_insert INSTEAD OF INSERT ON jobrun_checkpoint BEGIN
    SELECT RAISE(ROLLBACK, 'jobrun: the attempt is no longer the current one')
    WHERE NOT EXISTS (SELECT 1 FROM jobrun_task WHERE claim_token = NEW.token AND status = 'running');
    UPDATE jobrun_task SET checkpoint = NEW.value WHERE claim_token = NEW.token AND status = 'running';
END;

-- Leaves out an ad-hoc task that nobody is at: INSERT INTO jobrun_cancel (job, key) VALUES (…).
CREATE VIEW jobrun_cancel AS SELECT NULL AS job, NULL AS key WHERE FALSE;
CREATE TRIGGER jobrun_cancel_insert INSTEAD OF INSERT ON jobrun_cancel BEGIN
    UPDATE jobrun_task SET status = 'skipped', reason = 'manual',
        completed_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
    WHERE job = NEW.job AND key = NEW.key AND slot IS NULL AND status IN ('pending', 'failed');
END;
