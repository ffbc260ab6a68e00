//! A set of the 1440 minutes of a day, cheap to unite, to cut and to count.

use std::ops::Range;

/// Minutes in a day.
pub(super) const MINUTES_PER_DAY: usize = 24 * 60;

const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = MINUTES_PER_DAY.div_ceil(WORD_BITS);

/// A set of minutes of a day; bit n of the row of words is minute n since local midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Minutes([u64; WORDS]);

impl Minutes {
    /// No minute at all.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Adds the minutes of one hour: bit n of `minutes` is the hour's minute n.
    pub fn add_hour(&mut self, hour: u32, minutes: u64) {
        for minute in (0..60).filter(|minute| minutes >> minute & 1 == 1) {
            let index = hour as usize * 60 + minute;
            self.0[index / WORD_BITS] |= 1 << (index % WORD_BITS);
        }
    }

    /// Adds every minute of `other`.
    pub fn unite(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
    }

    /// The minutes that lie in `range`.
    pub fn within(mut self, range: &Range<usize>) -> Self {
        for (index, word) in self.0.iter_mut().enumerate() {
            *word &= low_bits(range.end, index) & !low_bits(range.start, index);
        }
        self
    }

    /// Whether `minute` is in the set.
    pub fn contains(&self, minute: usize) -> bool {
        self.0[minute / WORD_BITS] >> (minute % WORD_BITS) & 1 == 1
    }

    /// Takes `minute` out.
    pub fn remove(&mut self, minute: usize) {
        self.0[minute / WORD_BITS] &= !(1 << (minute % WORD_BITS));
    }

    /// How many minutes there are.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Takes the earliest minute out and returns it.
    pub fn pop_first(&mut self) -> Option<usize> {
        let index = self.0.iter().position(|&word| word != 0)?;
        let bit = self.0[index].trailing_zeros() as usize;
        self.0[index] &= self.0[index] - 1;
        Some(index * WORD_BITS + bit)
    }

    /// The earliest minute.
    pub fn first(mut self) -> Option<usize> {
        self.pop_first()
    }

    /// The latest minute.
    pub fn last(&self) -> Option<usize> {
        let index = self.0.iter().rposition(|&word| word != 0)?;
        Some(index * WORD_BITS + self.0[index].ilog2() as usize)
    }
}

/// The bits of word `index` that stand for minutes before `end`.
fn low_bits(end: usize, index: usize) -> u64 {
    match end.saturating_sub(index * WORD_BITS) {
        bits if bits >= WORD_BITS => u64::MAX,
        bits => (1 << bits) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_keeps_its_start_and_not_its_end() {
        let mut all = Minutes::EMPTY;
        (0..24).for_each(|hour| all.add_hour(hour, u64::MAX >> 4));
        assert_eq!(all.len(), 1440);
        for (start, end) in [
            (0, 1440),
            (0, 64),
            (63, 65),
            (64, 128),
            (100, 100),
            (7, 1439),
        ] {
            let mut cut = all.within(&(start..end));
            assert_eq!(cut.len() as usize, end - start);
            assert_eq!(cut.first(), (start < end).then_some(start));
            assert_eq!(cut.last(), (start < end).then(|| end - 1));
            let minutes: Vec<usize> = std::iter::from_fn(|| cut.pop_first()).collect();
            assert_eq!(minutes, (start..end).collect::<Vec<_>>());
        }
    }
}
