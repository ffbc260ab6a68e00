//! Which slots are owed, and what becomes of each: a pure function of job, state and time.
//!
//! Planning splits the time between the cursor and now into pieces of one fate (excluded, paused, expired, open)
//! and lets the job's policy choose among the open ones. Slots are counted by [`Timetable::count`], not walked, so
//! that the cost does not grow with the outage.

use std::collections::BTreeSet;

use chrono::{NaiveDateTime, TimeDelta};

use super::job::{Job, Policy};
use super::lifecycle::{stored_words, words};
use super::schedule::{Instant, Slot, Timetable, Zone};
use super::state::{SkipRange, State, Task, Version};

/// The smallest step of an instant, to turn `[a, b)` into `(a, b]`.
const TICK: TimeDelta = TimeDelta::milliseconds(1);
/// A clock this far behind the cursor has gone back; anything less is two clocks that differ.
const CLOCK_TOLERANCE: TimeDelta = TimeDelta::minutes(5);
/// A schedule that was in force this recently comes back without anchoring (a roll-back, two hosts).
const RETURN_WITHIN: TimeDelta = TimeDelta::hours(24);

/// Why a slot did not become a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A newer slot stands for it.
    Coalesced,
    /// Older than `catch_up_window`.
    Expired,
    /// `catch_up = "skip"`.
    Policy,
    /// The job was paused.
    Paused,
    /// Its day is excluded.
    Excluded,
    /// It lay between the cursor and an anchor.
    Anchored,
    /// Its period had a success already.
    PeriodDone,
    /// Its nominal time is done.
    Duplicate,
    /// A person left it out.
    Manual,
}

stored_words!(Reason {
    Coalesced = "coalesced",
    Expired = "expired",
    Policy = "policy",
    Paused = "paused",
    Excluded = "excluded",
    Anchored = "anchored",
    PeriodDone = "period_done",
    Duplicate = "duplicate",
    Manual = "manual",
});

/// What a plan starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The cursor, or `start_at` standing in for it.
    Cursor,
    /// The job was never seen: anchored at now.
    FirstRun,
    /// The schedule was edited: anchored at now.
    ScheduleChanged,
    /// The clock is well behind the cursor: anchored at now.
    ClockWentBack,
}

words!(Basis {
    Cursor = "cursor",
    FirstRun = "first_run",
    ScheduleChanged = "schedule_changed",
    ClockWentBack = "clock_went_back",
});

/// A slot that becomes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The slot.
    pub slot: Slot,
    /// Start of the interval it covers.
    pub interval_start: Instant,
    /// Number of earlier slots it stands for.
    pub coalesced: u64,
    /// Not to be started before: the slot, or later by its jitter.
    pub due_at: Instant,
}

/// A pending task that is left out for a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folded {
    /// The store's number for the task.
    pub task: i64,
    /// Its slot.
    pub slot: Instant,
    /// [`Reason::Coalesced`] or [`Reason::Policy`].
    pub reason: Reason,
}

/// A pending task that takes in older ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absorbed {
    /// The store's number for the task that stays.
    pub task: i64,
    /// Its interval starts here now.
    pub interval_start: Option<Instant>,
    /// Number of earlier slots it stands for now.
    pub coalesced: u64,
}

/// What is owed and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the plan starts from.
    pub basis: Basis,
    /// The schedule of the file is not the one in force: its version is to be recorded.
    pub is_new_version: bool,
    /// The slot to wait for before doing any of this.
    pub wait_until: Option<Instant>,
    /// Slots that become tasks, oldest first.
    pub run: Vec<Planned>,
    /// Pending tasks that a newer slot takes in.
    pub folded: Vec<Folded>,
    /// The pending task that takes them in, when no new slot does.
    pub absorbed: Option<Absorbed>,
    /// Slots recorded as left out, one bounding range for each reason.
    pub skipped: Vec<SkipRange>,
    /// Slots that stay owed after this plan.
    pub owed: u64,
    /// Where the cursor stands afterwards.
    pub cursor_after: Option<Instant>,
    /// End of the last interval planned afterwards.
    pub interval_end_after: Option<Instant>,
}

impl Plan {
    /// Whether anything has to be written.
    pub fn changes(&self, state: &State) -> bool {
        let is_anchor = self.basis != Basis::Cursor;
        self.wait_until.is_none()
            && (is_anchor || self.cursor_after != state.cursor || !self.folded.is_empty())
    }
}

/// How far a change of schedule goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The schedule of the file is the one in force.
    None,
    /// It was in force less than a day ago and comes back.
    Returned,
    /// It is new.
    New,
}

/// How the schedule of the file differs from the one in force.
pub fn change(timetable: &Timetable, state: &State, now: Instant) -> Change {
    let Some(in_force) = state.in_force() else {
        return Change::New;
    };
    let fingerprint = timetable.fingerprint();
    if in_force.fingerprint == fingerprint {
        return Change::None;
    }
    let ended =
        |pair: &[Version]| pair[0].fingerprint == fingerprint && pair[1].from > now - RETURN_WITHIN;
    if state.versions.windows(2).any(ended) {
        Change::Returned
    } else {
        Change::New
    }
}

/// How much is planned at once.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// At most so many slots, with [`Policy::Each`].
    pub limit: u32,
    /// No slot after this: it waits for another job.
    pub horizon: Option<Instant>,
}

