//! What has landed where it was guessed to belong: see [`Landing`].

use super::core::Engine;
use super::endpoint::Phase;
use super::interface::Memory;
use super::landing::Landing;
use super::slab::Key;
use super::time::Instant;
use crate::wire::run::Lead;
use crate::wire::usnic::{Body, Flags};

impl<M: Memory> Engine<M> {
    /// Where the next datagrams of the data channel belong, if that can be guessed and is worth it.
    #[inline]
    pub fn landing(&mut self) -> Option<Landing<M>> {
        let landing = self.landings.guess(&self.operations, self.limits.trailer)?;
        (!self.limits.protect || self.is_in_order(landing.operation)).then_some(landing)
    }

    /// Whether nothing is missing before what comes next of a GET: else no protected data is taken where it has landed.
    fn is_in_order(&self, operation: u64) -> bool {
        let operation = self.operations.get(Key::from_raw(operation));
        let endpoint = operation.and_then(|operation| self.endpoints.at(operation.endpoint));
        endpoint.is_some_and(|it| it.phase == Phase::Open && !it.receive.window.has_gap())
    }

    /// What came was not led by the guess to where it belongs: other datagrams, of other lengths.
    pub fn note_missed_landing(&mut self) {
        self.landings.note_guess(false);
    }

    /// The memory of a landing cannot be written to. There are none any more: the user's own copies meet what is wrong.
    #[cold]
    pub fn end_landings(&mut self) {
        self.landings.end();
    }

    /// Takes in datagrams that came together, as [`Self::handle_run`] and [`Self::handle_protected_run`] do, or one, of
    /// which the data has landed where it was guessed to belong. How many of them are done with; the others must be put
    /// together again, and handed in as they were sent.
    pub fn handle_landed(
        &mut self,
        bytes: &mut [u8],
        size: usize,
        landing: &Landing<M>,
        arrived: Option<Instant>,
        now: Instant,
    ) -> usize {
        let first = &bytes[..size.min(bytes.len())];
        let is_right = Lead::parse(first, first.len()).is_some_and(|lead| {
            let here = Body::GetData { operation: landing.operation, offset: landing.offset as u64 };
            let is_of_ours = lead.repr().flags.has(Flags::PROTECTED) == self.limits.protect;
            lead.repr().body == here && lead.header() == landing.header && is_of_ours
        });
        self.landings.note_guess(is_right);
        if !is_right {
            return 0;
        }
        if self.limits.protect {
            return self.handle_protected_landed(bytes, size, landing, arrived, now);
        }
        self.landings.in_place = true;
        let mut taken = if bytes.len() > size { self.handle_run(bytes, size, arrived, now) } else { 0 };
        if taken == 0 {
            // Of data nothing is handed up, whoever has sent it.
            let _ = self.handle_datagram(first, arrived, now);
            taken = 1;
        }
        self.landings.in_place = false;
        taken
    }
}
