//! What the host does with the component before it has a module, and what all modules share.

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use super::BtlAbi;
use super::parcel::{LONGEST, Pool};
use super::shell::{Handle, Shell, title};
use super::sys::{ActiveMessage, BtlComponent, BtlModule, BtlProc};
use super::{entry, map, params};
use crate::btl::usnic::agent::{Node, Watch};
use crate::btl::usnic::{self, Absent, Cause, Links, Module, Named, Statistics, Trouble};
use crate::config;
use crate::host::component::{hawser_version, text_into};
use crate::host::guard::{guard, guard_early};
use crate::host::services::{say, show_help};
use crate::host::symbols::symbols;
use crate::sync::EngineCell;
use crate::wire::card;
use crate::wire::probe::Process;

/// The key of the business card. Not the C component's, which publishes another record.
pub(super) const KEY: &CStr = c"hawser.btl.usnic";

symbols! {
    /// What only byte transports need of the host, the same in every version.
    pub(in crate::host) struct Own {
        triggers: *const ActiveMessage = c"mca_btl_base_active_message_trigger",
        bitmap_set: unsafe extern "C" fn(*mut c_void, c_int) -> c_int = c"opal_bitmap_set_bit",
        proc_local: unsafe extern "C" fn() -> *const BtlProc = c"opal_proc_local_get",
        proc_for_name: *const unsafe extern "C" fn(u64) -> *mut BtlProc = c"opal_proc_for_name",
        flag_names: *const *mut c_void = c"mca_btl_base_flag_enum",
    }
}

static OWN: OnceLock<Own> = OnceLock::new();

impl Own {
    pub(in crate::host) fn install(self) {
        let _ = OWN.set(self);
    }

    pub(super) fn host() -> &'static Self {
        OWN.get().expect("entry points run only after a host was recognised")
    }

    /// The host's names of what a byte transport can do.
    pub(super) fn flag_names() -> *mut c_void {
        // SAFETY: a variable of the host, filled in before any component registers parameters.
        unsafe { Self::host().flag_names.read() }
    }

    /// The name of this process: its job in the lower half, its rank in the upper.
    pub(super) fn own_name() -> u64 {
        // SAFETY: set before any component is opened.
        let proc = unsafe { (Self::host().proc_local)() };
        // SAFETY: this process, always alive.
        unsafe { name_of(proc) }
    }

    /// The name of the host that this process runs on.
    pub(super) fn own_host<A: BtlAbi>() -> String {
        // SAFETY: set before any component is opened.
        let proc = unsafe { (Self::host().proc_local)() };
        // SAFETY: this process, always alive.
        unsafe { A::host_name(proc) }.unwrap_or_else(|| "this host".to_owned())
    }

    /// The host's object for a process, made if there is none yet; null for a name of nobody.
    pub(super) fn proc_for_name(name: u64) -> *mut BtlProc {
        // SAFETY: a variable of the host that always holds a function once MPI is up.
        let find = unsafe { Self::host().proc_for_name.read() };
        // SAFETY: the name is passed by value as the host passes it, in one register.
        unsafe { find(name) }
    }
}

/// The name of a process: its job in the lower half, its rank in the upper.
///
/// # Safety
/// A live process of the host's.
pub(super) unsafe fn name_of(proc: *const BtlProc) -> u64 {
    // SAFETY: the promise above.
    let BtlProc { jobid, vpid, .. } = unsafe { &*proc };
    u64::from(*jobid) | u64::from(*vpid) << 32
}

/// The modules that `progress` advances, and their addresses in the order of the card.
static MODULES: AtomicPtr<Vec<*mut BtlModule>> = AtomicPtr::new(ptr::null_mut());

/// Puts a list in the place of the old one, which is not freed: a progress of another thread may
/// still read it. There is one at the beginning and one for each module that ends.
fn install(modules: Vec<*mut BtlModule>) {
    MODULES.store(Box::into_raw(Box::new(modules)), Ordering::Release);
}

pub(super) fn modules() -> &'static [*mut BtlModule] {
    let list = MODULES.load(Ordering::Acquire);
    // SAFETY: null, or a list that is never freed.
    unsafe { list.as_ref() }.map_or(&[], Vec::as_slice)
}

/// Takes a module out of what is advanced.
pub(super) fn retire(module: *mut BtlModule) {
    install(modules().iter().copied().filter(|&other| other != module).collect());
}

unsafe extern "C" fn progress<A: BtlAbi>() -> c_int {
    guard!("btl_progress", {
        let mut count = 0;
        for &module in modules() {
            // SAFETY: a live module of this version.
            let shell = unsafe { &*module.cast::<Shell<A>>() };
            count += shell.core.progress(shell);
        }
        count as c_int
    })
}