impl Bounds {
    /// So many slots, and none waits for another job.
    pub fn slots(limit: u32) -> Self {
        Self {
            limit,
            horizon: None,
        }
    }
}

/// Plans slots of `job` at `now`. `zones` gives the rules of a zone for schedules of the past.
pub fn plan(
    job: &Job,
    timetable: &Timetable,
    state: &State,
    now: Instant,
    bounds: Bounds,
    zones: &dyn Fn(&str) -> Option<Zone>,
) -> Plan {
    let change = change(timetable, state, now);
    let planner = Planner {
        job,
        timetable,
        state,
        now,
        bounds,
        periods: done_periods(job, timetable, state),
        dealt: state.settled.iter().map(|settled| settled.slot).collect(),
    };
    let mut plan = match (state.cursor, timetable.start_at()) {
        (None, Some(start)) if start <= now => planner.owed_since(start - TICK),
        (None, _) => planner.anchored(Basis::FirstRun, None),
        (Some(cursor), _) if now < cursor - CLOCK_TOLERANCE => {
            planner.anchored(Basis::ClockWentBack, Some(cursor))
        }
        (Some(cursor), _) if change == Change::New && state.in_force().is_some() => {
            let old = state
                .in_force()
                .and_then(|version| version.spec.timetable(zones));
            planner.edited(cursor, old.as_ref())
        }
        (Some(cursor), _) => planner.owed_since(cursor),
    };
    plan.is_new_version = change != Change::None;
    plan
}

struct Planner<'a> {
    job: &'a Job,
    timetable: &'a Timetable,
    state: &'a State,
    now: Instant,
    bounds: Bounds,
    /// Periods that had a success.
    periods: BTreeSet<NaiveDateTime>,
    /// Slots that have a task already.
    dealt: BTreeSet<Instant>,
}

/// The periods of `job` that had a success.
fn done_periods(job: &Job, timetable: &Timetable, state: &State) -> BTreeSet<NaiveDateTime> {
    let succeeded = state.succeeded.iter();
    succeeded
        .filter_map(|slot| period_of(job, timetable.zone(), *slot))
        .collect()
}

/// The period a slot falls in, if the job has one.
fn period_of(job: &Job, zone: &Zone, slot: Instant) -> Option<NaiveDateTime> {
    job.catch_up
        .period
        .map(|period| period.start(zone.local(slot).naive_local()))
}

/// Whether the period of a slot had its success already.
pub fn is_period_done(job: &Job, timetable: &Timetable, state: &State, slot: Instant) -> bool {
    period_of(job, timetable.zone(), slot)
        .is_some_and(|period| done_periods(job, timetable, state).contains(&period))
}

/// How much later than its slot a task starts: the same for every host and every try.
fn jitter(job: &Job, slot: Instant) -> TimeDelta {
    let Some(limit) = job.catch_up.jitter.filter(|limit| !limit.is_zero()) else {
        return TimeDelta::zero();
    };
    // FNV-1a: fixed for ever, and even enough to spread starts.
    let key = format!("{}/{}", job.name, slot.timestamp());
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1);
    TimeDelta::milliseconds(i64::try_from(hash % limit_ms).unwrap_or_default())
}

/// A stretch `(after, until]` whose slots share a fate.
#[derive(Clone, Copy, Debug)]
struct Piece {
    after: Instant,
    until: Instant,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Left(Reason),
}

