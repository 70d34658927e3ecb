//! One end of a connection, or who listens for them (`rdma_create_id(3)`, `rdma_cm(7)`).

use std::ffi::{c_int, c_void};
use std::fmt;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use nix::sys::socket::{SockaddrLike, SockaddrStorage};
use parking_lot::Mutex;

use super::channel::EventChannel;
use super::context::Context;
use super::pair::{Depths, Qp, Queues};
use super::{last_error, sys};
use crate::error::{Error, Result};

/// librdmacm's id, which ends when the [`Id`] and its [`Qp`] are dropped.
pub(super) struct Handle {
    raw: NonNull<sys::rdma_cm_id>,
    channel: Arc<EventChannel>,
    /// Held while it connects, so that its queue pair is neither made nor ends meanwhile. Taken before the turn.
    connecting: Mutex<()>,
}

// SAFETY: whatever uses the id has the turn of its channel, but for `connect`, which says why it need not.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    fn new(raw: NonNull<sys::rdma_cm_id>, channel: &Arc<EventChannel>) -> Arc<Self> {
        Arc::new(Self { raw, channel: Arc::clone(channel), connecting: Mutex::new(()) })
    }

    fn as_ptr(&self) -> *mut sys::rdma_cm_id {
        self.raw.as_ptr()
    }

    /// # Safety
    /// The id has a queue pair, which nobody uses any more.
    pub(super) unsafe fn destroy_qp(&self) {
        let _connected = self.connecting.lock();
        let _turn = self.channel.turn();
        // SAFETY: by the promise of the caller, in turn, and not while it connects.
        unsafe { (self.channel.library().id_destroy_qp)(self.as_ptr()) };
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _turn = self.channel.turn();
        // SAFETY: ours, ended once; its queue pair holds it, so there is none. No event of it is being read: that is done in
        // turn too, so nothing is waited for.
        let _ended = unsafe { (self.channel.library().id_destroy)(self.as_ptr()) };
    }
}

/// The result of a call of librdmacm: 0, or -1 with `errno(3)`.
fn done(code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(last_error()) }
}

/// What to ask for after so much inline data was refused: what devices have is a power of two in most cases.
fn less(inline: u32) -> u32 {
    inline.saturating_sub(1).checked_ilog2().map_or(0, |log| 1 << log)
}

/// Time for an answer of the network's own services, in milliseconds.
fn milliseconds(time: std::time::Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)
}

/// What a connection is to be like (`rdma_connect(3)`, `rdma_accept(3)`).
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// Bytes for the peer: of a request, at most 56 on InfiniBand; of an answer, 196; 255 on iWARP.
    pub private: &'a [u8],
    /// Reads and atomics of the peer's that are served at once.
    pub served_reads: u8,
    /// Reads and atomics that are under way at once.
    pub started_reads: u8,
    /// How often what the peer does not acknowledge is sent again, at most 7. Of an answer, the request's holds.
    pub retries: u8,
    /// How often what finds no receive at the peer is sent again; 7 is for ever.
    pub retries_without_receive: u8,
}

/// One end of a connection, or who listens for them.
///
/// All its calls but [`Id::connect`] return at once; what they begin ends with an event of its channel, which names its token. None comes
/// for an id that is dropped; one that was read before may still be in somebody's hands.
///
/// When it and its [`Qp`] are dropped, a connection that is there is ended, and the peer told.
pub struct Id(Arc<Handle>);

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Id").field(&self.0.raw).finish()
    }
}

impl Id {
    /// An id for a reliable connection.
    pub fn new(channel: &Arc<EventChannel>, token: usize) -> Result<Self> {
        let _turn = channel.turn();
        let mut raw = ptr::null_mut();
        let token = ptr::without_provenance_mut::<c_void>(token);
        // SAFETY: an open channel; one id is written, which is ours.
        let code =
            unsafe { (channel.library().id_create)(channel.as_ptr(), &raw mut raw, token, sys::RDMA_PS_TCP) };
        done(code)?;
        let raw = NonNull::new(raw).ok_or(Error::OutOfResource)?;
        Ok(Self(Handle::new(raw, channel)))
    }

    /// # Safety
    /// `raw` is an id of this channel that nobody else ends.
    pub(super) unsafe fn own(channel: &Arc<EventChannel>, raw: NonNull<sys::rdma_cm_id>) -> Self {
        Self(Handle::new(raw, channel))
    }

