//! What a byte transport may ask of the host at any time, and the host's symbols behind it.

use std::ffi::{CStr, CString, c_int, c_void};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::time::Duration;

use super::params::{self as own, owner};
use super::sys::{ActiveMessage, BtlProc};
use super::{BtlAbi, Listed, taken};
use crate::btl::{Host, Inherited, Peer, Telling};
use crate::error::Result;
use crate::host::abi::Patience;
use crate::host::params::{self, Names};
use crate::host::released;
use crate::host::services::{has_met, say, show_help, world_size};
use crate::host::symbols::{Variable, symbols};
use crate::host::sys::List;

symbols! {
    /// What only byte transports need of the host, the same in every version.
    pub(in crate::host) struct Own {
        triggers: Variable<[ActiveMessage; 255]> = c"mca_btl_base_active_message_trigger",
        bitmap_set: unsafe extern "C" fn(*mut c_void, c_int) -> c_int = c"opal_bitmap_set_bit",
        proc_local: unsafe extern "C" fn() -> *const BtlProc = c"opal_proc_local_get",
        proc_for_name: Variable<unsafe extern "C" fn(u64) -> *mut BtlProc> = c"opal_proc_for_name",
        flag_names: Variable<*mut c_void> = c"mca_btl_base_flag_enum",
        modules: Variable<List> = c"mca_btl_base_modules_initialized",
    }
}

static OWN: OnceLock<Own> = OnceLock::new();

impl Own {
    pub(in crate::host) fn install(self) {
        let _ = OWN.set(self);
    }

    fn host() -> &'static Self {
        OWN.get().expect("entry points run only after a host was recognised")
    }

    /// The host's names of what a byte transport can do.
    pub(super) fn flag_names() -> Names {
        Names::from_raw(Self::host().flag_names.get())
    }

    /// The modules that the host has taken.
    pub(super) fn modules() -> *mut List {
        Self::host().modules.address()
    }

    /// This process.
    fn this<A>() -> ProcRef<A> {
        // SAFETY: takes nothing; the host makes the object when it starts, before any component.
        ProcRef(unsafe { (Self::host().proc_local)() }.cast_mut(), PhantomData)
    }

    /// The host's object for a process, made if there is none yet; null for a name of nobody.
    pub(super) fn proc_for_name(name: u64) -> *mut BtlProc {
        let find = Self::host().proc_for_name.get();
        // SAFETY: the name is passed by value as the host passes it, in one register.
        unsafe { find(name) }
    }

    /// The callback that is registered for a tag, if there is one.
    #[inline]
    pub(super) fn receiver(tag: u8) -> Option<ActiveMessage> {
        let message = Self::host().triggers.at(usize::from(tag))?;
        (!message.callback.is_null()).then_some(message)
    }
}

/// The host's bitmap of the processes that are reached.
///
/// INVARIANT: null, or a bitmap with so many bits, for `'a`, and nobody else's.
pub(super) struct Bitmap<'a>(*mut c_void, usize, PhantomData<&'a mut ()>);

impl Bitmap<'_> {
    /// # Safety
    /// What the invariant says.
    pub(super) unsafe fn new(raw: *mut c_void, bits: usize) -> Self {
        Self(raw, bits, PhantomData)
    }

    /// Sets a bit, if the host wants to know and there is one.
    pub(super) fn set(&mut self, index: usize) {
        if let (false, true, Ok(bit)) = (self.0.is_null(), index < self.1, c_int::try_from(index)) {
            // SAFETY: not null, hence a bitmap that has this bit.
            unsafe { (Own::host().bitmap_set)(self.0, bit) };
        }
    }
}

/// A process of the host's.
///
/// INVARIANT: alive as long as this exists: it is this process, which lives for ever, or is made from what
/// the host passes to `add_procs` and dropped by the end of `del_procs` for it, until when the host keeps it.
pub(super) struct ProcRef<A>(*mut BtlProc, PhantomData<fn() -> A>);

impl<A> Clone for ProcRef<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for ProcRef<A> {}

// SAFETY: an address; the host lets any thread use its processes.
unsafe impl<A> Send for ProcRef<A> {}

impl<A> ProcRef<A> {
    /// # Safety
    /// A process that the host has passed to `add_procs`, and `del_procs` for it has not ended.
    pub(super) unsafe fn new(proc: *mut BtlProc) -> Self {
        Self(proc, PhantomData)
    }

    /// For the host's callbacks.
    pub(super) fn as_ptr(self) -> *mut BtlProc {
        self.0
    }
}

impl<A: BtlAbi> Peer for ProcRef<A> {
    fn name(&self) -> u64 {
        // SAFETY: alive, by the invariant; the name is written once, when the host makes the object.
        let jobid = unsafe { (*self.0).jobid };
        // SAFETY: alive, by the invariant; the name is written once, when the host makes the object.
        let vpid = unsafe { (*self.0).vpid };
        u64::from(jobid) | u64::from(vpid) << 32
    }

    fn node(&self) -> Option<String> {
        // SAFETY: alive, by the invariant.
        unsafe { A::host_name(self.0) }
    }
}

/// How long a connection that is ended waits for its peer. Sends that have returned count as made, and no layer of the host
/// sends again: a peer that is merely slow, on a machine with more processes than processors, must get them. Nobody waits so
/// long for one that has ended: the network, or the host's launcher, tells of it before.
const PATIENCE: Duration = Duration::from_secs(30);

/// The host, as the transport `T` sees it.
pub(super) struct Runtime<A, T>(PhantomData<fn() -> (A, T)>);

impl<A, T> Runtime<A, T> {
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<A: BtlAbi, T: Listed> Host for Runtime<A, T> {
    fn name(&self) -> u64 {
        Own::this::<A>().name()
    }

    fn node(&self) -> String {
        Own::this::<A>().node().unwrap_or_else(|| "this host".to_owned())
    }

    fn publish(&self, key: &'static CStr, bytes: &[u8]) -> Result<()> {
        A::publish_under(key, bytes)
    }

    fn published(&self, key: &'static CStr, name: u64) -> Result<Vec<u8>> {
        A::published_under(key, name, Patience::Waits)
    }

    fn published_by_now(&self, key: &'static CStr, name: u64) -> Result<Vec<u8>> {
        A::published_under(key, name, Patience::Immediate)
    }

    fn knows(&self, name: u64) -> bool {
        // Of its own job the host makes most processes known only when they are sent to.
        let (job, rank) = (name as u32, (name >> 32) as usize);
        job == self.name() as u32 && rank < world_size() || has_met(name)
    }

    fn text(&self, parameter: &CStr) -> Option<String> {
        let own = CString::new(T::name()).unwrap_or_default();
        params::find(owner(&own), parameter)?.text()
    }

    fn inherited(&self) -> Vec<Inherited> {
        own::inherited::<T>()
    }

    fn is_asked_for(&self) -> bool {
        params::selection(owner(c"base")).is_some_and(|list| {
            !list.trim_start().starts_with('^') && list.split(',').any(|word| word.trim() == T::name())
        })
    }

    fn has_taken_another(&self, component: &CStr) -> bool {
        taken::has_another(component)
    }

    fn is_verbose(&self) -> bool {
        params::verbosity(owner(c"base")) > 0
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn tell_of_unmapping(&self) -> Telling {
        released::ask()
    }

    fn tell_no_more(&self) {
        released::ask_no_more();
    }

    fn notice(&self, topic: &str, line: &str) {
        show_help(topic, line);
    }

    fn say(&self, line: &str) {
        say(line);
    }
}
