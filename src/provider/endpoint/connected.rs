//! Connected endpoints (`FI_EP_MSG`): the functions of theirs that others do not have.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::super::argument::array;
use super::super::cm::{Notice, Session};
use super::super::eq::Eq;
use super::super::errno::{Errno, Outcome};
use super::super::guard::guard;
use super::super::info::{UNTOLD, name_at};
use super::super::object::body;
use super::super::pep::write_name;
use super::super::sys::{self, fid_ep};
use super::super::watch::Owner;
use super::{Endpoint, check_own};
use crate::wire::gni::name::{self, Name};

impl Endpoint {
    /// The number of whom an operation concerns: of connected endpoints, the other side.
    #[inline(always)]
    pub(super) fn destination(&self, given: u64) -> Outcome<u64> {
        match &self.session {
            None => Ok(given),
            Some(session) => session.number(),
        }
    }

    fn session(&self) -> Outcome<&Arc<Session>> {
        self.session.as_ref().ok_or(Errno::NOSYS)
    }

    /// Its event queue, and the endpoint is enabled.
    fn prepare(&self) -> Outcome<Arc<Eq>> {
        let eq = self.bound.with(|bound| bound.eq.clone()).ok_or(Errno::NOEQ)?;
        if self.ready.get().is_none() {
            self.enable()?;
        }
        Ok(eq)
    }

    fn connect(&self, to: Name, data: &[u8]) -> Outcome<()> {
        let session = self.session()?;
        let eq = self.prepare()?;
        if check_own(&to).is_err() {
            return Err(Errno(libc::EHOSTUNREACH));
        }
        match session.connect(self.name(), to, data) {
            Ok(link) => eq.watch(|watch| watch.follow(session, link)),
            Err(Errno(code @ libc::ECONNREFUSED)) => {
                eq.tell(&Owner::Session(Arc::clone(session)), Notice::Refused(code, Vec::new()));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn accept(&self, data: &[u8]) -> Outcome<()> {
        let session = self.session()?;
        let eq = self.prepare()?;
        let link = session.accept(self.name(), data)?;
        eq.tell(&Owner::Session(Arc::clone(session)), Notice::Connected(Vec::new()));
        eq.watch(|watch| watch.follow(session, link))
    }
}

pub(super) unsafe extern "C" fn connect(
    ep: *mut fid_ep,
    address: *const c_void,
    data: *const c_void,
    length: usize,
) -> c_int {
    guard("fi_connect", || {
        // SAFETY: the contract of `fi_connect(3)`: an endpoint.
        let endpoint = unsafe { body::<Endpoint>(ep) }?;
        let format = endpoint.addr_format;
        let address_length = if format == sys::FI_ADDR_STR { UNTOLD } else { name::LEN };
        // SAFETY: the same: an address in the form of the endpoint.
        let to = unsafe { name_at(format, address, address_length) }?;
        // SAFETY: the same: so many bytes.
        let data = unsafe { array(data.cast::<u8>(), length) }?;
        endpoint.connect(to.ok_or(Errno::INVAL)?, data)
    })
}

pub(super) unsafe extern "C" fn accept(ep: *mut fid_ep, data: *const c_void, length: usize) -> c_int {
    guard("fi_accept", || {
        // SAFETY: the contract of `fi_accept(3)`: an endpoint.
        let endpoint = unsafe { body::<Endpoint>(ep) }?;
        // SAFETY: the same: so many bytes.
        endpoint.accept(unsafe { array(data.cast::<u8>(), length) }?)
    })
}

pub(super) unsafe extern "C" fn shutdown(ep: *mut fid_ep, flags: u64) -> c_int {
    guard("fi_shutdown", || {
        // SAFETY: the contract of `fi_shutdown(3)`: an endpoint.
        let endpoint = unsafe { body::<Endpoint>(ep) }?;
        if flags != 0 { Err(Errno::BADFLAGS) } else { endpoint.session()?.shut_down() }
    })
}

pub(super) unsafe extern "C" fn getpeer(ep: *mut fid_ep, to: *mut c_void, length: *mut usize) -> c_int {
    guard("fi_getpeer", || {
        // SAFETY: the contract of `fi_getpeer(3)`: an endpoint.
        let endpoint = unsafe { body::<Endpoint>(ep) }?;
        let name = endpoint.session()?.peer_name()?;
        // SAFETY: the same.
        unsafe { write_name(endpoint.addr_format, &name, to, length) }
    })
}
