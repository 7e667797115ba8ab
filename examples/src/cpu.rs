//! Which processors the threads of a program sit on.

use std::str::FromStr;

use nanoverbs::poller;

use crate::Failure;

/// What `--cpu` says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Cpus {
    /// The program chooses.
    #[default]
    Auto,
    /// Threads stay where the scheduler puts them.
    None,
    /// One for each thread.
    List(Vec<usize>),
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        let list: Result<Vec<usize>, _> = text.split(',').map(str::parse).collect();
        match list {
            Ok(list) if list.len() <= 2 => Ok(Self::List(list)),
            _ => Err("one or two numbers are wanted, as in 2 or 2,3, or none".to_owned()),
        }
    }
}

/// The processors that this process may use.
///
/// # Errors
///
/// What the system says.
pub fn allowed() -> Result<Vec<usize>, Failure> {
    match poller::allowed_cores() {
        Ok(cores) => Ok(cores.iter().collect()),
        Err(error) => Err(Failure::new(error.to_string())),
    }
}

/// Keeps the calling thread on this processor from now on, if one is given.
///
/// # Errors
///
/// [`Failure`] names the processors that are allowed.
pub fn pin(cpu: Option<usize>) -> Result<(), Failure> {
    let Some(cpu) = cpu else { return Ok(()) };
    poller::pin_this_thread(cpu)
        .map_err(|refused| Failure::new(format!("{refused}; --cpu none does without")))
}

/// Looks whether threads could be pinned to these processors, without pinning this one.
///
/// # Errors
///
/// As for [`pin`].
pub fn check(cpus: &[Option<usize>]) -> Result<(), Failure> {
    let cpus = cpus.to_vec();
    let tried = std::thread::spawn(move || {
        let allowed = allowed()?;
        let wrong = cpus.iter().flatten().find(|cpu| !allowed.contains(cpu));
        pin(wrong.or(cpus.iter().flatten().next()).copied())
    });
    tried.join().unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_none_are_understood_and_the_rest_is_refused() {
        assert_eq!("2,3".parse(), Ok(Cpus::List(vec![2, 3])));
        assert_eq!("none".parse(), Ok(Cpus::None));
        for text in ["", "a", "1,2,3", "-1", "1-2"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_processor_that_is_not_there_is_refused_before_anything_starts() {
        let cpu = allowed().unwrap()[0];
        check(&[Some(cpu), None]).unwrap();
        let sentence = check(&[Some(cpu), Some(100_000)]).unwrap_err().to_string();
        assert!(sentence.starts_with("core 100000 cannot be had"), "{sentence}");
        assert!(allowed().unwrap().contains(&cpu));
    }
}
