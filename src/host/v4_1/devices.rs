//! Buffers on devices, of which 4.1 knows nothing as distributions build it.
//!
//! Its own code would touch them with the processor, which ends a process by a signal. Unless the user says otherwise, its
//! copies are looked at ([`copy_hook`]) where the machine has devices, and the first that has one on a side ends the job
//! with a line; so do operations of a reduction, whatever is one-sided ([`one_sided`]), and messages over UCX ([`ucx`]).
//! With the parameter at 1 the driver makes the copies instead, also of elements that a message is cut in ([`elements`]),
//! and operations are staged; what is one-sided, files, external32 ([`external`]) and UCX are refused as before. With 0
//! nothing is looked at.
//!
//! A machine without the driver of devices has nothing changed.

use std::ffi::CStr;
use std::sync::atomic::{AtomicI32, Ordering};

use super::{elements, external, one_sided, ucx};
use crate::accelerator::{Accelerator, Cuda};
use crate::host::copy_hook::{self, Answer, refusal};
use crate::host::listing::{self, Words};
use crate::host::params::{self, Names, Owner, Parameter, Storage};

/// Nothing is looked at.
const NONE: i32 = 0;
/// The driver makes the copies.
const COPY: i32 = 1;
/// They are refused.
const REFUSE: i32 = 2;

/// What becomes of copies of device memory.
static COPY_HOOK: AtomicI32 = AtomicI32::new(REFUSE);

fn owner() -> Owner<'static> {
    Owner { project: c"ompi", framework: c"op", component: c"hawser" }
}

/// The parameter.
const WORDS: Words = Words {
    name: c"copy_hook",
    help: c"What becomes of buffers in the memory of CUDA devices, of which this Open MPI does not know. refuse: \
        the job ends with a line that says so, before the processor touches one; 1: the copies that Open MPI's own \
        libraries make are made by the driver; 0: nothing is looked at, and the processor touches what it is given",
    level: 4,
};

/// Its values by their names.
const ANSWERS: [(i32, &CStr); 3] = [(NONE, c"none"), (COPY, c"copy"), (REFUSE, c"refuse")];

/// What can be set of the component for operations.
pub(in crate::host) fn list() -> listing::Component {
    let values = ANSWERS.iter().map(|(_, name)| listing::text(name)).collect();
    let default = ANSWERS.iter().find(|(value, _)| *value == REFUSE).map(|(_, name)| listing::text(name));
    let setting = listing::Setting { values, only: Some("4.1"), ..WORDS.setting("int", default) };
    listing::Component {
        framework: "op",
        name: listing::text(owner().component),
        settings: vec![setting],
        counters: Vec::new(),
        predecessor: None,
        verify: None,
    }
}

/// Registers the parameter.
pub(in crate::host) fn register() {
    COPY_HOOK.store(REFUSE, Ordering::Relaxed);
    let names = Names::new(c"op_hawser_copy_hook", &ANSWERS);
    let parameter = Parameter {
        name: WORDS.name,
        help: WORDS.help,
        level: WORDS.level,
        settable: false,
        storage: Storage::Signed(&COPY_HOOK),
        names,
    };
    params::register(owner(), &parameter);
}

/// Begins, as the user wants it. Unless somebody has said so, nothing is looked at on a machine without devices.
pub(in crate::host) fn begin() {
    let answer = match COPY_HOOK.load(Ordering::Relaxed) {
        COPY => Answer::Copies,
        REFUSE => {
            let is_set = params::find(owner(), c"copy_hook").is_some_and(params::Registered::is_set);
            if !Cuda::the().is_there(is_set) {
                return;
            }
            Answer::Refuses
        }
        _ => return,
    };
    if !refusal::prepare() {
        return;
    }
    copy_hook::put_in_everywhere::<Cuda>(answer, || {
        ucx::put_in();
        if !copy_hook::is_refusing() {
            elements::put_in::<Cuda>();
        }
    });
    one_sided::begin();
    external::begin();
    if answer == Answer::Copies {
        send_by_copies();
    }
}

/// Ends: everything is as it was before.
pub(in crate::host) fn end() {
    external::end();
    one_sided::end();
    copy_hook::take_back();
    elements::take_back();
}

/// Has 4.1's transport of shared memory leave the kernel's copies between processes alone, unless the user says which:
/// the kernel cannot reach the memory of devices, and the host would say so for each message. Each process copies what
/// is asked of it instead: with no such copies at all, there would be no windows of memory that the program has.
fn send_by_copies() {
    let name = c"OMPI_MCA_btl_vader_single_copy_mechanism";
    // SAFETY: zero-ended texts; the host is in its initialisation, and reads this later, when it opens its transports.
    unsafe { libc::setenv(name.as_ptr(), c"emulated".as_ptr(), 0) };
}