impl Planner<'_> {
    fn is_settled(&self, at: Instant) -> bool {
        self.dealt.contains(&at)
    }

    /// Why a slot that nobody dealt with is left alone all the same: its wall-clock time was done as another slot,
    /// or its period had its success.
    fn left_alone(&self, slot: &Slot) -> Option<Reason> {
        let mut settled = self.state.settled.iter();
        let is_other = |settled: &super::state::Settled| {
            settled.slot != slot.at && settled.nominal == Some(slot.nominal)
        };
        if slot.is_fixed && settled.any(is_other) {
            return Some(Reason::Duplicate);
        }
        let period = period_of(self.job, self.timetable.zone(), slot.at)?;
        self.periods.contains(&period).then_some(Reason::PeriodDone)
    }

    /// The last instant whose slots are looked at.
    fn horizon(&self) -> Instant {
        self.bounds
            .horizon
            .map_or(self.now, |horizon| horizon.min(self.now))
    }

    fn planned(&self, slot: Slot, interval_start: Instant, coalesced: u64) -> Planned {
        let due_at = slot.at + jitter(self.job, slot.at);
        Planned {
            slot,
            interval_start,
            coalesced,
            due_at,
        }
    }

    fn is_on_time(&self, at: Instant) -> bool {
        self.now - at <= self.job.catch_up.start_grace
    }

    /// A plan that changes nothing.
    fn nothing(&self, basis: Basis) -> Plan {
        Plan {
            basis,
            is_new_version: false,
            wait_until: None,
            run: Vec::new(),
            folded: Vec::new(),
            absorbed: None,
            skipped: Vec::new(),
            owed: 0,
            cursor_after: self.state.cursor,
            interval_end_after: self.state.interval_end,
        }
    }

    /// Nothing before now is due, except the newest slot if it is on time and nobody dealt with it.
    fn anchored(&self, basis: Basis, handled_until: Option<Instant>) -> Plan {
        let mut plan = self.nothing(basis);
        plan.cursor_after = Some(self.now);
        plan.interval_end_after = None;
        let newest = self.timetable.last_until(self.now).filter(|slot| {
            self.is_on_time(slot.at)
                && handled_until.is_none_or(|handled| slot.at > handled)
                && !self.is_settled(slot.at)
                && self.left_alone(slot).is_none()
                && self.fate_of(slot.at) == Fate::Open
        });
        let waits = newest.filter(|slot| slot.at > self.horizon());
        if let Some(slot) = waits {
            // It waits for another job, so it has to stay owed.
            plan.cursor_after = Some(slot.at - TICK);
        } else if let Some(slot) = newest {
            plan.interval_end_after = Some(slot.at);
            plan.run
                .push(self.planned(slot, self.tick_before(slot.at), 0));
        }
        self.fold(&mut plan);
        plan
    }

    /// Anchors after an edit; what the old schedule leaves out until now is recorded.
    fn edited(&self, cursor: Instant, old: Option<&Timetable>) -> Plan {
        // A slot of both schedules that the cursor has passed was dealt with under the old one.
        let is_old_slot =
            |at| old.is_some_and(|old| old.last_until(at).is_some_and(|slot| slot.at == at));
        let newest = self.timetable.last_until(self.now).map(|slot| slot.at);
        let handled = newest.filter(|at| *at <= cursor && is_old_slot(*at));
        let mut plan = self.anchored(Basis::ScheduleChanged, handled);
        if let Some(old) = old {
            let runs = plan.run.iter().map(|planned| planned.slot.at);
            let dealt = self.dealt.iter().copied().chain(runs).collect();
            let left_out = Tally::over(old, cursor, self.now, &dealt);
            plan.skipped
                .extend(left_out.map(|tally| tally.range(Reason::Anchored)));
        }
        plan
    }

    /// Everything after `after` is due; with nothing due, a slot that is close enough is waited for.
    fn owed_since(&self, after: Instant) -> Plan {
        let plan = self.due(after, self.horizon());
        if plan.changes(self.state) || self.bounds.horizon.is_some() {
            return plan;
        }
        let next = self
            .timetable
            .after(after.max(self.now))
            .next()
            .filter(|slot| {
                slot.at - self.now <= self.job.catch_up.early_wait
                    && !self.is_settled(slot.at)
                    && self.fate_of(slot.at) == Fate::Open
            });
        match next {
            Some(next) => Plan {
                wait_until: Some(next.at),
                ..self.due(after, next.at)
            },
            None => plan,
        }
    }

    /// Deals with the slots of `(after, until]`.
    fn due(&self, after: Instant, until: Instant) -> Plan {
        let mut plan = self.nothing(Basis::Cursor);
        let Some(last) = self
            .timetable
            .last_until(until)
            .filter(|slot| slot.at > after)
        else {
            self.fold(&mut plan);
            return plan;
        };
        let pieces = self.pieces(after, until);
        let mut chosen = match self.job.catch_up.policy {
            Policy::Each => self.each(&pieces),
            Policy::Once => self.newest(&pieces, Reason::Coalesced, |_| true),
            Policy::Skip => self.newest(&pieces, Reason::Policy, |slot| self.is_on_time(slot.at)),
        };
        let end = chosen.cut.unwrap_or(last.at);
        plan.owed = chosen.owed;
        plan.cursor_after = Some(end);
        self.left_out(&pieces, end, &mut chosen);
        self.set_intervals(after, &mut plan, &chosen);
        plan.skipped = bounding(chosen.left);
        self.fold(&mut plan);
        plan
    }

    /// `(after, until]` cut where the fate of slots changes, oldest first.
    fn pieces(&self, after: Instant, until: Instant) -> Vec<Piece> {
        let excluded = self
            .job
            .catch_up
            .exclusions
            .stretches(self.timetable.zone(), after, until);
        let paused = &self.state.pauses;
        let window = self.job.catch_up.window.map(|window| until - window - TICK);
        let mut cuts: Vec<Instant> = excluded
            .iter()
            .chain(paused)
            .flat_map(|(from, to)| [*from - TICK, *to - TICK])
            .chain(window)
            .filter(|cut| *cut > after && *cut < until)
            .chain([until])
            .collect();
        cuts.sort_unstable();
        cuts.dedup();
        let covers = |stretches: &[(Instant, Instant)], at: Instant| {
            stretches.iter().any(|(from, to)| *from <= at && at < *to)
        };
        let mut start = after;
        let mut pieces = Vec::with_capacity(cuts.len());
        for cut in cuts {
            let first = start + TICK;
            let fate = if covers(&excluded, first) {
                Fate::Left(Reason::Excluded)
            } else if covers(paused, first) {
                Fate::Left(Reason::Paused)
            } else if window.is_some_and(|window| cut <= window) {
                Fate::Left(Reason::Expired)
            } else {
                Fate::Open
            };
            pieces.push(Piece {
                after: start,
                until: cut,
                fate,
            });
            start = cut;
        }
        pieces
    }

    /// The fate of a single slot, apart from the window.
    fn fate_of(&self, at: Instant) -> Fate {
        let pieces = self.pieces(at - TICK, at);
        pieces.first().map_or(Fate::Open, |piece| piece.fate)
    }

    /// The oldest open slots, up to the limit; the rest stays owed.
    fn each(&self, pieces: &[Piece]) -> Chosen {
        let mut chosen = Chosen::default();
        let mut dealt_until = None;
        for piece in pieces.iter().filter(|piece| piece.fate == Fate::Open) {
            if let Some(cut) = chosen.cut {
                chosen.owed += self
                    .unsettled(piece.after.max(cut), piece.until)
                    .map_or(0, |tally| tally.count);
                continue;
            }
            for slot in self
                .timetable
                .after(piece.after)
                .take_while(|slot| slot.at <= piece.until)
            {
                if self.is_settled(slot.at) {
                    continue;
                }
                if chosen.run.len() >= self.bounds.limit as usize {
                    chosen.cut = Some(dealt_until.unwrap_or(slot.at - TICK));
                    chosen.owed += self
                        .unsettled(slot.at - TICK, piece.until)
                        .map_or(0, |tally| tally.count);
                    break;
                }
                dealt_until = Some(slot.at);
                match self.left_alone(&slot) {
                    Some(reason) => chosen.left.push((Tally::one(slot.at), reason)),
                    None => chosen.run.push(slot),
                }
            }
        }
        chosen
    }

    /// The newest open slot, if `is_wanted`; `reason` for all the others.
    fn newest(
        &self,
        pieces: &[Piece],
        reason: Reason,
        is_wanted: impl Fn(&Slot) -> bool,
    ) -> Chosen {
        let mut chosen = Chosen::default();
        let open = || pieces.iter().filter(|piece| piece.fate == Fate::Open);
        let newest = open()
            .rev()
            .find_map(|piece| self.newest_in(piece, &mut chosen.left));
        let run = newest.filter(&is_wanted);
        let limit = run.map(|slot| slot.at);
        // What lies behind the duplicates passed on the way is settled.
        let duplicates = chosen.left.iter().map(|(tally, _)| tally.first).min();
        for piece in open() {
            let ends = limit.into_iter().chain(duplicates).map(|end| end - TICK);
            let until = ends.fold(piece.until, Instant::min);
            if let Some(tally) = self.unsettled(piece.after, until) {
                chosen.coalesced += if reason == Reason::Coalesced {
                    tally.count
                } else {
                    0
                };
                chosen.left.push((tally, reason));
            }
        }
        chosen.left.sort_by_key(|(tally, _)| tally.first);
        chosen.run.extend(run);
        chosen
    }

    /// The newest slot of a piece that nobody dealt with; duplicates on the way to it go to `left`.
    fn newest_in(&self, piece: &Piece, left: &mut Vec<(Tally, Reason)>) -> Option<Slot> {
        let mut candidate = self.timetable.last_until(piece.until);
        while let Some(slot) = candidate.filter(|slot| slot.at > piece.after) {
            if !self.is_settled(slot.at) {
                match self.left_alone(&slot) {
                    Some(reason) => left.push((Tally::one(slot.at), reason)),
                    None => return Some(slot),
                }
            }
            candidate = self.timetable.last_before(slot.at);
        }
        None
    }

    /// Adds what the pieces up to `end` leave out by themselves.
    fn left_out(&self, pieces: &[Piece], end: Instant, chosen: &mut Chosen) {
        for piece in pieces.iter().filter(|piece| piece.after < end) {
            if let Fate::Left(reason) = piece.fate
                && let Some(tally) = self.unsettled(piece.after, piece.until.min(end))
            {
                chosen.left.push((tally, reason));
            }
        }
        chosen.left.sort_by_key(|(tally, _)| tally.first);
    }

    fn unsettled(&self, after: Instant, until: Instant) -> Option<Tally> {
        Tally::over(self.timetable, after, until, &self.dealt)
    }

    /// Gives each chosen slot the start of its interval: the end of the last one planned, or of a recorded hole.
    fn set_intervals(&self, after: Instant, plan: &mut Plan, chosen: &Chosen) {
        let first = self
            .timetable
            .after(after)
            .next()
            .map_or(after, |slot| slot.at);
        let mut start = self
            .state
            .interval_end
            .filter(|end| *end < first)
            .unwrap_or_else(|| self.tick_before(first));
        let mut has_moved = false;
        let holes = chosen
            .left
            .iter()
            .filter(|(_, reason)| moves_interval(*reason));
        let mut holes = holes.map(|(tally, _)| tally.last).peekable();
        for slot in &chosen.run {
            while let Some(hole) = holes.next_if(|hole| *hole < slot.at) {
                start = start.max(hole);
            }
            plan.run.push(self.planned(*slot, start, chosen.coalesced));
            start = slot.at;
            has_moved = true;
        }
        for hole in holes {
            start = start.max(hole);
            has_moved = true;
        }
        if has_moved {
            plan.interval_end_after = Some(start);
        }
    }

    /// The slot before `at`, as the expressions say, whatever `start_at` says.
    fn tick_before(&self, at: Instant) -> Instant {
        self.timetable.tick_before(at).unwrap_or(at)
    }

    /// Lets the newest slot take in pending tasks that were never really tried.
    fn fold(&self, plan: &mut Plan) {
        let foldable = &self.state.foldable;
        match self.job.catch_up.policy {
            Policy::Each => {}
            Policy::Once => match plan.run.last_mut() {
                Some(newest) => {
                    for task in foldable {
                        newest.coalesced += 1 + task.coalesced;
                        newest.interval_start =
                            task.interval_start.map_or(newest.interval_start, |start| {
                                start.min(newest.interval_start)
                            });
                        plan.folded.extend(folded(task, Reason::Coalesced));
                    }
                }
                None => self.absorb(plan),
            },
            Policy::Skip => {
                let newest = foldable.last().filter(|_| plan.run.is_empty());
                let stays =
                    newest.filter(|task| task.slot.is_some_and(|slot| self.is_on_time(slot)));
                let late = foldable
                    .iter()
                    .filter(|task| stays.is_none_or(|stays| stays.id != task.id));
                plan.folded
                    .extend(late.filter_map(|task| folded(task, Reason::Policy)));
            }
        }
    }

    /// The newest pending task takes in the older ones.
    fn absorb(&self, plan: &mut Plan) {
        let Some((newest, older)) = self
            .state
            .foldable
            .split_last()
            .filter(|(_, older)| !older.is_empty())
        else {
            return;
        };
        plan.absorbed = Some(Absorbed {
            task: newest.id,
            interval_start: older
                .iter()
                .chain([newest])
                .filter_map(|task| task.interval_start)
                .min(),
            coalesced: newest.coalesced + older.iter().map(|task| 1 + task.coalesced).sum::<u64>(),
        });
        plan.folded.extend(
            older
                .iter()
                .filter_map(|task| folded(task, Reason::Coalesced)),
        );
    }
}

