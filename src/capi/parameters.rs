//! Parameters: the transports' tables, with the values that the caller gives them as texts.

use std::sync::atomic::Ordering;

use super::abi::{HAWSER_KIND_INT, HAWSER_KIND_TEXT, HAWSER_KIND_UNSIGNED, HAWSER_LOG_ERROR, Parameter};
use super::code::{HAWSER_ERR_PARAMETER, Outcome};
use super::host::{Caller, c_text};
use crate::btl::{Kind, Transport};

/// Reads a number as users write it: decimal, or hexadecimal behind `0x`. What is kept are the bits of an `int`.
fn parse(kind: Kind, text: &str) -> Option<i32> {
    let text = text.trim();
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => i64::from(u32::from_str_radix(digits, 16).ok()?),
        None => text.parse().ok()?,
    };
    match kind {
        Kind::Signed => i32::try_from(value).ok(),
        Kind::Unsigned | Kind::Flags => u32::try_from(value).ok().map(u32::cast_signed),
    }
}

/// Tells the caller of all parameters of a transport, and sets the numbers as it says. Texts are asked for when
/// they are needed.
pub(super) fn register<T: Transport>(caller: &Caller) -> Outcome {
    let size = size_of::<Parameter>();
    let parameters = T::parameters();
    for number in parameters.numbers {
        let name = c_text(&format!("{}_{}", T::COMPONENT, number.name.to_string_lossy()));
        let unsigned = number.kind != Kind::Signed;
        let default =
            if unsigned { number.default.cast_unsigned().to_string() } else { number.default.to_string() };
        let default = c_text(&default);
        caller.declare(&Parameter {
            size,
            name: name.as_ptr(),
            help: number.help.as_ptr(),
            default_value: default.as_ptr(),
            kind: if unsigned { HAWSER_KIND_UNSIGNED } else { HAWSER_KIND_INT },
            level: number.level.cast_unsigned() + 1,
        });
        let value = match caller.parameter(&name) {
            None => number.default,
            Some(text) => parse(number.kind, &text).ok_or_else(|| {
                let line =
                    format!("{} is {text}: that is no number that it may have", name.to_string_lossy());
                caller.log(HAWSER_LOG_ERROR, &line);
                HAWSER_ERR_PARAMETER
            })?,
        };
        number.value.store(value, Ordering::Relaxed);
    }
    for text in parameters.texts {
        let name = c_text(&format!("{}_{}", T::COMPONENT, text.name.to_string_lossy()));
        caller.declare(&Parameter {
            size,
            name: name.as_ptr(),
            help: text.help.as_ptr(),
            default_value: text.default.map_or(std::ptr::null(), std::ffi::CStr::as_ptr),
            kind: HAWSER_KIND_TEXT,
            level: text.level.cast_unsigned() + 1,
        });
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_users_write_them() {
        let signed = |text| parse(Kind::Signed, text);
        assert_eq!([signed(" 12 "), signed("-1"), signed("0x10")], [Some(12), Some(-1), Some(16)]);
        assert_eq!([signed("2147483648"), signed("4k"), signed(""), signed("0x")], [None; 4]);
        let unsigned = |text| parse(Kind::Unsigned, text);
        assert_eq!([unsigned("4294967295"), unsigned("-1"), unsigned("4294967296")], [Some(-1), None, None]);
    }
}
