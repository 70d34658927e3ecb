//! What an atomic operation (AMO) makes of a value: arithmetic on bytes, without any memory.

use crate::wire::gni::amo::{Amo, Datatype, Operation};

/// Bytes of the longest value.
pub const LONGEST: usize = 32;

/// A value: its bytes, and what follows is nothing.
pub type Value = [u8; LONGEST];

/// Values that can be combined.
trait Number: Copy + PartialEq {
    fn take(bytes: &Value) -> Self;
    fn put(self) -> Value;
    fn is_true(self) -> bool;
    fn of(truth: bool) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

/// The first bytes of a value.
fn first<const N: usize>(bytes: &Value) -> [u8; N] {
    std::array::from_fn(|at| bytes[at])
}

/// A value of so many bytes.
fn value<const N: usize>(bytes: [u8; N]) -> Value {
    std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0))
}

/// What both kinds of number do in the same way, after `plus`, `minus` and `times`.
macro_rules! number {
    ($type:ty, $zero:expr, $one:expr, |$a:ident, $b:ident| $plus:expr, $minus:expr, $times:expr) => {
        impl Number for $type {
            fn take(bytes: &Value) -> Self {
                Self::from_ne_bytes(first(bytes))
            }
            fn put(self) -> Value {
                value(self.to_ne_bytes())
            }
            fn is_true(self) -> bool {
                self != $zero
            }
            fn of(truth: bool) -> Self {
                if truth { $one } else { $zero }
            }
            fn plus(self, other: Self) -> Self {
                let ($a, $b) = (self, other);
                $plus
            }
            fn minus(self, other: Self) -> Self {
                let ($a, $b) = (self, other);
                $minus
            }
            fn times(self, other: Self) -> Self {
                let ($a, $b) = (self, other);
                $times
            }
        }
    };
}
macro_rules! integers {
    ($($type:ty),+) => {
        $(number!($type, 0, 1, |a, b| a.wrapping_add(b), a.wrapping_sub(b), a.wrapping_mul(b));)+
    };
}
integers!(i8, u8, i16, u16, i32, u32, i64, u64, i128, u128);
number!(f32, 0.0, 1.0, |a, b| a + b, a - b, a * b);
number!(f64, 0.0, 1.0, |a, b| a + b, a - b, a * b);

/// A complex number.
#[derive(Clone, Copy, PartialEq)]
struct Complex<N> {
    real: N,
    imaginary: N,
}

macro_rules! complex {
    ($($type:ty: $size:literal),+) => {
        $(impl Number for Complex<$type> {
            fn take(bytes: &Value) -> Self {
                let imaginary = std::array::from_fn(|at| bytes[$size + at]);
                Self { real: Number::take(bytes), imaginary: <$type>::from_ne_bytes(imaginary) }
            }
            fn put(self) -> Value {
                let mut bytes = self.real.put();
                bytes[$size..2 * $size].copy_from_slice(&self.imaginary.to_ne_bytes());
                bytes
            }
            fn is_true(self) -> bool {
                self.real.is_true() || self.imaginary.is_true()
            }
            fn of(truth: bool) -> Self {
                Self { real: Number::of(truth), imaginary: 0.0 }
            }
            fn plus(self, other: Self) -> Self {
                Self { real: self.real + other.real, imaginary: self.imaginary + other.imaginary }
            }
            fn minus(self, other: Self) -> Self {
                Self { real: self.real - other.real, imaginary: self.imaginary - other.imaginary }
            }
            fn times(self, other: Self) -> Self {
                Self {
                    real: self.real * other.real - self.imaginary * other.imaginary,
                    imaginary: self.real * other.imaginary + self.imaginary * other.real,
                }
            }
        })+
    };
}
complex!(f32: 4, f64: 8);

/// What every kind of number has; the old value where an operation is of another kind.
fn any<N: Number>(operation: Operation, old: N, operand: N, compared: N) -> N {
    let swap_if = |holds: bool| if holds { operand } else { old };
    match operation {
        Operation::Sum => old.plus(operand),
        Operation::Difference => old.minus(operand),
        Operation::Prod => old.times(operand),
        Operation::LogicalOr => N::of(old.is_true() || operand.is_true()),
        Operation::LogicalAnd => N::of(old.is_true() && operand.is_true()),
        Operation::LogicalXor => N::of(old.is_true() != operand.is_true()),
        Operation::Write => operand,
        Operation::Swap => swap_if(compared == old),
        Operation::SwapNe => swap_if(compared != old),
        _ => old,
    }
}

