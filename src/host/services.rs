//! Host services that are the same in every version.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::symbols::{Variable, symbols};

type Progress = unsafe extern "C" fn() -> c_int;
/// Memory that goes: its begin and length, what it was registered with, whether an allocator gives it up.
type Released = unsafe extern "C" fn(*mut c_void, usize, *mut c_void, bool);
/// File, topic, whether to frame it, arguments. The host replaces it while it starts up.
type ShowHelp = unsafe extern "C" fn(*const c_char, *const c_char, c_int, ...) -> c_int;

/// The same, but it returns the text.
type ShowHelpString = unsafe extern "C" fn(*const c_char, *const c_char, c_int, ...) -> *mut c_char;

symbols! {
    /// Functions and objects of the host, in the forms that 4.1 and 5.0 share.
    pub(super) struct Services {
        progress: unsafe extern "C" fn() = c"opal_progress",
        progress_register: unsafe extern "C" fn(Progress) -> c_int = c"opal_progress_register",
        progress_unregister: unsafe extern "C" fn(Progress) -> c_int = c"opal_progress_unregister",
        pack: unsafe extern "C" fn(*mut c_void, *mut libc::iovec, *mut u32, *mut usize) -> c_int = c"opal_convertor_pack",
        unpack: unsafe extern "C" fn(*mut c_void, *mut libc::iovec, *mut u32, *mut usize) -> c_int = c"opal_convertor_unpack",
        var_register: unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, *const c_char, *const c_char, c_int, *mut c_void, c_int, c_int, c_int, c_int, *mut c_void) -> c_int = c"mca_base_var_register",
        var_find: unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, *const c_char) -> c_int = c"mca_base_var_find",
        var_get_value: unsafe extern "C" fn(c_int, *mut *const c_void, *mut c_int, *mut *const c_char) -> c_int = c"mca_base_var_get_value",
        var_synonym: unsafe extern "C" fn(c_int, *const c_char, *const c_char, *const c_char, *const c_char, c_int) -> c_int = c"mca_base_var_register_synonym",
        enum_create: unsafe extern "C" fn(*const c_char, *const EnumValue, *mut *mut c_void) -> c_int = c"mca_base_var_enum_create",
        show_help: Variable<ShowHelp> = c"opal_show_help",
        show_help_string: ShowHelpString = c"opal_show_help_string",
        show_help_add_dir: unsafe extern "C" fn(*const c_char) -> c_int = c"opal_show_help_add_dir",
        pvar_register: unsafe extern "C" fn(
            *const c_char,
            *const c_char,
            *const c_char,
            *const c_char,
            *const c_char,
            c_int,
            c_int,
            c_int,
            *mut c_void,
            c_int,
            c_int,
            *mut c_void,
            *mut c_void,
            *mut c_void,
            *mut c_void,
        ) -> c_int = c"mca_base_pvar_register",
        output: unsafe extern "C" fn(c_int, *const c_char, ...) = c"opal_output",
        proc_find: unsafe extern "C" fn(*const u64) -> *mut c_void = c"ompi_proc_find",
        proc_for_name: unsafe extern "C" fn(u64) -> *mut c_void = c"ompi_proc_for_name",
        proc_world_size: unsafe extern "C" fn() -> c_int = c"ompi_proc_world_size",
        message_null: *mut c_void = c"ompi_message_null",
        thread_multiple: Variable<bool> = c"ompi_mpi_thread_multiple",
        memory_hooks: unsafe extern "C" fn() -> c_int = c"opal_mem_hooks_support_level",
        release_register: unsafe extern "C" fn(Released, *mut c_void) -> c_int = c"opal_mem_hooks_register_release",
        release_unregister: unsafe extern "C" fn(Released) -> c_int = c"opal_mem_hooks_unregister_release",
        leave_pinned: Variable<c_int> = c"opal_leave_pinned",
        leave_pinned_pipeline: Variable<bool> = c"opal_leave_pinned_pipeline",
        memory_framework: *mut c_void = c"opal_memory_base_framework",
        framework_open: unsafe extern "C" fn(*mut c_void, c_int) -> c_int = c"mca_base_framework_open",
        framework_close: unsafe extern "C" fn(*mut c_void) -> c_int = c"mca_base_framework_close",
    }
}

/// `mca_base_var_enum_value_t`
#[repr(C)]
pub(super) struct EnumValue {
    pub(super) value: c_int,
    pub(super) name: *const c_char,
}