fn folded(task: &Task, reason: Reason) -> Option<Folded> {
    task.slot.map(|slot| Folded {
        task: task.id,
        slot,
        reason,
    })
}

/// Whether a range of this reason is a hole that the next interval starts after (design of intervals: excluded
/// and coalesced slots belong to the interval of the next run).
fn moves_interval(reason: Reason) -> bool {
    match reason {
        Reason::Paused | Reason::Expired | Reason::Policy | Reason::Manual => true,
        Reason::Coalesced
        | Reason::Excluded
        | Reason::Anchored
        | Reason::PeriodDone
        | Reason::Duplicate => false,
    }
}

/// What a policy makes of the open pieces.
#[derive(Default)]
struct Chosen {
    run: Vec<Slot>,
    left: Vec<(Tally, Reason)>,
    coalesced: u64,
    cut: Option<Instant>,
    owed: u64,
}

/// Some slots, counted.
#[derive(Clone, Copy)]
struct Tally {
    first: Instant,
    last: Instant,
    count: u64,
}

impl Tally {
    fn one(at: Instant) -> Self {
        Self {
            first: at,
            last: at,
            count: 1,
        }
    }

    /// Slots of `(after, until]` that are not `dealt` with; none if there are none.
    fn over(
        timetable: &Timetable,
        after: Instant,
        until: Instant,
        dealt: &BTreeSet<Instant>,
    ) -> Option<Self> {
        if until <= after {
            return None;
        }
        let mut slots = timetable.after(after).take_while(|slot| slot.at <= until);
        let first = slots.find(|slot| !dealt.contains(&slot.at))?.at;
        let mut last = timetable.last_until(until)?.at;
        while dealt.contains(&last) {
            last = timetable.last_before(last)?.at;
        }
        let is_slot = |at: &&Instant| {
            timetable
                .last_until(**at)
                .is_some_and(|slot| slot.at == **at)
        };
        let between = dealt.range(first..=last).filter(is_slot).count();
        let count = timetable.count(first - TICK, last) - between as u64;
        Some(Self { first, last, count })
    }