/// And what those have that have an order.
fn ordered<N: Number + PartialOrd>(operation: Operation, old: N, operand: N, compared: N) -> N {
    let swap_if = |holds: bool| if holds { operand } else { old };
    match operation {
        Operation::Min => swap_if(operand < old),
        Operation::Max => swap_if(operand > old),
        Operation::SwapLe => swap_if(compared <= old),
        Operation::SwapLt => swap_if(compared < old),
        Operation::SwapGe => swap_if(compared >= old),
        Operation::SwapGt => swap_if(compared > old),
        other => any(other, old, operand, compared),
    }
}

/// The new value.
pub fn combine(amo: Amo, old: &Value, operand: &Value, compared: &Value) -> Value {
    let operation = amo.operation();
    match operation {
        Operation::Read => return *old,
        Operation::Write => return *operand,
        Operation::BitOr => return std::array::from_fn(|at| old[at] | operand[at]),
        Operation::BitAnd => return std::array::from_fn(|at| old[at] & operand[at]),
        Operation::BitXor => return std::array::from_fn(|at| old[at] ^ operand[at]),
        Operation::MaskedSwap => {
            return std::array::from_fn(|at| operand[at] & compared[at] | old[at] & !compared[at]);
        }
        _ => {}
    }
    macro_rules! with {
        ($type:ty, $how:ident) => {
            $how(operation, <$type>::take(old), <$type>::take(operand), <$type>::take(compared)).put()
        };
    }
    match amo.datatype() {
        Datatype::I8 => with!(i8, ordered),
        Datatype::U8 => with!(u8, ordered),
        Datatype::I16 => with!(i16, ordered),
        Datatype::U16 => with!(u16, ordered),
        Datatype::I32 => with!(i32, ordered),
        Datatype::U32 => with!(u32, ordered),
        Datatype::I64 => with!(i64, ordered),
        Datatype::U64 => with!(u64, ordered),
        Datatype::I128 => with!(i128, ordered),
        Datatype::U128 => with!(u128, ordered),
        Datatype::F32 => with!(f32, ordered),
        Datatype::F64 => with!(f64, ordered),
        Datatype::F32Complex => with!(Complex<f32>, any),
        Datatype::F64Complex => with!(Complex<f64>, any),
        // These are only read and written.
        Datatype::LongDouble | Datatype::LongDoubleComplex => *old,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::gni::amo::Form;

    fn amo(operation: Operation, datatype: Datatype) -> Amo {
        let form = if operation.compares() { Form::Compare } else { Form::Fetch };
        Amo::new(operation as u32, datatype as u32, form).expect("there is one")
    }

    fn of<N: Number>(operation: Operation, datatype: Datatype, numbers: [N; 3]) -> N {
        let [old, operand, compared] = numbers.map(Number::put);
        N::take(&combine(amo(operation, datatype), &old, &operand, &compared))
    }

    #[test]
    fn signs_and_widths_count() {
        use Operation::*;
        assert_eq!(of(Min, Datatype::I8, [5_i8, -3, 0]), -3);
        assert_eq!(of(Min, Datatype::U8, [5_u8, 0xFD, 0]), 5);
        assert_eq!(of(Max, Datatype::I64, [-5_i64, -3, 0]), -3);
        assert_eq!(of(Max, Datatype::U128, [1_u128 << 100, 3, 0]), 1 << 100);
        assert_eq!(of(Sum, Datatype::I16, [i16::MAX, 1, 0]), i16::MIN);
        assert_eq!(of(Sum, Datatype::U32, [u32::MAX, 2, 0]), 1);
        assert_eq!(of(Difference, Datatype::U16, [1_u16, 2, 0]), u16::MAX);
        assert_eq!(of(Prod, Datatype::I32, [-7_i32, 3, 0]), -21);
        assert_eq!(of(Prod, Datatype::I128, [-1_i128, i128::MAX, 0]), -i128::MAX);
        assert_eq!(of(Sum, Datatype::F64, [0.5_f64, 0.25, 0.0]), 0.75);
        assert_eq!(of(Max, Datatype::F32, [f32::NAN, 1.0, 0.0]).to_bits(), f32::NAN.to_bits());
    }

    #[test]
    fn logic_answers_one_or_zero_and_bits_are_bits() {
        use Operation::*;
        for (old, operand) in [(0_u64, 0_u64), (0, 6), (9, 0), (9, 6)] {
            let numbers = [old, operand, 0];
            assert_eq!(of(LogicalOr, Datatype::U64, numbers), u64::from(old != 0 || operand != 0));
            assert_eq!(of(LogicalAnd, Datatype::U64, numbers), u64::from(old != 0 && operand != 0));
            assert_eq!(of(LogicalXor, Datatype::U64, numbers), u64::from((old != 0) != (operand != 0)));
            assert_eq!(of(BitOr, Datatype::U64, numbers), old | operand);
            assert_eq!(of(BitAnd, Datatype::U64, numbers), old & operand);
            assert_eq!(of(BitXor, Datatype::U64, numbers), old ^ operand);
            assert_eq!(of(LogicalXor, Datatype::F32, [old as f32, operand as f32, 0.0]), {
                f32::from(u8::from((old != 0) != (operand != 0)))
            });
        }
        assert_eq!(of(MaskedSwap, Datatype::U16, [0xABCD_u16, 0x1234, 0xFF00]), 0x12CD);
        assert_eq!(of(Read, Datatype::U16, [7_u16, 8, 9]), 7);
        assert_eq!(of(Write, Datatype::U16, [7_u16, 8, 9]), 8);
    }

    #[test]
    fn swaps_compare_the_second_operand_with_the_value() {
        use Operation::*;
        for compared in [4_i32, 5, 6] {
            let is_swapped = |operation| of(operation, Datatype::I32, [5, 9, compared]) == 9;
            assert_eq!(is_swapped(Swap), compared == 5);
            assert_eq!(is_swapped(SwapNe), compared != 5);
            assert_eq!(is_swapped(SwapLe), compared <= 5);
            assert_eq!(is_swapped(SwapLt), compared < 5);
            assert_eq!(is_swapped(SwapGe), compared >= 5);
            assert_eq!(is_swapped(SwapGt), compared > 5);
        }
        // No bits are compared, but numbers.
        assert_eq!(of(Swap, Datatype::F64, [-0.0_f64, 2.0, 0.0]), 2.0);
    }

    #[test]
    fn complex_numbers_are_two() {
        let number = |real, imaginary| Complex { real, imaginary };
        let numbers = [number(1.0_f64, 2.0), number(3.0, -1.0), number(1.0, 2.0)];
        let with = |operation| of(operation, Datatype::F64Complex, numbers);
        assert!(with(Operation::Sum) == number(4.0, 1.0));
        assert!(with(Operation::Difference) == number(-2.0, 3.0));
        assert!(with(Operation::Prod) == number(5.0, 5.0));
        assert!(with(Operation::Swap) == numbers[1]);
        assert!(with(Operation::LogicalAnd) == number(1.0, 0.0));
        let short =
            numbers.map(|number| Complex { real: number.real as f32, imaginary: number.imaginary as f32 });
        assert!(of(Operation::Prod, Datatype::F32Complex, short) == Complex { real: 5.0, imaginary: 5.0 });
    }

    #[test]
    fn nothing_behind_a_value_is_changed_and_every_operation_has_one() {
        for operation in Operation::ALL {
            for datatype in Datatype::ALL {
                for form in [Form::Base, Form::Fetch, Form::Compare] {
                    let Some(amo) = Amo::new(operation as u32, datatype as u32, form) else { continue };
                    let mut values = [[0; LONGEST]; 3];
                    for (number, value) in values.iter_mut().enumerate() {
                        value[..datatype.size()].fill(0x3B + number as u8);
                    }
                    let new = combine(amo, &values[0], &values[1], &values[2]);
                    assert!(new[datatype.size()..].iter().all(|byte| *byte == 0), "{amo:?}");
                }
            }
        }
    }
}
