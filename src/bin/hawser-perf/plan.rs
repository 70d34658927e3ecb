//! What is measured: the client makes the plan, and both sides keep to it.
//!
//! It comes over a connection that anybody may open: [`Plan::parse`] takes nothing that it has not looked at.

/// Longest message.
pub(crate) const LONGEST: usize = 256 << 20;
/// Most messages of one length.
pub(crate) const MOST_ITERATIONS: u32 = 10_000_000;
/// Most messages under way.
pub(crate) const WIDEST: u32 = 4096;
/// Most lengths.
pub(crate) const MOST_CASES: usize = 64;
/// Longest name of a transport.
const NAME: usize = 32;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bench {
    /// How long one message takes.
    Latency,
    /// How many bytes go in a second.
    Bandwidth,
    /// How many messages do.
    Rate,
}

/// How the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// As messages.
    Send,
    /// Written to the other side's memory.
    Put,
    /// Read from there.
    Get,
}

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// Length of a message.
    pub(crate) bytes: usize,
    /// How many are timed.
    pub(crate) iterations: u32,
    /// How many go before, untimed.
    pub(crate) warm_up: u32,
}

/// All that both sides must agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Of the two processes together: half of their names.
    pub(crate) job: u32,
    pub(crate) transport: String,
    pub(crate) bench: Bench,
    pub(crate) operation: Operation,
    /// Messages under way at a time.
    pub(crate) window: u32,
    pub(crate) cases: Vec<Case>,
}

impl Bench {
    pub(crate) const ALL: [(&str, Self); 3] =
        [("latency", Self::Latency), ("bandwidth", Self::Bandwidth), ("rate", Self::Rate)];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, bench)| *bench == self).map_or("", |(name, _)| name)
    }
}

impl Operation {
    pub(crate) const ALL: [(&str, Self); 3] = [("send", Self::Send), ("put", Self::Put), ("get", Self::Get)];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, operation)| *operation == self).map_or("", |(name, _)| name)
    }
}

/// Reads numbers from the front of bytes.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn byte(&mut self) -> Option<usize> {
        self.take(1).map(|byte| byte[0].into())
    }

    fn word(&mut self) -> Option<u32> {
        self.take(4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes)
    }
}

impl Plan {
    /// As it travels.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut bytes = self.job.to_le_bytes().to_vec();
        bytes.extend([self.bench as u8, self.operation as u8, self.transport.len() as u8]);
        bytes.extend(self.transport.as_bytes());
        bytes.extend(self.window.to_le_bytes());
        bytes.push(self.cases.len() as u8);
        for case in &self.cases {
            for word in [case.bytes as u32, case.iterations, case.warm_up] {
                bytes.extend(word.to_le_bytes());
            }
        }
        bytes
    }

    /// What has come; an error says what is wrong with it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut cursor = Cursor(bytes);
        let plan = Self::read(&mut cursor).ok_or("it is cut off, or has a number of no meaning")?;
        if !cursor.0.is_empty() {
            return Err("it is too long".to_owned());
        }
        plan.check()?;
        Ok(plan)
    }

    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        let job = cursor.word()?;
        let (_, bench) = *Bench::ALL.get(cursor.byte()?)?;
        let (_, operation) = *Operation::ALL.get(cursor.byte()?)?;
        let length = cursor.byte()?;
        let name = cursor.take(length)?;
        let transport = str::from_utf8(name).ok()?.to_owned();
        let window = cursor.word()?;
        let count = cursor.byte()?;
        let mut cases = Vec::new();
        for _ in 0..count {
            let bytes = usize::try_from(cursor.word()?).ok()?;
            cases.push(Case { bytes, iterations: cursor.word()?, warm_up: cursor.word()? });
        }
        Some(Self { job, transport, bench, operation, window, cases })
    }

    /// Whether every number is in its bounds.
    pub(crate) fn check(&self) -> Result<(), String> {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if self.transport.is_empty() || self.transport.len() > NAME || !self.transport.chars().all(is_name) {
            return Err(format!("-t {}: that is no name of a transport", self.transport));
        }
        if !(1..=WIDEST).contains(&self.window) {
            return Err(format!("a window of {} (-W); it must be 1 to {WIDEST}", self.window));
        }
        if !(1..=MOST_CASES).contains(&self.cases.len()) {
            return Err(format!("{} lengths (-s); there must be 1 to {MOST_CASES}", self.cases.len()));
        }
        let least = usize::from(self.operation != Operation::Send);
        for case in &self.cases {
            if !(least..=LONGEST).contains(&case.bytes) {
                return Err(format!("a length of {} (-s); it must be {least} to {LONGEST}", case.bytes));
            }
            if !(1..=MOST_ITERATIONS).contains(&case.iterations) || case.warm_up > MOST_ITERATIONS {
                return Err(format!(
                    "{} iterations (-n), {} to warm up (-w); there must be 1 to {MOST_ITERATIONS}",
                    case.iterations, case.warm_up
                ));
            }
        }
        Ok(())
    }

    /// In words, that the transport does not have the operation.
    pub(crate) fn without(&self, why: &str) -> String {
        format!("{} has no {} {why}; take -o send", self.transport, self.operation.name())
    }

    /// The longest length.
    pub(crate) fn longest(&self) -> usize {
        self.cases.iter().map(|case| case.bytes).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let case = |bytes| Case { bytes, iterations: 10, warm_up: 0 };
        Plan {
            job: 7,
            transport: "smcuda".to_owned(),
            bench: Bench::Rate,
            operation: Operation::Get,
            window: 64,
            cases: [1, LONGEST].map(case).to_vec(),
        }
    }

    #[test]
    fn a_plan_arrives_as_it_was_made() {
        assert_eq!(Plan::parse(&plan().emit()), Ok(plan()));
        for (at, (_, bench)) in Bench::ALL.iter().enumerate() {
            assert_eq!(*bench as usize, at);
        }
        for (at, (_, operation)) in Operation::ALL.iter().enumerate() {
            assert_eq!(*operation as usize, at);
        }
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_no_plan() {
        let whole = plan().emit();
        for length in 0..whole.len() {
            assert!(Plan::parse(&whole[..length]).is_err(), "{length} bytes");
        }
        assert!(Plan::parse(&[whole.as_slice(), &[0]].concat()).is_err());
    }

    #[test]
    fn what_is_taken_is_what_was_said() {
        let whole = plan().emit();
        for at in 0..whole.len() {
            for value in 0..=u8::MAX {
                let mut bytes = whole.clone();
                bytes[at] = value;
                if let Ok(plan) = Plan::parse(&bytes) {
                    assert_eq!(plan.emit(), bytes);
                }
            }
        }
    }

    #[test]
    fn every_number_has_its_bounds() {
        let wrong: [fn(&mut Plan); 9] = [
            |plan| plan.transport.clear(),
            |plan| plan.transport = "../x".to_owned(),
            |plan| plan.window = 0,
            |plan| plan.window = WIDEST + 1,
            |plan| plan.cases.clear(),
            |plan| plan.cases[0].bytes = 0,
            |plan| plan.cases[0].bytes = LONGEST + 1,
            |plan| plan.cases[1].iterations = 0,
            |plan| plan.cases[1].warm_up = MOST_ITERATIONS + 1,
        ];
        for change in wrong {
            let mut plan = plan();
            change(&mut plan);
            assert!(Plan::parse(&plan.emit()).is_err(), "{plan:?}");
        }
        let empty =
            Plan { operation: Operation::Send, cases: vec![Case { bytes: 0, ..plan().cases[0] }], ..plan() };
        assert_eq!(Plan::parse(&empty.emit()), Ok(empty));
    }
}
