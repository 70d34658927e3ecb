//! The house law, as tests over the text of `src/`: which module may import which, where unsafe
//! code may stand, how long a file may be, what no file is called, and that the host's symbols are
//! never linked. A failure names file and line.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The top-level modules.
const MODULES: [&str; 18] = [
    "wire",
    "engine",
    "config",
    "error",
    "link",
    "sync",
    "shm",
    "gni",
    "fabric",
    "verbs",
    "cuda",
    "btl",
    "mtl",
    "accelerator",
    "host",
    "capi",
    "provider",
    "sim",
];

/// What lies beside `src`, for everything that does not begin with a dot.
const TOP_LEVEL: [&str; 19] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "Makefile",
    "README.md",
    "bench",
    "build.rs",
    "c-tests",
    "cbindgen.toml",
    "clippy.toml",
    "debian",
    "docs",
    "examples",
    "fuzz",
    "include",
    "pkgconfig",
    "rustfmt.toml",
];

/// What a transport may import.
const TRANSPORT: [&str; 10] =
    ["wire", "engine", "config", "error", "link", "sync", "shm", "fabric", "verbs", "cuda"];

/// What a module may import besides itself: imports run downward only, and nobody imports `host`,
/// `capi` or `provider`. `engine::Channel` is all that `link` uses of the engine.
fn allowed(module: &str) -> &'static [&'static str] {
    match module {
        "config" => &["error"],
        "shm" => &["link::Lent", "sync", "error"],
        "cuda" => &["link::Lent", "sync", "error"],
        "verbs" => &["link::Lent", "error"],
        "wire" | "sync" => &["config", "error"],
        "fabric" => &["sync", "config", "error"],
        "engine" => &["wire", "config", "error"],
        "link" => &["engine::Channel", "fabric", "sync", "error"],
        "gni" => &["wire", "link", "shm", "sync", "error"],
        "btl" | "mtl" | "accelerator" => &TRANSPORT,
        "host" => &["btl", "mtl", "accelerator", "config", "error", "fabric", "sync", "wire"],
        "sim" => &["wire", "engine", "link", "config", "error"],
        "capi" | "provider" => &[
            "wire",
            "engine",
            "config",
            "error",
            "link",
            "sync",
            "shm",
            "gni",
            "fabric",
            "verbs",
            "cuda",
            "btl",
            "mtl",
            "accelerator",
            "sim",
        ],
        // `error` is the bottom; a module that is not in the list has no rights.
        _ => &[],
    }
}

/// The files of `engine`, each of which may import only those before it: no circles.
const ENGINE: [&str; 60] = [
    "time",
    "slab",
    "wheel",
    "timers",
    "counters",
    "interface",
    "packet",
    "send_window",
    "receive_window",
    "coverage",
    "assembler",
    "memory",
    "operation",
    "landing",
    "copies",
    "reordering",
    "loss_detection",
    "rtt",
    "controller",
    "delay_bound",
    "pacer",
    "congestion",
    "path",
    "probe",
    "flow",
    "pending_ack",
    "ack_queue",
    "limits",
    "life",
    "send_half",
    "receive_half",
    "replay",
    "protection",
    "closed",
    "connection_ids",
    "endpoint",
    "clock",
    "lists",
    "pass",
    "core",
    "acks",
    "loss",
    "rdma",
    "transmit",
    "send",
    "withdraw",
    "fastpath",
    "receive",
    "run",
    "landed",
    "closing",
    "reset",
    "renewal",
    "parting",
    "sealed",
    "extents",
    // Engines of their own.
    "cm",
    "connect",
    "ipc",
    "matching",
];

/// Modules without unsafe code.
const SAFE: [&str; 6] = ["wire", "engine", "gni", "btl", "mtl", "accelerator"];

/// Modules that hold unsafe code; those with an empty place may, once they are there.
const UNSAFE: [&str; 10] =
    ["bin", "capi", "cuda", "fabric", "host", "link", "provider", "shm", "sync", "verbs"];

/// Longest file, in lines. The layouts of a host are one table and may be longer.
const LINES: usize = 700;

/// Names that say nothing.
const NAMELESS: [&str; 4] = ["util", "utils", "common", "commons"];

/// Prefixes of the host's symbols: they are looked up at run time, never linked.
const HOST_SYMBOLS: [&str; 6] = ["opal_", "ompi_", "mca_", "orte_", "PMIx_", "pmix_"];

/// One break of a rule.
struct Violation {
    path: PathBuf,
    line: usize,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.what)
    }
}

