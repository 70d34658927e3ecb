//! Link options of the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The host closes what it does not select, while pointers into us may still be held.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Several links to one file must not interpose each other's component structures.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
