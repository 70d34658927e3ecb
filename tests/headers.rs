//! The checked-in C headers say what `src/host/sys.rs` and `src/host/*/sys.rs` say, and `include/hawser.h`
//! what `src/capi` does.
//!
//! `make headers` runs this file with `HAWSER_BLESS=1`, which writes the headers instead.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The host ABIs that have layouts.
const ABIS: [&str; 2] = ["v4_1", "v5_0"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn source(abi: &str) -> PathBuf {
    root().join("src/host").join(abi).join("sys.rs")
}

/// What the versions have in common.
fn shared() -> [PathBuf; 2] {
    ["src/host/sys.rs", "src/host/btl/sys.rs"].map(|path| root().join(path))
}

/// All files with layouts of a version: its own first.
fn sources(abi: &str) -> Vec<PathBuf> {
    std::iter::once(source(abi)).chain(shared()).collect()
}

fn header(abi: &str) -> PathBuf {
    root().join("include").join(format!("hawser_{abi}.h"))
}

/// The public structures of a file. cbindgen emits only what a function needs, or what it is
/// told to include, and these files hold no functions.
fn structures(source: &Path) -> Vec<String> {
    let text = fs::read_to_string(source).expect("sys.rs is readable");
    assert!(text.contains("\npub struct "), "{} holds no structure", source.display());
    text.lines()
        .filter_map(|line| line.strip_prefix("pub struct "))
        .map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>())
        .collect()
}

fn generate(abi: &str) -> String {
    let mut config = cbindgen::Config::from_file(root().join("cbindgen.toml")).expect("cbindgen.toml parses");
    config.export.prefix = Some(format!("hawser_{abi}_"));
    config.export.include = sources(abi).iter().flat_map(|source| structures(source)).collect();
    config.include_guard = Some(format!("HAWSER_{}_H", abi.to_uppercase()));
    // Structures whose functions name them before they are complete.
    let shared = ["BtlModule", "Descriptor", "Communicator", "Convertor"];
    let own = ["OpModule"];
    let early = shared.into_iter().chain(own.into_iter().filter(|_| abi == "v5_0"));
    config.after_includes = Some(early.map(|name| format!("\nstruct hawser_{abi}_{name};")).collect());
    config.header = Some(format!(
        "/* Generated from src/host/sys.rs, src/host/{abi}/sys.rs and src/host/btl/sys.rs by `make headers`. Do not edit. */"
    ));
    let mut text = Vec::new();
    let builder = cbindgen::Builder::new().with_config(config);
    sources(abi)
        .iter()
        .fold(builder, |builder, source| builder.with_src(source))
        .generate()
        .expect("cbindgen understands sys.rs")
        .write(&mut text);
    String::from_utf8(text).expect("the header is UTF-8")
}