static SERVICES: OnceLock<Services> = OnceLock::new();

impl Services {
    pub(super) fn install(self, relay: Relay) {
        let _ = SERVICES.set(self);
        let _ = RELAY.set(relay);
    }

    /// The host's services.
    ///
    /// # Panics
    /// When called without a host: no entry point is reachable then.
    #[inline]
    pub(super) fn host() -> &'static Self {
        SERVICES.get().expect("entry points run only after a host was recognised")
    }
}

/// Whether the user has asked for `MPI_THREAD_MULTIPLE` so far: what to expect, and no promise. Sessions
/// do not show here, and more may be asked for later, or less by `MPI_T_init_thread`.
pub(super) fn threads() -> bool {
    Services::host().thread_multiple.get()
}

/// Registers a progress function.
pub(super) fn register_progress(progress: Progress) -> c_int {
    // SAFETY: the library is never unloaded, so the function stays callable.
    unsafe { (Services::host().progress_register)(progress) }
}

/// Takes it back.
pub(super) fn unregister_progress(progress: Progress) -> c_int {
    // SAFETY: the host only compares the function with those that it has.
    unsafe { (Services::host().progress_unregister)(progress) }
}

/// How many processes this job has.
pub(super) fn world_size() -> usize {
    // SAFETY: takes nothing.
    usize::try_from(unsafe { (Services::host().proc_world_size)() }).unwrap_or(0)
}

/// Whether the host has met a process of this name, in its own job or in another.
pub(super) fn has_met(name: u64) -> bool {
    // SAFETY: a name, which is two aligned words, is only read.
    !unsafe { (Services::host().proc_find)(&raw const name) }.is_null()
}

/// Whether memory is to stay registered after its message (`mpi_leave_pinned`, `mpi_leave_pinned_pipeline`); `None`: as may be.
pub(super) fn leaves_pinned() -> Option<bool> {
    let host = Services::host();
    match (host.leave_pinned.get(), host.leave_pinned_pipeline.get()) {
        (1, _) | (_, true) => Some(true),
        (0, false) => Some(false),
        _ => None,
    }
}

/// Has the host put its hooks in place, if it has not yet. Each time is to be [taken back](close_memory_hooks).
pub(super) fn open_memory_hooks() -> bool {
    let host = Services::host();
    // SAFETY: the host's own framework, by the functions that its components open it with.
    unsafe { (host.framework_open)(host.memory_framework, 0) == 0 }
}

/// They are not needed any more here.
pub(super) fn close_memory_hooks() {
    let host = Services::host();
    // SAFETY: the host's own framework, which was opened once for this.
    unsafe { (host.framework_close)(host.memory_framework) };
}

/// Has a function called before memory is unmapped, where the host has hooks for that in place.
pub(super) fn register_release(function: Released) -> bool {
    /// `OPAL_MEMORY_FREE_SUPPORT` and `OPAL_MEMORY_MUNMAP_SUPPORT`
    const ALL: c_int = 0x1 | 0x2;
    let host = Services::host();
    // SAFETY: takes nothing.
    let has_hooks = unsafe { (host.memory_hooks)() } & ALL == ALL;
    // SAFETY: the library is never unloaded, so the function stays callable.
    has_hooks && unsafe { (host.release_register)(function, ptr::null_mut()) } == 0
}

/// Takes that back.
pub(super) fn unregister_release(function: Released) {
    // SAFETY: the host only compares the function with those that it has.
    unsafe { (Services::host().release_unregister)(function) };
}

/// Says something to the user through the host's output, on one line.
pub(super) fn say(text: &str) {
    let text = c_text(text);
    // SAFETY: stream 0 is always open; the format takes one string.
    unsafe { (Services::host().output)(0, c"hawser: %s".as_ptr(), text.as_ptr()) };
}

/// How a process of the host's gets its help messages to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relay {
    /// The launcher gathers them, and shows each once for all processes of the job.
    Launcher,
    /// The launcher would gather them, but loses many: that of 4.1 frees a message while it is still
    /// under way (`pmix_server_log_fn`, `orte/orted/pmix/pmix_server_gen.c`). The first of a node's processes writes it.
    Own,
}

static RELAY: OnceLock<Relay> = OnceLock::new();

/// Help messages that this process shows at most, of its own accord.
const MOST: usize = 8;

