//! The constructor: which host has loaded us?
//!
//! The exported component structures are zero until this has run. A recognised host gets them
//! filled in; on any doubt they stay zero and the host itself declines the component. The reason is
//! kept for `hawser_refusal`, and said aloud when the host says such things aloud.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};

use super::accelerator::AcceleratorAbi;
use super::btl::{self, BtlAbi};
use super::mtl::MtlAbi;
use super::services::{Relay, Services};
use super::symbols::Loaded;
use super::{components, sys, v4_1, v5_0};

/// Room for a component structure of any version.
#[repr(C, align(16))]
pub struct Slot(UnsafeCell<[u8; Slot::SIZE]>);

impl Slot {
    const SIZE: usize = 512;

    pub(super) const fn empty() -> Self {
        Self(UnsafeCell::new([0; Self::SIZE]))
    }

    pub(super) fn fill<T>(&self, value: T) {
        const { assert!(size_of::<T>() <= Self::SIZE && align_of::<T>() <= 16) };
        // SAFETY: large enough and aligned; only the constructor writes, before the host looks.
        unsafe { self.0.get().cast::<T>().write(value) };
    }
}

// SAFETY: written once, by the constructor; afterwards it is the host's.
unsafe impl Sync for Slot {}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

extern "C" fn construct() {
    let verdict = std::panic::catch_unwind(recognise)
        .unwrap_or_else(|_| Err("a bug: the constructor panicked".to_owned()));
    if let Err(why) = verdict {
        if loud() {
            crate::error::say(format_args!("not offered to this Open MPI: {why}"));
        }
        crate::error::note_refusal(&why);
    }
}

/// Whether the user wants to hear of components that could not be loaded.
fn loud() -> bool {
    std::env::var("OMPI_MCA_mca_base_component_show_load_errors")
        .is_ok_and(|value| !matches!(value.as_str(), "0" | "false" | "no" | "none" | ""))
}

fn recognise() -> Result<(), String> {
    let old = Loaded::find(c"libopen-pal.so.40");
    let new = Loaded::find(c"libopen-pal.so.80");
    let Some(pal) = old.or(new) else {
        // Not an Open MPI process: nothing to refuse.
        return Ok(());
    };
    let Some(mpi) = Loaded::find(c"libmpi.so.40") else {
        // One of the host's tools without MPI, such as its daemon.
        return Ok(());
    };
    let text = pal.symbol(c"opal_version_string")?;
    // SAFETY: the host's constant is a zero-ended string.
    let text = unsafe { CStr::from_ptr(text.as_ptr().cast::<c_char>()) }.to_string_lossy();
    let version = parse(&text).ok_or_else(|| format!("its version text is not understood: {text}"))?;
    if !cfg!(test) {
        super::guard::install();
    }
    let known = VERSIONS.iter().find(|known| known.number == (version.0, version.1));
    let known = known.ok_or_else(|| {
        let names = VERSIONS.map(|known| format!("{}.{}", known.number.0, known.number.1));
        format!("it is version {}.{}; hawser knows {}", version.0, version.1, names.join(" and "))
    })?;
    (known.accept)(mpi, version)
}

/// A version of the host, as the constructor needs it.
pub(super) trait Version: BtlAbi + MtlAbi + AcceleratorAbi {
    /// Major and minor number: one form of the tables.
    const NUMBER: (i32, i32);
    /// Releases that hawser has run under. Others of the number are accepted if everything that can be
    /// compared is the same, and `hawser-info` says that they have not been tried.
    const TRIED: &'static [i32];
    /// How its processes get help messages to the user.
    const RELAY: Relay;
    /// Classes of the host whose sizes differ from version to version, and ours.
    const CLASSES: &'static [(&'static CStr, usize)];
    /// The symbols that only this version has.
    type Own;

    /// Looks them up.
    fn find(host: Loaded) -> Result<Self::Own, String>;
    /// Keeps them.
    fn install(own: Self::Own, version: Number);
}

