//! Atomic operations on memory (AMO): which there are, by libfabric's numbers, `fi_atomic(3)`.

/// A kind of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say all")]
pub enum Datatype {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
    F32Complex,
    F64Complex,
    LongDouble,
    LongDoubleComplex,
    I128,
    U128,
}

impl Datatype {
    /// By their numbers.
    pub const ALL: [Self; 16] = [
        Self::I8,
        Self::U8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F32,
        Self::F64,
        Self::F32Complex,
        Self::F64Complex,
        Self::LongDouble,
        Self::LongDoubleComplex,
        Self::I128,
        Self::U128,
    ];

    /// Bytes of a value.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::F32Complex => 8,
            Self::F64Complex | Self::LongDouble | Self::I128 | Self::U128 => 16,
            Self::LongDoubleComplex => 32,
        }
    }
}

/// What is done with a value and an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say all")]
pub enum Operation {
    Min,
    Max,
    Sum,
    Prod,
    LogicalOr,
    LogicalAnd,
    BitOr,
    BitAnd,
    LogicalXor,
    BitXor,
    Read,
    Write,
    Swap,
    SwapNe,
    SwapLe,
    SwapLt,
    SwapGe,
    SwapGt,
    MaskedSwap,
    Difference,
}

impl Operation {
    /// By their numbers.
    pub const ALL: [Self; 20] = [
        Self::Min,
        Self::Max,
        Self::Sum,
        Self::Prod,
        Self::LogicalOr,
        Self::LogicalAnd,
        Self::BitOr,
        Self::BitAnd,
        Self::LogicalXor,
        Self::BitXor,
        Self::Read,
        Self::Write,
        Self::Swap,
        Self::SwapNe,
        Self::SwapLe,
        Self::SwapLt,
        Self::SwapGe,
        Self::SwapGt,
        Self::MaskedSwap,
        Self::Difference,
    ];

    /// The value is compared with a second operand.
    pub const fn compares(self) -> bool {
        matches!(
            self,
            Self::Swap
                | Self::SwapNe
                | Self::SwapLe
                | Self::SwapLt
                | Self::SwapGe
                | Self::SwapGt
                | Self::MaskedSwap
        )
    }

    /// Whether it means something for such values, and is here.
    const fn is_for(self, datatype: Datatype) -> bool {
        let is_complex = matches!(datatype, Datatype::F32Complex | Datatype::F64Complex);
        match datatype {
            Datatype::LongDouble | Datatype::LongDoubleComplex => matches!(self, Self::Read | Self::Write),
            Datatype::F32 | Datatype::F64 | Datatype::F32Complex | Datatype::F64Complex => match self {
                Self::BitOr | Self::BitAnd | Self::BitXor | Self::MaskedSwap => false,
                Self::Min | Self::Max | Self::SwapLe | Self::SwapLt | Self::SwapGe | Self::SwapGt => {
                    !is_complex
                }
                _ => true,
            },
            _ => true,
        }
    }
}

/// What an operation brings back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Nothing.
    Base,
    /// What was there before.
    Fetch,
    /// The same, and the value is compared with a second operand.
    Compare,
}

/// An operation on values of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amo {
    operation: Operation,
    datatype: Datatype,
    form: Form,
}

impl Amo {
    /// By libfabric's numbers; `None` where there is no such thing.
    pub fn new(operation: u32, datatype: u32, form: Form) -> Option<Self> {
        let operation = Operation::ALL.get(operation as usize).copied()?;
        let datatype = Datatype::ALL.get(datatype as usize).copied()?;
        let fits = match form {
            Form::Base => !operation.compares() && operation != Operation::Read,
            Form::Fetch => !operation.compares(),
            Form::Compare => operation.compares(),
        };
        (fits && operation.is_for(datatype)).then_some(Self { operation, datatype, form })
    }

    /// What is done.
    pub fn operation(self) -> Operation {
        self.operation
    }

    /// With what.
    pub fn datatype(self) -> Datatype {
        self.datatype
    }

    /// What comes back.
    pub fn form(self) -> Form {
        self.form
    }

    /// Operands for each value: the one that is put there or combined, and the one that is compared.
    pub fn operands(self) -> usize {
        match self.operation {
            Operation::Read => 0,
            operation if operation.compares() => 2,
            _ => 1,
        }
    }

    /// Its three numbers in one.
    pub(super) fn to_word(self) -> u64 {
        self.operation as u64 | (self.datatype as u64) << 8 | (self.form as u64) << 16
    }

    /// And back.
    pub(super) fn from_word(word: u64) -> Option<Self> {
        let form = match word >> 16 {
            0 => Form::Base,
            1 => Form::Fetch,
            2 => Form::Compare,
            _ => return None,
        };
        Self::new(word as u32 & 0xFF, word as u32 >> 8 & 0xFF, form)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places_and_survive_the_journey() {
        let mut count = 0;
        for (code, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, code);
            for (kind, datatype) in Datatype::ALL.into_iter().enumerate() {
                assert_eq!(datatype as usize, kind);
                for form in [Form::Base, Form::Fetch, Form::Compare] {
                    let Some(amo) = Amo::new(code as u32, kind as u32, form) else { continue };
                    assert_eq!(Amo::from_word(amo.to_word()), Some(amo));
                    assert_eq!(operation.compares(), form == Form::Compare);
                    assert_eq!(amo.operands() == 2, form == Form::Compare);
                    count += 1;
                }
            }
        }
        // Ten integers with 12 base, 13 fetching and 7 comparing operations; floats, complex and long ones.
        assert_eq!(count, 10 * 32 + 2 * (9 + 10 + 6) + 2 * (7 + 8 + 2) + 2 * (1 + 2));
        for word in [20, 16 << 8, 3 << 16, 1 << 24, 1 << 40, 10, 12, 2 << 16] {
            assert_eq!(Amo::from_word(word), None, "{word:#x}");
        }
    }
}
