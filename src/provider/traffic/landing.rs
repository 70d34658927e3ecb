//! Long messages that come by streams: their pieces are received where they belong.

use super::Lost;
use super::context::Context;
use crate::link::Lent;
use crate::wire::gni::mailbox::{Entry, PIECES};

/// Bytes of the head of a piece.
const HEAD: usize = 16;

impl Context {
    /// Receives what has come of a piece; whether it is here.
    #[cold]
    #[inline(never)]
    pub(super) fn land(&mut self, peer: u32) -> Result<bool, Lost> {
        loop {
            let mailbox = self.peers.get_mut(peer as usize).and_then(|there| there.mailbox.as_mut());
            let Some(mailbox) = mailbox else { return Ok(false) };
            let Some(long) = mailbox.long().map_err(|_| Lost)? else { return Ok(false) };
            let parsed = Entry::parse(long.kind, HEAD + long.length, |at| long.head[usize::from(at != 0)]);
            let Some((Entry::Piece { receive, offset }, HEAD)) = parsed else { return Err(Lost) };
            let pull = self.expected(peer, receive, offset, long.length).ok_or(Lost)?;
            let left = long.length - long.landed;
            let mut parts = [Lent::EMPTY; PIECES];
            let mut count = 0;
            for (place, part) in
                parts.iter_mut().zip(pull.receive.buffer.parts(pull.come + long.landed, left))
            {
                *place = part;
                count += 1;
            }
            let mailbox = self.peers.get_mut(peer as usize).and_then(|there| there.mailbox.as_mut());
            let Some(mailbox) = mailbox else { return Ok(false) };
            if mailbox.land(&parts[..count], left).map_err(|_| Lost)? {
                self.piece_has_come(peer, receive, long.length).ok_or(Lost)?;
                return Ok(true);
            }
            if !mailbox.may_read() {
                return Ok(false);
            }
        }
    }
}
