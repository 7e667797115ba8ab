//! The one door to atomics and to cells that change threads.
//!
//! Everything that two threads share goes through this file, so that the same code runs on the
//! machine's atomics and, with `--cfg loom`, under loom's model of them. No other file of the crate
//! names `core::sync::atomic` or `loom`.
//!
//! Invariant: a value that one thread writes and another reads lives in a [`Cell`] or in an atomic
//! from here. A plain field would be invisible to loom, and a missing ordering would pass its models.

#[cfg(not(loom))]
mod imp {
    pub(crate) use core::hint::spin_loop;
    pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

    /// A cell that changes threads; the closures are the only way in.
    #[repr(transparent)]
    pub(crate) struct Cell<T: ?Sized>(core::cell::UnsafeCell<T>);

    impl<T> Cell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }

        /// A shared look at the value. The caller argues why nobody writes meanwhile.
        #[inline(always)]
        pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
            look(self.0.get())
        }

        /// An exclusive look at the value. The caller argues why nobody else looks meanwhile.
        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, look: impl FnOnce(*mut T) -> R) -> R {
            look(self.0.get())
        }
    }
}

#[cfg(loom)]
mod imp {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

    /// A cell that changes threads; loom checks every look at it.
    pub(crate) struct Cell<T>(loom::cell::UnsafeCell<T>);

    impl<T> Cell<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::cell::UnsafeCell::new(value))
        }

        pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
            self.0.with(look)
        }

        pub(crate) fn with_mut<R>(&self, look: impl FnOnce(*mut T) -> R) -> R {
            self.0.with_mut(look)
        }
    }
}

pub(crate) use imp::*;

/// Writes a constructor once: `const` on the machine, plain under loom, whose atomics have no
/// constant constructors.
macro_rules! const_unless_loom {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block) => {
        #[cfg(not(loom))]
        $(#[$meta])*
        $vis const fn $name($($arg: $ty),*) -> $ret $body
        #[cfg(loom)]
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) -> $ret $body
    };
}
pub(crate) use const_unless_loom;

/// An array of `N` copies of an expression that is not `Copy`, constant where it can be.
macro_rules! array {
    ($make:expr; $n:expr) => {{
        #[cfg(not(loom))]
        {
            [const { $make }; $n]
        }
        #[cfg(loom)]
        {
            core::array::from_fn(|_| $make)
        }
    }};
}
pub(crate) use array;

const_unless_loom! {
    /// An atomic number on a cache line pair of its own, so that its neighbours' writers do not slow it.
    pub(crate) fn padded(value: usize) -> Padded<AtomicUsize> {
        Padded(AtomicUsize::new(value))
    }
}

/// 128 bytes: processors fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

/// A word of memory that a peer's device may touch. Never a model's: the memory is real.
pub(crate) type Word = core::sync::atomic::AtomicUsize;
/// Relaxed: shared memory orders nothing, a completion does.
pub(crate) const WORD_LOAD: core::sync::atomic::Ordering = core::sync::atomic::Ordering::Relaxed;
/// Relaxed, for the same reason.
pub(crate) const WORD_STORE: core::sync::atomic::Ordering = core::sync::atomic::Ordering::Relaxed;

/// Numbers for queues, unique in the process. Not shared under a model: a number is only ever
/// compared, it guards nothing, so loom need not see it.
pub(crate) fn next_serial() -> u32 {
    static NEXT: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(1);
    // Relaxed: only uniqueness matters. It wraps after 2^31 queue pairs; by then no completion of
    // the first one can still be in a completion queue, because that queue was drained since.
    NEXT.fetch_add(1, core::sync::atomic::Ordering::Relaxed)
}

/// A place in a `static` whose content can be taken once, as `&'static mut`.
///
/// Queues borrow their storage; a program without an allocator keeps it in statics and takes each
/// of them out once at start-up.
///
/// ```
/// use nanoverbs_core::Place;
///
/// static NUMBERS: Place<[u32; 4]> = Place::new([0; 4]);
///
/// let numbers = NUMBERS.take().expect("the first take gets it");
/// numbers[0] = 7;
/// assert!(NUMBERS.take().is_none(), "there is only one");
/// ```
pub struct Place<T> {
    taken: core::sync::atomic::AtomicBool,
    value: core::cell::UnsafeCell<T>,
}

impl<T> Place<T> {
    /// A place that holds `value`.
    pub const fn new(value: T) -> Self {
        Self {
            taken: core::sync::atomic::AtomicBool::new(false),
            value: core::cell::UnsafeCell::new(value),
        }
    }

    /// The content, the first time; `None` ever after. Any thread may call.
    #[expect(clippy::mut_from_ref, reason = "the flag hands the content out once")]
    pub fn take(&'static self) -> Option<&'static mut T> {
        // Relaxed: the flag only decides who is first; the content was written before the static
        // was reachable, so there is nothing to publish.
        if self.taken.swap(true, core::sync::atomic::Ordering::Relaxed) {
            return None;
        }
        // SAFETY: the swap above returned `false` to this call alone, so this is the only
        // reference that is ever made from the cell.
        Some(unsafe { &mut *self.value.get() })
    }
}

// SAFETY: the content is reached through `take` only, by one thread, once; sharing the place is
// therefore sending the content.
unsafe impl<T: Send> Sync for Place<T> {}

impl<T> core::fmt::Debug for Place<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Place").field("taken", &self.taken).finish_non_exhaustive()
    }
}