unsafe extern "C" fn register() -> c_int {
    guard_early("btl_usnic register", 0, params::register)
}

unsafe extern "C" fn open() -> c_int {
    0
}

/// `opal_component_init`: the modules, in memory that the host frees.
unsafe extern "C" fn init<A: BtlAbi>(
    count: *mut c_int,
    _progress_threads: bool,
    threads: bool,
) -> *mut *mut BtlModule {
    guard_early("btl_usnic init", ptr::null_mut(), || {
        // SAFETY: the host's variable.
        unsafe { count.write(0) };
        let (made, names) = match make::<A>(threads || A::threads()) {
            Ok(made) => made,
            Err(Declined::Silently(why)) => {
                if params::is_verbose() {
                    say(&format!("btl:usnic: not used: {why}"));
                }
                return ptr::null_mut();
            }
            Err(Declined::Aloud(why)) => {
                show_help("btl not used", &format!("btl_usnic: {why}"));
                return ptr::null_mut();
            }
            Err(Declined::Troubled(trouble)) => {
                tell(&trouble);
                return ptr::null_mut();
            }
            Err(Declined::Failed(why)) => {
                show_help("internal error during init", &format!("btl_usnic: {why}"));
                return ptr::null_mut();
            }
        };
        // SAFETY: plain memory for as many pointers as there are modules.
        let list = unsafe { libc::malloc(size_of::<*mut BtlModule>() * made.len()) }.cast::<*mut BtlModule>();
        if list.is_null() {
            return ptr::null_mut();
        }
        for (index, &module) in made.iter().enumerate() {
            // SAFETY: inside the list.
            let slot = unsafe { list.add(index) };
            // SAFETY: as above.
            unsafe { slot.write(module) };
        }
        // SAFETY: the host's variable.
        unsafe { count.write(made.len() as c_int) };
        install(made);
        super::pvars::register::<A>(&names);
        list
    })
}

/// Why there is no module.
enum Declined {
    /// Nobody asked for one.
    Silently(String),
    /// A parameter has a wrong value.
    Aloud(String),
    /// No link can be opened.
    Troubled(Trouble),
    /// Something went wrong that should not.
    Failed(String),
}

/// Tells the user why an interface, or all of them, is not used.
fn tell(trouble: &Trouble) {
    let line = format!("btl_usnic: {}", trouble.line);
    match trouble.cause {
        Cause::Lists => show_help("invalid if_inexclude", &line),
        Cause::Down => show_help("device present but not up", &line),
        Cause::Resources => show_help("not enough usnic resources", &line),
        Cause::Libfabric => show_help("libfabric API failed", &line),
    }
}

fn make<A: BtlAbi>(threads: bool) -> Result<(Vec<*mut BtlModule>, Vec<String>), Declined> {
    let asked = params::is_asked_for();
    let config = params::config().map_err(Declined::Aloud)?;
    let Links { open: links, troubles } = usnic::links(&config, asked).map_err(|absent| match absent {
        Absent::NotWanted => Declined::Silently(
            "there is no usNIC device, and `--mca btl usnic,self` was not asked for".to_owned(),
        ),
        Absent::Because(trouble) => Declined::Troubled(trouble),
    })?;
    troubles.iter().for_each(tell);
    // The loopback interface is no rail beside others.
    let rails = links.iter().filter(|link| !link.is_loopback).count();
    let names: Vec<String> = links.iter().map(|link| link.name.clone()).collect();
    let far = if config.by_distance { usnic::farther(&links) } else { vec![false; links.len()] };
    let name = Own::own_name();
    let mut cores = Vec::new();
    let (key, _) = secrets().map_err(|why| Declined::Failed(why.to_owned()))?;
    let node = Node::open(name as u32, key);
    if let Some(why) = node.trouble() {
        show_help("no agent", &format!("btl_usnic: there is no agent here: {why}"));
    }
    for Named { name: interface, address, link, .. } in links {
        let (key, incarnation) = secrets().map_err(|why| Declined::Failed(why.to_owned()))?;
        let process = Process { name, incarnation };
        let watch = address.map_or_else(Watch::blind, |address| {
            Watch::open(&node, process, (&interface, address), config.base_port, config.check.clone())
        });
        cores.push(Module::open(link, name, incarnation, key, &config.engine, watch, threads));
    }
    let addresses: Vec<_> = cores.iter().map(|core| core.address().clone()).collect();
    A::publish_under(KEY, &card::write(&addresses)).map_err(|error| {
        Declined::Failed(format!("its addresses cannot be published to the job ({error})"))
    })?;
    map::begin::<A>(config.map.as_deref());
    let modules = cores.into_iter().zip(&names).zip(far).map(|((core, device), far)| {
        if !config.statistics.is_zero() {
            let title = format!("{}, {device}", title(name));
            core.print(Statistics::new(title, config.statistics, config.relative));
        }
        let place = Place { rails, far, threads };
        wrap::<A>(core, device.clone(), &config, &place)
    });
    Ok((modules.collect(), names))
}

