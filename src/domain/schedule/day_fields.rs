//! The two day fields: plain numbers, and days that lie elsewhere in each month (`L`, `LW`, `15W`, `5L`, `5#2`).
//!
//! What the letters mean is Quartz', the numbers of weekdays are cron's: 5 is Friday.

use chrono::{Datelike, NaiveDate};

use super::field::{Field, Unit, stepped};

const DAYS_PER_WEEK: u32 = 7;
/// `5#5` is the last that can be: 31 days hold no weekday six times.
pub(super) const MOST_WEEKS: u32 = 5;
/// The nearest weekday is at most this far from a day: the Friday before a Sunday at the month's end.
const FARTHEST_WEEKDAY: u32 = 2;

/// The day-of-month field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DaysOfMonth {
    pub numbers: Field,
    /// Bit n stands for `nW`, the weekday nearest to day n in the same month.
    pub nearest: u64,
    /// `L`: the last day of the month.
    pub has_last: bool,
    /// `LW`: the last weekday of the month.
    pub has_last_weekday: bool,
}

/// The day-of-week field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weekdays {
    pub numbers: Field,
    /// Bit 7·(n-1)+d stands for `d#n`, the n-th weekday d of the month.
    pub nth: u64,
    /// Bit d stands for `dL`, the last weekday d of the month.
    pub last: u64,
}

impl DaysOfMonth {
    /// `*`.
    pub fn any() -> Self {
        Self::of(Field {
            values: stepped(1, Unit::DayOfMonth.max(), 1),
            is_wildcard: true,
        })
    }

    fn of(numbers: Field) -> Self {
        Self {
            numbers,
            nearest: 0,
            has_last: false,
            has_last_weekday: false,
        }
    }

    /// Which week of the month it is, if it is `1-7`, `8-14`, `15-21` or `22-28`: every weekday comes once in it.
    pub fn whole_week(self) -> Option<u32> {
        let days = |week| stepped((week - 1) * DAYS_PER_WEEK + 1, week * DAYS_PER_WEEK, 1);
        let is_plain = self == Self::of(self.numbers);
        (1..MOST_WEEKS).find(|&week| is_plain && self.numbers.values == days(week))
    }

    /// Whether the field holds on `date`.
    pub fn contains(self, date: NaiveDate) -> bool {
        let (day, last) = (date.day(), last_day(date));
        let is_nearest = |wanted| nearest_weekday(date, wanted) == Some(day);
        let mut around = day.saturating_sub(FARTHEST_WEEKDAY)..=day + FARTHEST_WEEKDAY;
        self.numbers.contains(day)
            || (self.has_last && day == last)
            || (self.has_last_weekday && is_nearest(last))
            || around.any(|wanted| has(self.nearest, wanted) && is_nearest(wanted))
    }

    /// The field as text in one fixed form, which parses to an equal field.
    pub fn canonical(self) -> String {
        let nearest = (1..=Unit::DayOfMonth.max()).filter(|&day| has(self.nearest, day));
        let letters = [(self.has_last, "L"), (self.has_last_weekday, "LW")];
        let letters = letters.iter().filter(|(is_given, _)| *is_given);
        joined(
            self.numbers.canonical(Unit::DayOfMonth),
            letters
                .map(|(_, letter)| (*letter).to_owned())
                .chain(nearest.map(|day| format!("{day}W"))),
        )
    }
}

impl Weekdays {
    /// `d#week` for each of its weekdays, if it has nothing but those.
    pub fn counted(self, week: u32) -> Option<Self> {
        let is_plain = self.nth == 0 && self.last == 0 && self.numbers.values != 0;
        is_plain.then(|| Self {
            numbers: Field {
                values: 0,
                is_wildcard: false,
            },
            nth: self.numbers.values << nth_bit(0, week),
            last: 0,
        })
    }

    /// Whether the field holds on `date`.
    pub fn contains(self, date: NaiveDate) -> bool {
        let weekday = date.weekday().num_days_from_sunday();
        let is_last = date.day() + DAYS_PER_WEEK > last_day(date);
        self.numbers.contains(weekday)
            || has(
                self.nth,
                nth_bit(weekday, date.day().div_ceil(DAYS_PER_WEEK)),
            )
            || (is_last && has(self.last, weekday))
    }

    /// The field as text in one fixed form, which parses to an equal field.
    pub fn canonical(self) -> String {
        let pairs = (1..=MOST_WEEKS)
            .flat_map(|week| (0..DAYS_PER_WEEK).map(move |weekday| (weekday, week)));
        let nth = pairs.filter(|&(weekday, week)| has(self.nth, nth_bit(weekday, week)));
        let last = (0..DAYS_PER_WEEK).filter(|&weekday| has(self.last, weekday));
        joined(
            self.numbers.canonical(Unit::Weekday),
            nth.map(|(weekday, week)| format!("{weekday}#{week}"))
                .chain(last.map(|weekday| format!("{weekday}L"))),
        )
    }
}

/// The bit of [`Weekdays::nth`] for the `week`-th `weekday`, counted from 1.
pub(super) fn nth_bit(weekday: u32, week: u32) -> u32 {
    (week - 1) * DAYS_PER_WEEK + weekday
}

fn has(set: u64, bit: u32) -> bool {
    set >> bit & 1 == 1
}

