//! What the parameters of a job's SQL stand for: text in the database's own way of writing it.

use std::ops::RangeInclusive;

use super::work::{Times, Trouble, TroubleKind};
use crate::domain::schedule::Instant;
use crate::domain::sql::{Parameter, Statement};
use crate::domain::state::task_name;

/// How a database writes what is not plain text.
pub(super) struct Writing {
    /// An instant, in UTC.
    pub time: &'static str,
    /// Several keys in one value.
    pub keys: fn(&[String]) -> String,
}

/// What a script is run for.
pub(super) struct Subject<'a> {
    pub(super) job: &'a str,
    pub(super) times: Times,
    /// The one task; none: those of `keys`.
    pub(super) one: Option<One<'a>>,
    /// The keys of all tasks that one statement does.
    pub(super) keys: &'a [String],
}

/// One task, as its SQL sees it.
#[derive(Clone, Copy)]
pub(super) struct One<'a> {
    pub(super) key: &'a str,
    pub(super) payload: Option<&'a str>,
    /// Which run of it this is, from 1.
    pub(super) attempt: u32,
}

impl Subject<'_> {
    /// The values of a statement's parameters, in order. An error says which has none.
    pub(super) fn values(
        &self,
        statement: &Statement,
        writing: &Writing,
    ) -> Result<Vec<Option<String>>, Trouble> {
        let value = |parameter: &Parameter| self.value(*parameter, writing);
        statement.parameters.iter().map(value).collect()
    }

    fn value(&self, parameter: Parameter, writing: &Writing) -> Result<Option<String>, Trouble> {
        let time = |at: Instant| at.format(writing.time).to_string();
        let of_slot = self.times.slot.ok_or_else(|| {
            let name = parameter.word();
            let text = format!("`:{name}` has no value: the task has no slot");
            Trouble::new(TroubleKind::NoValue, text)
        });
        let one = self.one.ok_or_else(|| {
            let name = parameter.word();
            let text = format!("`:{name}` has no value: it is one task's, and these are many");
            Trouble::new(TroubleKind::NoValue, text)
        });
        Ok(Some(match parameter {
            Parameter::Slot | Parameter::IntervalEnd => time(of_slot?),
            Parameter::IntervalStart => {
                let slot = of_slot?;
                time(self.times.interval_start.unwrap_or(slot))
            }
            Parameter::Key => one?.key.to_owned(),
            Parameter::Keys => (writing.keys)(self.keys),
            Parameter::Payload => return Ok(one?.payload.map(str::to_owned)),
            Parameter::Task => task_name(self.job, self.times.slot, one?.key),
            Parameter::Attempt => one?.attempt.to_string(),
        }))
    }
}

/// Whether the number of rows a task touched is as expected.
pub(super) fn check_rows(
    expected: Option<&RangeInclusive<u64>>,
    touched: u64,
) -> Result<(), Trouble> {
    let Some(expected) = expected.filter(|expected| !expected.contains(&touched)) else {
        return Ok(());
    };
    let (least, most) = (expected.start(), expected.end());
    let expected = if least == most {
        least.to_string()
    } else {
        format!("{least}-{most}")
    };
    let rows = if touched == 1 { "row" } else { "rows" };
    let text = format!("touched {touched} {rows}, and `expect_rows` is {expected}");
    Err(Trouble::new(TroubleKind::Rows, text))
}

/// The reason of a success that touched nothing, where that was allowed for.
pub(super) const NOTHING_TO_DO: &str = "nothing_to_do";

/// Whether a success touched nothing, and that was allowed for.
pub(super) fn did_nothing(expected: Option<&RangeInclusive<u64>>, touched: u64) -> bool {
    touched == 0 && expected.is_some_and(|expected| expected.contains(&0))
}