/// A token and the line it stands on.
#[derive(Clone, Copy)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// A source file: its path below the repository, its text, and the text without comments and
/// without the insides of literals.
struct Source {
    path: PathBuf,
    text: String,
    code: String,
}

impl Source {
    fn new(path: impl Into<PathBuf>, text: &str) -> Self {
        Self { path: path.into(), text: text.to_owned(), code: blank(text) }
    }

    /// The module path of the file: `["fabric", "info"]` for `src/fabric/info.rs`.
    fn module(&self) -> Vec<String> {
        let below = self.path.strip_prefix("src").unwrap_or(&self.path).with_extension("");
        let mut parts: Vec<String> = below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if parts.last().is_some_and(|last| last == "mod" || last == "lib") {
            parts.pop();
        }
        parts
    }

    /// Identifiers and punctuation. `::` is one token, other punctuation is single characters.
    fn tokens(&self) -> Vec<Token<'_>> {
        let code = &self.code;
        let mut tokens = Vec::new();
        let mut line = 1;
        let mut rest = code.char_indices().peekable();
        while let Some((start, c)) = rest.next() {
            let mut end = start + c.len_utf8();
            if c == '\n' {
                line += 1;
                continue;
            } else if c.is_whitespace() {
                continue;
            } else if is_word(c) {
                while let Some((_, next)) = rest.next_if(|(_, next)| is_word(*next)) {
                    end += next.len_utf8();
                }
            } else if c == ':' && rest.next_if(|(_, next)| *next == ':').is_some() {
                end += 1;
            }
            tokens.push(Token { text: &code[start..end], line });
        }
        tokens
    }

    fn violation(&self, line: usize, what: impl Into<String>) -> Violation {
        Violation { path: self.path.clone(), line, what: what.into() }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Replaces comments and the insides of string and character literals by blanks; lines stay.
fn blank(text: &str) -> String {
    let source: Vec<char> = text.chars().collect();
    let mut out: Vec<char> = Vec::with_capacity(source.len());
    let at = |i: usize| source.get(i).copied().unwrap_or('\0');
    let hide = |c: char| if c == '\n' { '\n' } else { ' ' };
    let mut i = 0;
    while i < source.len() {
        let c = source[i];
        let begins_word = i == 0 || !is_word(source[i - 1]);
        if c == '/' && at(i + 1) == '/' {
            while i < source.len() && source[i] != '\n' {
                out.push(' ');
                i += 1;
            }
        } else if c == '/' && at(i + 1) == '*' {
            let mut depth = 0;
            while i < source.len() {
                let step = match (source[i], at(i + 1)) {
                    ('/', '*') => {
                        depth += 1;
                        2
                    }
                    ('*', '/') => {
                        depth -= 1;
                        2
                    }
                    _ => 1,
                };
                for _ in 0..step {
                    out.push(hide(at(i)));
                    i += 1;
                }
                if depth == 0 {
                    break;
                }
            }
        } else if let Some((open, hashes)) = begins_word.then(|| raw_string(&source[i..])).flatten() {
            out.extend(std::iter::repeat_n(' ', open - 1));
            out.push('"');
            i += open;
            while i < source.len() {
                let ends = source[i] == '"' && (1..=hashes).all(|n| at(i + n) == '#');
                if ends {
                    break;
                }
                out.push(hide(source[i]));
                i += 1;
            }
            out.push('"');
            i += 1 + hashes;
        } else if c == '"' {
            out.push('"');
            i += 1;
            while i < source.len() && source[i] != '"' {
                let step = if source[i] == '\\' { 2 } else { 1 };
                for _ in 0..step {
                    out.push(hide(at(i)));
                    i += 1;
                }
            }
            out.push('"');
            i += 1;
        } else if c == '\'' && (at(i + 1) == '\\' || at(i + 2) == '\'') {
            // A character literal; a lifetime has neither an escape nor a closing quote here.
            i += if at(i + 1) == '\\' { 3 } else { 2 };
            while i < source.len() && source[i] != '\'' {
                i += 1;
            }
            i += 1;
            out.push(' ');
        } else {
            out.push(c);
            i += 1;
        }
    }
    out.into_iter().collect()
}

/// If a raw string begins here: the length of its opening up to and with the quote, and its hashes.
fn raw_string(source: &[char]) -> Option<(usize, usize)> {
    let prefix = source.iter().take_while(|c| matches!(c, 'b' | 'c' | 'r')).count();
    if prefix == 0 || prefix > 2 || source[prefix - 1] != 'r' {
        return None;
    }
    let hashes = source[prefix..].iter().take_while(|c| **c == '#').count();
    (source.get(prefix + hashes) == Some(&'"')).then_some((prefix + hashes + 1, hashes))
}

/// A path from the crate root as far as the law needs it: module, submodule, and the line.
type Import<'a> = (&'a str, Option<&'a str>, usize);

/// The paths that begin at `tokens[start]`, which is behind `crate::` or its equal: one path, or
/// those of a brace group.
fn paths<'a>(tokens: &[Token<'a>], start: usize) -> Vec<Import<'a>> {
    let segment = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let path = |at: usize| -> Option<Import<'a>> {
        let token = tokens.get(at)?;
        // A macro of the crate root belongs to no module.
        if !token.text.starts_with(is_word) || segment(at + 1) == "!" {
            return None;
        }
        let submodule =
            (segment(at + 1) == "::" && segment(at + 2).starts_with(is_word)).then(|| segment(at + 2));
        Some((token.text, submodule, token.line))
    };
    if segment(start) != "{" {
        return path(start).into_iter().collect();
    }
    let mut found = Vec::new();
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && matches!(token.text, "{" | ",") {
            found.extend(path(at + 1));
        }
    }
    found
}

