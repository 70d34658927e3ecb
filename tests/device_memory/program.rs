//! The program over whose memory is tested: what it calls of the driver, which is the stand-in of `c-tests/cuda`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

/// Builds the stand-in, once for each run of the tests; says where.
pub(crate) fn stand_in() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (path, made) = (folder.join("libcuda.so.1"), folder.join(format!("libcuda-{}", std::process::id())));
    let mut sources: Vec<PathBuf> = std::fs::read_dir(root.join("c-tests/cuda"))
        .expect("the stand-in")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    sources.sort();
    let status = Command::new("gcc")
        .args(["-std=gnu11", "-g", "-O2", "-pthread", "-fPIC", "-shared", "-fvisibility=hidden"])
        .args(["-Wl,-soname,libcuda.so.1", "-Wl,-z,nodelete", "-o"])
        .arg(&made)
        .args(sources)
        .status()
        .expect("gcc");
    assert!(status.success(), "the stand-in compiles");
    // Another run may be using the former.
    std::fs::rename(made, &path).expect("the folder of the tests");
    path
}

/// A call that must succeed.
macro_rules! call {
    ($cuda:expr, $name:ident($($argument:expr),*)) => {{
        // A test may have had the first call fail.
        let succeeded = (0..2).any(|_| {
            // SAFETY: as the driver documents the function, with variables that are alive.
            let code = unsafe { ($cuda.$name)($($argument),*) };
            code == 0
        });
        assert!(succeeded, stringify!($name));
    }};
}

macro_rules! functions {
    ($($name:ident: fn($($type:ty),*);)*) => {
        /// The driver, as a program uses it.
        pub(crate) struct Cuda { $(pub(crate) $name: unsafe extern "C" fn($($type),*) -> c_int,)* }

        impl Cuda {
            /// Loads the driver and initialises it.
            pub(crate) fn load(path: &Path) -> Self {
                let path = CString::new(path.to_str().expect("text")).expect("no zero");
                // SAFETY: the stand-in, whose initialisers do nothing.
                let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
                assert!(!library.is_null(), "the driver");
                let symbol = |name: &CStr| {
                    // SAFETY: a library that stays, and a name.
                    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
                    assert!(!found.is_null(), "{name:?}");
                    found
                };
                $(
                    let name = CString::new(stringify!($name)).expect("no zero");
                    // SAFETY: a function of this name and signature, as in `c-tests/cuda/driver.h`.
                    let $name = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(symbol(&name))
                    };
                )*
                let cuda = Self { $($name,)* };
                call!(cuda, cuInit(0));
                cuda
            }
        }
    };
}

type Address = u64;
type Handle = *mut c_void;

/// `CUmemAllocationProp`
#[repr(C)]
pub(crate) struct AllocationProperties {
    kind: c_int,
    handles: c_int,
    location: [c_int; 2],
    rest: [u64; 2],
}

/// `CUmemPoolProps`
#[repr(C)]
pub(crate) struct PoolProperties {
    kind: c_int,
    handles: c_int,
    location: [c_int; 2],
    rest: [u64; 9],
}

functions! {
    cuInit: fn(c_uint);
    cuDevicePrimaryCtxRetain: fn(*mut Handle, c_int);
    cuDevicePrimaryCtxRelease_v2: fn(c_int);
    cuDevicePrimaryCtxReset_v2: fn(c_int);
    cuCtxSetCurrent: fn(Handle);
    cuMemAlloc_v2: fn(*mut Address, usize);
    cuMemAllocManaged: fn(*mut Address, usize, c_uint);
    cuMemFree_v2: fn(Address);
    cuMemcpyHtoD_v2: fn(Address, *const c_void, usize);
    cuMemcpyDtoH_v2: fn(*mut c_void, Address, usize);
    cuMemCreate: fn(*mut u64, usize, *const AllocationProperties, u64);
    cuMemRelease: fn(u64);
    cuMemAddressReserve: fn(*mut Address, usize, usize, Address, u64);
    cuMemAddressFree: fn(Address, usize);
    cuMemMap: fn(Address, usize, usize, u64, u64);
    cuMemUnmap: fn(Address, usize);
    cuMemSetAccess: fn(Address, usize, *const [c_int; 3], usize);
    cuMemPoolCreate: fn(*mut Handle, *const PoolProperties);
    cuMemPoolDestroy: fn(Handle);
    cuMemAllocFromPoolAsync: fn(*mut Address, usize, Handle, Handle);
    cuMemAllocAsync: fn(*mut Address, usize, Handle);
    cuCtxSynchronize: fn();
}

/// How memory is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `cuMemAlloc`
    Plain,
    /// `cuMemAllocManaged`
    Managed,
    /// `cuMemCreate`, for other processes
    Virtual,
    /// `cuMemCreate`, for this one
    Private,
    /// Of a pool for other processes
    Pooled,
    /// Of the device's own pool
    Default,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Plain, Self::Managed, Self::Virtual, Self::Private, Self::Pooled, Self::Default];
}

/// Allocated memory.
pub(crate) struct Memory {
    pub(crate) kind: Kind,
    pub(crate) device: c_int,
    pub(crate) address: usize,
    pub(crate) len: usize,
    pool: Handle,
}

/// How much the calls for virtual memory allocate at once.
pub(crate) const GRANULARITY: usize = 2 << 20;

