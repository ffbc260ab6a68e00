"""The rounds of `items`: what each of them does, how long it took, and whether it is within its bound."""

import json, os, pathlib, sqlite3, statistics, subprocess, sys, tempfile, time

try:
    import psycopg
except ImportError:
    psycopg = None

ROUNDS, ITEMS, MANY = (int(os.environ[name]) for name in ("ROUNDS", "ITEMS", "MANY"))
JOBRUN, PARTS = os.environ["JOBRUN"], os.environ["PARTS"]
FOLDER, PROGRAMS = pathlib.Path(os.environ["FOLDER"]), pathlib.Path(os.environ["PROGRAMS"])
URL = f"postgres:///postgres?host={FOLDER}&user=bench"
PSQL = [str(PROGRAMS / "psql"), "-h", str(FOLDER), "-U", "bench", "-XqAt", "postgres"]
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

# Name, how much faster jobrun is at least, how it is started, where it is once it is installed.
PEERS = {
    "pg-boss": (2, ["node", "pg_boss.mjs"], "peers/node_modules/pg-boss"),
    "graphile-worker": (5, ["node", "graphile.mjs"], "peers/node_modules/graphile-worker"),
    "procrastinate": (20, [sys.executable, "with_procrastinate.py"], "venv/bin/procrastinate"),
}

# Slots are made by hand, each once: the schedule never comes.
JOBS = """
[store]
{store}

[defaults]
schedule = "0 0 1 1 *"
timezone = "UTC"

[jobs.keys]
items = "SELECT id FROM accounts"
sql = "UPDATE accounts SET points = points + 10 WHERE id {any_key} RETURNING id"

[jobs.key]
items = "SELECT id FROM accounts"
sql = "UPDATE accounts SET points = points + 10 WHERE id = {key}"
{concurrency}
"""

# What a script of one's own would keep its tasks in.
BARE = """
DROP SCHEMA IF EXISTS bare CASCADE;
CREATE SCHEMA bare;
CREATE TABLE bare.task (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job text NOT NULL, slot timestamptz NOT NULL, item bigint NOT NULL,
    status smallint NOT NULL DEFAULT 0, due_at timestamptz NOT NULL DEFAULT now(), attempts int NOT NULL DEFAULT 0,
    done_at timestamptz, UNIQUE (job, slot, item)) WITH (fillfactor = 80);
CREATE INDEX ready ON bare.task (job, due_at, id) WHERE status = 0;
CREATE TABLE bare.attempt (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, task bigint NOT NULL, at timestamptz NOT NULL);
INSERT INTO bare.task (job, slot, item) SELECT 'j', '2025-01-01', id FROM accounts ORDER BY id;
ANALYZE bare.task;
"""
BARE_CLAIM = """
WITH c AS MATERIALIZED (
    SELECT id, item FROM bare.task WHERE job = 'j' AND status = 0 AND due_at <= now()
    ORDER BY due_at, id LIMIT {limit} FOR NO KEY UPDATE SKIP LOCKED),
e AS (UPDATE accounts a SET points = points + 10 FROM c WHERE a.id = c.item RETURNING c.id),
d AS (UPDATE bare.task t SET status = 1, attempts = attempts + 1, done_at = now() FROM e WHERE t.id = e.id RETURNING t.id)
"""