/// Major, minor and release number.
type Number = (i32, i32, i32);

/// What the table says of a version.
#[derive(Clone, Copy)]
struct Known {
    number: (i32, i32),
    tried: &'static [i32],
    accept: fn(Loaded, Number) -> Result<(), String>,
}

impl Known {
    const fn of<V: Version>() -> Self {
        Self { number: V::NUMBER, tried: V::TRIED, accept: accept::<V> }
    }
}

/// All versions. A third one is a line here, and the differences of its module.
const VERSIONS: [Known; 2] = [Known::of::<v4_1::V4_1>(), Known::of::<v5_0::V5_0>()];

/// Classes of the host whose sizes it states, and the sizes of our layouts of them, alike in all versions.
const CLASSES: &[(&CStr, usize)] = &[
    (c"opal_object_t_class", size_of::<sys::Object>()),
    (c"opal_datatype_t_class", size_of::<sys::Datatype>()),
    (c"ompi_proc_t_class", size_of::<sys::Proc>()),
    (c"ompi_request_t_class", size_of::<sys::Request>()),
    (c"ompi_message_t_class", size_of::<sys::Message>()),
];

/// Takes a host, if it is what it says: all sizes are right and all symbols there.
fn accept<V: Version>(mpi: Loaded, version: Number) -> Result<(), String> {
    check_sizes(mpi, CLASSES)?;
    check_sizes(mpi, V::CLASSES)?;
    let (services, own, byte) = (Services::find(mpi)?, V::find(mpi)?, btl::Own::find(mpi)?);
    services.install(V::RELAY);
    byte.install();
    V::install(own, version);
    components::fill::<V>();
    Ok(())
}

/// Whether hawser has run under the release that a version text names; `None` for a version that is
/// refused.
pub fn was_tried(text: &str) -> Option<bool> {
    let (major, minor, release) = parse(text)?;
    let known = VERSIONS.iter().find(|known| known.number == (major, minor))?;
    Some(known.tried.contains(&release))
}

/// Compares the sizes that the host's class system states with the layouts that hawser was built
/// for. Debug builds and builds with other options differ here.
fn check_sizes(host: Loaded, classes: &[(&CStr, usize)]) -> Result<(), String> {
    for (name, expected) in classes {
        let class = host.symbol(name)?.cast::<sys::Class>();
        let class = class.as_ptr();
        // SAFETY: a class of the host; the layout of classes is the same in all release builds,
        // and in debug builds this field lies within the structure too.
        let stated = unsafe { (*class).size };
        if stated != *expected {
            return Err(format!(
                "its {} says {stated} bytes where hawser expects {expected}: a debug build, or one with other options",
                name.to_string_lossy()
            ));
        }
    }
    Ok(())
}

/// Major, minor and release number at the start of a version text such as `5.0.7` or `4.1.4rc1`.
fn parse(text: &str) -> Option<Number> {
    let mut parts = text.trim_start_matches('v').splitn(3, '.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().ok()
    });
    Some((parts.next()??, parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_texts_are_read() {
        assert_eq!(parse("4.1.4"), Some((4, 1, 4)));
        assert_eq!(parse("5.0.7rc2"), Some((5, 0, 7)));
        assert_eq!(parse("v6.1.0a1"), Some((6, 1, 0)));
        assert_eq!((parse("5.0"), parse("five"), parse("")), (None, None, None));
    }

    #[test]
    fn versions_are_known_by_number_and_tried_by_release() {
        assert_eq!(was_tried("4.1.4"), Some(true));
        assert_eq!(was_tried("5.0.7rc1"), Some(true));
        assert_eq!(was_tried("4.1.99"), Some(false));
        assert_eq!((was_tried("4.0.7"), was_tried("6.0.0"), was_tried("")), (None, None, None));
    }

    #[test]
    fn a_process_without_a_host_is_left_alone() {
        assert_eq!(recognise(), Ok(()));
    }
}