    /// What events about it name.
    pub fn set_token(&self, token: usize) {
        let _turn = self.0.channel.turn();
        // SAFETY: an id that has not ended, in turn; the field is the user's.
        unsafe { (*self.0.as_ptr()).context = ptr::without_provenance_mut(token) };
    }

    /// Calls librdmacm in turn, with an id that has not ended.
    fn call(&self, call: impl FnOnce(*mut sys::rdma_cm_id) -> c_int) -> Result<()> {
        let _turn = self.0.channel.turn();
        done(call(self.0.as_ptr()))
    }

    /// Takes an address of this process, and with it the device; port 0 for one that is free (`rdma_bind_addr(3)`).
    ///
    /// # Errors
    /// [`Error::System`]: `ENODEV`, no device of this process's network has the address; `EADDRNOTAVAIL`, nobody here
    /// has; `EADDRINUSE`.
    pub fn bind(&self, address: SocketAddr) -> Result<()> {
        let address = SockaddrStorage::from(address);
        let bind = self.0.channel.library().id_bind;
        // SAFETY: an id in turn; the address is read.
        self.call(|id| unsafe { bind(id, address.as_ptr()) })
    }

    /// Waits for connections: [`EventKind::ConnectRequest`](super::EventKind::ConnectRequest) for each. It is to be bound
    /// to a device's own address: to wait at all addresses is to wait on all devices, or not at all.
    pub fn listen(&self, backlog: usize) -> Result<()> {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        let listen = self.0.channel.library().id_listen;
        // SAFETY: an id in turn.
        self.call(|id| unsafe { listen(id, backlog) })
    }

