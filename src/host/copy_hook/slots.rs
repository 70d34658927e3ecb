//! Where the loaded libraries keep the addresses of the functions that they call.
//!
//! A library calls another's function through a slot of its own (ELF gABI: the global offset table), which the
//! loader fills in, at once or with the first call. What stands in a slot may be another function of the same
//! signature, for that library alone; a slot is a word, and whoever reads it meanwhile sees the one or the other.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Kinds of relocations that fill in a slot with nothing but a symbol's address.
#[cfg(target_arch = "x86_64")]
mod kind {
    pub(super) const GLOB_DAT: u32 = 6;
    pub(super) const JUMP_SLOT: u32 = 7;
}
#[cfg(target_arch = "aarch64")]
mod kind {
    pub(super) const GLOB_DAT: u32 = 1025;
    pub(super) const JUMP_SLOT: u32 = 1026;
}

/// Entries of a library's dynamic section.
mod tag {
    pub(super) const NULL: i64 = 0;
    pub(super) const PLTRELSZ: i64 = 2;
    pub(super) const STRTAB: i64 = 5;
    pub(super) const SYMTAB: i64 = 6;
    pub(super) const RELA: i64 = 7;
    pub(super) const RELASZ: i64 = 8;
    pub(super) const JMPREL: i64 = 23;
}

/// `Elf64_Dyn`
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    tag: i64,
    value: u64,
}

/// `Elf64_Rela`
#[repr(C)]
#[derive(Clone, Copy)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// `Elf64_Sym`
#[repr(C)]
#[derive(Clone, Copy)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// What is to stand in the slots of a symbol.
pub(in crate::host) type Replacement = (&'static CStr, usize);

/// A loaded library, while the loader holds its list.
struct Library<'a> {
    info: &'a libc::dl_phdr_info,
    headers: &'a [libc::Elf64_Phdr],
}

impl<'a> Library<'a> {
    /// # Safety
    /// What the loader passes to a function of `dl_iterate_phdr`, alive for `'a`.
    unsafe fn new(info: *mut libc::dl_phdr_info) -> Self {
        // SAFETY: alive, as the caller says.
        let info = unsafe { &*info };
        // SAFETY: so many headers, which stay as long as the library does.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        Self { info, headers }
    }

    fn base(&self) -> usize {
        self.info.dlpi_addr as usize
    }

