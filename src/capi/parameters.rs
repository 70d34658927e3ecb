//! Parameters: the transports' tables, with the values that the caller gives them as texts.

use super::abi::{
    HAWSER_KIND_BOOL, HAWSER_KIND_INT, HAWSER_KIND_TEXT, HAWSER_KIND_UNSIGNED, HAWSER_LOG_ERROR, Parameter,
};
use super::code::{HAWSER_ERR_PARAMETER, Outcome};
use super::host::{Caller, c_text};
use crate::btl::{Kind, Transport, truth};

/// Reads a number as Open MPI does (`int_from_string` of `mca_base_var.c`): in base 10, 8 behind 0 or 16 behind 0x, with
/// K, M or G behind it; but nothing else before, between or behind. What is kept are the bits of an `int`. A `bool` may be a word.
fn parse(kind: Kind, text: &str) -> Option<i32> {
    let text = text.trim();
    if kind == Kind::Bool {
        return Some(text).filter(|text| !text.is_empty()).and_then(truth).map(i32::from);
    }
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => (-1, text),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let shift = match text.as_bytes().last()? {
        b'k' | b'K' => 10,
        b'm' | b'M' => 20,
        b'g' | b'G' => 30,
        _ => 0,
    };
    let text = if shift == 0 { text } else { &text[..text.len() - 1] };
    let (base, digits) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None if text.len() > 1 && text.starts_with('0') => (8, text),
        None => (10, text),
    };
    // No second sign.
    let digits = Some(digits).filter(|digits| digits.starts_with(|c: char| c.is_digit(base)))?;
    let value = sign * (i64::from(u32::from_str_radix(digits, base).ok()?) << shift);
    match kind {
        Kind::Signed | Kind::Bool => i32::try_from(value).ok(),
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
        let default = c_text(&number.default_text());
        caller.declare(&Parameter {
            size,
            name: name.as_ptr(),
            help: number.help.as_ptr(),
            default_value: default.as_ptr(),
            kind: match number.kind {
                Kind::Signed => HAWSER_KIND_INT,
                Kind::Unsigned | Kind::Flags => HAWSER_KIND_UNSIGNED,
                Kind::Bool => HAWSER_KIND_BOOL,
            },
            level: number.level.cast_unsigned() + 1,
        });
        let value = match caller.parameter(&name) {
            None => number.default,
            Some(text) => parse(number.kind, &text).ok_or_else(|| {
                let what = if number.kind == Kind::Bool {
                    "neither true nor false"
                } else {
                    "no number that it may have"
                };
                let line = format!("{} is {text}: that is {what}", name.to_string_lossy());
                caller.log(HAWSER_LOG_ERROR, &line);
                HAWSER_ERR_PARAMETER
            })?,
        };
        number.set(value);
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
        assert_eq!(
            [signed("8k"), signed("0x10K"), signed("-1m"), signed("1G")].map(Option::unwrap),
            [8 << 10, 16 << 10, -(1 << 20), 1 << 30]
        );
        assert_eq!(
            [signed("010"), signed("0"), signed("0k"), signed("+7")].map(Option::unwrap),
            [8, 0, 0, 7]
        );
        assert_eq!([signed("2147483648"), signed("2G"), signed(""), signed("0x")], [None; 4]);
        assert_eq!([signed("k"), signed("--1"), signed("4kb"), signed("1.5")], [None; 4]);
        assert_eq!([signed("08"), signed("0x-1"), signed("1 k"), signed("é")], [None; 4]);
        let unsigned = |text| parse(Kind::Unsigned, text);
        assert_eq!([unsigned("4294967295"), unsigned("-1"), unsigned("4294967296")], [Some(-1), None, None]);
        assert_eq!([unsigned("2G"), unsigned("4G")], [Some(i32::MIN), None]);
        let truth = |text| parse(Kind::Bool, text);
        assert_eq!([truth("true"), truth(" no "), truth("2"), truth("0")], [1, 0, 1, 0].map(Some));
        assert_eq!([truth("maybe"), truth(""), truth("1k")], [None; 3]);
    }
}
