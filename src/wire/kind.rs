//! Kinds of packets of the usnic protocol.

/// What kind of packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Only an acknowledgement.
    Ack = 1,
    /// A whole fragment.
    Fragment = 2,
    /// A piece of a fragment.
    Chunk = 3,
    /// Data for a registration of the receiver.
    Put = 4,
    /// Asks for data from a registration of the receiver.
    GetRequest = 5,
    /// The data asked for.
    GetData = 6,
    /// A GET that was being served has come to nothing.
    Refused = 7,
    /// Nothing: it stands where a cancelled segment stood.
    Void = 8,
    /// The sender is done.
    Close = 9,
    /// Answers a `Close`.
    CloseAck = 10,
    /// Answers a packet of a PUT or GET that is not possible, each time that it comes.
    Reject = 11,
    /// Asks whether the segment with this number has arrived. If it has not, it is not to be taken any
    /// more: its data is about to be sent anew in other segments.
    Withdraw = 12,
    /// Answers a `Withdraw` of a segment that has not arrived, each time that it comes.
    Withdrawn = 13,
    /// Answers a packet of a connection that its receiver does not know any more: that connection is over.
    Reset = 14,
}

impl Kind {
    /// The kind that a byte says.
    pub(super) fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Ack,
            2 => Self::Fragment,
            3 => Self::Chunk,
            4 => Self::Put,
            5 => Self::GetRequest,
            6 => Self::GetData,
            7 => Self::Refused,
            8 => Self::Void,
            9 => Self::Close,
            10 => Self::CloseAck,
            11 => Self::Reject,
            12 => Self::Withdraw,
            13 => Self::Withdrawn,
            14 => Self::Reset,
            _ => return None,
        })
    }

    /// Whether packets of the kind have a sequence number and are acknowledged.
    pub const fn is_sequenced(self) -> bool {
        !matches!(
            self,
            Self::Ack | Self::Close | Self::CloseAck | Self::Reject | Self::Withdrawn | Self::Reset
        )
    }
}
