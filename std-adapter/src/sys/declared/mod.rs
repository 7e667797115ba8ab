//! The project's own declarations of what this folder uses of the C libraries, and of nothing else.
//!
//! One file for each header, with the names that rdma-sys gives, so that either can be the
//! [`ffi`](super::ffi) of the modules beside this one. The structures that the core fills in are the
//! core's own.
//!
//! Invariant: where rdma-sys is built too, the compiler has compared every field; where the headers
//! are installed, a test has the C compiler compare every field, type, function and number.
#![expect(non_camel_case_types, non_snake_case, reason = "the names are C's")]

/// How much of C's structure a declaration holds.
#[cfg(any(test, feature = "verbs"))]
#[derive(Clone, Copy)]
pub(super) enum Part {
    /// All of it.
    Whole,
    /// Its start: made by C and seen through pointers only, or newer headers have more behind.
    Start,
    /// Its end: newer headers have more in front.
    End,
}

#[cfg(any(test, feature = "verbs"))]
impl Part {
    /// Where a field lies, counted from the end that stays where it is.
    const fn place(self, size: usize, offset: usize) -> usize {
        match self {
            Self::Whole | Self::Start => offset,
            Self::End => size - offset,
        }
    }

    /// Whether a declaration of `ours` bytes can be this part of C's structure of `theirs`.
    #[cfg(feature = "verbs")]
    const fn fits(self, ours: usize, theirs: usize) -> bool {
        match self {
            Self::Whole => ours == theirs,
            Self::Start | Self::End => ours <= theirs,
        }
    }
}

/// Structures and unions: `Whole`, `Start` or `End` of C's, fields in order. A field whose name is
/// not C's, because that is a word of Rust's or missing, has C's behind an `=`.
macro_rules! structures {
    ($(
        $(#[$meta:meta])*
        $part:ident $kind:ident $name:ident $(= $c_name:literal)? {
            $($field:ident $(= $c_field:literal)?: $ty:ty,)*
        }
    )*) => {
        $(
            $(#[$meta])*
            #[allow(dead_code, reason = "C's structures have fields that nobody here looks at")]
            #[derive(Clone, Copy)]
            #[repr(C)]
            pub(crate) $kind $name {
                $(pub(crate) $field: $ty,)*
            }

            #[cfg(feature = "verbs")]
            const _: () = {
                use core::mem::{align_of, offset_of, size_of};
                use static_assertions::{const_assert, const_assert_eq};

                const PART: super::Part = super::Part::$part;
                const OURS: usize = size_of::<$name>();
                const THEIRS: usize = size_of::<rdma_sys::$name>();
                const_assert!(PART.fits(OURS, THEIRS));
                const_assert_eq!(align_of::<$name>(), align_of::<rdma_sys::$name>());
                $(const_assert_eq!(
                    PART.place(OURS, offset_of!($name, $field)),
                    PART.place(THEIRS, offset_of!(rdma_sys::$name, $field))
                );)*
            };
        )*

        #[cfg(test)]
        pub(super) const STRUCTURES: &[super::tests::Structure] = &[$(
            super::tests::Structure {
                name: super::tests::c_name(stringify!($kind $name), &[$($c_name)?]),
                part: super::Part::$part,
                size: size_of::<$name>(),
                fields: &[$(super::tests::Field {
                    name: super::tests::c_name(stringify!($field), &[$($c_field)?]),
                    offset: core::mem::offset_of!($name, $field),
                    ty: stringify!($ty),
                },)*],
            },
        )*];
    };
}

/// Enumerations whose values come alone, as rdma-sys has them: a module with a `Type`.
macro_rules! enumerations {
    ($($name:ident: $ty:ident { $($value:ident = $number:literal,)* })*) => {
        $(
            #[allow(dead_code, reason = "not with rdma-sys")]
            pub(crate) mod $name {
                pub(crate) type Type = core::ffi::$ty;
                $(pub(crate) const $value: Type = $number;)*

                #[cfg(feature = "verbs")]
                const _: () = {
                    $(assert!($value as i64 == rdma_sys::$name::$value as i64);)*
                };
            }
        )*

        #[cfg(test)]
        pub(super) const ENUMERATIONS: &[(&str, i64)] = &[
            $($((stringify!($value), $name::$value as i64),)*)*
        ];
    };
}

/// Enumerations whose values are combined, as rdma-sys has them: a number of a type of its own.
macro_rules! flags {
    ($($name:ident { $($value:ident = $number:expr,)* })*) => {
        $(
            #[allow(dead_code, reason = "not with rdma-sys")]
            pub(crate) struct $name(pub(crate) core::ffi::c_uint);

            #[allow(dead_code, reason = "not with rdma-sys")]
            impl $name {
                $(pub(crate) const $value: Self = Self($number);)*
            }

            #[cfg(feature = "verbs")]
            const _: () = {
                $(assert!($name::$value.0 == rdma_sys::$name::$value.0);)*
            };
        )*

        #[cfg(test)]
        pub(super) const FLAGS: &[(&str, i64)] = &[
            $($((stringify!($value), $name::$value.0 as i64),)*)*
        ];
    };
}

/// Functions that the library exports.
macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => {
        #[cfg_attr(feature = "verbs", expect(dead_code, reason = "rdma-sys's are called"))]
        unsafe extern "C" {
            $(pub(crate) fn $name($($arg: $ty),*) $(-> $ret)?;)*
        }

        #[cfg(test)]
        pub(super) const FUNCTIONS: &[super::tests::Function] = &[$(
            super::tests::Function {
                name: stringify!($name),
                args: &[$(stringify!($ty)),*],
                ret: &[$(stringify!($ret))?],
            },
        )*];
    };
}

/// What only pointers lead to.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub(crate) struct $name {
            _private: [u8; 0],
        }
    )*};
}

/// A function of a table that nobody here calls.
type Uncalled = Option<unsafe extern "C" fn()>;

pub(super) mod rdma_cma;
pub(super) mod verbs;

#[cfg(test)]
mod tests;
