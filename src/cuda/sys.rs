//! The driver's types and numbers, as far as they are needed (CUDA driver API, `cuda.h`).

use std::ffi::{c_int, c_uint, c_void};

/// `CUresult`
pub(super) type Code = c_int;
/// `CUdeviceptr`
pub(super) type Address = u64;
/// `CUcontext`
pub(super) type Context = *mut c_void;
/// `CUstream`
pub(super) type Stream = *mut c_void;
/// `CUevent`
pub(super) type Event = *mut c_void;

/// `CUmemGenericAllocationHandle`
pub(super) type Physical = u64;
/// `CUmemoryPool`
pub(super) type Pool = *mut c_void;
/// `CUuuid`
pub(super) type Uuid = [u8; 16];

/// `CUipcMemHandle`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct IpcHandle(pub(super) [u8; 64]);

/// `CUmemPoolPtrExportData`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PoolPointer(pub(super) [u8; 64]);

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Access {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`, which is 1.
    pub(super) kind: c_int,
    pub(super) device: c_int,
    /// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`, which is 3.
    pub(super) flags: c_int,
}

/// `CUDA_SUCCESS`
pub(super) const SUCCESS: Code = 0;
/// `CUDA_ERROR_INVALID_VALUE`
pub(super) const INVALID_VALUE: Code = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`
pub(super) const OUT_OF_MEMORY: Code = 2;
/// `CUDA_ERROR_NOT_INITIALIZED`
pub(super) const NOT_INITIALIZED: Code = 3;
/// `CUDA_ERROR_DEINITIALIZED`
pub(super) const DEINITIALIZED: Code = 4;
/// `CUDA_ERROR_NO_DEVICE`
pub(super) const NO_DEVICE: Code = 100;
/// `CUDA_ERROR_INVALID_CONTEXT`
pub(super) const INVALID_CONTEXT: Code = 201;
/// `CUDA_ERROR_MAP_FAILED`
pub(super) const MAP_FAILED: Code = 205;
/// `CUDA_ERROR_ALREADY_MAPPED`
pub(super) const ALREADY_MAPPED: Code = 208;
/// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`
pub(super) const PEER_ACCESS_UNSUPPORTED: Code = 217;
/// `CUDA_ERROR_INVALID_HANDLE`
pub(super) const INVALID_HANDLE: Code = 400;
/// `CUDA_ERROR_NOT_READY`
pub(super) const NOT_READY: Code = 600;
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED`
pub(super) const CONTEXT_IS_DESTROYED: Code = 709;
/// `CUDA_ERROR_NOT_SUPPORTED`
pub(super) const NOT_SUPPORTED: Code = 801;

/// `CU_POINTER_ATTRIBUTE_*`
pub(super) mod attribute {
    use super::c_int;

    pub(in crate::cuda) const CONTEXT: c_int = 1;
    pub(in crate::cuda) const MEMORY_TYPE: c_int = 2;
    pub(in crate::cuda) const SYNC_MEMOPS: c_int = 6;
    pub(in crate::cuda) const BUFFER_ID: c_int = 7;
    pub(in crate::cuda) const IS_MANAGED: c_int = 8;
    pub(in crate::cuda) const DEVICE_ORDINAL: c_int = 9;
    pub(in crate::cuda) const IS_LEGACY_CUDA_IPC_CAPABLE: c_int = 10;
    pub(in crate::cuda) const ALLOWED_HANDLE_TYPES: c_int = 14;
    pub(in crate::cuda) const MEMPOOL_HANDLE: c_int = 17;
}

/// What `cuPointerGetAttributes` says of an address that is not the driver's.
pub(super) const MEMORY_UNKNOWN: c_uint = 0;
/// `CU_MEMORYTYPE_DEVICE`
pub(super) const MEMORY_DEVICE: c_uint = 2;
/// `CU_EVENT_DISABLE_TIMING`
pub(super) const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_CTX_SYNC_MEMOPS`
pub(super) const CONTEXT_SYNC_MEMOPS: c_uint = 0x80;
/// `CU_STREAM_LEGACY`: a context's default stream.
pub(super) const STREAM_LEGACY: usize = 1;
/// `CU_STREAM_DEFAULT`: waits for what was begun earlier in the context's default stream.
pub(super) const STREAM_DEFAULT: c_uint = 0;
/// `CU_MEMHOSTREGISTER_PORTABLE`: pinned for all contexts.
pub(super) const REGISTER_PORTABLE: c_uint = 1;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`
pub(super) const IPC_LAZY_PEER_ACCESS: c_uint = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
pub(super) const HANDLE_IS_FILE: c_int = 1;
