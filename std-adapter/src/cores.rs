//! Sets of processor cores, as the kernel writes them: `0-3,8`.

use std::fmt;

/// A set of cores, by the kernel's numbers.
///
/// ```
/// use nanoverbs::Cores;
///
/// let cores = Cores::parse("0-2,8").unwrap();
/// assert!(cores.contains(8) && !cores.contains(3));
/// assert_eq!(cores.to_string(), "0-2,8");
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cores(Vec<usize>);

impl Cores {
    /// From the form that the kernel's files have; `None` when it is not one. Empty, and `(null)`, is the
    /// empty set. Numbers from 8,192 on are refused.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text == "(null)" {
            return Some(Self::default());
        }
        let mut all = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last >= MOST {
                return None;
            }
            all.extend(first..=last);
        }
        Some(all.into_iter().collect())
    }

    /// Whether `core` is one of them.
    pub fn contains(&self, core: usize) -> bool {
        self.0.binary_search(&core).is_ok()
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their numbers, from the lowest.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<usize> for Cores {
    fn from_iter<I: IntoIterator<Item = usize>>(cores: I) -> Self {
        let mut all: Vec<_> = cores.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        Self(all)
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut comma = "";
        while let Some(&first) = rest.first() {
            let run = rest.iter().zip(first..).take_while(|(core, next)| **core == *next).count();
            write!(f, "{comma}{first}")?;
            if run > 1 {
                write!(f, "-{}", first + run - 1)?;
            }
            comma = ",";
            rest = &rest[run..];
        }
        Ok(())
    }
}

/// Cores that a mask of the adapter has.
pub(crate) const MOST: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["", "0", "0-1", "0,2,4", "3-5,7,9-10"] {
            assert_eq!(Cores::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Cores::parse("1,0-2\n").unwrap().to_string(), "0-2");
        assert!(Cores::parse(" (null)\n").unwrap().is_empty());
    }

    #[test]
    fn rubbish_is_no_set() {
        for text in ["x", "1-", "-1", "2-1", "1,,2", "0-99999999999", "8192"] {
            assert_eq!(Cores::parse(text), None, "{text}");
        }
    }
}
