//! The layouts of Open MPI 4.1 that differ from the other version's, on x86-64, in release builds
//! without CUDA. [`sys`](crate::host::sys) holds what the versions share.
//!
//! Only the fields that are used have names. `c-tests/layout` compares every offset and size with
//! the host's own headers; the generated header is `include/hawser_v4_1.h`.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use crate::host::sys::{Component, GroupHead, List, ListItem, MtlModule, ProcessName};

/// A matching transport's component.
///
/// C: `mca_mtl_base_component_2_0_0_t`.
#[repr(C)]
pub struct MtlComponent {
    /// the part common to all components
    pub base: Component,
    /// metadata flags
    pub param_field: u32,
    _pad0: [u8; 36],
    /// makes the module of the selected component
    pub init: Option<unsafe extern "C" fn(bool, bool) -> *mut MtlModule>,
}

const _: () = assert!(size_of::<MtlComponent>() == 272);

impl MtlComponent {
    /// Nothing filled in.
    pub(in crate::host) const EMPTY: Self =
        Self { base: Component::EMPTY, param_field: 0, _pad0: [0; 36], init: None };
}

/// Packs and unpacks one (buffer, count, datatype).
///
/// C: `opal_convertor_t`.
#[repr(C)]
pub struct Convertor {
    _pad0: [u8; 20],
    /// state and properties
    pub flags: u32,
    /// packed bytes
    pub local_size: usize,
    _pad1: [u8; 16],
    /// what is packed or unpacked for each datatype
    pub description: *const Description,
    _pad2: [u8; 16],
    /// user buffer
    pub base: *mut u8,
    /// where it stands, from the outermost loop inwards
    pub levels: *mut Level,
    _pad3: [u8; 16],
    /// the level it stands in
    pub level: u32,
    _pad4: [u8; 4],
    /// bytes of an element that were unpacked before the rest
    pub partial: usize,
    /// bytes already packed or unpacked
    pub converted: usize,
    _pad5: [u8; 136],
}

const _: () = assert!(size_of::<Convertor>() == 264);

/// Where a convertor stands in a loop.
///
/// C: `dt_stack_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Level {
    /// element of the description; -1 is the whole
    pub index: i32,
    _pad0: [u8; 12],
    /// from the begin of the buffer
    pub displacement: isize,
}

const _: () = assert!(size_of::<Level>() == 24);

/// What a datatype is made of.
///
/// C: `dt_type_desc_t`.
#[repr(C)]
pub struct Description {
    _pad0: [u8; 16],
    /// its elements
    pub elements: *const Element,
}

const _: () = assert!(size_of::<Description>() == 24);

/// Blocks of numbers of one kind.
///
/// C: `ddt_elem_desc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Element {
    _pad0: [u8; 2],
    /// kind of number
    pub kind: u16,
    _pad1: [u8; 20],
    /// of the first block
    pub displacement: isize,
}

const _: () = assert!(size_of::<Element>() == 32);

/// A window.
///
/// C: `ompi_win_t`.
#[repr(C)]
pub struct Window {
    _pad0: [u8; 272],
    /// the functions of its component: the first part of what that has made
    pub module: *mut *const (),
    _pad1: [u8; 8],
}

const _: () = assert!(size_of::<Window>() == 288);

/// A communicator.
///
/// C: `ompi_communicator_t`.
#[repr(C)]
pub struct Communicator {
    _pad0: [u8; 224],
    /// context id: the id that tags carry
    pub index: u32,
    /// rank of this process
    pub rank: c_int,
    /// properties
    pub flags: u32,
    _pad1: [u8; 12],
    /// local group
    pub local_group: *mut GroupHead,
    /// remote group, or the local one
    pub remote_group: *mut GroupHead,
    _pad2: [u8; 88],
}

const _: () = assert!(size_of::<Communicator>() == 352);

/// A group of processes.
///
/// C: `ompi_group_t`.
#[repr(C)]
pub struct Group {
    _head: GroupHead,
    _pad0: [u8; 32],
}

const _: () = assert!(size_of::<Group>() == 72);

/// What the runtime knows about this process.
///
/// C: `orte_proc_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessInfo {
    _pad0: [u8; 72],
    /// its name
    pub name: ProcessName,
    _pad1: [u8; 48],
    /// processes in the job
    pub processes: u32,
    _pad2: [u8; 12],
    /// name of the node
    pub node: *const c_char,
    _pad3: [u8; 26],
    /// rank on this node
    pub local_rank: u16,
    /// other processes of the job on this node
    pub local_peers: i32,
    _pad4: [u8; 72],
    /// processors it is bound to
    pub cpuset: *const c_char,
    _pad5: [u8; 8],
}

const _: () = assert!(size_of::<ProcessInfo>() == 272);

/// A value of the process management interface.
///
/// C: `opal_value_t`.
#[repr(C)]
pub struct Value {
    /// its list head
    pub item: ListItem,
    /// key
    pub key: *mut c_char,
    /// 20 is a byte object
    pub kind: u8,
    _pad0: [u8; 7],
    /// bytes of a byte object
    pub size: i32,
    _pad1: [u8; 4],
    /// where they are
    pub bytes: *mut u8,
    _pad2: [u8; 64],
}

const _: () = assert!(size_of::<Value>() == 136);

impl Value {
    /// `OPAL_BOOL`
    const BOOL: u8 = 2;

    /// That something is so, alone in a list that ends there.
    pub(in crate::host) const fn truth(key: &'static CStr, end: *mut ListItem) -> Self {
        Self {
            item: ListItem::beside(end),
            key: key.as_ptr().cast_mut(),
            kind: Self::BOOL,
            _pad0: [0; 7],
            // A truth value is the first byte there.
            size: 1,
            _pad1: [0; 4],
            bytes: ptr::null_mut(),
            _pad2: [0; 64],
        }
    }
}

/// The first entries of the process management interface's table.
///
/// C: `opal_pmix_base_module_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pmix {
    _pad0: [u8; 64],
    /// publishes a value
    pub put: Option<unsafe extern "C" fn(c_int, *mut Value) -> c_int>,
    /// looks a value up
    pub get:
        Option<unsafe extern "C" fn(*const ProcessName, *const c_char, *mut List, *mut *mut Value) -> c_int>,
}

const _: () = assert!(size_of::<Pmix>() == 80);
