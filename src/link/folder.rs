//! [`Folder`]: a place that the processes of a job on one node share and nobody else enters, and
//! [`Held`], a file in it by which others see whether its process lives.
//!
//! The folder is this user's, of mode 0700, and no symbolic link. It is used by its descriptor: whatever
//! becomes of its name, it stays the same folder.
//!
//! A process that lives holds a lock on its file (`F_SETLK` of `fcntl(2)`). Such a lock ends with the
//! process however it ends, also while children hold its descriptors, and not while it is stopped. It
//! ends too when the process closes *any* descriptor of that file: nobody may look at a file of its own.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use std::os::fd::AsRawFd;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Flock, FlockOffsetType, FlockType};

/// Bits of a mode that let others in.
const OTHERS: u32 = 0o077;

/// Name of the lock under which processes come and go.
const DOOR: &str = "door";

/// Where files are found by descriptors, `proc(5)`.
pub(super) const DESCRIPTORS: &str = "/proc/self/fd";

/// How often a folder is made again that those who leave it have just removed.
const TRIES: u32 = 100;

/// A folder of this user's.
pub struct Folder(OwnedFd);

/// A file that says that this process lives. It stays when that is over, unlocked.
pub struct Held(#[expect(dead_code, reason = "what it is open for is its lock")] OwnedFd);

/// While it lives, no other process has one.
pub struct Turn(#[expect(dead_code, reason = "what it is open for is its lock")] OwnedFd);

impl Folder {
    /// The folder of this path, made if there is none.
    ///
    /// # Errors
    /// When it cannot be, or is not this user's alone, or its file system has no locks.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::enter(path, |_| Ok(())).map(|(folder, ())| folder)
    }

    /// The same, and a name in it that is [held](Self::hold) before anybody who leaves can think that nobody is
    /// there any more.
    ///
    /// # Errors
    /// The same, and those of [`hold`](Self::hold).
    pub fn join(path: &Path, name: &str) -> io::Result<(Self, Held)> {
        Self::enter(path, |folder| folder.hold(name))
    }

    fn enter<T>(path: &Path, begin: impl Fn(&Self) -> io::Result<T>) -> io::Result<(Self, T)> {
        let mut result = Err(io::ErrorKind::NotFound.into());
        for _ in 0..TRIES {
            result = Self::find(path).and_then(|folder| {
                let turn = folder.turn()?;
                let begun = begin(&folder)?;
                drop(turn);
                Ok((folder, begun))
            });
            // Whoever was the last may have removed it in between, and nothing is made in it any more.
            if !result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                break;
            }
        }
        result
    }

    fn find(path: &Path) -> io::Result<Self> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&folder)?;
        if stat.st_uid != user() || stat.st_mode & OTHERS != 0 {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "others can enter it"));
        }
        Ok(Self(folder))
    }

    /// A path of a name in it that is short, and leads into this folder whatever its own name is now.
    pub fn path_of(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("{DESCRIPTORS}/{}/{name}", self.0.as_raw_fd()))
    }

    fn file(&self, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)
    }

    /// Waits for its turn among the processes that share the folder. Of threads of one process, one at a
    /// time may.
    ///
    /// # Errors
    /// When the file system has no locks; `NotFound` when the folder has been removed.
    pub fn turn(&self) -> io::Result<Turn> {
        loop {
            if let Some(turn) = self.pass(FlockOperation::LockExclusive)? {
                return Ok(turn);
            }
        }
    }

    /// The same without waiting; `None` while another process has its turn.
    ///
    /// # Errors
    /// The same.
    pub fn turn_now(&self) -> io::Result<Option<Turn>> {
        match self.pass(FlockOperation::NonBlockingLockExclusive) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            turn => turn,
        }
    }

    /// A lock on the door; `None` where it is the door no more, or the wait was interrupted.
    fn pass(&self, how: FlockOperation) -> io::Result<Option<Turn>> {
        let door = self.file(DOOR, OFlags::RDWR | OFlags::CREATE)?;
        match rustix::fs::fcntl_lock(&door, how) {
            Ok(()) => {}
            Err(Errno::INTR) => return Ok(None),
            // Of the two codes that there are for it, `fcntl(2)` gives either.
            Err(Errno::ACCESS | Errno::AGAIN) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => return Err(error.into()),
        }
        // While it was waited for, the last of the others may have removed it.
        let is_door = rustix::fs::fstat(&door)?.st_nlink > 0;
        Ok(is_door.then_some(Turn(door)))
    }

    /// Says by a file of this name that this process lives.
    ///
    /// # Errors
    /// When there is such a file, or the file system has no room.
    pub fn hold(&self, name: &str) -> io::Result<Held> {
        let file = self.file(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        // A file without the lock would say that its process has ended.
        rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)
            .inspect_err(|_| self.remove(name))?;
        Ok(Held(file))
    }

    /// Whether another process lives that said so by a file of this name; `None` when none ever did.
    /// Not for names that this process [holds](Self::hold).
    pub fn is_held(&self, name: &str) -> Option<bool> {
        self.lock_on(name).map(|lock| lock.is_some())
    }

    /// Whether the process that holds this name is stopped, by a signal or a debugger. Not so of one that is not seen from here,
    /// in another container.
    pub fn is_stopped(&self, name: &str) -> bool {
        let holder = self.lock_on(name).flatten().and_then(|lock| lock.pid);
        let stat =
            holder.and_then(|pid| std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok());
        // Behind its name, which may have any characters.
        stat.is_some_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't'])))
    }

    /// The lock that another process has on a file of this name; `None` when there is no file.
    fn lock_on(&self, name: &str) -> Option<Option<Flock>> {
        let file = self.file(name, OFlags::RDWR).ok()?;
        let whole = Flock {
            start: 0,
            length: 0,
            pid: None,
            typ: FlockType::WriteLock,
            offset_type: FlockOffsetType::Set,
        };
        rustix::process::fcntl_getlk(&file, &whole).ok()
    }

    /// The names of all that is in it.
    pub fn names(&self) -> Vec<String> {
        let Ok(entries) = rustix::fs::Dir::read_from(&self.0) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
        names.filter(|name| name != "." && name != "..").collect()
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&self.0, name, AtFlags::empty());
    }

    /// Removes the folder, of this path, and all that is in it. Nobody may use it any more; who has its turn
    /// now lets go of it.
    pub fn remove_all(self, path: &Path) {
        self.names().iter().for_each(|name| self.remove(name));
        let _ = std::fs::remove_dir(path);
    }
}

