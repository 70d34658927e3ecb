//! The host's parameters (`opal/mca/base/mca_base_var.h`): how they are registered, found and read.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr};

use super::foreign;
use super::services::{EnumValue, Services};

/// Types and scopes.
mod var {
    pub(super) const INT: i32 = 0;
    pub(super) const UNSIGNED_INT: i32 = 1;
    pub(super) const STRING: i32 = 5;
    pub(super) const BOOL: i32 = 7;
    pub(super) const FLAG_SETTABLE: i32 = 4;
    pub(super) const SCOPE_READONLY: i32 = 1;
    pub(super) const SCOPE_LOCAL: i32 = 2;
}

/// Whose parameters: the three words in front of a parameter's name.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub(super) project: &'static CStr,
    pub(super) framework: &'static CStr,
    pub(super) component: &'a CStr,
}

/// Where the host writes a parameter's value, which says its type.
#[derive(Clone, Copy)]
pub(super) enum Storage {
    /// `int`
    Signed(&'static AtomicI32),
    /// `unsigned int`
    Unsigned(&'static AtomicI32),
    /// `bool`
    Flag(&'static AtomicBool),
    /// `char *`; once registered, the text is one that the host made and frees.
    Text(&'static AtomicPtr<c_char>),
}

impl Storage {
    fn kind(self) -> c_int {
        match self {
            Self::Signed(_) => var::INT,
            Self::Unsigned(_) => var::UNSIGNED_INT,
            Self::Flag(_) => var::BOOL,
            Self::Text(_) => var::STRING,
        }
    }

    fn address(self) -> *mut c_void {
        match self {
            Self::Signed(number) | Self::Unsigned(number) => number.as_ptr().cast(),
            Self::Flag(flag) => flag.as_ptr().cast(),
            Self::Text(text) => text.as_ptr().cast(),
        }
    }
}

/// A parameter to be registered.
pub(super) struct Parameter<'a> {
    pub(super) name: &'a CStr,
    pub(super) help: &'a CStr,
    /// `OPAL_INFO_LVL_*`, which begin at 0.
    pub(super) level: c_int,
    /// Whether it may be set while the program runs.
    pub(super) settable: bool,
    pub(super) storage: Storage,
    /// The names of its values.
    pub(super) names: Names,
}

/// The host's object with the names of values.
#[derive(Clone, Copy)]
pub(super) struct Names(*mut c_void);

impl Names {
    /// The values have no names.
    pub(super) const NONE: Self = Self(ptr::null_mut());

    /// Makes one. The host copies the texts.
    pub(super) fn new(title: &CStr, values: &[(c_int, &CStr)]) -> Self {
        let mut table: Vec<_> =
            values.iter().map(|&(value, name)| EnumValue { value, name: name.as_ptr() }).collect();
        table.push(EnumValue { value: 0, name: ptr::null() });
        let mut names = ptr::null_mut();
        // SAFETY: a zero-ended text, a table of such that a null name ends, and a variable of ours, all
        // alive for the time of the call; the callee copies the texts.
        unsafe { (Services::host().enum_create)(title.as_ptr(), table.as_ptr(), &raw mut names) };
        Self(names)
    }

    /// One that the host has made.
    pub(super) fn from_raw(names: *mut c_void) -> Self {
        Self(names)
    }

    pub(super) fn as_ptr(self) -> *mut c_void {
        self.0
    }
}

/// A registered parameter.
#[derive(Clone, Copy)]
pub(super) struct Registered(c_int);

/// Registers a parameter; the host writes its value at once.
pub(super) fn register(owner: Owner<'_>, parameter: &Parameter<'_>) -> Registered {
    let (flags, scope) = match parameter.settable {
        true => (var::FLAG_SETTABLE, var::SCOPE_LOCAL),
        false => (0, var::SCOPE_READONLY),
    };
    // SAFETY: the texts are zero-ended and copied; the storage lives for ever, is of the type that is
    // stated with it, and is only read atomically here.
    Registered(unsafe {
        (Services::host().var_register)(
            owner.project.as_ptr(),
            owner.framework.as_ptr(),
            owner.component.as_ptr(),
            parameter.name.as_ptr(),
            parameter.help.as_ptr(),
            parameter.storage.kind(),
            parameter.names.as_ptr(),
            0,
            flags,
            parameter.level,
            scope,
            parameter.storage.address(),
        )
    })
}

/// Finds a parameter that somebody has registered. Without a component it is a framework's own, and
/// without a name the list that selects components.
fn look_up(
    project: &CStr,
    framework: &CStr,
    component: Option<&CStr>,
    name: Option<&CStr>,
) -> Option<Registered> {
    let text = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: zero-ended texts, or null for the last two, which the callee allows; it keeps none of them.
    let index = unsafe {
        (Services::host().var_find)(project.as_ptr(), framework.as_ptr(), text(component), text(name))
    };
    (index >= 0).then_some(Registered(index))
}

/// Finds a parameter that somebody has registered.
pub(super) fn find(owner: Owner<'_>, name: &CStr) -> Option<Registered> {
    look_up(owner.project, owner.framework, Some(owner.component), Some(name))
}

/// The components of a framework that the user named: `--mca btl usnic,self`.
pub(super) fn selection(owner: Owner<'_>) -> Option<String> {
    look_up(owner.project, owner.framework, None, None)?.text()
}

/// The files with values, separated by commas, of which the first that has one says it.
pub(super) fn files() -> Option<String> {
    // HOST: 4.1 has it under the one name, 5.0 under the other.
    let found = look_up(c"opal", c"mca", Some(c"base"), Some(c"param_files"));
    found.or_else(|| look_up(c"opal", c"mca", None, Some(c"param_files")))?.text()
}

/// How much the user wants to hear of a framework.
pub(super) fn verbosity(owner: Owner<'_>) -> c_int {
    find(Owner { component: c"base", ..owner }, c"verbose").map_or(0, Registered::number)
}

impl Registered {
    /// Makes it known under another owner, too.
    pub(super) fn add_synonym(self, owner: Owner<'_>, name: &CStr) {
        // SAFETY: an index that the host gave out, or a negative one, which it refuses; the texts are
        // zero-ended and copied.
        unsafe {
            (Services::host().var_synonym)(
                self.0,
                owner.project.as_ptr(),
                owner.framework.as_ptr(),
                owner.component.as_ptr(),
                name.as_ptr(),
                0,
            )
        };
    }

    /// Whether somebody has given it a value: the user, or a file.
    pub(super) fn is_set(self) -> bool {
        /// `MCA_BASE_VAR_SOURCE_DEFAULT`
        const DEFAULT: c_int = 0;
        let (mut value, mut source): (*const c_void, _) = (ptr::null(), DEFAULT);
        // SAFETY: the callee stores the address of the parameter's storage and where its value comes from, or refuses
        // the index.
        let code = unsafe {
            (Services::host().var_get_value)(self.0, &raw mut value, &raw mut source, ptr::null_mut())
        };
        code == 0 && source != DEFAULT
    }

    /// Whether its value lies in a library that is still there.
    pub(super) fn is_loaded(self) -> bool {
        let value = self.value::<c_int>();
        // SAFETY: plain numbers and pointers.
        let mut info = unsafe { std::mem::zeroed::<libc::Dl_info>() };
        // SAFETY: takes any address, and writes the variable.
        !value.is_null() && unsafe { libc::dladdr(value.cast(), &raw mut info) } != 0
    }

    /// The address of its value; null when there is none.
    fn value<T>(self) -> *const T {
        let mut value: *const c_void = ptr::null();
        // SAFETY: the callee stores the address of the parameter's storage, or refuses the index; where the
        // value comes from is not asked.
        let code = unsafe {
            (Services::host().var_get_value)(self.0, &raw mut value, ptr::null_mut(), ptr::null_mut())
        };
        if code == 0 { value.cast() } else { ptr::null() }
    }

    /// The value of an `int`.
    pub(super) fn number(self) -> c_int {
        // SAFETY: null, or the storage of an integer parameter: the only ones of which a number is asked.
        unsafe { self.value::<c_int>().as_ref() }.copied().unwrap_or(0)
    }

    /// The value of a text.
    pub(super) fn text(self) -> Option<String> {
        // SAFETY: null, or the storage of a text parameter, which holds one pointer: only of those a text
        // is asked.
        let text = unsafe { self.value::<*const c_char>().as_ref() }.copied()?;
        // SAFETY: null, or the zero-ended text that the host keeps as the parameter's value.
        unsafe { foreign::text(text) }
    }
}
