//! What the host passes to an entry of a matching transport (`ompi/mca/mtl/mtl.h`), made into Rust values:
//! one proof for each kind of argument.

use std::marker::PhantomData;

use super::handles::{Comm, Conv, Proc, Req};
use super::module::Shell;
use super::{MtlAbi, messages};
use crate::fabric::{Loan, Place, Route, Standing, View};
use crate::host::abi::{Communicator, Convertor};
use crate::host::entry::{Arguments, Array};
use crate::host::sys::{self, Message, MtlRequest};
use crate::mtl::Matcher;

/// A communicator, alive for the time of the call, and from its `add_comm` to its `del_comm`.
impl<A: MtlAbi, M: Matcher<A>> Arguments<Shell<A, M>> for *mut Communicator {
    type Values<'a> = Comm<A>;

    #[inline(always)]
    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: alive while handles to it are in use, which `del_comm` ends.
        unsafe { Comm::new(self) }
    }
}

/// How the host prepares the convertors of sends: known when the table is made.
pub(super) trait Sends: 'static {
    /// With this request; `None` for a blocking send.
    fn route(request: Option<&Req>) -> Route;
}

/// All of them fully.
pub(super) struct AllPrepared;

impl Sends for AllPrepared {
    #[inline(always)]
    fn route(_request: Option<&Req>) -> Route {
        Route::Prepared
    }
}

/// Those of blocking sends and of thin requests not.
pub(super) struct ThinPlaced;

impl Sends for ThinPlaced {
    #[inline(always)]
    fn route(request: Option<&Req>) -> Route {
        if request.is_none_or(Req::is_thin_send) { Route::Placed } else { Route::Prepared }
    }
}

/// The convertor of a blocking send: alive and prepared, its memory lent until the entry returns.
pub(super) struct Blocking<S>(*mut Convertor, PhantomData<S>);

impl<S: Sends> Blocking<S> {
    #[inline(always)]
    pub(super) const fn new(conv: *mut Convertor) -> Self {
        Self(conv, PhantomData)
    }
}

impl<A: MtlAbi, M: Matcher<A>, S: Sends> Arguments<Shell<A, M>> for Blocking<S> {
    type Values<'a> = View<'a, Conv<A>>;

    #[inline(always)]
    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: alive for the time of the call, which is as long as the view.
        let conv = unsafe { Conv::<A>::new(self.0) };
        // SAFETY: the memory is lent for that time.
        unsafe { View::new(conv, S::route(None)) }
    }
}

/// A convertor and the request that ends its operation: both, what lies behind the request's head (as much
/// as the module's table asks for, and the transport's alone), and the memory that the convertor describes
/// stay, and are lent, until the request is completed, or until the entry returns that it has failed.
pub(super) struct Posted {
    pub(super) conv: *mut Convertor,
    pub(super) request: *mut MtlRequest,
}

impl Posted {
    /// # Safety
    /// What the type says.
    #[inline(always)]
    unsafe fn place<A: MtlAbi, M: Matcher<A>>(self, route: impl FnOnce(&Req) -> Route) -> Place<M::Work> {
        // SAFETY: alive, with the transport's memory behind it, until the request is completed.
        let request = unsafe { Req::new(self.request) };
        let behind = request.behind();
        // SAFETY: alive until then, too.
        let conv = unsafe { Conv::<A>::new(self.conv) };
        let route = route(&request);
        // SAFETY: convertor and memory are lent until then.
        let loan = unsafe { Loan::new(conv, route, request) };
        // SAFETY: what lies behind the head is an operation's memory until then, and the host's free lists align
        // requests to 8 bytes.
        unsafe { Place::new(behind, loan) }
    }
}

/// What a send is posted with.
pub(super) struct Sent<S>(Posted, PhantomData<S>);

impl<S: Sends> Sent<S> {
    #[inline(always)]
    pub(super) const fn new(posted: Posted) -> Self {
        Self(posted, PhantomData)
    }
}

impl<A: MtlAbi, M: Matcher<A>, S: Sends> Arguments<Shell<A, M>> for Sent<S> {
    type Values<'a> = Place<M::Work>;

    #[inline(always)]
    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: the caller's promise.
        unsafe { self.0.place::<A, M>(|request| S::route(Some(request))) }
    }
}

/// What a receive is posted with.
pub(super) struct Received(pub(super) Posted);

impl<A: MtlAbi, M: Matcher<A>> Arguments<Shell<A, M>> for Received {
    type Values<'a> = Place<M::Work>;

    #[inline(always)]
    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: the caller's promise.
        unsafe { self.0.place::<A, M>(|_| Route::Prepared) }
    }
}

/// The head of an open request of `pml/cm`, to be cancelled; a receive's was passed to a receive entry before.
pub(super) struct Cancelled(pub(super) *mut MtlRequest);

impl<A: MtlAbi, M: Matcher<A>> Arguments<Shell<A, M>> for Cancelled {
    /// None for a send.
    type Values<'a> = Option<Standing<'a, M::Work>>;

    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: alive, with the transport's memory behind it, for the time of the call.
        let request = unsafe { Req::new(self.0) };
        // SAFETY: every receive entry installs or vacates what lies behind the head, and it stays for the
        // time of this call.
        request.is_receive().then(|| unsafe { Standing::at(request.behind()) })
    }
}

/// A variable of the host's with a message that `improbe` made, or one that stands for none, which the entry
/// takes.
pub(super) struct ClaimedMessage(pub(super) *mut *mut Message);

impl<A: MtlAbi, M: Matcher<A>> Arguments<Shell<A, M>> for ClaimedMessage {
    /// The number of the message; none for none.
    type Values<'a> = Option<u64>;

    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: the address of such a handle.
        unsafe { messages::take(self.0) }
    }
}

/// So many processes, which the host keeps until `del_procs` for them has ended; null pointers are none.
pub(super) struct Procs(pub(super) Array<*mut sys::Proc>);

impl<A: MtlAbi, M: Matcher<A>> Arguments<Shell<A, M>> for Procs {
    type Values<'a> = Vec<Proc<A>>;

    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: an array of the host's.
        let procs = unsafe { Arguments::<Shell<A, M>>::values(self.0) };
        // SAFETY: not null, hence a process that the host keeps.
        procs.into_iter().filter(|proc| !proc.is_null()).map(|proc| unsafe { Proc::new(proc) }).collect()
    }
}
