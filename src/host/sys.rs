//! The layouts that Open MPI 4.1 and 5.0 share, on x86-64, in release builds without CUDA.
//!
//! Only the fields that are used have names. `c-tests/layout` compares every offset and size with
//! each host's own headers; the generated headers are `include/hawser_v*.h`. What differs is in
//! each version's `sys`. Communicators and convertors are passed on by their addresses alone here.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr;

use super::abi::{Communicator, Convertor};

/// The head of every object of the host's class system.
///
/// C: `opal_object_t`.
#[repr(C)]
pub struct Object {
    /// the object's class
    pub class: *mut Class,
    /// reference count
    pub references: i32,
    pub(in crate::host) _pad0: [u8; 4],
}

const _: () = assert!(size_of::<Object>() == 16);

impl Object {
    /// Of no class, and nobody's.
    pub(in crate::host) const EMPTY: Self = Self { class: ptr::null_mut(), references: 0, _pad0: [0; 4] };
}

/// A class of the host's object system.
///
/// C: `opal_class_t`.
#[repr(C)]
pub struct Class {
    /// name of the class
    pub name: *const c_char,
    /// parent class
    pub parent: *mut Class,
    /// its own constructor
    pub construct_own: Option<unsafe extern "C" fn(*mut c_void)>,
    /// its own destructor
    pub destruct_own: Option<unsafe extern "C" fn(*mut c_void)>,
    /// epoch of initialisation
    pub initialized: i32,
    pub(in crate::host) _pad1: [u8; 4],
    /// constructors, base first, ended by null
    pub construct: *mut Option<unsafe extern "C" fn(*mut c_void)>,
    /// destructors, derived first, ended by null
    pub destruct: *mut Option<unsafe extern "C" fn(*mut c_void)>,
    /// bytes of an instance
    pub size: usize,
}

const _: () = assert!(size_of::<Class>() == 64);

impl Class {
    /// A class that the host has not yet initialised.
    pub(in crate::host) const fn new(
        name: *const c_char,
        parent: *mut Self,
        own_destruct: unsafe extern "C" fn(*mut c_void),
        size: usize,
    ) -> Self {
        Self {
            name,
            parent,
            construct_own: None,
            destruct_own: Some(own_destruct),
            initialized: 0,
            _pad1: [0; 4],
            construct: ptr::null_mut(),
            destruct: ptr::null_mut(),
            size,
        }
    }
}

/// What every component exports first: who it is and how it is opened.
///
/// C: `mca_base_component_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Component {
    /// version of the component architecture: 2.1.0
    pub mca_version: [c_int; 3],
    /// project name, zero-ended
    pub project: [u8; 16],
    /// version of the host
    pub project_version: [c_int; 3],
    /// framework name, zero-ended
    pub type_name: [u8; 32],
    /// version of the framework's interface
    pub type_version: [c_int; 3],
    /// component name, zero-ended
    pub name: [u8; 64],
    /// version of the component
    pub version: [c_int; 3],
    /// called when the framework opens the component
    pub open: Option<unsafe extern "C" fn() -> c_int>,
    /// called when the framework drops it
    pub close: Option<unsafe extern "C" fn() -> c_int>,
    /// offers a module and a priority
    pub query: Option<unsafe extern "C" fn(*mut *mut c_void, *mut c_int) -> c_int>,
    /// registers the parameters
    pub register: Option<unsafe extern "C" fn() -> c_int>,
    /// component flags
    pub flags: i32,
    _pad0: [u8; 28],
}

const _: () = assert!(size_of::<Component>() == 224);

impl Component {
    /// Nothing filled in.
    pub(in crate::host) const EMPTY: Self = Self {
        mca_version: [0; 3],
        project: [0; 16],
        project_version: [0; 3],
        type_name: [0; 32],
        type_version: [0; 3],
        name: [0; 64],
        version: [0; 3],
        open: None,
        close: None,
        query: None,
        register: None,
        flags: 0,
        _pad0: [0; 28],
    };
}