    fn range(self, reason: Reason) -> SkipRange {
        SkipRange {
            from: self.first,
            to: self.last,
            count: self.count,
            reason,
        }
    }
}

/// One range for each reason, in the order of their first slots.
fn bounding(left: Vec<(Tally, Reason)>) -> Vec<SkipRange> {
    let mut ranges: Vec<SkipRange> = Vec::new();
    for (tally, reason) in left {
        match ranges.iter_mut().find(|range| range.reason == reason) {
            Some(range) => {
                range.from = range.from.min(tally.first);
                range.to = range.to.max(tally.last);
                range.count += tally.count;
            }
            None => ranges.push(tally.range(reason)),
        }
    }
    ranges
}

#[cfg(test)]
pub mod testing {
    //! Jobs and tasks for tests of the rules.

    use std::time::Duration;

    use super::*;
    use crate::domain::job::{CatchUp, Limits, OnInterrupted, Retry, Work};
    use crate::domain::lifecycle::Trigger;
    use crate::domain::schedule::{Cron, testing::zone};

    /// A job with the defaults of jobs.toml(5).
    pub fn job(schedule: &str, timezone: &str) -> Job {
        let cron = Cron::parse(schedule).expect("an expression");
        Job {
            name: "j".into(),
            work: Work::Shell("true".into()),
            timetable: Some(Timetable::new(vec![cron], zone(timezone), None, None)),
            catch_up: CatchUp {
                policy: Policy::Once,
                window: None,
                limit: 1000,
                start_grace: TimeDelta::minutes(10),
                early_wait: TimeDelta::seconds(10),
                exclusions: crate::domain::calendar::Exclusions::default(),
                period: None,
                jitter: None,
                after: Vec::new(),
                depends_on_past: false,
                pause_after: None,
            },
            lock_wait: Duration::ZERO,
            limits: Limits {
                timeout: None,
                kill_after: Duration::from_secs(10),
                max_runtime: None,
            },
            retry: Retry {
                delays: Vec::new(),
                wait: Duration::from_secs(60),
                success_codes: vec![0],
                on_interrupted: OnInterrupted::Retry,
                interrupted_limit: 3,
                fatal_codes: Vec::new(),
                snooze: crate::domain::job::Snooze {
                    codes: Vec::new(),
                    delay: Duration::from_secs(60),
                    limit: Duration::from_secs(86400),
                },
            },
            lock_group: None,
            is_enabled: true,
            surroundings: crate::domain::job::Surroundings::default(),
        }
    }

