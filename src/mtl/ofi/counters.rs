//! What the OFI MTL counts, off the short path. The host shows it as performance variables.

use crate::mtl::Counter;

pub(super) static RETRIES: Counter = Counter::new(
    c"retries",
    c"Operations that the provider could not take at once and that were tried again",
);
pub(super) static COPIED_SENDS: Counter = Counter::new(
    c"copied_sends",
    c"Sends packed into a buffer, because the data do not lie in one piece of host memory",
);
pub(super) static COPIED_RECEIVES: Counter = Counter::new(
    c"copied_receives",
    c"Receives through a buffer, because the data do not lie in one piece of host memory or the message came unexpected",
);
pub(super) static COPIED_BYTES: Counter =
    Counter::new(c"copied_bytes", c"Bytes of the buffers of copied_sends and copied_receives");
pub(super) static DEVICE_DIRECT: Counter = Counter::new(
    c"device_direct",
    c"Sends and receives in device memory that were handed to the provider as they lie",
);
pub(super) static DEVICE_REFUSED: Counter = Counter::new(
    c"device_refused",
    c"Sends and receives in device memory that the provider would not register; they went through host memory",
);
pub(super) static SYNCHRONOUS_SENDS: Counter =
    Counter::new(c"synchronous_sends", c"Synchronous sends: each waits for an answer of the receiver");
pub(super) static PROBES: Counter =
    Counter::new(c"probes", c"Questions put to the provider by MPI_Probe, MPI_Mprobe and their kin");
pub(super) static TAKEN_OVER: Counter = Counter::new(
    c"taken_over",
    c"Unexpected messages taken over from a provider that keeps only a few; many of them mean that receives are posted late",
);
pub(super) static TRUNCATED: Counter =
    Counter::new(c"truncated", c"Messages that were longer than their receive");
pub(super) static FAILED: Counter = Counter::new(
    c"failed",
    c"Operations that the provider reported as failed, other than truncated or cancelled ones",
);
pub(super) static DROPPED: Counter = Counter::new(
    c"dropped",
    c"Answers to synchronous sends and announcements of communicators that were not sent, because their peer has ended",
);

/// All of them.
pub(super) static COUNTERS: [&Counter; 12] = [
    &RETRIES,
    &COPIED_SENDS,
    &COPIED_RECEIVES,
    &COPIED_BYTES,
    &DEVICE_DIRECT,
    &DEVICE_REFUSED,
    &SYNCHRONOUS_SENDS,
    &PROBES,
    &TAKEN_OVER,
    &TRUNCATED,
    &FAILED,
    &DROPPED,
];