/// The table of a matching transport that `pml/cm` calls.
///
/// C: `mca_mtl_base_module_t`.
#[repr(C)]
pub struct MtlModule {
    /// greatest communicator id
    pub max_contextid: c_int,
    /// greatest MPI tag
    pub max_tag: c_int,
    /// bytes wanted behind the request head
    pub request_size: usize,
    /// properties of the module
    pub flags: u32,
    _pad0: [u8; 4],
    /// makes peers known
    pub add_procs: Option<unsafe extern "C" fn(*mut MtlModule, usize, *mut *mut Proc) -> c_int>,
    /// forgets peers
    pub del_procs: Option<unsafe extern "C" fn(*mut MtlModule, usize, *mut *mut Proc) -> c_int>,
    /// ends the module
    pub finalize: Option<unsafe extern "C" fn(*mut MtlModule) -> c_int>,
    /// blocking send
    pub send: Option<
        unsafe extern "C" fn(*mut MtlModule, *mut Communicator, c_int, c_int, *mut Convertor, c_int) -> c_int,
    >,
    /// send
    pub isend: Option<
        unsafe extern "C" fn(
            *mut MtlModule,
            *mut Communicator,
            c_int,
            c_int,
            *mut Convertor,
            c_int,
            bool,
            *mut MtlRequest,
        ) -> c_int,
    >,
    /// receive
    pub irecv: Option<
        unsafe extern "C" fn(
            *mut MtlModule,
            *mut Communicator,
            c_int,
            c_int,
            *mut Convertor,
            *mut MtlRequest,
        ) -> c_int,
    >,
    /// probe
    pub iprobe: Option<
        unsafe extern "C" fn(
            *mut MtlModule,
            *mut Communicator,
            c_int,
            c_int,
            *mut c_int,
            *mut Status,
        ) -> c_int,
    >,
    /// receive of a matched message
    pub imrecv: Option<
        unsafe extern "C" fn(*mut MtlModule, *mut Convertor, *mut *mut Message, *mut MtlRequest) -> c_int,
    >,
    /// matched probe
    pub improbe: Option<
        unsafe extern "C" fn(
            *mut MtlModule,
            *mut Communicator,
            c_int,
            c_int,
            *mut c_int,
            *mut *mut Message,
            *mut Status,
        ) -> c_int,
    >,
    /// cancel
    pub cancel: Option<unsafe extern "C" fn(*mut MtlModule, *mut MtlRequest, c_int) -> c_int>,
    /// a communicator begins
    pub add_comm: Option<unsafe extern "C" fn(*mut MtlModule, *mut Communicator) -> c_int>,
    /// a communicator ends
    pub del_comm: Option<unsafe extern "C" fn(*mut MtlModule, *mut Communicator) -> c_int>,
}

const _: () = assert!(size_of::<MtlModule>() == 120);

impl MtlModule {
    /// Nothing filled in.
    pub(in crate::host) const EMPTY: Self = Self {
        max_contextid: 0,
        max_tag: 0,
        request_size: 0,
        flags: 0,
        _pad0: [0; 4],
        add_procs: None,
        del_procs: None,
        finalize: None,
        send: None,
        isend: None,
        irecv: None,
        iprobe: None,
        imrecv: None,
        improbe: None,
        cancel: None,
        add_comm: None,
        del_comm: None,
    };
}

/// `MPI_Status`.
///
/// C: `ompi_status_public_t`.
#[repr(C)]
pub struct Status {
    /// `MPI_SOURCE`
    pub source: c_int,
    /// `MPI_TAG`
    pub tag: c_int,
    /// `MPI_ERROR`
    pub error: c_int,
    /// whether the operation was cancelled
    pub cancelled: c_int,
    /// bytes received
    pub count: usize,
}

const _: () = assert!(size_of::<Status>() == 24);

/// The host's request.
///
/// C: `ompi_request_t`.
#[repr(C)]
pub struct Request {
    _pad0: [u8; 64],
    /// status to be filled before completion
    pub status: Status,
    /// completion marker
    pub complete: *mut c_void,
    /// state of the request
    pub state: c_int,
    _pad1: [u8; 60],
}

const _: () = assert!(size_of::<Request>() == 160);

/// What `pml/cm` puts behind the host's request: only the kind matters here.
///
/// C: `mca_pml_cm_request_t`.
#[repr(C)]
pub struct CmRequest {
    /// the host's request
    pub request: Request,
    _pad0: [u8; 8],
    /// 0 heavy send, 1 thin send, 2 heavy receive, 3 thin receive
    pub kind: c_int,
    _pad1: [u8; 4],
}

const _: () = assert!(size_of::<CmRequest>() == 176);

/// The request head that `pml/cm` puts in front of a transport's own memory.
///
/// C: `mca_mtl_request_t`.
#[repr(C)]
pub struct MtlRequest {
    /// the host's request
    pub request: *mut Request,
    /// called once, when the operation is over
    pub complete: Option<unsafe extern "C" fn(*mut MtlRequest)>,
}

const _: () = assert!(size_of::<MtlRequest>() == 16);