    /// The last part of the name that it was loaded by; empty for the program.
    fn name(&self) -> &'a str {
        if self.info.dlpi_name.is_null() {
            return "";
        }
        // SAFETY: not null, hence a zero-ended text of the loader's.
        let name = unsafe { CStr::from_ptr(self.info.dlpi_name) }.to_str().unwrap_or_default();
        name.rsplit('/').next().unwrap_or_default()
    }

    fn header(&self, kind: u32) -> Option<&'a libc::Elf64_Phdr> {
        self.headers.iter().find(|header| header.p_type == kind)
    }

    /// Whether an address lies in it.
    fn holds(&self, address: usize) -> bool {
        self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD).any(|header| {
            let start = self.base() + header.p_vaddr as usize;
            (start..start + header.p_memsz as usize).contains(&address)
        })
    }

    /// The pages that the loader has made read-only after it filled them in.
    fn sealed(&self, page: usize) -> Range<usize> {
        let Some(header) = self.header(libc::PT_GNU_RELRO) else { return 0..0 };
        let start = self.base() + header.p_vaddr as usize;
        let down = |address: usize| address & !(page - 1);
        down(start)..down(start + header.p_memsz as usize)
    }

    /// An entry of the dynamic section.
    fn entry(&self, tag: i64) -> Option<usize> {
        let start = self.base() + self.header(libc::PT_DYNAMIC)?.p_vaddr as usize;
        let mut entry = std::ptr::with_exposed_provenance::<Entry>(start);
        loop {
            // SAFETY: in the section, which an entry of this tag ends that was not seen yet.
            let Entry { tag: found, value } = unsafe { entry.read() };
            if found == tag::NULL {
                return None;
            }
            if found == tag {
                return Some(value as usize);
            }
            entry = entry.wrapping_add(1);
        }
    }

    /// The same, of an address. The C library has added where the library lies; others leave that out.
    fn address(&self, tag: i64) -> Option<usize> {
        self.entry(tag).map(|value| if value < self.base() { self.base() + value } else { value })
    }

    /// Calls a function with the name of each symbol and the address of each of its slots.
    fn each_slot(&self, mut found: impl FnMut(&CStr, usize)) -> Option<()> {
        let (symbols, names) = (self.address(tag::SYMTAB)?, self.address(tag::STRTAB)?);
        for (table, len) in [(tag::JMPREL, tag::PLTRELSZ), (tag::RELA, tag::RELASZ)] {
            let (Some(start), Some(len)) = (self.address(table), self.entry(len)) else { continue };
            let start = std::ptr::with_exposed_provenance::<Relocation>(start);
            // SAFETY: the library's table, of so many bytes, which stays as it is.
            let table = unsafe { std::slice::from_raw_parts(start, len / size_of::<Relocation>()) };
            for relocation in table {
                if ![kind::GLOB_DAT, kind::JUMP_SLOT].contains(&(relocation.info as u32)) {
                    continue;
                }
                let symbol = std::ptr::with_exposed_provenance::<Symbol>(symbols)
                    .wrapping_add((relocation.info >> 32) as usize);
                // SAFETY: the symbol that a relocation of the library names by its number.
                let symbol = unsafe { symbol.read() };
                let name = std::ptr::with_exposed_provenance::<c_char>(names + symbol.name as usize);
                // SAFETY: a zero-ended text of the library's.
                let name = unsafe { CStr::from_ptr(name) };
                found(name, self.base() + relocation.offset as usize);
            }
        }
        Some(())
    }

    /// Writes a slot, if the page that it lies in can be written.
    fn set(&self, slot: usize, value: usize, page: usize) -> bool {
        let is_sealed = self.sealed(page).contains(&slot);
        let start = std::ptr::without_provenance_mut(slot & !(page - 1));
        // SAFETY: the page of a slot, which holds nothing but what the loader fills in: that it can be written, too,
        // changes nothing for who reads it.
        if is_sealed && unsafe { libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return false;
        }
        word(slot).store(value, Ordering::Release);
        if is_sealed {
            // SAFETY: the same page; nobody but the loader writes there, and it has.
            unsafe { libc::mprotect(start, page, libc::PROT_READ) };
        }
        true
    }
}

/// A slot as what it is read and written as.
fn word<'a>(slot: usize) -> &'a AtomicUsize {
    // SAFETY: only called for slots of a library while the loader holds its list: aligned words, which the processor
    // reads whole when it calls through them.
    unsafe { AtomicUsize::from_ptr(std::ptr::with_exposed_provenance_mut(slot)) }
}

/// Calls a function for all loaded libraries; none is loaded or unloaded meanwhile.
fn each_library<F: FnMut(&Library<'_>)>(mut look: F) {
    unsafe extern "C" fn one<F: FnMut(&Library<'_>)>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        look: *mut c_void,
    ) -> c_int {
        // SAFETY: passed by the loader, and alive during this call.
        let library = unsafe { Library::new(info) };
        // SAFETY: the function that was passed with this one, which nobody else calls.
        let look = unsafe { &mut *look.cast::<F>() };
        look(&library);
        0
    }
    // SAFETY: the function calls the one that is passed with it, and not after this call.
    unsafe { libc::dl_iterate_phdr(Some(one::<F>), (&raw mut look).cast()) };
}