/// A process that uses CUDA.
pub(crate) struct Program {
    cuda: Cuda,
    /// Those for other processes, and how many allocations each has.
    pools: RefCell<Vec<(c_int, Handle, usize)>>,
    contexts: Vec<(c_int, Handle)>,
}

impl Program {
    /// One that uses these devices, the first most.
    pub(crate) fn new(library: &Path, devices: &[c_int]) -> Self {
        let mut program = Self { cuda: Cuda::load(library), pools: RefCell::default(), contexts: Vec::new() };
        for &device in devices {
            program.begin(device);
        }
        if let Some(&device) = devices.first() {
            program.choose(device);
        }
        program
    }

    /// Makes the primary context of a device.
    pub(crate) fn begin(&mut self, device: c_int) {
        let mut context = ptr::null_mut();
        call!(self.cuda, cuDevicePrimaryCtxRetain(&raw mut context, device));
        self.contexts.push((device, context));
    }

    /// Makes the context of a device current.
    pub(crate) fn choose(&self, device: c_int) {
        let (_, context) = self.contexts.iter().find(|(of, _)| *of == device).expect("a context");
        call!(self.cuda, cuCtxSetCurrent(*context));
    }

    /// Ends a device's context, and begins it anew.
    pub(crate) fn reset(&mut self, device: c_int) {
        call!(self.cuda, cuDevicePrimaryCtxReset_v2(device));
        self.contexts.retain(|(of, _)| *of != device);
        self.begin(device);
        self.choose(device);
    }

    pub(crate) fn allocate(&self, kind: Kind, device: c_int, len: usize) -> Memory {
        self.choose(device);
        let cuda = &self.cuda;
        let (mut address, mut pool) = (0, ptr::null_mut());
        match kind {
            Kind::Plain => call!(cuda, cuMemAlloc_v2(&raw mut address, len)),
            Kind::Managed => call!(cuda, cuMemAllocManaged(&raw mut address, len, 1)),
            Kind::Virtual | Kind::Private => {
                assert_eq!(len % GRANULARITY, 0);
                let handles = c_int::from(kind == Kind::Virtual);
                let properties =
                    AllocationProperties { kind: 1, handles, location: [1, device], rest: [0; 2] };
                let mut handle = 0;
                call!(cuda, cuMemCreate(&raw mut handle, len, &raw const properties, 0));
                call!(cuda, cuMemAddressReserve(&raw mut address, len, 0, 0, 0));
                call!(cuda, cuMemMap(address, len, 0, handle, 0));
                call!(cuda, cuMemRelease(handle));
                let access = [1, device, 3];
                call!(cuda, cuMemSetAccess(address, len, &raw const access, 1));
            }
            Kind::Pooled => {
                pool = self.pool(device);
                call!(cuda, cuMemAllocFromPoolAsync(&raw mut address, len, pool, ptr::null_mut()));
                call!(cuda, cuCtxSynchronize());
            }
            Kind::Default => {
                call!(cuda, cuMemAllocAsync(&raw mut address, len, ptr::null_mut()));
                call!(cuda, cuCtxSynchronize());
            }
        }
        Memory { kind, device, address: address as usize, len, pool }
    }

    pub(crate) fn free(&self, memory: Memory) {
        let cuda = &self.cuda;
        let address = memory.address as u64;
        self.choose(memory.device);
        match memory.kind {
            Kind::Virtual | Kind::Private => {
                call!(cuda, cuMemUnmap(address, memory.len));
                call!(cuda, cuMemAddressFree(address, memory.len));
            }
            Kind::Plain | Kind::Managed | Kind::Pooled | Kind::Default => call!(cuda, cuMemFree_v2(address)),
        }
        if memory.kind == Kind::Pooled {
            let mut pools = self.pools.borrow_mut();
            let index = pools.iter().position(|(_, pool, _)| *pool == memory.pool).expect("its pool");
            pools[index].2 -= 1;
            if pools[index].2 == 0 {
                pools.swap_remove(index);
                call!(cuda, cuMemPoolDestroy(memory.pool));
            }
        }
    }

    /// The pool of a device, for one allocation more.
    fn pool(&self, device: c_int) -> Handle {
        let mut pools = self.pools.borrow_mut();
        if let Some((_, pool, count)) = pools.iter_mut().find(|(of, ..)| *of == device) {
            *count += 1;
            return *pool;
        }
        let properties = PoolProperties { kind: 1, handles: 1, location: [1, device], rest: [0; 9] };
        let mut pool = ptr::null_mut();
        call!(self.cuda, cuMemPoolCreate(&raw mut pool, &raw const properties));
        pools.push((device, pool, 1));
        pool
    }

    pub(crate) fn write(&self, memory: &Memory, bytes: &[u8]) {
        self.choose(memory.device);
        assert!(bytes.len() <= memory.len);
        call!(self.cuda, cuMemcpyHtoD_v2(memory.address as u64, bytes.as_ptr().cast(), bytes.len()));
    }

    pub(crate) fn read(&self, memory: &Memory, len: usize) -> Vec<u8> {
        self.choose(memory.device);
        let mut bytes = vec![0_u8; len];
        call!(self.cuda, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), memory.address as u64, len));
        bytes
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        for (device, _) in self.contexts.drain(..) {
            call!(self.cuda, cuDevicePrimaryCtxRelease_v2(device));
        }
    }
}

/// Bytes that are told from those of another seed.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_ne_bytes());
    }
    bytes.truncate(len);
    bytes
}