/// A datatype.
///
/// C: `opal_datatype_t`.
#[repr(C)]
pub struct Datatype {
    _pad0: [u8; 16],
    /// properties
    pub flags: u16,
    _pad1: [u8; 6],
    /// bytes of data
    pub size: usize,
    /// displacement of the first byte of data
    pub true_lb: isize,
    /// displacement behind the last byte of data
    pub true_ub: isize,
    /// lower bound
    pub lb: isize,
    /// upper bound
    pub ub: isize,
    _pad2: [u8; 136],
}

const _: () = assert!(size_of::<Datatype>() == 200);

/// The part of a convertor that both versions have alike.
///
/// C: `opal_convertor_t`.
#[repr(C)]
pub struct ConvertorHead {
    _pad0: [u8; 20],
    /// state and properties
    pub flags: u32,
    /// packed bytes
    pub local_size: usize,
    /// packed bytes at the peer
    pub remote_size: usize,
    /// the datatype
    pub datatype: *const Datatype,
    _pad1: [u8; 8],
    /// elements
    pub count: usize,
    _pad2: [u8; 8],
    /// user buffer
    pub base: *mut u8,
    _pad3: [u8; 40],
    /// bytes already packed or unpacked
    pub converted: usize,
}

const _: () = assert!(size_of::<ConvertorHead>() == 128);

/// The part of a group of processes that both versions have alike.
///
/// C: `ompi_group_t`.
#[repr(C)]
pub struct GroupHead {
    _pad0: [u8; 16],
    /// processes
    pub size: c_int,
    /// rank of this process
    pub rank: c_int,
    _pad1: [u8; 8],
    /// processes, or sentinels with bit 0 set
    pub procs: *mut *mut Proc,
}

const _: () = assert!(size_of::<GroupHead>() == 40);

/// The name of a process.
///
/// C: `opal_process_name_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessName {
    /// job
    pub jobid: u32,
    /// rank in the job
    pub vpid: u32,
}

const _: () = assert!(size_of::<ProcessName>() == 8);

/// A process.
///
/// C: `ompi_proc_t`.
#[repr(C)]
pub struct Proc {
    _pad0: [u8; 40],
    /// its name
    pub name: ProcessName,
    _pad1: [u8; 4],
    /// how near it is
    pub locality: u16,
    _pad2: [u8; 26],
    /// the slot of the matching transport
    pub endpoint: *mut c_void,
    _pad3: [u8; 32],
}

const _: () = assert!(size_of::<Proc>() == 120);

/// A matched message (`MPI_Message`).
///
/// C: `ompi_message_t`.
#[repr(C)]
pub struct Message {
    _pad0: [u8; 56],
    /// Fortran handle
    pub fortran: c_int,
    _pad1: [u8; 4],
    /// communicator
    pub comm: *mut Communicator,
    /// belongs to the transport
    pub request: *mut c_void,
    /// source
    pub peer: c_int,
    _pad2: [u8; 4],
    /// bytes
    pub count: usize,
}

const _: () = assert!(size_of::<Message>() == 96);

/// An item of a list or a stack.
///
/// C: `opal_list_item_t`.
#[repr(C)]
pub struct ListItem {
    /// its object head
    pub object: Object,
    /// next item
    pub next: *mut ListItem,
    /// previous item
    pub previous: *mut ListItem,
    /// whether it is on a stack
    pub free: i32,
    _pad0: [u8; 4],
}

const _: () = assert!(size_of::<ListItem>() == 40);

impl ListItem {
    /// With this one before it and behind it, as in a list of one item.
    pub(in crate::host) const fn beside(neighbour: *mut Self) -> Self {
        Self { object: Object::EMPTY, next: neighbour, previous: neighbour, free: 0, _pad0: [0; 4] }
    }
}

/// A list.
///
/// C: `opal_list_t`.
#[repr(C)]
pub struct List {
    /// its object head
    pub object: Object,
    /// before the first and behind the last
    pub sentinel: ListItem,
    /// the number of its items
    pub length: usize,
}

const _: () = assert!(size_of::<List>() == 64);

impl List {
    /// Where a list at this address ends.
    pub(in crate::host) const fn end(list: *mut Self) -> *mut ListItem {
        list.wrapping_byte_add(offset_of!(Self, sentinel)).cast()
    }

    /// Of one item, which says itself that it is alone.
    pub(in crate::host) const fn of(item: *mut ListItem) -> Self {
        Self { object: Object::EMPTY, sentinel: ListItem::beside(item), length: 1 }
    }
}
