//! Elements that a message is cut in (`opal_datatype_unpack.c`).
//!
//! A fragment of a message may end inside an element. The host writes such an element whole, and then looks at its bytes
//! one by one, with the processor, to put back those that have not come: a look at copies does not see that. So
//! where a function of the host's unpacks and an element is cut at the begin or at the end, the part that has
//! come is copied to its place here, and the host unpacks the whole elements between.

use std::ffi::c_int;
use std::sync::OnceLock;

use super::sys::{Convertor, Element, Level};
use crate::accelerator::Accelerator;
use crate::host::copy_hook::{self, Slots};
use crate::host::guard::guard;
use crate::host::services::Services;
use crate::host::symbols::{Loaded, Variable, symbols};

/// What the user reads of the entries.
const NAME: &str = "elements";

/// Kinds of elements that 4.1.4 has. Earlier releases have fewer; their descriptions name none beyond.
const KINDS: usize = 27;

symbols! {
    /// What this needs of the host.
    struct Host {
        set_position: unsafe extern "C" fn(*mut Convertor, *mut usize) -> c_int = c"opal_convertor_set_position_nocheck",
        sizes: Variable<[usize; KINDS]> = c"opal_datatype_local_sizes",
    }
}

static HOST: OnceLock<Host> = OnceLock::new();

/// The slots of the function that unpacks.
static SLOTS: Slots = Slots::new();

/// Flags of a convertor (`opal_convertor.h`, `opal_datatype.h`).
mod flag {
    pub(super) const CONTIGUOUS: u32 = 0x10;
    pub(super) const HOMOGENEOUS: u32 = 0x0008_0000;
    pub(super) const NO_OP: u32 = 0x0010_0000;
    pub(super) const WITH_CHECKSUM: u32 = 0x0020_0000;
    pub(super) const COMPLETED: u32 = 0x0800_0000;
}

/// Looks at the libraries that are there by now. Where this host is not as expected, it is left as it is.
pub(super) fn put_in<T: Accelerator>() {
    if HOST.get().is_none() {
        let Some(Ok(found)) = Loaded::find(c"libopen-pal.so.40").map(Host::find) else { return };
        let _ = HOST.set(found);
    }
    let replacements = [(c"opal_convertor_unpack", (unpack::<T> as *const ()).expose_provenance())];
    // SAFETY: it does what the host's function of the name does, which it calls; this library is never unloaded.
    unsafe { SLOTS.put(copy_hook::is_of_4_1, &replacements) };
}

/// Puts back what was there before.
pub(super) fn take_back() {
    SLOTS.take_back();
}

unsafe extern "C" fn unpack<T: Accelerator>(
    convertor: *mut Convertor,
    pieces: *mut libc::iovec,
    count: *mut u32,
    len: *mut usize,
) -> c_int {
    let target = Target(convertor);
    let code = guard(NAME, "unpack", || {
        // SAFETY: the host's variable.
        let given = unsafe { count.read() };
        // SAFETY: so many of the host's.
        let pieces = unsafe { std::slice::from_raw_parts_mut(pieces, given as usize) };
        target.may_be_cut(pieces).then(|| {
            let (used, all) = target.unpack::<T>(pieces);
            // SAFETY: the host's variable.
            unsafe { count.write(used) };
            // SAFETY: the host's variable.
            unsafe { len.write(all) };
            c_int::from(target.is_completed())
        })
    });
    // SAFETY: as the host calls it.
    code.unwrap_or_else(|| unsafe { (Services::host().unpack)(convertor.cast(), pieces, count, len) })
}

/// What is unpacked to.
///
/// INVARIANT: a convertor of the host's that is prepared to unpack, and nobody else's during the call.
#[derive(Clone, Copy)]
struct Target(*mut Convertor);

/// Where a convertor stands.
struct Standing {
    levels: Vec<Level>,
    partial: usize,
    converted: usize,
}

impl Target {
    fn flags(self) -> u32 {
        // SAFETY: alive, by the invariant.
        unsafe { (*self.0).flags }
    }

    /// Bytes that have been unpacked.
    fn converted(self) -> usize {
        // SAFETY: alive, by the invariant.
        unsafe { (*self.0).converted }
    }

    /// Bytes in all.
    fn size(self) -> usize {
        // SAFETY: alive, by the invariant.
        unsafe { (*self.0).local_size }
    }

    /// Bytes of the element it stands in that have been unpacked.
    fn partial(self) -> usize {
        // SAFETY: alive, by the invariant.
        unsafe { (*self.0).partial }
    }

    fn is_completed(self) -> bool {
        self.flags() & flag::COMPLETED != 0
    }

    /// Whether the first element may be there in part, or the last one. Data in one run has no elements.
    fn may_be_cut(self, pieces: &[libc::iovec]) -> bool {
        let other = flag::CONTIGUOUS | flag::NO_OP | flag::WITH_CHECKSUM | flag::COMPLETED;
        if self.flags() & (other | flag::HOMOGENEOUS) != flag::HOMOGENEOUS {
            return false;
        }
        let len: usize = pieces.iter().map(|piece| piece.iov_len).sum();
        self.partial() != 0 || len < self.size() - self.converted()
    }