/// Imports run downward only. Not for `lib.rs` and the programs in `src/bin`.
fn imports(source: &Source) -> Vec<Violation> {
    let module = source.module();
    let Some(own) = module.first().filter(|own| *own != "bin") else {
        return Vec::new();
    };
    let tokens = source.tokens();
    let mut violations = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let mut next = at + 1;
        let mut found = Vec::new();
        if tokens[at].text == "crate" && tokens.get(next).is_some_and(|t| t.text == "::") {
            found = paths(&tokens, next + 1);
        } else if tokens[at].text == "super" {
            // Enough `super` lead to the crate root as well; there only modules are of interest.
            let mut climbs = 1;
            while tokens.get(next).is_some_and(|t| t.text == "::")
                && tokens.get(next + 1).is_some_and(|t| t.text == "super")
            {
                climbs += 1;
                next += 2;
            }
            if climbs >= module.len() {
                found = paths(&tokens, next + 1);
                found.retain(|(first, ..)| MODULES.contains(first));
            }
        }
        for (first, second, line) in found {
            let right = first == own
                || allowed(own).iter().any(|entry| match entry.split_once("::") {
                    Some((module, submodule)) => module == first && Some(submodule) == second,
                    None => *entry == first,
                });
            if !right {
                let path = second.map_or(first.to_owned(), |second| format!("{first}::{second}"));
                violations.push(source.violation(line, format!("{own} may not import {path}")));
            }
        }
        at = next;
    }
    violations
}

/// The files of the engine import each other in one direction, and by name. What a file's own tests
/// import is theirs.
fn engine_order(source: &Source) -> Vec<Violation> {
    let module = source.module();
    let [folder, file] = &module[..] else { return Vec::new() };
    if folder != "engine" {
        return Vec::new();
    }
    let Some(place) = ENGINE.iter().position(|name| name == file) else {
        return vec![source.violation(1, format!("{file} has no place in the order of the engine's files"))];
    };
    let tokens = source.tokens();
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let mut violations = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.text == "mod" && text(at + 1) == "tests" {
            break;
        }
        let from_engine = match token.text {
            "super" if text(at + 1) == "::" => Some(at + 2),
            "crate" if text(at + 1) == "::" && text(at + 2) == "engine" => Some(at + 4),
            _ => None,
        };
        // `pub(super)` has no path.
        let Some(name) = from_engine.map(text) else { continue };
        if !ENGINE[..place].contains(&name) {
            violations.push(source.violation(token.line, format!("engine::{file} may not import {name}")));
        }
    }
    violations
}

/// The safe modules stay safe.
fn unsafe_code(source: &Source) -> Vec<Violation> {
    if !source.module().first().is_some_and(|own| SAFE.contains(&own.as_str())) {
        return Vec::new();
    }
    source
        .tokens()
        .iter()
        .filter(|token| token.text == "unsafe")
        .map(|token| source.violation(token.line, "unsafe code in a safe module"))
        .collect()
}

/// A long file splits along the seams that its opening comment names.
fn length(source: &Source) -> Vec<Violation> {
    let lines = source.text.lines().count();
    let is_layout = source.path.starts_with("src/host") && source.path.ends_with("sys.rs");
    if lines <= LINES || is_layout {
        return Vec::new();
    }
    vec![source.violation(LINES + 1, format!("{lines} lines: more than {LINES}"))]
}

