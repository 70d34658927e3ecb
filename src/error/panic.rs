//! What a panic says, from where it happens to the guard at the entry from C that stops it.
//!
//! `host::guard` and `capi::guard` have the guards: what follows a panic differs, what is said of it does not.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where people get help: appended to every message about a bug.
const REPORT: &str = "please report this line, with what hawser-info prints, to where you have hawser from";

/// The name that all threads of ours begin with (`sync::spawn`'s callers give it).
const OURS: &str = "hawser";

thread_local! {
    /// What the last panic of this thread said, and where it was, from the hook to the guard.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The body of an entry; in the test build, a panic where `HAWSER_PROVOKE` names this entry.
#[inline(always)]
pub fn run<R>(component: &str, entry: &str, body: impl FnOnce() -> R) -> R {
    #[cfg(feature = "provoke")]
    provoke(component, entry);
    #[cfg(not(feature = "provoke"))]
    let _ = (component, entry);
    body()
}

#[cfg(feature = "provoke")]
fn provoke(component: &str, entry: &str) {
    static WANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let wanted = WANTED.get_or_init(|| std::env::var("HAWSER_PROVOKE").ok());
    let is_wanted = wanted.as_ref().is_some_and(|wanted| {
        wanted.strip_prefix(component).and_then(|rest| rest.strip_prefix(' ')) == Some(entry)
    });
    assert!(!is_wanted, "provoked");
}

/// Says which entry it was, what happened, what follows, and where to report it.
#[cold]
pub fn tell(component: &str, entry: &str, payload: Box<dyn Any + Send>, what_follows: &str) {
    let noted = LAST.try_with(|last| last.try_borrow_mut().ok().and_then(|mut last| last.take()));
    let what = noted.ok().flatten().unwrap_or_else(|| said(&*payload).to_owned());
    // A payload's destructor may be anything, another panic included.
    std::mem::forget(payload);
    super::say(format_args!("a bug: {component} {entry} panicked: {what}; {what_follows}; {REPORT}"));
}

/// The text of a panic.
fn said(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}

/// Keeps what a panic says for the guard, which says it once, instead of printing it at once. A
/// thread of our own has no guard: there the hook itself speaks.
fn note(info: &PanicHookInfo<'_>) {
    let place = info.location().map_or_else(String::new, |place| format!(" ({place})"));
    let what = format!("{}{place}", said(info.payload()));
    let thread = std::thread::current();
    if let Some(name) = thread.name().filter(|name| name.starts_with(OURS)) {
        super::say(format_args!("a bug: the thread {name} panicked: {what}; {REPORT}"));
    } else {
        let _ = LAST.try_with(|last| last.try_borrow_mut().map(|mut last| *last = Some(what)));
    }
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
        super::write_out(format!("{}\n", Backtrace::force_capture()).as_bytes());
    }
}

/// Panics speak through the guards, or are about to.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Lets panics speak through the guards. Called by the constructor, or before a component is opened without a
/// host. It is done once: the standard library has a lock for it, and a child of fork(2) would wait for ever for one that a
/// thread of its parent had.
#[expect(
    clippy::disallowed_methods,
    reason = "the shared library has a standard library of its own: its hook is nobody else's"
)]
pub fn install() {
    if !IS_INSTALLED.swap(true, Ordering::Relaxed) {
        std::panic::set_hook(Box::new(note));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    #[test]
    fn a_payload_of_any_type_has_a_text() {
        let texts = [catch_unwind(|| panic!("one")), catch_unwind(|| panic!("{}", 2))];
        let said: Vec<String> =
            texts.into_iter().map(|caught| super::said(&*caught.expect_err("a panic")).to_owned()).collect();
        assert_eq!(said, ["one", "2"]);
        let odd = catch_unwind(|| std::panic::panic_any(3)).expect_err("a panic");
        assert_eq!(super::said(&*odd), "without a text");
    }
}