/// A key and an incarnation that nobody can guess.
fn secrets() -> Result<([u8; 16], u32), &'static str> {
    let mut bytes = [0_u8; 20];
    usnic::fill_random(&mut bytes).map_err(|_| "the system gives no random numbers (getrandom)")?;
    let (mut key, mut incarnation) = ([0; 16], [0; 4]);
    key.copy_from_slice(&bytes[..16]);
    incarnation.copy_from_slice(&bytes[16..]);
    Ok((key, u32::from_le_bytes(incarnation) | 1))
}

/// A module among the others.
struct Place {
    /// Modules on other interfaces than the loopback interface.
    rails: usize,
    /// Its device is farther from the processor than others.
    far: bool,
    /// Whether several threads call.
    threads: bool,
}

fn wrap<A: BtlAbi>(core: Module, device: String, config: &config::Btl, place: &Place) -> *mut BtlModule {
    let facts = core.facts();
    let usual = if place.rails > 1 { 25 << 10 } else { 150 << 10 };
    let eager = config.eager_limit.unwrap_or(usual).min(LONGEST);
    let threads = place.threads;
    // SAFETY: plain numbers, pointers and optional functions; zero is a value of each.
    let mut table: BtlModule = unsafe { std::mem::zeroed() };
    table.component = component_address();
    table.eager_limit = eager;
    table.rndv_eager_limit = config.rndv_eager_limit;
    table.max_send_size = config.table.max_send_size.map_or(eager, |most| most.min(LONGEST));
    table.rdma_pipeline_send_length = eager;
    table.rdma_pipeline_frag_size = usize::MAX;
    table.min_rdma_pipeline_size = 0;
    table.exclusivity = config.table.exclusivity;
    table.latency = config.table.latency.saturating_add(u32::from(place.far));
    table.bandwidth = config.table.bandwidth.unwrap_or(facts.speed);
    table.flags = config.table.flags;
    table.registration_handle_size = size_of::<Handle>();
    table.get_limit = usize::MAX >> 1;
    table.put_limit = usize::MAX >> 1;
    table.get_local_registration_threshold = usize::MAX;
    table.put_local_registration_threshold = usize::MAX;
    table.add_procs = Some(entry::add_procs::<A>);
    table.del_procs = Some(entry::del_procs::<A>);
    table.finalize = Some(entry::finalize::<A>);
    table.alloc = Some(entry::alloc::<A>);
    table.free = Some(entry::free::<A>);
    table.prepare_src = Some(entry::prepare_src::<A>);
    table.send = Some(entry::send::<A>);
    table.sendi = Some(entry::sendi::<A>);
    table.put = Some(entry::put::<A>);
    table.get = Some(entry::get::<A>);
    table.dump = Some(entry::dump::<A>);
    table.register_mem = Some(entry::register_mem::<A>);
    table.deregister_mem = Some(entry::deregister_mem::<A>);
    table.register_error = Some(entry::register_error::<A>);
    table.flush = Some(entry::flush::<A>);
    let shell = Shell::<A> {
        table,
        core,
        device,
        pool: Pool::new(threads),
        procs: EngineCell::new(std::collections::HashMap::new(), threads),
        failed: AtomicPtr::new(ptr::null_mut()),
        told: EngineCell::new(std::collections::HashSet::new(), threads),
        leaving: AtomicBool::new(false),
        transfers: AtomicUsize::new(0),
        copy_limit: config.copy_limit,
        abi: PhantomData,
    };
    Box::into_raw(Box::new(shell)).cast()
}

fn component_address() -> *const BtlComponent {
    (&raw const crate::host::construct::mca_btl_usnic_component).cast()
}

unsafe extern "C" fn close() -> c_int {
    0
}

/// The component structure of a version.
pub(in crate::host) fn component<A: BtlAbi>() -> BtlComponent {
    // SAFETY: plain numbers, padding and optional functions; zero is a value of each.
    let mut component: BtlComponent = unsafe { std::mem::zeroed() };
    let (major, minor, release) = A::version();
    let base = &mut component.base;
    base.mca_version = [2, 1, 0];
    text_into(&mut base.project, "opal");
    base.project_version = [major, minor, release];
    text_into(&mut base.type_name, "btl");
    base.type_version = A::TYPE_VERSION;
    text_into(&mut base.name, "usnic");
    base.version = hawser_version();
    base.open = Some(open);
    base.close = Some(close);
    base.register = Some(register);
    component.init = Some(init::<A>);
    component.progress = Some(progress::<A>);
    component
}
