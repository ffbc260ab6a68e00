//! Whether what a job says about SQL, items and many tasks goes together.

use std::ops::Range;

use toml::Spanned;

use super::Builder;
use super::sql::name_of;
use crate::config::raw::{RawJob, Text};
use crate::domain::job::{Items, Scope, Source, Sql, Work};
use crate::domain::sql::{Dialect, Parameter, Script};

/// What a task of a slot, or its making, has and no other.
const OF_SLOT: [Parameter; 3] = [
    Parameter::Slot,
    Parameter::IntervalStart,
    Parameter::IntervalEnd,
];
/// What a task with a key has.
const OF_KEY: [Parameter; 3] = [Parameter::Key, Parameter::Keys, Parameter::Payload];
/// What each task has for itself.
const OF_ONE: [Parameter; 3] = [Parameter::Payload, Parameter::Task, Parameter::Attempt];
/// What there is only once a task is made.
const OF_TASK: [Parameter; 5] = [
    Parameter::Key,
    Parameter::Keys,
    Parameter::Payload,
    Parameter::Task,
    Parameter::Attempt,
];

impl Builder<'_> {
    /// Adds what does not go together; what has no effect is complained of where the job itself says it: `[defaults]`
    /// are for other jobs too.
    pub(super) fn check_fit(
        &mut self,
        own: &RawJob,
        raw: &RawJob,
        work: Option<&Work>,
        items: Option<&Items>,
    ) {
        let sql = work.and_then(Work::sql).map(AsRef::as_ref);
        if let (Some(text), Some(sql)) = (&raw.sql, sql) {
            self.check_keys(raw, text, sql);
            self.check_one_or_many(raw, text, sql);
            let is_without_slot = items.is_some_and(|items| items.scope == Scope::Job);
            if is_without_slot || !has_slots(raw) {
                self.refuse_slot(raw, text, &sql.script);
            }
        }
        if let Some(items) = items {
            self.check_items(raw, items);
        }
        self.warn_about_batch(own, raw, sql);
        self.warn_about_sharing(own, raw);
        if raw.sql.is_some() {
            self.warn_about_one_writer(own);
        } else if let Some(rows) = &own.expect_rows {
            let hint = "a command says by its exit code whether it did its work".to_owned();
            let message = "`expect_rows` has no effect without `sql`";
            self.warning(rows.span(), message, Some(hint));
        }
        if raw.sql.is_some() && raw.items_command.is_none() {
            self.warn_about_command_keys(own);
        }
    }

    /// Items have keys, and the task of a slot has none.
    fn check_keys(&mut self, raw: &RawJob, text: &Text, sql: &Sql) {
        let script = &sql.script;
        if has_items(raw) && !script.uses(Parameter::Key) && !script.uses(Parameter::Keys) {
            let message =
                "`sql` uses neither `:key` nor `:keys`: it would do the same for every item";
            let hint = "say what it does for one of them, as in `WHERE id = :key`; without `items` it runs once a slot";
            self.error(text.span(), message, Some(hint.to_owned()));
        }
        if has_items(raw) || !has_slots(raw) {
            return;
        }
        for parameter in used(script, &OF_KEY) {
            let message = format!(
                "`{}` has no value: the task of a slot has neither key nor payload",
                name_of(parameter)
            );
            let hint = "add `items = \"SELECT …\"` for one task a key, or leave the schedule out for a job of ad-hoc tasks";
            let place = self.place_of(text, parameter);
            self.error(place, message, Some(hint.to_owned()));
        }
    }

    /// One statement for many tasks has nothing of one of them, and says by rows which it did.
    fn check_one_or_many(&mut self, raw: &RawJob, text: &Text, sql: &Sql) {
        if !sql.is_set_based() {
            return;
        }
        for parameter in used(&sql.script, &OF_ONE) {
            let message = format!(
                "`{}` is of one task, and `:keys` are those of many",
                name_of(parameter)
            );
            let hint = "write `:key` instead of `:keys` to do one task at a time".to_owned();
            let place = self.place_of(text, parameter);
            self.error(place, message, Some(hint));
        }
        let Some(last) = sql.script.statements.last() else {
            return;
        };
        if let Some(rows) = raw.expect_rows.as_ref().filter(|_| !last.has_rows()) {
            let message = "`expect_rows` with `:keys` needs a last statement that returns the key of each row";
            let condition = match self.dialect {
                Dialect::Postgres => "id = ANY(:keys)",
                Dialect::Sqlite => "id IN (SELECT value FROM json_each(:keys))",
            };
            let hint = format!(
                "end it with `RETURNING` and the column of the key, as in `UPDATE … WHERE {condition} RETURNING id`; or do one task at a time, with `:key`"
            );
            self.error(rows.span(), message, Some(hint));
        }
    }

    fn check_items(&mut self, raw: &RawJob, items: &Items) {
        if !has_slots(raw) && items.scope == Scope::Slot {
            let hint = "give the job a `schedule` or `every`".to_owned();
            let message = "there is no slot to make items for";
            self.error(items_place(raw), message, Some(hint));
        }
        let (Source::Query(query), Some(text)) = (&items.source, &raw.items) else {
            return;
        };
        for parameter in used(query, &OF_TASK) {
            let message = format!(
                "`{}` has no value in `items`, which make the tasks",
                name_of(parameter)
            );
            let hint = "`items` can use `:slot`, `:interval_start` and `:interval_end`".to_owned();
            let place = self.place_of(text, parameter);
            self.error(place, message, Some(hint));
        }
        if !has_slots(raw) {
            self.refuse_slot(raw, text, query);
        }
        // Items of the whole job are a poll: what a slot does not see, the next one does.
        if items.scope == Scope::Slot && used(query, &OF_SLOT).next().is_none() {
            let message = "`items` does not use `:slot`: a slot that is caught up later gets the list of then";
            let hint = "say which moment it means, as in `WHERE opened_at < :slot`".to_owned();
            self.warning(text.span(), message, Some(hint));
        }
    }

    /// Of a script that is never run for a slot.
    fn refuse_slot(&mut self, raw: &RawJob, text: &Text, script: &Script) {
        let (why, hint) = if has_slots(raw) {
            (
                "items of the scope `job` have no slot",
                "what they need of it can be their payload, the second column of `items`",
            )
        } else {
            (
                "the job has no schedule",
                "give the job a `schedule` or `every`",
            )
        };
        for parameter in used(script, &OF_SLOT) {
            let message = format!("`{}` has no value: {why}", name_of(parameter));
            let place = self.place_of(text, parameter);
            self.error(place, message, Some(hint.to_owned()));
        }
    }

    fn warn_about_batch(&mut self, own: &RawJob, raw: &RawJob, sql: Option<&Sql>) {
        // What faulty SQL would use is not known.
        let is_known = raw.sql.is_none() || sql.is_some();
        let is_used = sql.is_some_and(Sql::is_set_based);
        if let Some(batch) = own.batch.as_ref().filter(|_| is_known && !is_used) {
            let hint = "it is how many tasks an `sql` that uses `:keys` does in one transaction"
                .to_owned();
            let message = "`batch` has no effect without `:keys`";
            self.warning(batch.span(), message, Some(hint));
        }
    }

    fn warn_about_sharing(&mut self, own: &RawJob, raw: &RawJob) {
        let runners = own.runners.as_ref();
        let Some(many) = runners.filter(|runners| runners.get_ref() == "many") else {
            return;
        };
        if has_slots(raw) && !has_items(raw) {
            let hint =
                "it is for `items`; of this job, only ad-hoc tasks would be shared".to_owned();
            let message = "there is nothing to share: a slot is one task";
            self.warning(many.span(), message, Some(hint));
        }
    }

    fn warn_about_one_writer(&mut self, own: &RawJob) {
        let concurrency = own.concurrency.as_ref();
        let many = concurrency.filter(|number| *number.get_ref() > 1);
        if let (Some(many), Dialect::Sqlite) = (many, self.dialect) {
            let hint = "`:keys` does many tasks in one transaction; PostgreSQL has many writers";
            let message = "SQLite has one writer: its transactions wait for one another";
            self.warning(many.span(), message, Some(hint.to_owned()));
        }
    }

    fn warn_about_command_keys(&mut self, own: &RawJob) {
        for (key, place) in command_keys(own) {
            if let Some(place) = place {
                let hint = "it is for `command` and `shell`; leave it out".to_owned();
                let message = format!("`{key}` has no effect on SQL");
                self.warning(place, message, Some(hint));
            }
        }
    }
}

