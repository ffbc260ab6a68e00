//! SQL as work, where the items of a slot come from, and how tasks that are many are worked off.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use toml::Spanned;

use super::Builder;
use crate::config::raw::{RawJob, Text};
use crate::config::values;
use crate::domain::job::{Draining, Items, Runners, Scope, Source, Sql, Work};
use crate::domain::sql::{Dialect, Fault, Parameter, Script};

/// `concurrency` of a job that does not say.
const CONCURRENCY: u32 = 1;
/// `batch` of a job that does not say.
const BATCH: u32 = 500;
/// The largest `batch`: its transaction holds the lock of every row it touches.
const LARGEST_BATCH: u32 = 10_000;
/// So many places of a text are looked at for a parameter.
const MOST_PLACES: usize = 20;

impl Builder<'_> {
    /// Read also where it has no effect, so that what is wrong with it is said.
    pub(super) fn expect_rows(&mut self, raw: &RawJob) -> Option<RangeInclusive<u64>> {
        self.read(raw.expect_rows.as_ref(), values::rows)
    }

    pub(super) fn sql(
        &mut self,
        text: &Text,
        expect_rows: Option<RangeInclusive<u64>>,
    ) -> Option<Work> {
        let script = self.script(text, Script::parse)?;
        Some(Work::Sql(Arc::new(Sql {
            script,
            expect_rows,
        })))
    }

    pub(super) fn items(&mut self, raw: &RawJob) -> Option<Items> {
        let scope = self.items_scope(raw);
        if let (Some(_), Some(command)) = (&raw.items, &raw.items_command) {
            self.refuse_both("items", "items_command", command.span());
        }
        let source = match (&raw.items, &raw.items_command) {
            (Some(query), _) => Source::Query(Arc::new(self.script(query, Script::parse_query)?)),
            (None, Some(command)) => Source::Command(self.beside("items_command", command)?),
            (None, None) => return None,
        };
        Some(Items { source, scope })
    }

    fn items_scope(&mut self, raw: &RawJob) -> Scope {
        let scope = raw.items_scope.as_ref();
        let known = [("slot", Scope::Slot), ("job", Scope::Job)];
        let read = self.one_of(scope, "items_scope", &known);
        if let (Some(scope), None, None) = (scope, &raw.items, &raw.items_command) {
            let message = "`items_scope` is given without `items`";
            let hint = "add `items = \"SELECT …\"` or `items_command`, or leave `items_scope` out";
            self.error(scope.span(), message, Some(hint.to_owned()));
        }
        read.unwrap_or(Scope::Slot)
    }

    pub(super) fn draining(&mut self, raw: &RawJob) -> Draining {
        let runners = [("one", Runners::One), ("many", Runners::Many)];
        Draining {
            concurrency: self
                .count(raw.concurrency.as_ref(), "concurrency")
                .unwrap_or(CONCURRENCY),
            batch: self.batch(raw.batch.as_ref()).unwrap_or(BATCH),
            rate: self.read(raw.rate.as_ref(), values::rate),
            runners: self
                .one_of(raw.runners.as_ref(), "runners", &runners)
                .unwrap_or(Runners::One),
        }
    }

    fn batch(&mut self, number: Option<&Spanned<i64>>) -> Option<u32> {
        let number = number?;
        let batch = u32::try_from(*number.get_ref())
            .ok()
            .filter(|batch| (1..=LARGEST_BATCH).contains(batch));
        if batch.is_none() {
            let message = format!("`batch` is a number from 1 to {LARGEST_BATCH}");
            self.error(number.span(), message, None);
        }
        batch
    }

    /// The statements of a text; none if it is faulty.
    fn script(
        &mut self,
        text: &Text,
        parse: fn(&str, Dialect) -> Result<Script, Vec<Fault>>,
    ) -> Option<Script> {
        let faults = match parse(text.get_ref(), self.dialect) {
            Ok(script) => return Some(script),
            Err(faults) => faults,
        };
        for fault in faults {
            let span = self.within(text, &fault.at);
            self.error(span, fault.message, fault.hint);
        }
        None
    }

    /// Where a text first uses a parameter, else the whole of it. Strings and comments may have the name too: it is
    /// used where it still is when it stands nowhere else.
    pub(super) fn place_of(&self, text: &Text, parameter: Parameter) -> Range<usize> {
        let value = text.get_ref().as_str();
        let name = name_of(parameter);
        let without = value.replace(name, &"1".repeat(name.len()));
        let is_use = |place: &Range<usize>| {
            let mut alone = without.clone();
            alone.replace_range(place.clone(), name);
            Script::parse(&alone, self.dialect).is_ok_and(|script| script.uses(parameter))
        };
        let places = value
            .match_indices(name)
            .map(|(start, name)| start..start + name.len());
        match places.take(MOST_PLACES).find(is_use) {
            Some(place) => self.within(text, &place),
            None => text.span(),
        }
    }
}

/// A parameter as it is written.
pub(super) fn name_of(parameter: Parameter) -> &'static str {
    match parameter {
        Parameter::Slot => ":slot",
        Parameter::IntervalStart => ":interval_start",
        Parameter::IntervalEnd => ":interval_end",
        Parameter::Key => ":key",
        Parameter::Keys => ":keys",
        Parameter::Payload => ":payload",
        Parameter::Task => ":task",
        Parameter::Attempt => ":attempt",
    }
}
