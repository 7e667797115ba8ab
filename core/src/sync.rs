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

/// The machine's own atomics, also under loom: for numbers that guard nothing, for memory that a
/// peer's device may touch, and for statics.
pub(crate) mod machine {
    pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
}