/// Files and folders are named for what they hold.
fn names(source: &Source) -> Vec<Violation> {
    source
        .path
        .with_extension("")
        .iter()
        .filter(|part| NAMELESS.iter().any(|name| *part == *name))
        .map(|part| source.violation(1, format!("a name that says nothing: {}", part.to_string_lossy())))
        .collect()
}

/// Rust binds at load: a declared host symbol would keep the library from loading elsewhere.
fn host_symbols(source: &Source) -> Vec<Violation> {
    let tokens = source.tokens();
    let mut violations = Vec::new();
    let mut depth = 0;
    let mut block = false;
    for (at, token) in tokens.iter().enumerate() {
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
        if !block {
            // `extern { `, or the quotes of `extern "C" {`.
            block = token.text == "extern"
                && (text(at + 1) == "{"
                    || (text(at + 1) == "\"" && text(at + 2) == "\"" && text(at + 3) == "{"));
            continue;
        }
        match token.text {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                block = depth > 0;
            }
            "fn" | "static" => {
                let name = if text(at + 1) == "mut" { text(at + 2) } else { text(at + 1) };
                if HOST_SYMBOLS.iter().any(|prefix| name.starts_with(prefix)) {
                    violations.push(
                        source.violation(token.line, format!("{name} is declared: look it up at run time")),
                    );
                }
            }
            _ => {}
        }
    }
    violations
}