/// The number of this process's user.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Writes a file anew, in the place of the old one if there is one: of a symbolic link it takes the
/// place, and follows it nowhere.
///
/// # Errors
/// Of `open(2)`, `write(2)`, `rename(2)`.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{:x}.new", super::random()?));
    let new = path.with_file_name(name);
    let mut file = File::create_new(&new)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&new, path));
    written.inspect_err(|_| _ = std::fs::remove_file(&new))
}

/// A folder of a test's own, removed when the test is over.
#[cfg(test)]
pub(crate) struct Scratch(Folder, PathBuf);

#[cfg(test)]
impl std::ops::Deref for Scratch {
    type Target = Folder;

    fn deref(&self) -> &Folder {
        &self.0
    }
}

#[cfg(test)]
impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

/// Such a folder.
#[cfg(test)]
pub(crate) fn scratch(name: &str) -> Scratch {
    let path = std::env::temp_dir().join(format!("hawser-{name}-{:x}", super::random().expect("a number")));
    Scratch(Folder::open(&path).expect("a folder"), path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::{Child, Command, Stdio};

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("hawser-{name}-{:x}", crate::link::random().expect("a number")))
    }

    #[test]
    fn only_a_folder_that_nobody_else_enters_is_one() {
        let home = path("folders");
        std::fs::create_dir(&home).expect("a folder");
        Folder::open(&home.join("new")).expect("made");
        Folder::open(&home.join("new")).expect("as it was made");
        std::fs::create_dir(home.join("open")).expect("a folder");
        std::fs::set_permissions(home.join("open"), PermissionsExt::from_mode(0o755)).expect("a mode");
        assert!(Folder::open(&home.join("open")).is_err());
        symlink(home.join("new"), home.join("link")).expect("a link");
        assert!(Folder::open(&home.join("link")).is_err(), "a link is not followed");
        std::fs::write(home.join("file"), "").expect("a file");
        assert!(Folder::open(&home.join("file")).is_err());
        // Another user's: only a privileged test can make one.
        if std::os::unix::fs::chown(home.join("new"), Some(65_534), None).is_ok() {
            assert!(Folder::open(&home.join("new")).is_err());
        }
        std::fs::remove_dir_all(&home).expect("removed");
    }

    #[test]
    fn a_name_is_held_once() {
        let folder = scratch("held");
        let _held = folder.hold("it").expect("held");
        assert!(folder.hold("it").is_err());
        assert_eq!(folder.is_held("other"), None);
        folder.remove("it");
        assert_eq!(folder.names(), [DOOR]);
    }

    /// Not a test, but what a process does that `helper` starts: it holds a name until it is killed, and
    /// has a child that holds all its descriptors.
    #[test]
    #[ignore = "a part of another test"]
    fn holds_until_it_ends() {
        let Some(path) = std::env::var_os("HAWSER_TEST_FOLDER") else { return };
        let folder = Folder::open(Path::new(&path)).expect("the folder");
        let _held = folder.hold("it").expect("held");
        println!("\nholds");
        let mut line = String::new();
        let _ = std::io::stdin().read_line(&mut line);
    }

    fn helper(path: &Path) -> Child {
        let this = std::env::current_exe().expect("this program");
        Command::new(this)
            .args(["--exact", "link::folder::tests::holds_until_it_ends", "--ignored", "--nocapture"])
            .env("HAWSER_TEST_FOLDER", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process")
    }

    #[test]
    fn a_process_is_seen_to_live_while_it_lives_stopped_or_not() {
        let path = path("lives");
        let folder = Folder::open(&path).expect("a folder");
        assert_eq!(folder.is_held("it"), None);
        let mut process = helper(&path);
        let out = std::io::BufReader::new(process.stdout.take().expect("its output"));
        let holds = std::io::BufRead::lines(out).map_while(Result::ok).any(|line| line == "holds");
        assert!(holds, "it never holds");
        assert_eq!(folder.is_held("it"), Some(true));
        assert_eq!(folder.is_held("it"), Some(true), "to look changes nothing");
        assert!(!folder.is_stopped("it") && !folder.is_stopped("nobody"));
        let pid = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
        assert_eq!(folder.is_held("it"), Some(true));
        // What was sent has not happened yet.
        while !folder.is_stopped("it") {
            std::thread::yield_now();
        }
        process.kill().expect("killed");
        process.wait().expect("ended");
        assert_eq!(folder.is_held("it"), Some(false));
        folder.remove_all(&path);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_is_replaced_and_a_link_not_followed() {
        let home = path("replace");
        std::fs::create_dir(&home).expect("a folder");
        let (map, precious) = (home.join("map"), home.join("precious"));
        replace(&map, "one").expect("written");
        replace(&map, "two").expect("written again");
        assert_eq!(std::fs::read_to_string(&map).expect("there"), "two");
        std::fs::write(&precious, "keep").expect("a file");
        std::fs::remove_file(&map).expect("removed");
        symlink(&precious, &map).expect("a link");
        replace(&map, "three").expect("written");
        assert_eq!(std::fs::read_to_string(&precious).expect("there"), "keep");
        assert_eq!(std::fs::read_to_string(&map).expect("there"), "three");
        assert!(replace(&home.join("none/map"), "four").is_err());
        assert_eq!(std::fs::read_dir(&home).expect("a list").count(), 2, "nothing else is left");
        std::fs::remove_dir_all(&home).expect("removed");
    }
}