    /// Begins to look for the way to a peer (`rdma_resolve_addr(3)`), from the address that it is bound to, or else from
    /// `source`, which it then takes.
    pub fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout: std::time::Duration,
    ) -> Result<()> {
        let source = source.map(SockaddrStorage::from);
        let source = source.as_ref().map_or(ptr::null(), SockaddrStorage::as_ptr);
        let peer = SockaddrStorage::from(peer);
        let resolve = self.0.channel.library().id_resolve_address;
        // SAFETY: an id in turn; the addresses are read.
        self.call(|id| unsafe { resolve(id, source, peer.as_ptr(), milliseconds(timeout)) })
    }

    /// Begins to look for the route (`rdma_resolve_route(3)`).
    pub fn resolve_route(&self, timeout: std::time::Duration) -> Result<()> {
        let resolve = self.0.channel.library().id_resolve_route;
        // SAFETY: an id in turn.
        self.call(|id| unsafe { resolve(id, milliseconds(timeout)) })
    }

    /// How long the device waits for an acknowledgement before it sends again: 4.096 µs times 2 to the power of `code`, of
    /// 5 bits. To be said before connecting. librdmacm's own is 2 s. iWARP takes it too, and has no use for it.
    ///
    /// # Errors
    /// The kernel has no such option (before Linux 5.1).
    pub fn set_acknowledgement_timeout(&self, code: u8) -> Result<()> {
        if code > 31 {
            return Err(Error::BadParameter);
        }
        self.set_option(sys::RDMA_OPTION_ID_ACK_TIMEOUT, code)
    }

    /// The type of service of its packets (RFC 2474). To be said before the address is resolved.
    pub fn set_type_of_service(&self, value: u8) -> Result<()> {
        self.set_option(sys::RDMA_OPTION_ID_TOS, value)
    }

    fn set_option(&self, name: c_int, mut value: u8) -> Result<()> {
        let set = self.0.channel.library().id_option;
        let place = (&raw mut value).cast();
        // SAFETY: an id in turn; one byte is read, as both options are.
        self.call(|id| unsafe { set(id, sys::RDMA_OPTION_ID, name, place, 1) })
    }

    /// Makes its queue pair. Its device has to be known: it is bound, its peer's address resolved, or a request.
    ///
    /// Where the device does not copy as many bytes as are wanted, it is half as many, and so on down to none; nothing
    /// else is changed.
    ///
    /// # Errors
    /// [`Error::BadParameter`]: it has a queue pair, or the queues are of another device. Otherwise what the device says:
    /// depths beyond its limits are [`Error::System`] with `EINVAL`, or [`Error::OutOfResource`].
    pub fn create_qp(&self, queues: &Queues, wanted: Depths) -> Result<Qp> {
        let hot = queues.pd.context().hot()?;
        let devices = [queues.pd.context(), queues.send.context(), queues.receive.context()];
        if !devices.iter().all(|context| self.is_of(context)) {
            return Err(Error::BadParameter);
        }
        let _connecting = self.0.connecting.lock();
        let _turn = self.0.channel.turn();
        if self.queue_pair().is_some() {
            return Err(Error::BadParameter);
        }
        let mut cap = wanted.raw();
        loop {
            let mut raw = sys::ibv_qp_init_attr {
                send_cq: queues.send.as_ptr(),
                recv_cq: queues.receive.as_ptr(),
                srq: queues.shared.as_ref().map_or(ptr::null_mut(), |shared| shared.as_ptr()),
                cap,
                qp_type: sys::ibv_qp_type::IBV_QPT_RC,
                ..Default::default()
            };
            let create = self.0.channel.library().id_create_qp;
            // SAFETY: an id in turn; the domain and the queues are open, and held by the queue pair; the structure is read, and
            // what was granted written.
            let code = unsafe { create(self.0.as_ptr(), queues.pd.as_ptr(), &raw mut raw) };
            let refused = done(code);
            if refused.is_ok() {
                let pair = self.queue_pair().ok_or(Error::OutOfResource)?;
                let granted = Depths::of(&raw.cap);
                // SAFETY: just made.
                return Ok(unsafe { Qp::own(pair, hot, granted, Arc::clone(&self.0), queues.clone()) });
            }
            if cap.max_inline_data == 0 {
                return refused.and(Err(Error::OutOfResource));
            }
            cap.max_inline_data = less(cap.max_inline_data);
        }
    }

    /// Its queue pair; to be called in turn.
    fn queue_pair(&self) -> Option<NonNull<sys::ibv_qp>> {
        // SAFETY: an id that has not ended; librdmacm changes the field in our turn only.
        NonNull::new(unsafe { (*self.0.as_ptr()).qp })
    }

    /// The device, as librdmacm has it open; null while none is known.
    fn verbs(&self) -> *mut sys::ibv_context {
        let _turn = self.0.channel.turn();
        // SAFETY: an id that has not ended; librdmacm changes the field in our turn only.
        unsafe { (*self.0.as_ptr()).verbs }
    }

    /// Whether its device is this one.
    pub fn is_of(&self, context: &Context) -> bool {
        self.verbs() == context.as_ptr()
    }

    /// The number of the port of its device; 0 while none is known.
    pub fn port(&self) -> u8 {
        let _turn = self.0.channel.turn();
        // SAFETY: an id that has not ended; librdmacm changes the field in our turn only.
        unsafe { (*self.0.as_ptr()).port_num }
    }

    /// Whether a queue pair is this id's.
    pub fn has(&self, pair: &Qp) -> bool {
        pair.is_of(&self.0)
    }

    /// Begins to connect (`rdma_connect(3)`). It has a queue pair and a route.
    ///
    /// Over iWARP it may not return before TCP has connected, or given up, as siw's. Other ids of the channel, and reading
    /// it, do not wait for that; the end of its own queue pair does.
    ///
    /// # Errors
    /// Over iWARP, [`Error::System`] with `ECONNREFUSED`, where nobody listens: no event follows then.
    pub fn connect(&self, wanted: &Connect<'_>) -> Result<()> {
        let mut raw = parameters(wanted)?;
        let connect = self.0.channel.library().id_connect;
        let _connecting = self.0.connecting.lock();
        // SAFETY: an id that has not ended, whose queue pair does not end meanwhile; the structure and the private data are
        // read. Not in turn: librdmacm writes to the id before it asks the kernel, and events of connecting come after.
        done(unsafe { connect(self.0.as_ptr(), &raw mut raw) })
    }

    /// Takes the connection that was asked for (`rdma_accept(3)`). It has a queue pair.
    pub fn accept(&self, wanted: &Connect<'_>) -> Result<()> {
        let mut raw = parameters(wanted)?;
        let accept = self.0.channel.library().id_accept;
        // SAFETY: an id in turn; the structure and the private data are read.
        self.call(|id| unsafe { accept(id, &raw mut raw) })
    }

    /// Refuses the connection that was asked for (`rdma_reject(3)`), with bytes for the peer: at most 148 on InfiniBand.
    pub fn reject(self, private: &[u8]) -> Result<()> {
        let len = u8::try_from(private.len()).map_err(|_| Error::BadParameter)?;
        let reject = self.0.channel.library().id_reject;
        // SAFETY: an id in turn; the private data are read.
        self.call(|id| unsafe { reject(id, private.as_ptr().cast(), len) })
    }

    /// Ends the connection (`rdma_disconnect(3)`): work that is under way ends as flushed, and both sides get
    /// [`EventKind::Disconnected`](super::EventKind::Disconnected). Whoever gets that first calls this too: over
    /// InfiniBand his own work is not flushed before, and the peer waits for the answer.
    pub fn disconnect(&self) -> Result<()> {
        let disconnect = self.0.channel.library().id_disconnect;
        // SAFETY: an id in turn.
        self.call(|id| unsafe { disconnect(id) })
    }

    /// Its own address, once it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        // SAFETY: an id that has not ended.
        self.read_address(|id| unsafe { &raw const (*id).route.addr.source })
    }

    /// Its peer's address, once it has one.
    pub fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: an id that has not ended.
        self.read_address(|id| unsafe { &raw const (*id).route.addr.destination })
    }

    fn read_address(
        &self,
        place: impl FnOnce(*const sys::rdma_cm_id) -> *const libc::sockaddr_storage,
    ) -> Option<SocketAddr> {
        let _turn = self.0.channel.turn();
        let place = place(self.0.as_ptr());
        // SAFETY: a part of an id that has not ended, with room for any address; librdmacm changes it in our turn only.
        let address = unsafe { SockaddrStorage::from_raw(place.cast(), None) }?;
        let four = address.as_sockaddr_in().map(|four| SocketAddr::V4(SocketAddrV4::from(*four)));
        four.or_else(|| address.as_sockaddr_in6().map(|six| SocketAddr::V6(SocketAddrV6::from(*six))))
    }
}