fn page() -> usize {
    // SAFETY: takes a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Slots in which other functions stand, until they are taken back.
pub(in crate::host) struct Slots {
    /// What stood in a slot, and what stands there.
    before: Mutex<Option<HashMap<usize, (usize, usize)>>>,
}

impl Slots {
    pub(in crate::host) const fn new() -> Self {
        Self { before: Mutex::new(None) }
    }

    /// Puts functions into the slots of all libraries that are wanted by name, but for this one. Slots that have theirs
    /// keep it. Answers how many were put in.
    ///
    /// # Safety
    /// Each address is that of a function that does what the symbol's does, and stays.
    pub(in crate::host) unsafe fn put(
        &self,
        is_wanted: impl Fn(&str) -> bool,
        replacements: &[Replacement],
    ) -> usize {
        static HERE: u8 = 0;
        let (page, mut count) = (page(), 0);
        let before = &mut *self.before.lock();
        let before = before.get_or_insert_default();
        each_library(|library| {
            if !is_wanted(library.name()) || library.holds((&raw const HERE).addr()) {
                return;
            }
            library.each_slot(|name, slot| {
                let Some((_, ours)) = replacements.iter().find(|(wanted, _)| *wanted == name) else { return };
                let stands = word(slot).load(Ordering::Relaxed);
                if stands != *ours && library.set(slot, *ours, page) {
                    before.insert(slot, (stands, *ours));
                    count += 1;
                }
            });
        });
        count
    }

    /// Whether there are any.
    pub(in crate::host) fn is_empty(&self) -> bool {
        self.before.lock().as_ref().is_none_or(HashMap::is_empty)
    }

    /// Puts back what stood there. A library that was unloaded has taken its slots along; a slot in which something
    /// else stands by now is left as it is.
    pub(in crate::host) fn take_back(&self) {
        let page = page();
        let Some(before) = self.before.lock().take() else { return };
        each_library(|library| {
            library.each_slot(|_, slot| {
                if let Some((stood, ours)) = before.get(&slot)
                    && word(slot).load(Ordering::Relaxed) == *ours
                {
                    library.set(slot, *stood, page);
                }
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn nobody() -> u32 {
        12_345
    }

    /// What the library of threads, or of C, of this process calls: `getuid` of libc by libresolv and others is not
    /// certain to be there, so a library of the test's own is made for it.
    #[test]
    fn a_slot_is_found_replaced_and_put_back() {
        let folder = std::env::temp_dir().join(format!("hawser-slots-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        for (flags, file) in [("-Wl,-z,lazy", "libslots-lazy.so"), ("-Wl,-z,now,-z,relro", "libslots-now.so")]
        {
            let (source, library) = (folder.join("slots.c"), folder.join(file));
            let text = "#include <unistd.h>\nunsigned ask(void) { return getuid(); }\n\
                        unsigned (*other(void))(void) { return getuid; }\n";
            std::fs::write(&source, text).expect("the source");
            let made = std::process::Command::new("cc")
                .args(["-shared", "-fPIC", "-O1", "-fno-plt", flags])
                .arg("-o")
                .args([&library, &source])
                .status();
            assert!(made.expect("a C compiler").success());
            let name = std::ffi::CString::new(library.to_str().expect("a name")).expect("a name");
            // SAFETY: the test's library, which does nothing when it is loaded.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
            assert!(!handle.is_null());
            // SAFETY: a handle, and a name.
            let ask = unsafe { libc::dlsym(handle, c"ask".as_ptr()) };
            // SAFETY: the test's function of this signature.
            let ask: unsafe extern "C" fn() -> u32 = unsafe { std::mem::transmute(ask) };
            // SAFETY: takes nothing.
            let before = unsafe { ask() };
            let slots = Slots::new();
            let ours: Replacement = (c"getuid", (nobody as *const ()).addr());
            // SAFETY: of the same signature, and it stays.
            let count = unsafe { slots.put(|name| name == file, &[ours]) };
            assert!(count >= 1, "{file}: {count} slots");
            // SAFETY: of the same signature, and it stays.
            assert_eq!(unsafe { slots.put(|name| name == file, &[ours]) }, 0, "again");
            // SAFETY: takes nothing.
            assert_eq!(unsafe { ask() }, 12_345);
            // SAFETY: takes nothing.
            let here = unsafe { libc::getuid() };
            assert_eq!(here, before, "only that library's");
            slots.take_back();
            // SAFETY: takes nothing.
            assert_eq!(unsafe { ask() }, before);
            assert!(slots.is_empty());
            // SAFETY: opened above, and not used any more.
            unsafe { libc::dlclose(handle) };
        }
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
    }
}
