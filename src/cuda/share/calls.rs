//! The driver's calls for memory that processes share, each safe by itself. All of them may be missing in a driver.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::cuda::library::{Driver, Error, Result, checked};
use crate::cuda::sys::{self, Address, attribute};
use crate::cuda::{Context, share::Uuid};

/// What the driver answers where it lacks the function.
const LACKING: Error = Error::Driver(sys::NOT_SUPPORTED);

/// How an allocation can be shared.
pub(super) struct Ways {
    /// By a handle that the driver knows.
    pub(super) handle: bool,
    /// By a file descriptor.
    pub(super) file: bool,
    /// The pool that it comes from; 0 for none.
    pub(super) pool: usize,
}

impl Driver {
    /// The name of a device, or of the part of one that this process has, that is the same in every process.
    pub(super) fn uuid(&self, device: i32) -> Result<Uuid> {
        let ask = self.device_uuid.or(self.device_uuid_of_whole).ok_or(LACKING)?;
        let mut uuid = [0; 16];
        // SAFETY: the callee writes 16 bytes.
        checked(unsafe { ask(&raw mut uuid, device) })?;
        Ok(Uuid(uuid))
    }

    /// Whether the program uses the primary context of a device.
    pub(super) fn is_active(&self, device: i32) -> bool {
        let Some(ask) = self.primary_state else { return false };
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the callee writes two numbers.
        let code = unsafe { ask(device, &raw mut flags, &raw mut active) };
        code == sys::SUCCESS && active != 0
    }

    /// Has copies of an allocation be over when the calls return that begin them: what another process copies does not
    /// wait for them. In a context of its device.
    ///
    /// # Errors
    /// When they cannot be known to be over.
    pub(super) fn complete_copies(&self, address: usize) -> Result<()> {
        self.synchronize_copies(address).or_else(|_| self.synchronize_copies_in_context())
    }

    /// The same for all that is begun in the current context: memory which is mapped, or that of a pool, has no such
    /// attribute.
    fn synchronize_copies_in_context(&self) -> Result<()> {
        let (ask, set) = self.context_flags.zip(self.context_flags_set).ok_or(LACKING)?;
        let mut flags = 0;
        // SAFETY: the callee writes one number.
        checked(unsafe { ask(&raw mut flags) })?;
        if flags & sys::CONTEXT_SYNC_MEMOPS != 0 {
            return Ok(());
        }
        // SAFETY: numbers alone; the flags that the context has stay as they are.
        checked(unsafe { set(flags | sys::CONTEXT_SYNC_MEMOPS) })?;
        // What was begun before is over, too.
        self.wait_for_default_stream()
    }

    /// Waits for what was begun in the default stream of the current context: what another process copies does not.
    pub(super) fn wait_for_default_stream(&self) -> Result<()> {
        let legacy = ptr::without_provenance_mut(sys::STREAM_LEGACY);
        // SAFETY: a stream that each context has.
        checked(unsafe { (self.stream_synchronize)(legacy) })
    }

    /// How memory of a device can be shared.
    pub(super) fn ways(&self, address: usize) -> Ways {
        let (mut handle, mut types, mut pool) = (0_u64, 0_u64, 0_u64);
        let which = [
            attribute::IS_LEGACY_CUDA_IPC_CAPABLE,
            attribute::ALLOWED_HANDLE_TYPES,
            attribute::MEMPOOL_HANDLE,
        ];
        let values: [*mut c_void; 3] =
            [(&raw mut handle).cast(), (&raw mut types).cast(), (&raw mut pool).cast()];
        // SAFETY: three attributes and three variables, of 8 bytes each, which is as long as any of them. The address is
        // only compared.
        let code = unsafe {
            (self.pointer_attributes)(which.len() as u32, which.as_ptr(), values.as_ptr(), address as Address)
        };
        if checked(code).is_err() {
            // A driver older than two of these: all memory is of the kind that has handles.
            return Ways { handle: true, file: false, pool: 0 };
        }
        Ways { handle: handle != 0, file: types & sys::HANDLE_IS_FILE as u64 != 0, pool: pool as usize }
    }

    /// The handle of an allocation. In the context of the allocation.
    pub(super) fn ipc_handle(&self, address: usize) -> Result<[u8; 64]> {
        let mut handle = sys::IpcHandle([0; 64]);
        let call = self.ipc_handle.ok_or(LACKING)?;
        // SAFETY: the callee writes 64 bytes; the address is only compared.
        checked(unsafe { call(&raw mut handle, address as Address) })?;
        Ok(handle.0)
    }