/// Those that this process has shown.
static SHOWN: AtomicUsize = AtomicUsize::new(0);

/// Shows the help text of a topic of `help-hawser.txt` around one line that says what happened, once
/// for all processes that it happens to. Without the file, the line alone is said.
pub(super) fn show_help(topic: &str, line: &str) {
    if !has_help_file() {
        return say(line);
    }
    let (topic, line) = (c_text(topic), c_text(line));
    if RELAY.get() == Some(&Relay::Own) {
        let folder = std::env::var_os("PMIX_SERVER_TMPDIR");
        let job = std::env::var_os("PMIX_NAMESPACE").unwrap_or_default();
        if SHOWN.load(Ordering::Relaxed) == MOST
            || !is_first(folder.as_deref().map(Path::new), &job, &topic, &line)
        {
            return;
        }
        SHOWN.fetch_add(1, Ordering::Relaxed);
        let render = Services::host().show_help_string;
        // SAFETY: zero-ended strings; every topic of the file takes one string.
        let text = unsafe { render(HELP_FILE.as_ptr(), topic.as_ptr(), 1, line.as_ptr()) };
        if !text.is_null() {
            // SAFETY: a zero-ended string that is ours.
            crate::error::write_out(unsafe { CStr::from_ptr(text) }.to_bytes());
            // SAFETY: allocated by the host with `malloc`, and not used any more.
            unsafe { libc::free(text.cast()) };
        }
        return;
    }
    let show = Services::host().show_help.get();
    // SAFETY: zero-ended strings; every topic of the file takes one string, which follows.
    unsafe { show(HELP_FILE.as_ptr(), topic.as_ptr(), 1, line.as_ptr()) };
}

/// Whether no process of the job on this node has told this yet. Whoever is first makes a file of that
/// name in the folder that the launcher keeps on this node for as long as the job runs, and then clears
/// (`orte_session_dir_cleanup`, `orte/util/session_dir.c`). Without one, every process is the first.
fn is_first(folder: Option<&Path>, job: &OsStr, topic: &CStr, line: &CStr) -> bool {
    let Some(folder) = folder else { return true };
    let mut hasher = DefaultHasher::new();
    (job, topic, line).hash(&mut hasher);
    let made = File::create_new(folder.join(format!("hawser-told-{:016x}", hasher.finish())));
    !made.is_err_and(|error| error.kind() == ErrorKind::AlreadyExists)
}

fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

const HELP_FILE: &CStr = c"help-hawser.txt";

/// Whether the help file was found: beside the library, or where `make install` puts it. The host
/// is told of its folder.
fn has_help_file() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let Some(folder) = library_folder() else { return false };
        let name = HELP_FILE.to_str().unwrap_or_default();
        let folders = ["", "../share/hawser", "../../share/hawser"].map(|below| folder.join(below));
        let Some(folder) = folders.into_iter().find(|folder| folder.join(name).is_file()) else {
            return false;
        };
        let folder = c_text(&folder.to_string_lossy());
        // SAFETY: a zero-ended string, which the host copies.
        unsafe { (Services::host().show_help_add_dir)(folder.as_ptr()) == 0 }
    })
}

/// The folder that the loaded library lies in, links followed.
fn library_folder() -> Option<PathBuf> {
    // SAFETY: plain numbers and pointers; zero is a value of each.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: an address of this library; the callee fills the structure in.
    let code = unsafe { libc::dladdr((&raw const SERVICES).cast(), &raw mut found) };
    if code == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own zero-ended string.
    let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_str().ok()?;
    Path::new(path).canonicalize().ok()?.parent().map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_help_message_is_told_once_on_a_node_even_if_its_teller_has_ended() {
        let folder = std::env::temp_dir().join(format!("hawser-told-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder for the test");
        let tells =
            |job: &str, topic: &CStr, line: &CStr| is_first(Some(&folder), OsStr::new(job), topic, line);
        assert!(tells("1", c"value", c"a is 0"));
        assert!(!tells("1", c"value", c"a is 0"));
        assert!(tells("1", c"value", c"b is 0"), "another line");
        assert!(tells("1", c"peer", c"a is 0"), "another topic");
        assert!(tells("2", c"value", c"a is 0"), "another job");
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
        assert!(tells("1", c"value", c"a is 0"), "a folder that is gone keeps nobody from telling");
        assert!(is_first(None, OsStr::new("1"), c"value", c"a is 0"));
    }
}
