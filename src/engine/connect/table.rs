//! What happens to a connection, as a table: every state, every input, one action.

use super::interface::State;

/// The states, the parts of two of them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Row {
    /// Nothing was ever wanted.
    None,
    /// CONNECTING: the mailbox of this side is not there yet. Its number has been told nobody.
    Preparing,
    /// CONNECTING: the peer is asked, and its mailbox not known.
    Asking,
    /// Each side's mailbox is known here.
    Connected,
    /// TERMINATING: this side ends it, and the peer is to say that it has read everything.
    Closing,
    /// TERMINATING: the peer ends it, and this side is to read everything.
    Draining,
    /// The last connection was ended by a side.
    Terminated,
    /// The last one came to nothing, or was lost.
    Error,
}

impl Row {
    /// What is told of it.
    pub(super) const fn state(self) -> State {
        match self {
            Self::None => State::None,
            Self::Preparing | Self::Asking => State::Connecting,
            Self::Connected => State::Connected,
            Self::Closing | Self::Draining => State::Terminating,
            Self::Terminated => State::Terminated,
            Self::Error => State::Error,
        }
    }

    /// Whether there is no connection.
    pub(super) const fn is_idle(self) -> bool {
        matches!(self, Self::None | Self::Terminated | Self::Error)
    }
}

/// What the user, time or a datagram says of one connection. That a datagram is of it, and not of an earlier one,
/// has been seen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// The user wants it.
    Connect,
    /// The user does not want it any more.
    Close,
    /// The mailbox of this side is there.
    Ready,
    /// There is none just now.
    Lacking,
    /// There will be none.
    Denied,
    /// A request of a connection that is new here.
    Request,
    /// Another of the one that is known.
    RequestAgain,
    /// The answer to ours.
    Response,
    /// The same again.
    ResponseAgain,
    /// The peer knows that this side is connected.
    Confirm,
    /// The peer cannot answer yet.
    Later,
    /// The peer refuses.
    Refused,
    /// The peer has no such connection, and will not have it.
    Gone,
    /// The peer ends it.
    Disconnect,
    /// The peer has read everything.
    Disconnected,
    /// The user has read everything.
    Drained,
    /// The timer has run out.
    Expired,
    /// The peer's side of it is over: there is a later one, or a later life of the peer.
    Renewed,
    /// The peer has died.
    Died,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing: it fits, and says nothing new.
    Ignore,
    /// Nothing: no peer that keeps the rules says it. It is counted.
    Stray,
    /// Begin: ask the user for a mailbox.
    Begin,
    /// Begin for the peer: ask the user for a mailbox.
    Accept,
    /// Note that the user wants it.
    Wish,
    /// Note whom to answer as soon as there is a mailbox.
    Adopt,
    /// Forget whom to answer.
    Unadopt,
    /// Ask, or answer whoever has asked.
    Proceed,
    /// Ask the user for a mailbox again, after a while.
    Wait,
    /// Ask the user for a mailbox again.
    Want,
    /// Connected: the peer has asked, too.
    Meet,
    /// Connected: the peer has answered.
    Join,
    /// Let the peer know that it is known.
    Confirm,
    /// The peer may not know this side: tell it again.
    Remind,
    /// Tell it that the request is remembered.
    Postpone,
    /// Remember the request until this connection is over.
    Hold,
    /// Tell the peer that there is no such connection any more.
    Deny,
    /// The peer knows this side: there is nothing left to be told.
    Settle,
    /// Begin to count anew: the peer lives.
    Patience,
    /// Say it again, or give up.
    Repeat,
    /// It comes to nothing.
    Fail,
    /// It is lost.
    Lose,
    /// End it, and tell the peer.
    Leave,
    /// End it, of which the peer need not hear, or has.
    End,
    /// Ask the user to read everything.
    Drain,
    /// Tell the peer that it is ended, which it is.
    Acknowledge,
    /// It came to nothing because the peer does not want it: tell it so.
    Yield,
}

const ROWS: usize = Row::Error as usize + 1;
const INPUTS: usize = Input::Died as usize + 1;

#[rustfmt::skip]
const TABLE: [[Action; ROWS]; INPUTS] = {
    use Action::*;
    [
        // None     Preparing  Asking     Connected  Closing    Draining     Terminated Error
        [Begin,     Wish,      Wish,      Wish,      Wish,      Wish,        Begin,     Begin],  // Connect
        [Ignore,    End,       Leave,     Leave,     Ignore,    Acknowledge, Ignore,    Ignore], // Close
        [Stray,     Proceed,   Stray,     Stray,     Stray,     Stray,       Stray,     Stray],  // Ready
        [Stray,     Wait,      Stray,     Stray,     Stray,     Stray,       Stray,     Stray],  // Lacking
        [Stray,     Fail,      Stray,     Stray,     Stray,     Stray,       Stray,     Stray],  // Denied
        [Accept,    Adopt,     Meet,      Stray,     Hold,      Hold,        Accept,    Accept], // Request
        [Stray,     Postpone,  Stray,     Remind,    Ignore,    Ignore,      Stray,     Stray],  // RequestAgain
        [Stray,     Stray,     Join,      Stray,     Ignore,    Deny,        Stray,     Stray],  // Response
        [Stray,     Stray,     Stray,     Confirm,   Ignore,    Ignore,      Stray,     Stray],  // ResponseAgain
        [Stray,     Stray,     Stray,     Settle,    Ignore,    Ignore,      Stray,     Stray],  // Confirm
        [Stray,     Stray,     Patience,  Ignore,    Ignore,    Ignore,      Stray,     Stray],  // Later
        [Stray,     Stray,     Fail,      Ignore,    End,       Ignore,      Stray,     Stray],  // Refused
        [Stray,     Stray,     Fail,      Lose,      End,       Ignore,      Stray,     Stray],  // Gone
        [Stray,     Unadopt,   Yield,     Drain,     Acknowledge, Ignore,    Stray,     Stray],  // Disconnect
        [Stray,     Stray,     Stray,     Stray,     End,       Stray,       Stray,     Stray],  // Disconnected
        [Stray,     Stray,     Stray,     Stray,     Stray,     Acknowledge, Stray,     Stray],  // Drained
        [Ignore,    Want,      Repeat,    Repeat,    Repeat,    Ignore,      Ignore,    Ignore], // Expired
        [Ignore,    Unadopt,   Ignore,    Lose,      End,       Ignore,      Ignore,    Ignore], // Renewed
        [Ignore,    Fail,      Fail,      Lose,      End,       Ignore,      Ignore,    Ignore], // Died
    ]
};

/// What is done in this state when this happens.
pub(super) const fn action(row: Row, input: Input) -> Action {
    TABLE[input as usize][row as usize]
}
