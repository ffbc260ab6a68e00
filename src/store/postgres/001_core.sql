-- The fingerprint is that of the newest version in schedule: a start with nothing to do need not open that table.
CREATE TABLE jobrun.job (
    job           text PRIMARY KEY,
    cursor        timestamptz,
    interval_end  timestamptz,
    fingerprint   text,
    first_seen_at timestamptz NOT NULL,
    busy_count    bigint NOT NULL DEFAULT 0,
    busy_since    timestamptz
);

CREATE TABLE jobrun.schedule (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job         text NOT NULL,
    fingerprint text NOT NULL,
    spec        jsonb NOT NULL,
    from_at     timestamptz NOT NULL,
    host        text NOT NULL
);
CREATE INDEX schedule_job ON jobrun.schedule (job, id);

-- A session that is made for one start opens every index of the tables it looks at: there are no more than are needed.
CREATE TABLE jobrun.task (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job            text NOT NULL,
    slot           timestamptz,
    nominal        timestamp,
    is_fixed_time  boolean NOT NULL DEFAULT false,
    key            text NOT NULL DEFAULT '' CHECK (octet_length(key) <= 512),
    payload        jsonb,
    status         text NOT NULL DEFAULT 'pending'
                   CHECK (status IN ('pending', 'running', 'succeeded', 'failed', 'skipped')),
    reason         text,
    due_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts       integer NOT NULL DEFAULT 0,
    interruptions  integer NOT NULL DEFAULT 0,
    runs           integer NOT NULL DEFAULT 0,
    first_tried_at timestamptz,
    claim_token    text,
    claim_lease    text,
    last_error     text,
    trigger        text NOT NULL DEFAULT 'enqueue',
    interval_start timestamptz,
    coalesced      bigint NOT NULL DEFAULT 0,
    checkpoint     text,
    items          bigint,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at   timestamptz,
    CHECK (slot IS NOT NULL OR key <> '')
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX task_slot ON jobrun.task (job, slot, key) WHERE slot IS NOT NULL;
CREATE UNIQUE INDEX task_key ON jobrun.task (job, key) WHERE slot IS NULL;
CREATE UNIQUE INDEX task_nominal ON jobrun.task (job, nominal) WHERE is_fixed_time AND key = '';
CREATE INDEX task_due ON jobrun.task (job, due_at, id) WHERE status = 'pending' AND key = '';
CREATE INDEX task_item ON jobrun.task (job, slot, due_at, id) WHERE status = 'pending' AND key <> '';
CREATE INDEX task_left ON jobrun.task (job)
    WHERE status = 'running' OR (status = 'pending' AND trigger = 'manual' AND (slot IS NULL OR key = ''));
CREATE INDEX task_closed ON jobrun.task (job, status, reason) WHERE status IN ('failed', 'skipped');

CREATE TABLE jobrun.run (
    seq          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           text NOT NULL COLLATE "C" UNIQUE,
    job          text NOT NULL,
    task_id      bigint,
    slot         timestamptz,
    key          text NOT NULL DEFAULT '',
    attempt      integer NOT NULL,
    trigger      text NOT NULL,
    outcome      text NOT NULL CHECK (outcome IN ('running', 'succeeded', 'failed', 'timed_out', 'interrupted',
                                                  'lost', 'lock_lost', 'snoozed')),
    exit_code    integer,
    signal       integer,
    reason       text,
    started_at   timestamptz NOT NULL,
    finished_at  timestamptz,
    duration_ms  bigint,
    host         text NOT NULL,
    pid          bigint NOT NULL,
    child_pid    bigint,
    backend_pid  bigint,
    tz_version   text NOT NULL,
    fence        bigint NOT NULL,
    lease        text,
    drain        text,
    items_done   bigint,
    items_failed bigint,
    output       bytea,
    output_index text,
    stdout_bytes bigint NOT NULL DEFAULT 0,
    stderr_bytes bigint NOT NULL DEFAULT 0,
    leftovers    text,
    killed       boolean NOT NULL DEFAULT false,
    note         text
);
-- Of many tasks each may have a run, which is part of another one, the drain.
CREATE INDEX run_job ON jobrun.run (job, seq) WHERE drain IS NULL;
CREATE INDEX run_outcome ON jobrun.run (job, outcome, seq) WHERE drain IS NULL;
CREATE INDEX run_item ON jobrun.run (job, outcome, seq) WHERE drain IS NOT NULL;
CREATE INDEX run_slot ON jobrun.run (job, slot, seq) WHERE slot IS NOT NULL;

CREATE TABLE jobrun.skip (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job        text NOT NULL,
    from_slot  timestamptz NOT NULL,
    to_slot    timestamptz NOT NULL,
    count      bigint NOT NULL,
    reason     text NOT NULL,
    created_at timestamptz NOT NULL,
    note       text
);
CREATE INDEX skip_job ON jobrun.skip (job, to_slot);

CREATE TABLE jobrun.pause (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job          text NOT NULL,
    from_at      timestamptz NOT NULL,
    until_at     timestamptz,
    kind         text NOT NULL CHECK (kind IN ('manual', 'disabled', 'failures')),
    is_caught_up boolean NOT NULL DEFAULT false,
    "user"       text,
    note         text
);
CREATE INDEX pause_job ON jobrun.pause (job, until_at);

-- One row a lock, kept for ever: its fence only grows. Beaten every few seconds, so no column of it is indexed.
CREATE TABLE jobrun.lease (
    name        text PRIMARY KEY,
    fence       bigint NOT NULL,
    holder      text NOT NULL,
    run_id      text,
    host        text NOT NULL,
    pid         bigint NOT NULL,
    place       text NOT NULL,
    backend_pid bigint,
    taken_at    timestamptz NOT NULL,
    beat_at     timestamptz NOT NULL,
    lease_until timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE jobrun.event (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL,
    job    text NOT NULL,
    action text NOT NULL,
    detail text NOT NULL,
    "user" text NOT NULL,
    host   text NOT NULL,
    note   text
);
CREATE INDEX event_job ON jobrun.event (job, id);

-- Asked at the end of a transaction with a job's own SQL: whether the lease is still that which it was begun under.
CREATE FUNCTION jobrun.require_lease(lock_name text, lock_fence bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM jobrun.lease WHERE name = lock_name AND fence = lock_fence AND lease_until > clock_timestamp();
    IF NOT FOUND THEN
        RAISE EXCEPTION 'jobrun: another start has taken over' USING ERRCODE = 'JR001';
    END IF;
END $$;

-- A command's own done-mark, in its own transaction.
CREATE FUNCTION jobrun.complete(token text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE jobrun.task SET status = 'succeeded', reason = NULL, completed_at = clock_timestamp(), checkpoint = NULL
    WHERE claim_token = complete.token AND status = 'running';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'jobrun: the attempt is no longer the current one' USING ERRCODE = 'JR002';
    END IF;
END $$;

-- How far a command is, saved in its own transaction.
CREATE FUNCTION jobrun.checkpoint(token text, value text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE jobrun.task SET checkpoint = checkpoint.value
    WHERE claim_token = checkpoint.token AND status = 'running';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'jobrun: the attempt is no longer the current one' USING ERRCODE = 'JR002';
    END IF;
END $$;

-- An ad-hoc task of a job, made in the caller's transaction unless there is one of that key: which it is, whether it was
-- made now, and where it stands.
CREATE FUNCTION jobrun.enqueue(job text, key text, payload jsonb DEFAULT NULL, due_at timestamptz DEFAULT NULL)
RETURNS TABLE (id bigint, is_new boolean, status text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY INSERT INTO jobrun.task AS t (job, key, payload, due_at)
        VALUES (enqueue.job, enqueue.key, enqueue.payload, coalesce(enqueue.due_at, clock_timestamp()))
        ON CONFLICT (job, key) WHERE slot IS NULL DO NOTHING RETURNING t.id, true, t.status;
    IF NOT FOUND THEN
        RETURN QUERY SELECT t.id, false, t.status FROM jobrun.task t
            WHERE t.job = enqueue.job AND t.key = enqueue.key AND t.slot IS NULL;
    END IF;
END $$;

-- Leaves out an ad-hoc task that nobody is at; whether there was one to be left out.
CREATE FUNCTION jobrun.cancel(job text, key text) RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    UPDATE jobrun.task t SET status = 'skipped', reason = 'manual', completed_at = clock_timestamp()
    WHERE t.job = cancel.job AND t.key = cancel.key AND t.slot IS NULL AND t.status IN ('pending', 'failed');
    RETURN FOUND;
END $$;