fn has_items(raw: &RawJob) -> bool {
    raw.items.is_some() || raw.items_command.is_some()
}

/// Whether the job says when it runs; faulty or not.
fn has_slots(raw: &RawJob) -> bool {
    raw.schedule.is_some() || raw.every.is_some()
}

fn items_place(raw: &RawJob) -> Range<usize> {
    let query = raw.items.as_ref().map(Spanned::span);
    let command = raw.items_command.as_ref().map(Spanned::span);
    query.or(command).expect("there are items")
}

/// Those of `parameters` that a script uses.
fn used(script: &Script, parameters: &[Parameter]) -> impl Iterator<Item = Parameter> {
    let parameters = parameters.iter().copied();
    parameters.filter(|parameter| script.uses(*parameter))
}

/// The keys that only a command knows, and where they are given.
fn command_keys(own: &RawJob) -> [(&'static str, Option<Range<usize>>); 18] {
    let text = |text: &Option<Text>| text.as_ref().map(Spanned::span);
    let codes =
        |codes: &Option<Vec<Spanned<i64>>>| codes.iter().flatten().next().map(Spanned::span);
    let first_variable = own.env.iter().flatten().next();
    [
        ("env", first_variable.map(|(name, _)| name.span())),
        ("env_file", text(&own.env_file)),
        ("cwd", text(&own.cwd)),
        ("umask", text(&own.umask)),
        ("nice", own.nice.as_ref().map(Spanned::span)),
        ("ready", own.ready.as_ref().map(Spanned::span)),
        ("ready_timeout", text(&own.ready_timeout)),
        ("ready_every", text(&own.ready_every)),
        ("output", text(&own.output)),
        ("output_keep", text(&own.output_keep)),
        ("output_file", text(&own.output_file)),
        ("kill_after", text(&own.kill_after)),
        ("leftovers", text(&own.leftovers)),
        ("success_codes", codes(&own.success_codes)),
        ("fatal_codes", codes(&own.fatal_codes)),
        ("snooze_codes", codes(&own.snooze_codes)),
        ("snooze", text(&own.snooze)),
        ("snooze_limit", text(&own.snooze_limit)),
    ]
}
