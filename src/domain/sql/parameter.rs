//! What a statement may name as `:name`.

use super::Fault;

/// What a statement may name as `:name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parameter {
    /// The slot's instant.
    Slot,
    /// Where the slot's interval begins.
    IntervalStart,
    /// Where the slot's interval ends.
    IntervalEnd,
    /// The task's key.
    Key,
    /// The keys of all tasks in the batch.
    Keys,
    /// The task's payload.
    Payload,
    /// The task's number.
    Task,
    /// Which attempt at the task it is.
    Attempt,
}

impl Parameter {
    /// All there are.
    pub const ALL: [Self; 8] = [
        Self::Slot,
        Self::IntervalStart,
        Self::IntervalEnd,
        Self::Key,
        Self::Keys,
        Self::Payload,
        Self::Task,
        Self::Attempt,
    ];

    /// Its name, without the colon.
    pub fn word(self) -> &'static str {
        match self {
            Self::Slot => "slot",
            Self::IntervalStart => "interval_start",
            Self::IntervalEnd => "interval_end",
            Self::Key => "key",
            Self::Keys => "keys",
            Self::Payload => "payload",
            Self::Task => "task",
            Self::Attempt => "attempt",
        }
    }

    /// The one called `word`; case counts, as it does for bound names in SQLite.
    pub(super) fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.word() == word)
    }
}

/// A fault for the `:name` at byte `start` that is no parameter; in brackets it may have been a slice.
pub(super) fn unknown(start: usize, name: &str, is_in_brackets: bool) -> Fault {
    let fault = Fault::new(
        start..start + name.len(),
        format!("`{name}` is not a parameter"),
    );
    match near(&name[1..]) {
        Some(near) => fault.hint(format!("did you mean `:{}`?", near.word())),
        None if is_in_brackets => fault.hint(format!(
            "in a slice, write a space after the colon: `: {}`",
            &name[1..]
        )),
        None => fault.hint(format!("known are {}", all())),
    }
}

/// A fault for the `placeholder` at byte `start`, which only the database's own interfaces could fill.
pub(super) fn foreign(start: usize, placeholder: &str) -> Fault {
    Fault::new(
        start..start + placeholder.len(),
        format!("nothing is bound to the placeholder `{placeholder}`"),
    )
    .hint(format!("use a name such as `:key`; known are {}", all()))
}

/// The name that was probably meant.
fn near(typed: &str) -> Option<Parameter> {
    /// Below this two names are not taken for a slip of the fingers; `config` has the same.
    const ALIKE: f64 = 0.8;
    /// A swap of two letters in `:key` leaves it less alike than that.
    const SLIPS: usize = 1;
    let typed = typed.to_lowercase();
    let slips = |known: &Parameter| strsim::osa_distance(&typed, known.word());
    let is_alike = |known: &Parameter| {
        slips(known) <= SLIPS || strsim::jaro_winkler(&typed, known.word()) >= ALIKE
    };
    let known = Parameter::ALL.into_iter();
    known.filter(is_alike).min_by_key(slips)
}

fn all() -> String {
    let names = Parameter::ALL.map(|known| format!(":{}", known.word()));
    names.join(", ")
}
