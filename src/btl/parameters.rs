//! The parameters of a component, as tables: what they are called, what they mean, and the storage that
//! the host writes their values to.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// What kind of number a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `int`
    Signed,
    /// `unsigned int`
    Unsigned,
    /// `unsigned int`, of the host's names for what a byte transport can do.
    Flags,
}

/// A number that users set.
pub struct Number {
    /// Without the component's name.
    pub name: &'static CStr,
    /// One line for `ompi_info`.
    pub help: &'static CStr,
    /// Before users and files have said anything.
    pub default: c_int,
    /// `OPAL_INFO_LVL_*`, which begin at 0.
    pub level: c_int,
    /// What kind of number.
    pub kind: Kind,
    /// Where the host writes it.
    pub value: AtomicI32,
}

/// A text that users set.
pub struct Text {
    /// Without the component's name.
    pub name: &'static CStr,
    /// One line for `ompi_info`.
    pub help: &'static CStr,
    /// Before users and files have said anything.
    pub default: Option<&'static CStr>,
    /// `OPAL_INFO_LVL_*`, which begin at 0.
    pub level: c_int,
    /// Where the host writes the address of a text that it owns: read through
    /// [`Host::text`](super::Host::text).
    pub value: AtomicPtr<c_char>,
}

/// All of a component, in the order in which they are listed.
pub struct Parameters {
    /// The numbers.
    pub numbers: &'static [Number],
    /// The texts.
    pub texts: &'static [Text],
}

impl Number {
    /// What the user has said, or the default.
    fn given(&self) -> i64 {
        let value = self.value.load(Ordering::Relaxed);
        match self.kind {
            Kind::Signed => value.into(),
            Kind::Unsigned | Kind::Flags => value.cast_unsigned().into(),
        }
    }

    /// A number; levels are 1 to 9 here, as users count them.
    pub const fn new(
        kind: Kind,
        name: &'static CStr,
        default: c_int,
        level: c_int,
        help: &'static CStr,
    ) -> Self {
        Self { name, help, default, level: level - 1, kind, value: AtomicI32::new(0) }
    }
}

impl Text {
    /// A text; levels are 1 to 9 here, as users count them.
    pub const fn new(
        name: &'static CStr,
        default: Option<&'static CStr>,
        level: c_int,
        help: &'static CStr,
    ) -> Self {
        Self { name, help, default, level: level - 1, value: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl Parameters {
    /// The value of a number of the table.
    ///
    /// # Panics
    /// When there is none of this name.
    pub fn number(&self, name: &CStr) -> i64 {
        let number = self.numbers.iter().find(|number| number.name == name);
        number.expect("a parameter of the table").given()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_one_that_was_given() {
        for (kind, most) in
            [(Kind::Signed, -1), (Kind::Unsigned, 4_294_967_295), (Kind::Flags, 4_294_967_295)]
        {
            let numbers: &'static [Number] =
                Box::leak(Box::new([Number::new(kind, c"it", 0, 1, c"a number")]));
            let parameters = Parameters { numbers, texts: &[] };
            // As the host does.
            numbers[0].value.store(-1, Ordering::Relaxed);
            assert_eq!(parameters.number(c"it"), most);
        }
    }
}
