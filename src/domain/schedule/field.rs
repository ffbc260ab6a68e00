//! One field of a cron expression: a set of numbers, and whether it was written as a wildcard.

/// How many fields an expression has.
pub(super) const FIELDS: usize = 5;

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// From this many neighbours on, a canonical list writes a range: `1,2` but `1-3`.
const SHORTEST_RANGE: u32 = 3;

/// What a field counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 0-59.
    Minute,
    /// 0-23.
    Hour,
    /// 1-31.
    DayOfMonth,
    /// 1-12 or JAN-DEC.
    Month,
    /// 0-6 or SUN-SAT; 7 is Sunday too.
    Weekday,
}

impl Unit {
    /// The field's name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::Weekday => "day of week",
        }
    }

    /// The smallest value.
    pub(super) fn min(self) -> u32 {
        match self {
            Self::Minute | Self::Hour | Self::Weekday => 0,
            Self::DayOfMonth | Self::Month => 1,
        }
    }

    /// The largest value of the set; a Sunday written as 7 is kept as 0.
    pub(super) fn max(self) -> u32 {
        match self {
            Self::Minute => 59,
            Self::Hour => 23,
            Self::DayOfMonth => 31,
            Self::Month => 12,
            Self::Weekday => 6,
        }
    }

    /// The largest number that may be written.
    pub(super) fn max_written(self) -> u32 {
        match self {
            Self::Weekday => 7,
            Self::Minute | Self::Hour | Self::DayOfMonth | Self::Month => self.max(),
        }
    }

    /// How many different values there are.
    pub(super) fn size(self) -> u32 {
        self.max() - self.min() + 1
    }

    /// The three-letter names, from the smallest value up.
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Month => &MONTHS,
            Self::Weekday => &WEEKDAYS,
            Self::Minute | Self::Hour | Self::DayOfMonth => &[],
        }
    }
}

/// The values a field matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Bit n stands for the value n.
    pub values: u64,
    /// The text starts with `*`. It decides more than the values do: the DST rule (minute, hour)
    /// and whether the day fields are OR-ed. `0-23` and `*` differ, as in Debian's cron.
    pub is_wildcard: bool,
}

impl Field {
    /// Whether `value` is in the set.
    pub fn contains(self, value: u32) -> bool {
        self.values >> value & 1 == 1
    }

    /// The n of a plain `*/n` (`*` is 1), none for everything else.
    pub fn wildcard_step(self, unit: Unit) -> Option<u32> {
        (self.is_wildcard)
            .then(|| (1..=unit.size()).find(|&n| every(unit, n) == self.values))
            .flatten()
    }

    /// The field as text in one fixed form, which parses to an equal field.
    pub fn canonical(self, unit: Unit) -> String {
        if !self.is_wildcard {
            return list(self.values);
        }
        let step = (1..=unit.size())
            .find(|&n| every(unit, n) & !self.values == 0)
            .expect("a wildcard holds at least the smallest value");
        let rest = self.values & !every(unit, step);
        let star = match step {
            1 => "*".to_owned(),
            n => format!("*/{n}"),
        };
        if rest == 0 {
            star
        } else {
            format!("{star},{}", list(rest))
        }
    }
}

/// The values of `first-last/step`.
pub(super) fn stepped(first: u32, last: u32, step: u32) -> u64 {
    (first..=last)
        .step_by(step as usize)
        .fold(0, |set, value| set | 1 << value)
}

/// The values of `*/step`.
fn every(unit: Unit, step: u32) -> u64 {
    stepped(unit.min(), unit.max(), step)
}

/// `0,1,2,5` as `0-2,5`.
fn list(values: u64) -> String {
    let mut parts = Vec::new();
    let mut next = 0;
    while values >> next != 0 {
        let first = next + (values >> next).trailing_zeros();
        let length = (values >> first).trailing_ones();
        if length >= SHORTEST_RANGE {
            parts.push(format!("{first}-{}", first + length - 1));
        } else {
            parts.extend((first..first + length).map(|value| value.to_string()));
        }
        next = first + length;
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_written_with_ranges_from_three_on() {
        assert_eq!(list(0b10_0111), "0-2,5");
        assert_eq!(list(0b11), "0,1");
        assert_eq!(list(1 << 59), "59");
    }

    #[test]
    fn a_wildcard_keeps_its_star() {
        let every_third = Field {
            values: every(Unit::Minute, 3),
            is_wildcard: true,
        };
        assert_eq!(every_third.canonical(Unit::Minute), "*/3");
        assert_eq!(every_third.wildcard_step(Unit::Minute), Some(3));
        let with_one = Field {
            values: every(Unit::Hour, 6) | 1 << 1,
            is_wildcard: true,
        };
        assert_eq!(with_one.canonical(Unit::Hour), "*/6,1");
        assert_eq!(with_one.wildcard_step(Unit::Hour), None);
    }
}