def ask(*statements):
    """Asks the server; what it answers last."""
    asked = [word for statement in statements for word in ("-c", statement)]
    done = subprocess.run(PSQL + asked, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.stdout.strip()


def fresh(items=ITEMS):
    """Nobody has points, and nobody's queue is there."""
    schemas = ["jobrun", "pgboss", "graphile_worker", "public"]
    ask(
        *(f"DROP SCHEMA IF EXISTS {schema} CASCADE" for schema in schemas),
        "CREATE SCHEMA public",
        "CREATE TABLE accounts (id bigint PRIMARY KEY, points int NOT NULL DEFAULT 0) WITH (fillfactor = 80)",
        f"INSERT INTO accounts SELECT g FROM generate_series(1, {items}) g",
    )
    ask("VACUUM ANALYZE accounts")
    ask("CHECKPOINT")


def check_points(items=ITEMS):
    points = ask("SELECT count(*) FILTER (WHERE points = 10), count(*) FROM accounts")
    if points != f"{items}|{items}":
        sys.exit(f"not everybody got the points once: {points}")


class Drain:
    """A run of jobrun: seconds it took to generate and to drain, and the most memory it had, in MiB."""

    def __init__(self, job, folder="jobs", items=ITEMS):
        folder = FOLDER / folder
        subprocess.run([JOBRUN, "run", job], check=True, cwd=folder, **QUIET)
        began = time.perf_counter()
        argv = [JOBRUN, "-v", "run", job, "--slot", "2026-01-01T00:00"]
        process = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
        made, said = None, []
        for line in process.stderr:
            said.append(line.decode())
            if f" has {items} items".encode() in line:
                made = time.perf_counter()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        ended = time.perf_counter()
        if process.returncode != 0 or made is None:
            sys.exit(f"{' '.join(argv)}: ended with {process.returncode}\n{''.join(said)}")
        self.generated, self.drained, self.peak = made - began, ended - made, usage.ru_maxrss / 1024


def jobrun(job, items=ITEMS):
    fresh(items)
    drain = Drain(job, items=items)
    check_points(items)
    return drain


def bare_batches():
    """A script that claims 500, does their work, marks them, notes an attempt of each and commits, until none is left."""
    fresh()
    ask(BARE)
    sql = BARE_CLAIM.format(limit=500) + "INSERT INTO bare.attempt (task, at) SELECT id, now() FROM d RETURNING task"
    with psycopg.connect(URL) as connection:
        began = time.perf_counter()
        while True:
            is_over = not connection.execute(sql).fetchall()
            connection.commit()
            if is_over:
                break
        took = time.perf_counter() - began
    check_points()
    return took


def pgbench():
    """One statement an item, four clients."""
    fresh()
    ask(BARE)
    script = FOLDER / "one.sql"
    script.write_text(" ".join((BARE_CLAIM.format(limit=1) + "SELECT count(*) FROM d;").split()) + "\n")
    argv = [str(PROGRAMS / "pgbench"), "-h", str(FOLDER), "-U", "bench", "-n", "-M", "prepared", "-c", "4", "-j", "2",
            "-t", str(ITEMS // 4), "-f", str(script), "postgres"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    rate = next(line for line in done.stdout.splitlines() if line.startswith("tps = "))
    check_points()
    return ITEMS / float(rate.split()[2])


def peer(*argv):
    fresh()
    done = subprocess.run([*argv, URL, str(ITEMS)], check=True, cwd=FOLDER / "peers", capture_output=True, text=True)
    check_points()
    return float(done.stdout.split()[-1])


def bare_insert():
    """The same rows into a table with the same columns and indexes."""
    fresh()
    subprocess.run([JOBRUN, "run", "keys"], check=True, cwd=FOLDER / "jobs", **QUIET)
    ask("DROP SCHEMA IF EXISTS bare CASCADE", "CREATE SCHEMA bare",
        "CREATE TABLE bare.task (LIKE jobrun.task INCLUDING ALL)")
    with psycopg.connect(URL, autocommit=True) as connection:
        began = time.perf_counter()
        connection.execute("INSERT INTO bare.task (job, slot, key, trigger, interval_start)"
                           " SELECT 'keys', '2026-01-01', id::text, 'manual', '2025-01-01' FROM accounts")
        return time.perf_counter() - began


class Snapshot:
    """An old snapshot that somebody holds."""

    def __enter__(self):
        self.connection = psycopg.connect(URL)
        self.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self.connection.execute("SELECT count(*) FROM pg_class").fetchall()

    def __exit__(self, *_):
        self.connection.close()


def held(job):
    fresh()
    with Snapshot():
        drain = Drain(job)
    check_points()
    return drain


def sqlite_file(name):
    """A store and accounts in one file, in a folder of their own."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=name, dir=FOLDER))
    path = folder / "store.db"
    store = f'url = "sqlite:{path}"'
    (folder / "jobs.toml").write_text(JOBS.format(
        store=store, any_key="IN (SELECT value FROM json_each(:keys))", key=":key", concurrency=""))
    subprocess.run([JOBRUN, "run", "keys"], check=True, cwd=folder, **QUIET)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, points INTEGER NOT NULL DEFAULT 0)")
        db.execute("WITH RECURSIVE g(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM g WHERE i < ?)"
                   " INSERT INTO accounts (id) SELECT i FROM g", (ITEMS,))
    return folder, path


def sqlite_jobrun(job):
    folder, path = sqlite_file(job)
    drain = Drain(job, folder)
    check_file(path)
    return drain


def check_file(path):
    with sqlite3.connect(path) as db:
        if db.execute("SELECT count(*) FROM accounts WHERE points = 10").fetchone() != (ITEMS,):
            sys.exit("not everybody got the points once")


def sqlite_bare(batch):
    """A script of one's own, in a file with the same pragmas whose commits are on the disk."""
    _, path = sqlite_file("bare")
    db = sqlite3.connect(path, isolation_level=None)
    for pragma in ("synchronous = FULL", "wal_autocheckpoint = 200"):
        db.execute(f"PRAGMA {pragma}")
    db.executescript("""
        CREATE TABLE task (id INTEGER PRIMARY KEY, job TEXT NOT NULL, slot INTEGER NOT NULL, item INTEGER NOT NULL,
            status INTEGER NOT NULL DEFAULT 0, due_at INTEGER NOT NULL DEFAULT 0, done_at INTEGER, UNIQUE (job, slot, item));
        CREATE INDEX ready ON task (job, due_at, id) WHERE status = 0;
        INSERT INTO task (job, slot, item) SELECT 'j', 1, id FROM accounts;
    """)
    claim = "SELECT id, item FROM task WHERE job = 'j' AND status = 0 AND due_at <= 1 ORDER BY due_at, id LIMIT ?"
    began = time.perf_counter()
    while True:
        db.execute("BEGIN IMMEDIATE")
        rows = db.execute(claim, (batch,)).fetchall()
        if rows and batch == 1:
            db.execute("UPDATE accounts SET points = points + 10 WHERE id = ?", (rows[0][1],))
            db.execute("UPDATE task SET status = 1, done_at = 1 WHERE id = ?", (rows[0][0],))
        elif rows:
            ids, items = (json.dumps(list(column)) for column in zip(*rows))
            db.execute("UPDATE accounts SET points = points + 10 WHERE id IN (SELECT value FROM json_each(?))", (items,))
            db.execute("UPDATE task SET status = 1, done_at = 1 WHERE id IN (SELECT value FROM json_each(?))", (ids,))
        db.execute("COMMIT")
        if not rows:
            break
    took = time.perf_counter() - began
    check_file(path)
    return took


def timed(argv):
    began = time.perf_counter()
    subprocess.run(argv, check=True, cwd=FOLDER / "jobs", **QUIET)
    return time.perf_counter() - began


def rounds(count=ROUNDS, **subjects):
    """Each subject once a round; what it answered in each. A peer that fails is left out."""
    answers = {}
    for turn in range(count):
        names = list(subjects)
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            try:
                answers.setdefault(name, []).append(subjects[name]())
            except subprocess.CalledProcessError as error:
                if name not in PEERS:
                    raise
                print(f"  {name}: left out, as it failed: {(error.stderr or str(error)).strip()[-300:]}")
                del subjects[name]
                answers.pop(name, None)
    return answers


missed = []


def show(name, seconds, digits=3):
    print(f"  {name:44}{statistics.median(seconds):10.{digits}f} s   {min(seconds):.{digits}f}-{max(seconds):.{digits}f}")


def judge(part, name, ratio, bound, is_most=True):
    """Says whether a ratio is within its bound."""
    is_missed = ratio > bound if is_most else ratio < bound
    if is_missed:
        missed.append(part)
    kind = "at most" if is_most else "at least"
    print(f"  {part}) {name:41}{ratio:10.2f} x   {kind} {bound:g}  {'MISSED' if is_missed else 'passed'}", flush=True)


def ratio(ones, others):
    return statistics.median(one / other for one, other in zip(ones, others))


def part_a():
    subjects = {"jobrun": lambda: jobrun("keys").drained, "bare script": bare_batches}
    for name, (_, argv, place) in PEERS.items():
        if (FOLDER / place).exists():
            subjects[name] = lambda argv=argv: peer(*argv)
    took = rounds(**subjects)
    for name, seconds in took.items():
        show(name, seconds)
    judge("a", "jobrun to a bare script", ratio(took["jobrun"], took["bare script"]), 1.6)
    for name, (bound, _, _) in PEERS.items():
        if name in took:
            judge("a", f"faster than {name}", ratio(took[name], took["jobrun"]), bound, is_most=False)


def part_b():
    took = rounds(jobrun=lambda: jobrun("key").drained, pgbench=pgbench)
    for name, seconds in took.items():
        show(f"{name}, one transaction an item", seconds)
    judge("b", "jobrun to pgbench, four sessions", ratio(took["jobrun"], took["pgbench"]), 1.3)


def part_c():
    took = rounds(jobrun=lambda: jobrun("keys").generated, bare=bare_insert)
    show("jobrun, from its start to all made", took["jobrun"])
    show("bare INSERT ... SELECT", took["bare"])
    judge("c", "generating to a bare insert", ratio(took["jobrun"], took["bare"]), 1.6)


def part_d():
    fresh()
    idle, rival = [JOBRUN, "run", "keys"], PSQL + ["-c", "select 1"]
    timed(idle)
    took = rounds(20 * ROUNDS, jobrun=lambda: timed(idle), psql=lambda: timed(rival))
    show("jobrun, nothing to do", took["jobrun"], 4)
    show("psql -c 'select 1'", took["psql"], 4)
    judge("d", "nothing to do to psql", ratio(took["jobrun"], took["psql"]), 1)


def part_e():
    few = [jobrun("keys").drained for _ in range(ROUNDS)]
    many = jobrun("keys", MANY)
    show(f"{ITEMS} items", few)
    show(f"{MANY} items", [many.drained])
    judge("e", "rate of the many to that of the few", MANY / many.drained / (ITEMS / statistics.median(few)), 0.7, False)
    judge("e", f"MiB at most, with {MANY} items", many.peak, 64)


def part_f():
    for job, bound in (("keys", 0.85), ("key", 0.5)):
        took = rounds(free=lambda: jobrun(job).drained, held=lambda: held(job).drained)
        show(f":{job}, nobody holds a snapshot", took["free"])
        show(f":{job}, somebody holds one", took["held"])
        judge("f", f":{job}, rate with a held snapshot", ratio(took["free"], took["held"]), bound, is_most=False)


def part_g():
    for job, batch, bound in (("keys", 500, 2.5), ("key", 1, 1)):
        took = rounds(jobrun=lambda: sqlite_jobrun(job).drained, bare=lambda: sqlite_bare(batch))
        show(f"SQLite, :{job}, jobrun", took["jobrun"])
        show(f"SQLite, {batch} a transaction, bare script", took["bare"])
        judge("g", f"SQLite, :{job}, jobrun to a bare script", ratio(took["jobrun"], took["bare"]), bound)


# name, what it does, whether it needs a client
COMPARISONS = {
    "a": ("PostgreSQL, draining with :keys", part_a, True),
    "b": ("PostgreSQL, draining with :key, concurrency 4", part_b, False),
    "c": ("PostgreSQL, generating", part_c, True),
    "d": ("PostgreSQL, nothing to do", part_d, False),
    "e": ("PostgreSQL, a large slot", part_e, False),
    "f": ("PostgreSQL, an old snapshot held", part_f, True),
    "g": ("SQLite", part_g, False),
}

(FOLDER / "jobs/jobs.toml").write_text(JOBS.format(
    store=f'url = "{URL}"\nstate_dir = "{FOLDER}/state"', any_key="= ANY(:keys)", key=":key", concurrency="concurrency = 4"))
print(f"{ITEMS} items, medians of {ROUNDS} rounds; {os.cpu_count()} processors; {ask('SELECT version()').split(' on ')[0]}")
for part, (title, compare, needs_client) in COMPARISONS.items():
    if part not in PARTS:
        continue
    print(f"{title} (load {os.getloadavg()[0]:.1f})")
    if needs_client and psycopg is None:
        print("  left out: it needs psycopg")
        continue
    compare()
print(f"missed: {', '.join(missed)}" if missed else "all passed")
sys.exit(1 if missed else 0)
