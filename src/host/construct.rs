//! The constructor: which host has loaded us?
//!
//! The exported component structures are zero until this has run. A recognised host gets them
//! filled in; on any doubt they stay zero and the host itself declines the component. The reason is
//! kept for `hawser_refusal`, and said aloud when the host says such things aloud.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};

use super::services::{Relay, Services};
use super::symbols::Loaded;
use super::{btl, v4_1, v5_0};

/// Room for a component structure of any version.
#[repr(C, align(16))]
pub struct Slot(UnsafeCell<[u8; Slot::SIZE]>);

impl Slot {
    const SIZE: usize = 512;

    const fn empty() -> Self {
        Self(UnsafeCell::new([0; Self::SIZE]))
    }

    fn fill<T>(&self, value: T) {
        const { assert!(size_of::<T>() <= Self::SIZE && align_of::<T>() <= 16) };
        // SAFETY: large enough and aligned; only the constructor writes, before the host looks.
        unsafe { self.0.get().cast::<T>().write(value) };
    }
}

// SAFETY: written once, by the constructor; afterwards it is the host's.
unsafe impl Sync for Slot {}

/// The OFI MTL in the place of the host's own.
#[unsafe(no_mangle)]
pub static mca_mtl_ofi_component: Slot = Slot::empty();

/// The OFI MTL beside the host's own.
#[unsafe(no_mangle)]
pub static mca_mtl_hawser_component: Slot = Slot::empty();

/// The usnic BTL, in the place of the host's own.
#[unsafe(no_mangle)]
pub static mca_btl_usnic_component: Slot = Slot::empty();

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
    match (version.0, version.1) {
        (4, 1) => {
            check_sizes(
                mpi,
                &[
                    (c"opal_object_t_class", size_of::<v4_1::sys::Object>()),
                    (c"opal_convertor_t_class", size_of::<v4_1::sys::Convertor>()),
                    (c"opal_datatype_t_class", size_of::<v4_1::sys::Datatype>()),
                    (c"ompi_communicator_t_class", size_of::<v4_1::sys::Communicator>()),
                    (c"ompi_group_t_class", size_of::<v4_1::sys::Group>()),
                    (c"ompi_proc_t_class", size_of::<v4_1::sys::Proc>()),
                    (c"ompi_request_t_class", size_of::<v4_1::sys::Request>()),
                    (c"ompi_message_t_class", size_of::<v4_1::sys::Message>()),
                ],
            )?;
            let (services, own, byte) = (Services::find(mpi)?, v4_1::Own::find(mpi)?, btl::Own::find(mpi)?);
            services.install(Relay::Own);
            byte.install();
            own.install(version);
            let (ofi, hawser) = v4_1::components();
            mca_mtl_ofi_component.fill(ofi);
            mca_mtl_hawser_component.fill(hawser);
            mca_btl_usnic_component.fill(btl::component::<v4_1::V4_1>());
            Ok(())
        }
        (5, 0) => {
            check_sizes(
                mpi,
                &[
                    (c"opal_object_t_class", size_of::<v5_0::sys::Object>()),
                    (c"opal_convertor_t_class", size_of::<v5_0::sys::Convertor>()),
                    (c"opal_datatype_t_class", size_of::<v5_0::sys::Datatype>()),
                    (c"ompi_communicator_t_class", size_of::<v5_0::sys::Communicator>()),
                    (c"ompi_group_t_class", size_of::<v5_0::sys::Group>()),
                    (c"ompi_proc_t_class", size_of::<v5_0::sys::Proc>()),
                    (c"ompi_request_t_class", size_of::<v5_0::sys::Request>()),
                    (c"ompi_message_t_class", size_of::<v5_0::sys::Message>()),
                ],
            )?;
            let (services, own, byte) = (Services::find(mpi)?, v5_0::Own::find(mpi)?, btl::Own::find(mpi)?);
            services.install(Relay::Launcher);
            byte.install();
            own.install(version);
            let (ofi, hawser) = v5_0::components();
            mca_mtl_ofi_component.fill(ofi);
            mca_mtl_hawser_component.fill(hawser);
            mca_btl_usnic_component.fill(btl::component::<v5_0::V5_0>());
            Ok(())
        }
        (major, minor) => Err(format!("it is version {major}.{minor}; hawser knows 4.1 and 5.0")),
    }
}

/// Compares the sizes that the host's class system states with the layouts that hawser was built
/// for. Debug builds and builds with other options differ here.
fn check_sizes(host: Loaded, classes: &[(&CStr, usize)]) -> Result<(), String> {
    for (name, expected) in classes {
        let class = host.symbol(name)?.cast::<v4_1::sys::Class>();
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
fn parse(text: &str) -> Option<(i32, i32, i32)> {
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
    fn a_process_without_a_host_is_left_alone() {
        assert_eq!(recognise(), Ok(()));
    }
}