    /// Unpacks pieces, and leaves in each how much of it was. Answers how many of them, and how many bytes.
    fn unpack<T: Accelerator>(self, pieces: &mut [libc::iovec]) -> (u32, usize) {
        let (mut used, mut all) = (0, 0);
        for piece in pieces {
            piece.iov_len = piece.iov_len.min(self.size() - self.converted());
            self.unpack_piece::<T>(piece.iov_base.cast(), piece.iov_len);
            used += 1;
            all += piece.iov_len;
            if self.is_completed() {
                break;
            }
        }
        (used, all)
    }

    /// The part of an element that it begins with, whole elements, and the part of one that it ends with.
    fn unpack_piece<T: Accelerator>(self, from: *const u8, len: usize) {
        let begin = if self.partial() == 0 { 0 } else { self.complete::<T>(from, len) };
        let (from, len) = (from.wrapping_add(begin), len - begin);
        if len == 0 {
            return;
        }
        let end = self.converted() + len;
        let mut cut = None;
        if end < self.size() {
            let before = self.standing();
            self.place(end);
            if self.partial() != 0 {
                cut = Some((self.element().0, self.standing()));
            }
            self.stand(&before);
        }
        let rest = cut.as_ref().map_or(0, |(_, after)| after.partial);
        self.unpack_whole(from, len - rest);
        if let Some((element, after)) = cut {
            // SAFETY: the last bytes of the piece are the first of this element, which the program has given room for.
            unsafe { copy_hook::move_bytes::<T>(element, from.wrapping_add(len - rest), rest) };
            self.stand(&after);
        }
    }

    /// More of the element it stands in. Answers how much that was.
    fn complete<T: Accelerator>(self, from: *const u8, len: usize) -> usize {
        let (partial, (element, size)) = (self.partial(), self.element());
        let len = len.min(size - partial);
        // SAFETY: the next bytes of this element, which the program has given room for.
        unsafe { copy_hook::move_bytes::<T>(element.wrapping_add(partial), from, len) };
        self.place(self.converted() + len);
        len
    }

    /// Has the host unpack whole elements.
    fn unpack_whole(self, from: *const u8, len: usize) {
        if len == 0 {
            return;
        }
        let mut piece = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: len };
        let (mut count, mut max) = (1, len);
        let unpack = Services::host().unpack;
        // SAFETY: prepared, by the invariant, with one piece that holds so many bytes, and variables of ours.
        unsafe { unpack(self.0.cast(), &raw mut piece, &raw mut count, &raw mut max) };
    }

    /// Has it stand at a place; nothing is unpacked.
    fn place(self, at: usize) {
        if at >= self.size() {
            let flags = self.flags() | flag::COMPLETED;
            // SAFETY: alive, by the invariant.
            unsafe { (*self.0).flags = flags };
            self.set(0, self.size());
            return;
        }
        let Some(host) = HOST.get() else { return };
        // HOST: 4.1 finds a place from the begin, but not always from within an element or a loop
        // (opal_datatype_position.c).
        for mut at in [0, at] {
            // SAFETY: prepared, by the invariant, and the place is inside of the data.
            unsafe { (host.set_position)(self.0, &raw mut at) };
        }
    }

    fn set(self, partial: usize, converted: usize) {
        // SAFETY: alive, by the invariant.
        unsafe { (*self.0).partial = partial };
        // SAFETY: alive, by the invariant.
        unsafe { (*self.0).converted = converted };
    }

    /// Where the element begins that it stands in, and how long it is.
    fn element(self) -> (*mut u8, usize) {
        // SAFETY: alive, by the invariant. It is plain numbers.
        let Convertor { description, base, levels, level, .. } = unsafe { self.0.read() };
        // SAFETY: the level that it stands in is one of its levels.
        let level = unsafe { levels.wrapping_add(level as usize).read() };
        // SAFETY: a prepared convertor has a description, which is alive as long.
        let elements = unsafe { (*description).elements };
        // SAFETY: a level says which element of the description it stands in.
        let element: Element = unsafe { elements.wrapping_offset(level.index as isize).read() };
        let size = HOST.get().and_then(|host| host.sizes.at(usize::from(element.kind)));
        let start = base.wrapping_offset(level.displacement).wrapping_offset(element.displacement);
        (start, size.expect("a kind that the host has"))
    }

    fn standing(self) -> Standing {
        // SAFETY: alive, by the invariant. It is plain numbers.
        let Convertor { levels, level, partial, converted, .. } = unsafe { self.0.read() };
        // SAFETY: so many levels are filled in.
        let levels = unsafe { std::slice::from_raw_parts(levels, level as usize + 1) }.to_vec();
        Standing { levels, partial, converted }
    }

    fn stand(self, at: &Standing) {
        // SAFETY: alive, by the invariant.
        let levels = unsafe { (*self.0).levels };
        // SAFETY: it has room for so many levels, since it stood there.
        unsafe { levels.copy_from_nonoverlapping(at.levels.as_ptr(), at.levels.len()) };
        // SAFETY: alive, by the invariant.
        unsafe { (*self.0).level = at.levels.len() as u32 - 1 };
        self.set(at.partial, at.converted);
    }
}