/// The Rust files below `src/`, in a fixed order.
fn sources() -> Vec<Source> {
    fn walk(root: &Path, folder: &Path, found: &mut Vec<Source>) {
        let mut entries: Vec<PathBuf> = fs::read_dir(folder)
            .expect("src is readable")
            .map(|entry| entry.expect("src is readable").path())
            .collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                walk(root, &path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("sources are UTF-8");
                found.push(Source::new(path.strip_prefix(root).unwrap_or(&path), &text));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    walk(root, &root.join("src"), &mut found);
    assert!(!found.is_empty(), "src holds no Rust file");
    found
}

/// Fails with every violation in the tree.
fn enforce(rule: fn(&Source) -> Vec<Violation>) {
    let report: Vec<String> =
        sources().iter().flat_map(rule).map(|violation| violation.to_string()).collect();
    assert!(report.is_empty(), "\n{}", report.join("\n"));
}

#[test]
fn imports_run_downward_only() {
    enforce(imports);
}

#[test]
fn the_files_of_the_engine_import_in_one_direction() {
    enforce(engine_order);
}

#[test]
fn the_order_rule_sees_every_form_of_path() {
    let of = |path, text| found(engine_order, path, text);
    assert_eq!(of("src/engine/rtt.rs", "use super::time::Instant;\nuse super::core::Engine;"), [2]);
    assert_eq!(of("src/engine/rtt.rs", "use super::*;\npub(super) fn f() {}"), [1]);
    assert_eq!(of("src/engine/rtt.rs", "use super::Instant;\nuse crate::engine::send::f;"), [1, 2]);
    assert_eq!(of("src/engine/rtt.rs", "use super::{time, core};\n"), [1]);
    assert_eq!(of("src/engine/rtt.rs", "mod tests {\n    use super::*;\n}"), [0; 0]);
    assert_eq!(of("src/engine/loss.rs", "fn f() {\n    super::send::g()\n}"), [2]);
    assert_eq!(of("src/engine/unheard_of.rs", ""), [1]);
    assert_eq!(of("src/engine/mod.rs", "pub use core::Engine;"), [0; 0]);
    assert_eq!(of("src/link/mod.rs", "use super::x;"), [0; 0]);
}

#[test]
fn safe_modules_hold_no_unsafe_code() {
    enforce(unsafe_code);
}

#[test]
fn the_folders_with_unsafe_code_are_those_that_contributors_are_told() {
    let has = |source: &Source| source.tokens().iter().any(|token| token.text == "unsafe");
    let mut found: Vec<String> = sources()
        .iter()
        .filter(|source| has(source))
        .filter_map(|source| source.module().first().cloned())
        .collect();
    found.dedup();
    assert_eq!(found, UNSAFE, "folders with unsafe code");
    let told = fs::read_to_string("CONTRIBUTING.md").expect("CONTRIBUTING.md");
    let (first, last) = (UNSAFE.split_last().expect("some").1, UNSAFE[UNSAFE.len() - 1]);
    let list = first.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let line = format!("Unsafe code only in {list} and `{last}`");
    assert!(told.contains(&line), "CONTRIBUTING.md does not say: {line}");
}

#[test]
fn no_file_is_longer_than_the_limit() {
    enforce(length);
}

/// What a program that crashed in the top level left there is not to be committed.
#[test]
fn nothing_else_lies_in_the_top_level() {
    for entry in fs::read_dir(env!("CARGO_MANIFEST_DIR")).expect("the top level") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name in UTF-8");
        let known = TOP_LEVEL.contains(&&*name) || ["src", "tests", "target"].contains(&&*name);
        assert!(known || name.starts_with('.'), "{name} lies in the top level");
    }
}

#[test]
fn no_file_is_called_util_or_common() {
    enforce(names);
}

#[test]
fn no_host_symbol_is_declared() {
    enforce(host_symbols);
}

/// The verbs component's thread makes connections, and never calls the host or registers memory: what it is made of names neither.
#[test]
fn the_connection_thread_knows_neither_the_host_nor_registrations() {
    let is_its = |source: &&Source| {
        let path = source.path.to_string_lossy();
        ["src/btl/verbs/connector.rs", "src/btl/verbs/office.rs"].iter().any(|one| path.ends_with(one))
            || path.contains("src/engine/cm/")
    };
    let all = sources();
    let own: Vec<&Source> = all.iter().filter(is_its).collect();
    assert!(own.len() > 10, "they have moved");
    for source in own {
        for token in source.tokens() {
            let is_known = ["Host", "Upcalls", "Mr", "Slab", "Registrations"].contains(&token.text);
            assert!(!is_known, "{}:{}: {}", source.path.display(), token.line, token.text);
        }
    }
}

#[test]
fn every_module_of_the_tree_is_in_the_law() {
    for source in sources() {
        let module = source.module();
        let Some(own) = module.first().filter(|own| *own != "bin") else {
            continue;
        };
        assert!(
            MODULES.contains(&own.as_str()),
            "{}:1: {own} is not in the list of modules",
            source.path.display(),
        );
    }
}

/// The lines at which a rule finds the text of a file at `path` wrong.
fn found(rule: fn(&Source) -> Vec<Violation>, path: &str, text: &str) -> Vec<usize> {
    rule(&Source::new(path, text)).iter().map(|violation| violation.line).collect()
}

#[test]
fn the_import_rule_sees_every_form_of_path() {
    let of = |path, text| found(imports, path, text);
    assert_eq!(of("src/wire/tag.rs", "use crate::error::Error;\nuse crate::engine::x;"), [2]);
    assert_eq!(of("src/mtl/ofi.rs", "fn f() {\n    crate::host::v4_1::g()\n}"), [2]);
    assert_eq!(of("src/mtl/mod.rs", "use crate::{\n    wire,\n    host::{a, btl},\n};"), [3]);
    assert_eq!(of("src/fabric/mod.rs", "use super::mtl::Matcher;"), [1]);
    assert_eq!(of("src/fabric/info.rs", "use super::{super::x, mtl};"), [0usize; 0]);
    assert_eq!(of("src/fabric/info.rs", "use super::super::{error, shm};"), [1]);
    assert_eq!(of("src/link/mod.rs", "use crate::engine::Channel;"), [0usize; 0]);
    assert_eq!(of("src/link/mod.rs", "use crate::engine::slab::Slab;"), [1]);
    assert_eq!(of("src/error.rs", "pub(crate) fn f() {}\nuse crate::error::A;"), [0usize; 0]);
    assert_eq!(of("src/sync/mod.rs", "// crate::host\nconst A: &str = \"crate::host\";"), [0; 0]);
    assert_eq!(of("src/host/v4_1/mod.rs", "use crate::host::shell;\nuse crate::mtl;"), [0; 0]);
    assert_eq!(of("src/lib.rs", "use crate::host::x;"), [0; 0]);
    assert_eq!(of("src/bin/hawser-info.rs", "use crate::host::x;"), [0; 0]);
}

#[test]
fn the_unsafe_rule_skips_comments_and_literals() {
    let of = |path, text| found(unsafe_code, path, text);
    assert_eq!(of("src/mtl/mod.rs", "//! unsafe\n/* unsafe /* */\n unsafe */"), [0; 0]);
    assert_eq!(of("src/mtl/mod.rs", "#![forbid(unsafe_code)]\nunsafe fn f() {}"), [2]);
    assert_eq!(of("src/wire/mod.rs", "const A: &str = r#\"\nunsafe \"#; unsafe {}"), [2]);
    assert_eq!(of("src/wire/mod.rs", "f('\"', '\\'', &'a x); unsafe {}"), [1]);
    assert_eq!(of("src/wire/mod.rs", "f(\"\\\" unsafe\\\\\");\nunsafe {}"), [2]);
    assert_eq!(of("src/fabric/mod.rs", "unsafe fn f() {}"), [0; 0]);
}

#[test]
fn the_length_rule_counts_lines() {
    assert_eq!(found(length, "src/mtl/mod.rs", &"\n".repeat(LINES)), [0; 0]);
    assert_eq!(found(length, "src/mtl/mod.rs", &"\n".repeat(LINES + 1)), [LINES + 1]);
    assert_eq!(found(length, "src/host/v4_1/sys.rs", &"\n".repeat(LINES + 1)), [0; 0]);
}

#[test]
fn the_name_rule_sees_files_and_folders() {
    assert_eq!(found(names, "src/mtl/util.rs", ""), [1]);
    assert_eq!(found(names, "src/common/mod.rs", ""), [1]);
    assert_eq!(found(names, "src/mtl/commonness.rs", ""), [0; 0]);
}

#[test]
fn the_symbol_rule_sees_declarations_only() {
    let of = |text| found(host_symbols, "src/host/mod.rs", text);
    assert_eq!(of("unsafe extern \"C\" {\n    fn strlen(s: *const u8) -> usize;\n}"), [0; 0]);
    assert_eq!(of("unsafe extern \"C\" {\n    fn opal_progress();\n}"), [2]);
    assert_eq!(of("extern {\n    static mut ompi_mpi_comm_world: u8;\n}"), [2]);
    assert_eq!(of("extern \"C\" fn opal_x() {}\nfn mca_y() {}"), [0; 0]);
}

/// What can be read through MPI_T and in lines of statistics is explained.
#[test]
fn the_manual_names_every_counter() {
    let manual = fs::read_to_string("docs/hawser-usnic.7").expect("the manual page");
    let words: Vec<&str> = manual.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    for (name, _) in hawser::engine::COUNTERS {
        assert!(words.contains(name), "docs/hawser-usnic.7 does not name {name}");
    }
}

/// The same of the other BTL, and of its parameters.
#[test]
fn the_manual_of_shared_memory_names_every_counter_and_parameter() {
    use hawser::btl::Transport;
    use hawser::btl::smcuda::Smcuda;
    let manual = fs::read_to_string("docs/hawser-smcuda.7").expect("the manual page");
    let words: Vec<&str> = manual.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    let counters = Smcuda::COUNTERS.iter().map(|(name, _)| (*name).to_owned());
    let parameters = Smcuda::parameters();
    let names = parameters.numbers.iter().map(|number| number.name);
    let names = names.chain(parameters.texts.iter().map(|text| text.name));
    let names = names.map(|name| name.to_string_lossy().into_owned());
    for name in counters.chain(names) {
        assert!(words.contains(&name.as_str()), "docs/hawser-smcuda.7 does not name {name}");
    }
}

/// A topic that the help file lacks would show the user a complaint about the file instead; one that
/// is never shown says what does not happen.
#[test]
fn the_help_file_has_every_topic_that_is_shown_and_no_other() {
    let help = fs::read_to_string("docs/help-hawser.txt").expect("the help file");
    let mut topics = Vec::new();
    for source in sources() {
        let text = &source.text;
        for call in ["notice(", "show_help("] {
            for (at, _) in text.match_indices(call) {
                let rest = text[at + call.len()..].trim_start();
                if let Some(topic) = rest.strip_prefix('"').and_then(|rest| rest.split('"').next()) {
                    topics.push(topic.to_owned());
                }
            }
        }
    }
    topics.sort();
    topics.dedup();
    let title = |line: &str| Some(line.strip_prefix('[')?.strip_suffix(']')?.to_owned());
    let mut titles: Vec<String> = help.lines().filter_map(title).collect();
    titles.sort();
    assert!(topics.len() >= 15, "the search found too few topics: {topics:?}");
    assert_eq!(topics, titles, "topics that are shown, and those of docs/help-hawser.txt");
    // The host replaces the one %s of each by the line that says what happened.
    let texts = help.split("\n[").skip(1);
    assert!(texts.clone().all(|text| text.matches('%').count() == 1 && text.contains("]\n%s.\n")));
}
