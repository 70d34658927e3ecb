//! Memory that processes of a node share: what each of them writes, the others read where it lies.
//!
//! Every process has one [`Segment`], an anonymous file of its own, with a [ring](Sender) for each peer that
//! it sends to and a [bell](Segment::rung) that its peers ring. [`CrossMemory`] copies to and from the private
//! memory of other processes, and [`Watch`] says when they have ended, or go on as another program ([`Lifeline`]). The
//! [`Door`] of a process leads to the segment of its present life, and the [`Alarm`] of a segment wakes its owner.
//! A [`Table`] has a name, by which all processes of a user find it.
//!
//! Whatever lies in shared memory is untrusted: another process may write there whatever it likes, at any time,
//! also while it dies. A word is read once, as an atomic, and checked before it is used; payload is only
//! ever copied, through raw pointers, never behind a reference. What breaks the rules is [`Corrupt`], and is
//! never followed.

mod alarm;
#[cfg(test)]
mod alarm_model;
mod cross;
mod door;
mod inbox;
mod lifeline;
mod plate;
mod published;
mod ring;
#[cfg(test)]
mod ring_model;
#[cfg(test)]
mod ring_tests;
mod segment;
mod table;
#[cfg(test)]
mod table_model;
#[cfg(test)]
mod table_tests;
mod tail;
mod watch;

pub use alarm::{Alarm, Bell};
pub use cross::{CrossMemory, Probe, allow_peers, forbids};
pub use door::{Door, Life, Outside};
pub use inbox::{Claim, Claimed};
pub use lifeline::{Anchor, Lifeline};
#[cfg(test)]
pub(crate) use ring::forge;
pub use ring::{ALIGN, Arrival, Corrupt, ENTRIES, LONGEST, Next, Receiver, Sender, copy};
pub use segment::{Identity, NONCE, SLOTS, Segment, Shared, Staging};
pub use table::{Access, Entry, PLACES, Table};
pub use tail::{TAIL, Whole};
pub use watch::{Watch, has_ended};