/// The structure for `rdma_connect` and `rdma_accept`. The private data have to live until it is used.
fn parameters(wanted: &Connect<'_>) -> Result<sys::rdma_conn_param> {
    Ok(sys::rdma_conn_param {
        private_data: wanted.private.as_ptr().cast(),
        private_data_len: u8::try_from(wanted.private.len()).map_err(|_| Error::BadParameter)?,
        responder_resources: wanted.served_reads,
        initiator_depth: wanted.started_reads,
        flow_control: 1,
        retry_count: wanted.retries.min(7),
        rnr_retry_count: wanted.retries_without_receive.min(7),
        // Both are the queue pair's.
        srq: 0,
        qp_num: 0,
    })
}

impl Context {
    /// The device that has an address of this process, as librdmacm has it open, and the number of its port. It stays
    /// open as long as this is held: an id of its own, whose events have `token`, is bound to it.
    ///
    /// # Errors
    /// As [`Id::bind`]: `ENODEV` of an address that is no RDMA device's.
    pub fn at(channel: &Arc<EventChannel>, address: SocketAddr, token: usize) -> Result<(Arc<Self>, u8)> {
        let id = Id::new(channel, token)?;
        id.bind(SocketAddr::new(address.ip(), 0))?;
        let raw = NonNull::new(id.verbs()).ok_or(Error::System(libc::ENODEV))?;
        let port = id.port();
        // SAFETY: the id's context, and the id is bound.
        Ok((unsafe { Self::of(channel.library(), raw, id.0) }, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_inline_data_is_refused_the_next_power_of_two_is_asked_for() {
        assert_eq!([512, 264, 256, 136, 65, 64, 2, 1, 0].map(less), [256, 256, 128, 128, 64, 32, 1, 0, 0]);
    }

    #[test]
    fn private_data_longer_than_a_connection_carries_are_refused() {
        let private = [0; 256];
        let wanted = Connect {
            private: &private,
            served_reads: 1,
            started_reads: 1,
            retries: 9,
            retries_without_receive: 7,
        };
        assert_eq!(parameters(&wanted).err(), Some(Error::BadParameter));
        let wanted = Connect { private: &private[..255], ..wanted };
        let raw = parameters(&wanted).expect("they fit");
        assert_eq!((raw.private_data_len, raw.retry_count, raw.rnr_retry_count), (255, 7, 7));
    }
}