    /// Opens another process's allocation in the current context. The handle may be anything: the driver refuses what
    /// is none.
    pub(super) fn ipc_open(&self, handle: [u8; 64]) -> Result<usize> {
        let call = self.ipc_open.ok_or(LACKING)?;
        let mut address = 0;
        // SAFETY: the callee writes one address.
        checked(unsafe { call(&raw mut address, sys::IpcHandle(handle), sys::IPC_LAZY_PEER_ACCESS) })?;
        Ok(address as usize)
    }

    /// Closes what [`ipc_open`](Self::ipc_open) has opened in the current context.
    pub(super) fn ipc_close(&self, address: usize) {
        let Some(call) = self.ipc_close else { return };
        // SAFETY: opened in this context, given back once, and copies to and from it are over: who opens closes.
        unsafe { call(address as Address) };
    }

    /// The physical memory at an address.
    pub(super) fn physical(&'static self, address: usize) -> Result<Physical> {
        let call = self.physical_retain.ok_or(LACKING)?;
        let mut handle = 0;
        // SAFETY: the callee writes one handle; the address is only compared.
        checked(unsafe { call(&raw mut handle, ptr::without_provenance_mut(address)) })?;
        Ok(Physical { driver: self, handle })
    }

    /// Physical memory by a file descriptor of another process's, which may be anything: the driver refuses what is
    /// none of its own.
    pub(super) fn physical_import(&'static self, file: &OwnedFd) -> Result<Physical> {
        let call = self.physical_import.ok_or(LACKING)?;
        let mut handle = 0;
        let number = ptr::without_provenance_mut(file.as_raw_fd() as usize);
        // SAFETY: the callee writes one handle; the number of a file that is open.
        checked(unsafe { call(&raw mut handle, number, sys::HANDLE_IS_FILE) })?;
        Ok(Physical { driver: self, handle })
    }

    /// The file descriptor for a pool.
    pub(super) fn pool_file(&self, pool: usize) -> Result<OwnedFd> {
        let call = self.pool_export.ok_or(LACKING)?;
        let mut file = -1_i32;
        let pool = ptr::without_provenance_mut(pool);
        // SAFETY: the callee writes one number; a pool that the driver has just named, and has memory in use.
        checked(unsafe { call((&raw mut file).cast(), pool, sys::HANDLE_IS_FILE, 0) })?;
        owned(file)
    }

    /// What says where in its pool an allocation is.
    pub(super) fn pool_pointer(&self, address: usize) -> Result<[u8; 64]> {
        let call = self.pool_pointer_export.ok_or(LACKING)?;
        let mut pointer = sys::PoolPointer([0; 64]);
        // SAFETY: the callee writes 64 bytes; the address is only compared.
        checked(unsafe { call(&raw mut pointer, address as Address) })?;
        Ok(pointer.0)
    }

    /// A pool by a file descriptor of another process's, which may be anything: the driver refuses what is none of its
    /// own.
    pub(super) fn pool_import(&'static self, file: &OwnedFd) -> Result<Pool> {
        let call = self.pool_import.ok_or(LACKING)?;
        let mut handle = ptr::null_mut();
        let number = ptr::without_provenance_mut(file.as_raw_fd() as usize);
        // SAFETY: the callee writes one handle; the number of a file that is open.
        checked(unsafe { call(&raw mut handle, number, sys::HANDLE_IS_FILE, 0) })?;
        Ok(Pool { driver: self, handle: handle.addr() })
    }
}

/// A file descriptor that the driver has made.
fn owned(file: i32) -> Result<OwnedFd> {
    if file < 0 {
        return Err(LACKING);
    }
    // SAFETY: just made, for us alone.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    // Programs that this one starts have no use for it.
    let _ = rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::CLOEXEC);
    Ok(file)
}

/// Physical memory, which stays as long as this does.
pub(super) struct Physical {
    driver: &'static Driver,
    handle: sys::Physical,
}