/// Compares, or with `HAWSER_BLESS=1` writes.
fn check(abi: &str) {
    let generated = generate(abi);
    let path = header(abi);
    if env::var_os("HAWSER_BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, generated).expect("the header is writable");
        return;
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    let line = generated
        .lines()
        .zip(present.lines())
        .position(|(generated, present)| generated != present)
        .unwrap_or_else(|| generated.lines().count().min(present.lines().count()));
    assert!(
        generated == present,
        "{}:{}: differs from the layouts in src/host: run `make headers`",
        path.strip_prefix(root()).unwrap_or(&path).display(),
        line + 1,
    );
}

/// What the types of `src/capi/abi.rs` and `src/capi/mtl/abi.rs` are called in C, behind `hawser_`.
const NAMES: [(&str, &str); 27] = [
    ("Btl", "btl"),
    ("Endpoint", "endpoint"),
    ("Fragment", "fragment"),
    ("Memory", "memory"),
    ("Remote", "remote"),
    ("Peer", "peer"),
    ("Parameter", "parameter"),
    ("Host", "host"),
    ("Publish", "publish"),
    ("Lookup", "lookup"),
    ("Value", "value"),
    ("Declare", "declare"),
    ("Log", "log"),
    ("Received", "received"),
    ("Completed", "completed"),
    ("Lost", "lost"),
    ("BtlLimits", "btl_limits"),
    ("BtlModule", "btl_module"),
    ("BtlComponent", "btl_component"),
    ("Mtl", "mtl"),
    ("Request", "request"),
    ("Message", "message"),
    ("Envelope", "envelope"),
    ("Matched", "matched"),
    ("MtlLimits", "mtl_limits"),
    ("MtlModule", "mtl_module"),
    ("MtlComponent", "mtl_component"),
];

/// What cbindgen leaves: negative numbers without parentheses, and the headings of Rust's documentation.
fn tidy(header: &str) -> String {
    let parenthesised = |line: &str| match line.rsplit_once(' ') {
        Some((name, number)) if line.starts_with("#define ") && number.starts_with('-') => {
            format!("{name} ({number})\n")
        }
        _ => format!("{line}\n"),
    };
    header.replace("//\n// # Safety\n", "").lines().map(parenthesised).collect()
}

/// The library's own functions: `include/hawser.h` from `src/capi`.
#[test]
fn header_of_the_library_is_current() {
    let mut config = cbindgen::Config::from_file(root().join("cbindgen.toml")).expect("cbindgen.toml parses");
    config.include_guard = Some("HAWSER_H".to_owned());
    config.cpp_compat = true;
    config.export.rename =
        NAMES.iter().map(|(rust, c)| ((*rust).to_owned(), format!("hawser_{c}"))).collect();
    config.header = Some("/* Generated from src/capi by `make headers`. Do not edit. */".to_owned());
    let mut text = Vec::new();
    ["abi", "code", "mtl/abi", "mod"]
        .iter()
        .fold(cbindgen::Builder::new().with_config(config), |builder, file| {
            builder.with_src(root().join("src/capi").join(file).with_extension("rs"))
        })
        .generate()
        .expect("cbindgen understands src/capi")
        .write(&mut text);
    let generated = tidy(&String::from_utf8(text).expect("the header is UTF-8"));
    let path = root().join("include/hawser.h");
    if env::var_os("HAWSER_BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, generated).expect("the header is writable");
        return;
    }
    assert_eq!(
        generated,
        fs::read_to_string(&path).unwrap_or_default(),
        "include/hawser.h is out of date: run `make headers`"
    );
}

#[test]
fn header_of_open_mpi_4_1_is_current() {
    check("v4_1");
}

#[test]
fn header_of_open_mpi_5_0_is_current() {
    check("v5_0");
}

#[test]
fn every_structure_is_in_its_header() {
    for abi in ABIS {
        let generated = generate(abi);
        for name in sources(abi).iter().flat_map(|source| structures(source)) {
            assert!(
                generated.contains(&format!("}} hawser_{abi}_{name};")),
                "include/hawser_{abi}.h lacks {name}: run `make headers`",
            );
        }
    }
}

/// The named fields of each structure of a file, as `(structure, field)`.
fn fields(source: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(source).expect("sys.rs is readable");
    let mut structure = String::new();
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("pub struct ") {
            structure = rest.trim_end_matches(" {").to_owned();
        } else if let Some((field, _)) = line.strip_prefix("    pub ").and_then(|rest| rest.split_once(':')) {
            found.push((structure.clone(), field.to_owned()));
        }
    }
    found
}

#[test]
fn every_named_field_has_a_layout_check() {
    let folder = root().join("c-tests/layout");
    let table = fs::read_to_string(folder.join("host.h")).expect("host.h is readable");
    for abi in ABIS {
        let own = fs::read_to_string(folder.join(format!("{abi}.c"))).expect("readable");
        // Builds with CUDA, where their layouts differ.
        let own = own + &fs::read_to_string(folder.join(format!("{abi}_cuda.c"))).unwrap_or_default();
        let has = |check: String| table.contains(&check) || own.contains(&check);
        for (structure, field) in sources(abi).iter().flat_map(|source| fields(source)) {
            // cbindgen puts an underscore behind the reserved words of C and C++.
            let checked = ["", "_"].iter().any(|end| {
                ["CHECK", "CHECK_SPAN", "CHECK_FUNCTION"]
                    .iter()
                    .any(|check| has(format!("{check}({structure}, {field}{end}, ")))
            });
            assert!(checked, "c-tests/layout/{abi}.c: no check of {structure}.{field}");
        }
        for structure in sources(abi).iter().flat_map(|source| structures(source)) {
            assert!(
                has(format!("CHECK_SIZE({structure}, ")) || has(format!("CHECK_PREFIX({structure}, ")),
                "c-tests/layout/{abi}.c: no check of the size of {structure}",
            );
        }
    }
}

#[test]
fn headers_are_plain_c11() {
    for abi in ABIS {
        let status = Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
            .args(["-x", "c"])
            .arg(header(abi))
            .status()
            .expect("a C compiler is installed");
        assert!(status.success(), "include/hawser_{abi}.h does not compile as C11");
    }
}

/// A C and a C++ program may both include it, at the pickiest.
#[test]
fn the_header_of_the_library_is_plain_c11_and_cpp17() {
    for (compiler, language, standard) in [("cc", "c", "c11"), ("c++", "c++", "c++17")] {
        let status = Command::new(compiler)
            .args([&format!("-std={standard}"), "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
            .args(["-x", language])
            .arg(root().join("include/hawser.h"))
            .status()
            .expect("a compiler is installed");
        assert!(status.success(), "include/hawser.h does not compile as {standard}");
    }
}