    /// A pending task of a slot that was never tried.
    pub fn task(id: i64, slot: Instant) -> Task {
        Task {
            id,
            slot: Some(slot),
            nominal: None,
            key: String::new(),
            due_at: slot,
            attempts: 0,
            interruptions: 0,
            runs: 0,
            first_tried_at: None,
            is_snoozed: false,
            trigger: Trigger::Schedule,
            interval_start: None,
            coalesced: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{job, task};
    use super::*;
    use crate::domain::schedule::testing::zone;
    use crate::domain::schedule::{Cron, LocalTime};
    use crate::domain::state::{Settled, Spec};
    use chrono::{DateTime, NaiveDate};
    use serde_json::{Value, json};

    fn at(text: &str) -> Instant {
        text.parse().expect("an instant")
    }

    fn version(timetable: &Timetable, from: &str, host: &str) -> Version {
        Version {
            fingerprint: timetable.fingerprint(),
            spec: Spec::of(timetable),
            from: at(from),
            host: host.into(),
        }
    }

    fn timetable(schedule: &str, timezone: &str) -> Timetable {
        Timetable::new(
            vec![Cron::parse(schedule).expect(schedule)],
            zone(timezone),
            None,
            None,
        )
    }

    /// A state with that cursor, under the job's own schedule.
    fn known(job: &Job, cursor: &str) -> State {
        let timetable = job.timetable.as_ref().expect("a timetable");
        State {
            cursor: Some(at(cursor)),
            versions: vec![version(timetable, "2020-01-01T00:00:00Z", "h")],
            ..State::default()
        }
    }

    fn planned(job: &Job, state: &State, now: &str) -> Plan {
        let timetable = job.timetable.as_ref().expect("a timetable");
        plan(
            job,
            timetable,
            state,
            at(now),
            Bounds::slots(job.catch_up.limit),
            &|name| Some(zone(name)),
        )
    }

    fn slots(plan: &Plan) -> Vec<String> {
        plan.run
            .iter()
            .map(|planned| planned.slot.at.format("%dT%H:%M").to_string())
            .collect()
    }

    mod vectors {
        use super::*;

        fn read_job(value: &Value) -> Job {
            let text = |key: &str| value[key].as_str();
            let mut job = job(
                text("schedule").expect("a schedule"),
                text("timezone").expect("a zone"),
            );
            let duration = |text: &str| {
                TimeDelta::from_std(humantime::parse_duration(text).expect(text)).expect(text)
            };
            job.catch_up.policy = match text("catch_up").expect("a policy") {
                "each" => Policy::Each,
                "once" => Policy::Once,
                _ => Policy::Skip,
            };
            job.catch_up.window = text("catch_up_window").map(duration);
            if let Some(limit) = value["catch_up_limit"].as_u64() {
                job.catch_up.limit = u32::try_from(limit).expect("a limit");
            }
            for date in value["exclude"].as_array().into_iter().flatten() {
                let date: NaiveDate = date.as_str().expect("a date").parse().expect("a date");
                job.catch_up.exclusions.dates.insert(date);
            }
            let own = job.timetable.as_ref().expect("a timetable");
            let bound =
                |key: &str| {
                    let text = text(key)?;
                    let local = text.parse().map(|local| match own.zone().resolve(local) {
                        LocalTime::One(at)
                        | LocalTime::Gap { at }
                        | LocalTime::Fold { first: at, .. } => at,
                    });
                    Some(local.unwrap_or_else(|_| {
                        DateTime::parse_from_rfc3339(text).expect(text).to_utc()
                    }))
                };
            let cron = Cron::parse(text("schedule").expect("a schedule")).expect("an expression");
            let bounded = Timetable::new(
                vec![cron],
                own.zone().clone(),
                bound("start_at"),
                bound("end_at"),
            );
            job.timetable = Some(bounded);
            job
        }

        fn read_state(job: &Job, value: &Value) -> State {
            let own = job.timetable.as_ref().expect("a timetable");
            let instants = |key: &str| -> Vec<Instant> {
                let list = value[key].as_array().into_iter().flatten();
                list.map(|text| at(text.as_str().expect("an instant")))
                    .collect()
            };
            let in_force = match value["old_schedule"].as_str() {
                Some(old) => timetable(old, own.zone().name()),
                None => own.clone(),
            };
            let cursor = value["cursor"].as_str().map(at);
            State {
                cursor,
                versions: cursor
                    .iter()
                    .map(|_| version(&in_force, "2000-01-01T00:00:00Z", "h"))
                    .collect(),
                pauses: instants("paused")
                    .chunks(2)
                    .map(|pair| (pair[0], pair[1]))
                    .collect(),
                settled: instants("settled")
                    .into_iter()
                    .map(|slot| Settled {
                        slot,
                        nominal: None,
                    })
                    .collect(),
                ..State::default()
            }
        }

        fn shown(plan: &Plan, has_interval: bool) -> Value {
            let text = |at: Instant| at.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true);
            let mut shown = json!({
                "wait_until": plan.wait_until.map(text),
                "run": plan.run.iter().map(|planned| text(planned.slot.at)).collect::<Vec<_>>(),
                "skipped": plan.skipped.iter().map(|range| json!({
                    "from": text(range.from), "to": text(range.to), "count": range.count, "reason": range.reason,
                })).collect::<Vec<_>>(),
                "cursor_after": plan.cursor_after.map(text),
                "owed": plan.owed,
                "basis": plan.basis,
            });
            if has_interval {
                shown["interval_start"] = json!(text(plan.run[0].interval_start));
            }
            shown
        }

        #[test]
        fn every_catch_up_vector_is_planned_as_it_says() {
            let vectors: Value =
                serde_json::from_str(include_str!("../../tests/vectors/catch_up.json"))
                    .expect("JSON");
            for vector in vectors.as_array().expect("a list") {
                let job = read_job(&vector["job"]);
                let state = read_state(&job, &vector["state"]);
                let plan = planned(&job, &state, vector["now"].as_str().expect("now"));
                let expect = &vector["expect"];
                let has_interval = expect.get("interval_start").is_some();
                assert_eq!(shown(&plan, has_interval), *expect, "{}", vector["name"]);
            }
        }
    }

    #[test]
    fn intervals_tile() {
        let mut job = job("0 * * * *", "Europe/Berlin");
        job.catch_up.policy = Policy::Each;
        let mut state = known(&job, "2026-10-24T20:00:00Z");
        state.interval_end = state.cursor;
        let plan = planned(&job, &state, "2026-10-25T05:00:00Z");
        let mut end = at("2026-10-24T20:00:00Z");
        for planned in &plan.run {
            assert_eq!(planned.interval_start, end);
            end = planned.slot.at;
        }
        assert_eq!(plan.interval_end_after, Some(end));
    }

    #[test]
    fn a_late_slot_is_on_time_up_to_the_grace() {
        let mut job = job("0 6 * * *", "UTC");
        job.catch_up.policy = Policy::Skip;
        let state = known(&job, "2026-05-04T06:00:00Z");
        assert_eq!(
            slots(&planned(&job, &state, "2026-05-05T06:10:00Z")),
            ["05T06:00"]
        );
        assert!(slots(&planned(&job, &state, "2026-05-05T06:10:00.001Z")).is_empty());
    }

    #[test]
    fn an_edit_records_what_the_old_schedule_leaves_out() {
        let job = job("30 * * * *", "UTC");
        let mut state = known(&job, "2026-05-05T06:00:00Z");
        state.versions = vec![version(
            &timetable("0 * * * *", "UTC"),
            "2026-01-01T00:00:00Z",
            "a",
        )];
        let plan = planned(&job, &state, "2026-05-05T09:10:00Z");
        assert_eq!(plan.basis, Basis::ScheduleChanged);
        assert!(plan.is_new_version && plan.run.is_empty());
        let range = SkipRange {
            from: at("2026-05-05T07:00:00Z"),
            to: at("2026-05-05T09:00:00Z"),
            count: 3,
            reason: Reason::Anchored,
        };
        assert_eq!(plan.skipped, [range]);
    }

    #[test]
    fn a_slot_of_both_schedules_is_not_run_again_by_the_edit() {
        let job = job("0 * * * *", "UTC");
        let mut state = known(&job, "2026-05-05T09:00:00Z");
        state.versions = vec![version(
            &timetable("0,30 * * * *", "UTC"),
            "2026-01-01T00:00:00Z",
            "a",
        )];
        // Left out under the old schedule, so without a task: still dealt with.
        let plan = planned(&job, &state, "2026-05-05T09:05:00Z");
        assert!(plan.run.is_empty() && plan.basis == Basis::ScheduleChanged);
        state.cursor = Some(at("2026-05-05T08:30:00Z"));
        assert_eq!(
            slots(&planned(&job, &state, "2026-05-05T09:05:00Z")),
            ["05T09:00"]
        );
    }

    #[test]
    fn a_schedule_that_comes_back_within_a_day_does_not_anchor() {
        let job = job("0 * * * *", "UTC");
        let own = job.timetable.as_ref().expect("a timetable");
        let other = timetable("30 * * * *", "UTC");
        let mut state = known(&job, "2026-05-05T09:00:00Z");
        state.versions = vec![
            version(own, "2026-01-01T00:00:00Z", "a"),
            version(&other, "2026-05-05T09:05:00Z", "b"),
        ];
        let plan = planned(&job, &state, "2026-05-05T10:00:05Z");
        assert_eq!((plan.basis, plan.is_new_version), (Basis::Cursor, true));
        assert_eq!(slots(&plan), ["05T10:00"]);
        // Two days later it is an edit like any other.
        let plan = planned(&job, &state, "2026-05-07T10:00:05Z");
        assert_eq!(plan.basis, Basis::ScheduleChanged);
    }

    #[test]
    fn a_clock_well_behind_the_cursor_anchors_and_runs_nothing_twice() {
        let job = job("* * * * *", "UTC");
        let state = known(&job, "2026-05-05T09:00:00Z");
        let plan = planned(&job, &state, "2026-05-05T08:54:59Z");
        assert_eq!(
            (plan.basis, plan.cursor_after),
            (Basis::ClockWentBack, Some(at("2026-05-05T08:54:59Z")))
        );
        assert!(plan.run.is_empty());
        let plan = planned(&job, &state, "2026-05-05T08:55:00Z");
        assert!(!plan.changes(&state));
    }

    #[test]
    fn slots_that_have_a_task_are_neither_run_nor_counted_again() {
        let mut job = job("0 * * * *", "UTC");
        let mut state = known(&job, "2026-05-05T05:00:00Z");
        state.settled = ["2026-05-05T07:00:00Z", "2026-05-05T09:00:00Z"]
            .map(|slot| Settled {
                slot: at(slot),
                nominal: None,
            })
            .to_vec();
        let plan = planned(&job, &state, "2026-05-05T09:30:00Z");
        assert_eq!(slots(&plan), ["05T08:00"]);
        assert_eq!((plan.run[0].coalesced, plan.skipped[0].count), (1, 1));
        assert_eq!(plan.cursor_after, Some(at("2026-05-05T09:00:00Z")));
        job.catch_up.policy = Policy::Each;
        assert_eq!(
            slots(&planned(&job, &state, "2026-05-05T09:30:00Z")),
            ["05T06:00", "05T08:00"]
        );
    }

    #[test]
    fn one_wall_clock_time_is_not_two_slots_after_a_change_of_zone() {
        let job = job("0 9 * * *", "Europe/Berlin");
        let mut state = known(&job, "2026-05-05T01:00:05Z");
        let nominal = "2026-05-05T09:00:00".parse().ok();
        state.settled = vec![Settled {
            slot: at("2026-05-05T01:00:00Z"),
            nominal,
        }];
        let plan = planned(&job, &state, "2026-05-05T07:00:05Z");
        assert!(plan.run.is_empty());
        assert_eq!(
            (plan.skipped[0].reason, plan.skipped[0].count),
            (Reason::Duplicate, 1)
        );
    }

    #[test]
    fn a_lone_pending_task_stays_as_it_is() {
        let job = job("0 * * * *", "UTC");
        let mut state = known(&job, "2026-05-05T09:00:00Z");
        state.foldable = vec![task(1, at("2026-05-05T09:00:00Z"))];
        let plan = planned(&job, &state, "2026-05-05T09:30:00Z");
        assert!(!plan.changes(&state) && plan.absorbed.is_none());
    }

    #[test]
    fn a_late_pending_task_is_left_out_by_skip() {
        let mut job = job("0 * * * *", "UTC");
        job.catch_up.policy = Policy::Skip;
        let mut state = known(&job, "2026-05-05T09:00:00Z");
        state.foldable = vec![task(1, at("2026-05-05T09:00:00Z"))];
        assert!(
            planned(&job, &state, "2026-05-05T09:09:00Z")
                .folded
                .is_empty()
        );
        let late = planned(&job, &state, "2026-05-05T09:30:00Z");
        assert_eq!(late.folded[0].reason, Reason::Policy);
    }

    #[test]
    fn the_newest_slot_stands_for_those_before_and_after_a_pause() {
        let job = job("0 * * * *", "UTC");
        let mut state = known(&job, "2026-05-05T00:00:00Z");
        state.pauses = vec![(at("2026-05-05T02:30:00Z"), at("2026-05-05T04:30:00Z"))];
        let plan = planned(&job, &state, "2026-05-05T08:10:00Z");
        assert_eq!(slots(&plan), ["05T08:00"]);
        let counts: Vec<_> = plan
            .skipped
            .iter()
            .map(|range| (range.reason, range.count))
            .collect();
        assert_eq!(counts, [(Reason::Coalesced, 5), (Reason::Paused, 2)]);
        assert_eq!(plan.run[0].coalesced, 5);
    }

    #[test]
    fn the_limit_cuts_ranges_too() {
        let mut job = job("0 * * * *", "UTC");
        job.catch_up.policy = Policy::Each;
        job.catch_up.limit = 2;
        let mut state = known(&job, "2026-05-05T00:00:00Z");
        state.pauses = vec![
            (at("2026-05-05T01:30:00Z"), at("2026-05-05T02:30:00Z")),
            (at("2026-05-05T05:30:00Z"), at("2026-05-05T06:30:00Z")),
        ];
        let plan = planned(&job, &state, "2026-05-05T08:00:00Z");
        assert_eq!(slots(&plan), ["05T01:00", "05T03:00"]);
        assert_eq!(
            (plan.skipped.len(), plan.skipped[0].count, plan.owed),
            (1, 1, 4)
        );
        assert_eq!(plan.run[1].interval_start, at("2026-05-05T02:00:00Z"));
    }

    #[test]
    fn planning_ten_years_of_minutes_counts_instead_of_walking() {
        let mut job = job("* * * * *", "Europe/Berlin");
        let state = known(&job, "2016-05-05T00:00:00Z");
        for policy in [Policy::Once, Policy::Skip, Policy::Each] {
            job.catch_up.policy = policy;
            let plan = planned(&job, &state, "2026-05-05T00:00:30Z");
            let left_out: u64 = plan.skipped.iter().map(|range| range.count).sum();
            assert_eq!(plan.run.len() as u64 + left_out + plan.owed, 5_258_880);
        }
    }
}