impl Physical {
    /// Whether both are the same memory: while this is held, no other has its handle.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.handle == other.handle
    }

    /// A file descriptor, by which others open it.
    pub(super) fn file(&self) -> Result<OwnedFd> {
        let call = self.driver.physical_export.ok_or(LACKING)?;
        let mut file = -1_i32;
        // SAFETY: the callee writes one number; the handle is held.
        checked(unsafe { call((&raw mut file).cast(), self.handle, sys::HANDLE_IS_FILE, 0) })?;
        owned(file)
    }

    /// Maps it, for these devices, of which the first must have access.
    pub(super) fn map(self, len: usize, devices: &[i32]) -> Result<Mapped> {
        let driver = self.driver;
        let mut start = 0;
        let reserve = driver.range_reserve.ok_or(LACKING)?;
        // SAFETY: the callee writes one address; the driver refuses a length that it cannot map.
        checked(unsafe { reserve(&raw mut start, len, 0, 0, 0) })?;
        let mut mapped = Mapped { driver, start, len, is_mapped: false, _physical: self };
        let map = driver.physical_map.ok_or(LACKING)?;
        // SAFETY: addresses just reserved, at which nothing is; the handle is held.
        checked(unsafe { map(start, len, 0, mapped._physical.handle, 0) })?;
        mapped.is_mapped = true;
        mapped.allow(devices)?;
        Ok(mapped)
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        let Some(release) = self.driver.physical_release else { return };
        // SAFETY: held, and given back once. Where it is mapped it stays mapped.
        unsafe { release(self.handle) };
    }
}

/// Physical memory at addresses of this process's.
pub(super) struct Mapped {
    driver: &'static Driver,
    start: Address,
    len: usize,
    is_mapped: bool,
    _physical: Physical,
}

impl Mapped {
    /// Where.
    pub(super) fn start(&self) -> usize {
        self.start as usize
    }

    fn allow(&self, devices: &[i32]) -> Result<()> {
        let call = self.driver.physical_access.ok_or(LACKING)?;
        access(devices, |access| {
            // SAFETY: mapped here, with this length; one description.
            checked(unsafe { call(self.start, self.len, access, 1) })
        })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.is_mapped
            && let Some(unmap) = self.driver.physical_unmap
        {
            // SAFETY: mapped here, with this length; copies to and from it are over: who maps unmaps.
            unsafe { unmap(self.start, self.len) };
        }
        let Some(free) = self.driver.range_free else { return };
        // SAFETY: reserved by us with this length, and nothing is mapped there any more.
        unsafe { free(self.start, self.len) };
    }
}

/// Another process's pool.
pub(super) struct Pool {
    driver: &'static Driver,
    handle: usize,
}

impl Pool {
    /// Lets these devices have access to what lies in it; the first must get it.
    pub(super) fn allow(&self, devices: &[i32]) -> Result<()> {
        let call = self.driver.pool_access.ok_or(LACKING)?;
        access(devices, |access| {
            // SAFETY: a pool that is ours until this is dropped; one description.
            checked(unsafe { call(ptr::without_provenance_mut(self.handle), access, 1) })
        })
    }

    /// Opens an allocation of it. What says where it is may be anything: the driver refuses what is none.
    pub(super) fn open(&self, pointer: [u8; 64]) -> Result<usize> {
        let call = self.driver.pool_pointer_import.ok_or(LACKING)?;
        let mut address = 0;
        let mut pointer = sys::PoolPointer(pointer);
        let pool = ptr::without_provenance_mut(self.handle);
        // SAFETY: the callee writes one address, and reads 64 bytes; the pool is ours.
        checked(unsafe { call(&raw mut address, pool, &raw mut pointer) })?;
        Ok(address as usize)
    }

    /// Closes what [`open`](Self::open) has opened.
    pub(super) fn close(&self, context: Context, address: usize) {
        let Ok(_entered) = self.driver.enter(context) else { return };
        // SAFETY: opened by us, given back once, and copies to and from it are over. This frees the import, not the memory
        // (CUDA driver API, `cuMemPoolImportPointer`).
        unsafe { (self.driver.memory_free)(address as Address) };
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let Some(destroy) = self.driver.pool_destroy else { return };
        // SAFETY: imported by us, and given back once.
        unsafe { destroy(ptr::without_provenance_mut(self.handle)) };
    }
}

/// Access for devices, of which the first must get it.
fn access(devices: &[i32], mut allow: impl FnMut(*const sys::Access) -> Result<()>) -> Result<()> {
    for (index, &device) in devices.iter().enumerate() {
        let access = sys::Access { kind: 1, device, flags: 3 };
        let allowed = allow(&raw const access);
        if index == 0 {
            allowed?;
        }
    }
    Ok(())
}
