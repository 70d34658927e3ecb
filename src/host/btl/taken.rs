//! Which modules the host has taken, of whatever component.

use std::ffi::CStr;
use std::mem::MaybeUninit;

use super::services::Own;
use super::sys::{BtlComponent, BtlSelected};
use crate::host::sys::List;

/// Modules that are looked at, at most.
const MOST: usize = 4096;

/// Whether the host has taken a module of a component of this name that another file has brought. For who is called by the host
/// after it has asked all components.
pub(super) fn has_another(component: &CStr) -> bool {
    // SAFETY: the host's list, which it changes only while it opens and closes components, and it calls us meanwhile.
    let taken = unsafe { components(Own::modules()) };
    taken
        .into_iter()
        .any(|(name, origin)| name == component.to_bytes() && origin != origin_of(&raw const HERE))
}

static HERE: u8 = 0;

/// Of each module in a list, the name of its component, and where the file begins that this is of.
///
/// # Safety
/// A list of the host's, which nobody changes meanwhile.
unsafe fn components(list: *mut List) -> Vec<(Vec<u8>, usize)> {
    let end = List::end(list);
    let mut found = Vec::new();
    // SAFETY: what a list ends with is in it.
    let mut item = unsafe { (*end).next };
    while item != end && !item.is_null() && found.len() < MOST {
        let selected = item.cast::<BtlSelected>();
        // SAFETY: an item of this list, which begins with its place in it.
        let component = unsafe { (*selected).component };
        found.push((name(component), origin_of(component)));
        // SAFETY: an item of this list.
        item = unsafe { (*item).next };
    }
    found
}

/// What a component is called.
fn name(component: *const BtlComponent) -> Vec<u8> {
    if component.is_null() {
        return Vec::new();
    }
    // SAFETY: of a module that the host has taken, so that its component is loaded; the name is written once.
    let name = unsafe { (*component).base.name };
    name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

/// Where the file begins that this address is of; 0: of none.
fn origin_of<T>(address: *const T) -> usize {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked about; the callee writes what it finds.
    let code = unsafe { libc::dladdr(address.cast(), info.as_mut_ptr()) };
    // SAFETY: plain addresses, 0 until they are written.
    let info = unsafe { info.assume_init() };
    if code == 0 { 0 } else { info.dli_fbase.addr() }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use crate::host::sys::{ListItem, Object};

    #[test]
    fn each_module_of_a_list_is_of_a_component_and_of_a_file() {
        static COMPONENT: BtlComponent = {
            let mut component = BtlComponent::EMPTY;
            component.base.name[0] = b'x';
            component
        };
        let mut one = BtlSelected {
            item: ListItem::beside(ptr::null_mut()),
            component: &raw const COMPONENT,
            module: ptr::null_mut(),
        };
        let mut list = List { object: Object::EMPTY, sentinel: ListItem::beside(ptr::null_mut()), length: 1 };
        let all = &raw mut list;
        // SAFETY: a list on this stack, of which there is no reference.
        unsafe { (*all).sentinel = ListItem::beside((&raw mut one.item).cast()) };
        // SAFETY: an item on this stack, of which there is no reference.
        unsafe { (&raw mut one.item).write(ListItem::beside(List::end(all))) };
        // SAFETY: a list of one item.
        let found = unsafe { components(all) };
        assert_eq!(found, [(b"x".to_vec(), origin_of(&raw const HERE))]);
        assert_ne!(origin_of(&raw const HERE), origin_of(libc::getpid as *const u8));
        // SAFETY: as above.
        unsafe { (*all).sentinel = ListItem::beside(List::end(all)) };
        // SAFETY: an empty list.
        assert!(unsafe { components(all) }.is_empty());
    }
}