fn joined(numbers: String, letters: impl Iterator<Item = String>) -> String {
    let numbers = Some(numbers).filter(|text| !text.is_empty());
    numbers
        .into_iter()
        .chain(letters)
        .collect::<Vec<_>>()
        .join(",")
}

fn last_day(date: NaiveDate) -> u32 {
    date.num_days_in_month().into()
}

/// The day from Monday to Friday that is nearest to day `wanted` of the month of `date`, without leaving the month;
/// none in a month without that day.
fn nearest_weekday(date: NaiveDate, wanted: u32) -> Option<u32> {
    use chrono::Weekday::{Fri, Mon, Sat, Sun, Thu, Tue, Wed};
    Some(match date.with_day(wanted)?.weekday() {
        Sat if wanted == 1 => wanted + 2,
        Sat => wanted - 1,
        Sun if wanted == last_day(date) => wanted - 2,
        Sun => wanted + 1,
        Mon | Tue | Wed | Thu | Fri => wanted,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Cron;
    use super::*;

    /// The matching days of a month of 2026.
    fn days(expression: &str, month: u32) -> Vec<u32> {
        let rule = Cron::parse(expression).unwrap().dates;
        let first = NaiveDate::from_ymd_opt(2026, month, 1).unwrap();
        let dates = first.iter_days().take_while(|date| date.month() == month);
        dates
            .filter(|date| rule.matches(*date))
            .map(|date| date.day())
            .collect()
    }

    #[test]
    fn the_last_day_has_the_length_of_the_month() {
        assert_eq!(days("0 0 L * *", 2), [28]);
        assert_eq!(days("0 0 l * *", 4), [30]);
        assert_eq!(days("0 0 1,15,L * *", 5), [1, 15, 31]);
    }

    #[test]
    fn the_nearest_weekday_stays_in_its_month() {
        // 2026-02-01 is a Sunday, 2026-02-28 and 2026-08-01 Saturdays, 2026-05-31 a Sunday.
        assert_eq!(days("0 0 1W * *", 2), [2]);
        assert_eq!(days("0 0 1w * *", 8), [3]);
        assert_eq!(days("0 0 15W * *", 8), [14]);
        assert_eq!(days("0 0 15W * *", 1), [15]);
        assert_eq!(days("0 0 LW * *", 2), [27]);
        assert_eq!(days("0 0 LW * *", 5), [29]);
        assert_eq!(days("0 0 31W * *", 5), [29]);
        assert_eq!(days("0 0 31W * *", 6), [0; 0]);
        assert_eq!(days("0 0 1W,15W,LW * *", 8), [3, 14, 31]);
    }

    #[test]
    fn weekdays_are_counted_from_either_end_of_the_month() {
        assert_eq!(days("0 0 * * 5#2", 5), [8]);
        assert_eq!(days("0 0 * * fri#2", 5), [8]);
        assert_eq!(days("0 0 * * 5#5", 5), [29]);
        assert_eq!(days("0 0 * * 5#5", 6), [0; 0]);
        assert_eq!(days("0 0 * * 5L", 6), [26]);
        assert_eq!(days("0 0 * * FRIL", 5), [29]);
        assert_eq!(days("0 0 * * 7#1,0L", 5), [3, 31]);
        assert_eq!(days("0 0 * * 1#1,1#3,3", 4), [1, 6, 8, 15, 20, 22, 29]);
    }

    #[test]
    fn a_letter_restricts_its_field() {
        assert_eq!(days("0 0 L * 5L", 5), [29, 31]);
        assert_eq!(days("0 0 L * 1", 8), [3, 10, 17, 24, 31]);
        assert_eq!(days("0 0 */2 * 5L", 5), [29]);
        assert_eq!(days("0 0 */2 * 5L", 6), [0; 0]);
    }

    #[test]
    fn the_first_seven_days_and_a_weekday_can_be_counted() {
        let counted = |text| Cron::parse(text).unwrap().with_counted_weekdays();
        assert_eq!(counted("0 0 1-7 * 1").as_deref(), Some("0 0 * * 1#1"));
        assert_eq!(
            counted("5 4 15-21 1 mon,5").as_deref(),
            Some("5 4 * 1 1#3,5#3")
        );
        for other in [
            "0 0 1-8 * 1",
            "0 0 1-7,L * 1",
            "0 0 1-7 * 1L",
            "0 0 13 * 5",
            "0 0 29-31 * 1",
        ] {
            assert_eq!(counted(other), None, "{other}");
        }
    }

    #[test]
    fn letters_have_one_canonical_text() {
        for (written, canonical) in [
            ("0 0 lw,L,15w,1 * *", "0 0 1,L,LW,15W * *"),
            ("0 0 * * fri#2,SUN#1,7L,5l,mon", "0 0 * * 1,0#1,5#2,0L,5L"),
            ("0 0 *,L * *", "0 0 *,L * *"),
            ("0 0 */2,31W * 0-6,6L", "0 0 */2,31W * 0-6,6L"),
        ] {
            let cron = Cron::parse(written).unwrap();
            assert_eq!(cron.canonical(), canonical, "{written}");
            assert_eq!(Cron::parse(canonical).unwrap(), cron);
        }
    }
}
