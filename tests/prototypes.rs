//! Every symbol of the host that is looked up is declared as the host's headers declare it.
//!
//! The headers themselves are compared by the C compiler, with the prototypes that `c-tests/layout`
//! spells; here these are compared with the declarations in `symbols!`: what it is (a function, a
//! variable that holds one, an object), how many arguments it has, and of each how it is passed.

use std::fs;
use std::path::PathBuf;

/// What a declaration says, in terms that both languages have.
#[derive(Debug, PartialEq, Eq)]
enum Shape {
    /// How its arguments are passed, and its result.
    Function(Vec<Passed>, Passed),
    /// A variable that holds such a function.
    Variable(Vec<Passed>, Passed),
    Object,
}

/// How a value is passed on x86-64: only its size matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    Nothing,
    Byte,
    Word,
    Quad,
    Variadic,
}

fn read(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = fs::read_to_string(&path).unwrap_or_else(|_| panic!("{} is readable", path.display()));
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join(" ")
}

/// What lies between the bracket at the start of `text` and the one that closes it, and the rest.
fn enclosed(text: &str) -> (&str, &str) {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '{' => depth += 1,
            ')' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (&text[1..at], &text[at + 1..]);
        }
    }
    panic!("an open bracket: {text}");
}

/// Parts between the commas that are in no bracket.
fn parts(text: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '<' => depth += 1,
            ')' | ']' => depth -= 1,
            '>' if !text[..at].ends_with('-') => depth -= 1,
            ',' if depth == 0 => {
                found.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(text[begin..].trim());
    found.retain(|part| !part.is_empty());
    found
}

fn rust_passed(kind: &str) -> Passed {
    match kind {
        "" => Passed::Nothing,
        "bool" | "u8" => Passed::Byte,
        "c_int" | "i32" | "u32" => Passed::Word,
        "u64" | "usize" | "isize" => Passed::Quad,
        "..." => Passed::Variadic,
        _ if kind.starts_with('*') || kind.contains("fn(") => Passed::Quad,
        // Aliases of functions.
        "Progress" | "Released" => Passed::Quad,
        _ => panic!("a type that this test does not know: {kind}"),
    }
}

fn rust_function(text: &str) -> (Vec<Passed>, Passed) {
    let open = text.find("fn(").expect("a function") + 2;
    let (arguments, rest) = enclosed(&text[open..]);
    let result = rest.trim().strip_prefix("->").unwrap_or("").trim();
    (parts(arguments).into_iter().map(rust_passed).collect(), rust_passed(result))
}

/// The declarations of all `symbols!` of a file, by symbol.
fn rust(path: &str) -> Vec<(String, Shape)> {
    let text = read(path);
    let alias = |name: &str| {
        let begin = text.find(&format!("type {name} = "))?;
        let rest = text[begin..].split_once(" = ")?.1;
        Some(rest.split(';').next().unwrap_or(rest).to_owned())
    };
    let mut found = Vec::new();
    for (at, _) in text.match_indices("symbols! {") {
        let (block, _) = enclosed(&text[at + "symbols! ".len()..]);
        let Some(open) = block.find("struct").and_then(|at| Some(at + block[at..].find('{')?)) else {
            continue;
        };
        for declaration in parts(enclosed(&block[open..]).0) {
            let (_, rest) = declaration.split_once(':').expect("a name");
            let (kind, symbol) = rest.rsplit_once('=').expect("a symbol");
            let kind = kind.trim();
            let variable = kind.strip_prefix("Variable<").and_then(|kind| kind.strip_suffix('>'));
            let (star, bare) = variable.map_or((false, kind), |bare| (true, bare));
            let whole = alias(bare).unwrap_or_else(|| bare.to_owned());
            let shape = if whole.starts_with("unsafe extern") {
                let (arguments, result) = rust_function(&whole);
                if star { Shape::Variable(arguments, result) } else { Shape::Function(arguments, result) }
            } else {
                Shape::Object
            };
            let symbol = symbol.trim().trim_start_matches("c\"").trim_end_matches('"');
            found.push((symbol.to_owned(), shape));
        }
    }
    assert!(!found.is_empty(), "{path} declares nothing");
    found
}

fn c_passed(kind: &str) -> Passed {
    match kind {
        "void" => Passed::Nothing,
        "bool" | "pmix_scope_t" => Passed::Byte,
        "size_t" | "opal_process_name_t" => Passed::Quad,
        "..." => Passed::Variadic,
        "int" | "int32_t" | "uint32_t" | "opal_jobid_t" | "pmix_status_t" => Passed::Word,
        // Enumerations: c-tests/layout states their sizes.
        _ if kind.starts_with("mca_base_") && !kind.contains('*') && !kind.ends_with("_fn_t") => Passed::Word,
        _ if kind.contains('*') || kind.ends_with("_fn_t") => Passed::Quad,
        _ => panic!("a type that this test does not know: {kind}"),
    }
}

/// The prototype of a symbol in the layout checks.
fn c(text: &str, symbol: &str) -> Option<Shape> {
    let call = ["", ".base_version"].into_iter().find_map(|end| {
        let call = format!("CHECK_PROTOTYPE({symbol}{end},");
        text.find(&call).map(|at| (at, call))
    });
    let (at, _) = call?;
    let (arguments, _) = enclosed(&text[at + "CHECK_PROTOTYPE".len()..]);
    let kind = arguments.split_once(',')?.1.trim();
    let is_variable = kind.contains("(**)");
    let Some(open) = kind.find("(*)(").map(|at| at + 3).or_else(|| {
        let spaced = kind.find("(*) (").map(|at| at + 4);
        spaced.or_else(|| kind.find("(**)(").map(|at| at + 4))
    }) else {
        return Some(Shape::Object);
    };
    let result = kind[..kind.find("(*").unwrap_or(0)].trim();
    let arguments = parts(enclosed(&kind[open..]).0).into_iter().filter(|part| *part != "void");
    let (arguments, result) = (arguments.map(c_passed).collect(), c_passed(result));
    Some(if is_variable { Shape::Variable(arguments, result) } else { Shape::Function(arguments, result) })
}

#[test]
fn every_symbol_is_declared_as_the_headers_declare_it() {
    for abi in ["v4_1", "v5_0"] {
        let layout = read("c-tests/layout/host.h") + &read(&format!("c-tests/layout/{abi}.c"));
        let mut count = 0;
        let own = fs::read_dir(format!("{}/src/host/{abi}", env!("CARGO_MANIFEST_DIR"))).expect("a folder");
        let own = own.map(|file| file.expect("a file").file_name().into_string().expect("a name"));
        let own = own.map(|name| format!("{abi}/{name}"));
        let files = own.chain(["services.rs".to_owned(), "btl/services.rs".to_owned()]);
        for file in files.filter(|file| read(&format!("src/host/{file}")).contains("symbols! {")) {
            for (symbol, ours) in rust(&format!("src/host/{file}")) {
                let theirs = c(&layout, &symbol);
                let theirs = theirs
                    .unwrap_or_else(|| panic!("c-tests/layout: no CHECK_PROTOTYPE of {symbol} in {abi}"));
                // A result may be ignored.
                let same = match (&ours, &theirs) {
                    (Shape::Function(ours, Passed::Nothing), Shape::Function(theirs, _)) => ours == theirs,
                    _ => ours == theirs,
                };
                assert!(same, "{abi}: {symbol} is {ours:?} here, and {theirs:?} in the headers");
                count += 1;
            }
        }
        assert!(count > 20, "the search found only {count} symbols");
    }
}

#[test]
fn a_wrong_declaration_is_seen() {
    let prototype = "CHECK_PROTOTYPE(f, int (*)(const char *, mca_base_var_type_t, size_t));";
    let theirs = c(prototype, "f").expect("there");
    assert_eq!(theirs, Shape::Function(vec![Passed::Quad, Passed::Word, Passed::Quad], Passed::Word));
    let ours = |text| rust_function(text).0;
    assert_eq!(
        ours("unsafe extern \"C\" fn(*const c_char, c_int, usize) -> c_int"),
        [Passed::Quad, Passed::Word, Passed::Quad]
    );
    assert_ne!(ours("unsafe extern \"C\" fn(*const c_char, usize) -> c_int").len(), 3);
    assert_eq!(c(prototype, "g"), None);
}
