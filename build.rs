//! Link options of the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The host closes what it does not select, while pointers into us may still be held.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // What programs that are linked to it ask for; `pkgconfig/install.sh` makes a link of that name. It goes up when the C
    // ABI breaks.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libhawser.so.0");
    // Several links to one file must not interpose each other's component structures.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
