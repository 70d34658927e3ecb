#!/usr/bin/env bash
# Installs or removes hawser; called by `make install` and `make uninstall`.
#
#     PREFIX=… LIBDIR=… DESTDIR=… COMPONENTDIR=… pkgconfig/install.sh install|uninstall
#
# LIBDIR is PREFIX/lib where it is not given. The component links go where the host looks for components, or to COMPONENTDIR. A file of
# somebody else's is never touched: where the host's package has a component of its own under the
# name `ofi`, the OFI MTL is installed under its second name `hawser` only.
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
destdir=${DESTDIR:-}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

# The first directory of the host's component path.
host_directory() {
    command -v ompi_info >/dev/null || return 0
    env -u OMPI_MCA_mca_base_component_path ompi_info --parsable --all 2>/dev/null |
        sed -n 's/^mca:mca:base:param:mca_\(base_\)\{0,1\}component_path:value:"\{0,1\}\([^":]*\).*/\2/p' | head -n 1
}

components=${COMPONENTDIR:-$(host_directory)}
# The file; programs that are linked to it ask for it by its soname (build.rs), and linkers by the shortest name.
soname=libhawser.so.0
library=$libdir/libhawser.so
# The libfabric provider: a folder of its own, where neither libfabric nor the loader looks unless FI_PROVIDER_PATH names it.
provider=$libdir/hawser/fi/libgni-fi.so
license=$prefix/share/doc/hawser/LICENSE
# Asked first: without the list nothing is touched.
names=$(pkgconfig/components.sh)

# Ours is a link that points at our library.
ours() { [ -L "$1" ] && [ "$(readlink "$1")" = "$library" ]; }

# installed PAGE: where a manual page goes.
installed() { echo "$prefix/share/man/man${1##*.}/${1##*/}"; }

# tell_loader: where the loader has a list of the libraries in its folders, and ours is one of these, it is made anew, so
# that programs find the library. Who packages it (DESTDIR) leaves that to the package's installer; only root can.
tell_loader() {
    local PATH=$PATH:/usr/sbin:/sbin
    if [ -z "$destdir" ] && [ "$(id -u)" = 0 ] && command -v ldconfig >/dev/null; then
        if ldconfig -N -X -v 2>/dev/null | grep "^$libdir:" >/dev/null; then ldconfig; fi
    fi
}

install_all() {
    local page
    install -d "$destdir$libdir/pkgconfig" "$destdir$prefix/include/hawser" "$destdir$prefix/bin" "$destdir$prefix/share/hawser"
    install -m 755 target/release/libhawser.so "$destdir$library.$version"
    ln -sfn "libhawser.so.$version" "$destdir$libdir/$soname"
    ln -sfn "$soname" "$destdir$library"
    install -d "$destdir${provider%/*}"
    ln -sfn "../../libhawser.so.$version" "$destdir$provider"
    install -m 644 include/hawser*.h "$destdir$prefix/include/hawser/"
    install -m 755 target/release/hawser-info target/release/hawser-perf "$destdir$prefix/bin/"
    install -m 644 docs/help-hawser.txt "$destdir$prefix/share/hawser/help-hawser.txt"
    install -m 644 docs/hawser-usnic.lua "$destdir$prefix/share/hawser/hawser-usnic.lua"
    install -D -m 644 LICENSE "$destdir$license"
    for page in docs/*.[1-8]; do
        install -D -m 644 "$page" "$destdir$(installed "$page")"
    done
    sed -e "s|@prefix@|$prefix|; s|@libdir@|${libdir/#$prefix\//\${prefix\}/}|; s|@componentdir@|$components|; s|@version@|$version|" pkgconfig/hawser.pc.in >"$destdir$libdir/pkgconfig/hawser.pc"
    chmod 644 "$destdir$libdir/pkgconfig/hawser.pc"
    tell_loader
    if [ -z "$components" ]; then
        echo "no Open MPI was found (ompi_info): component links were not made; name a directory with COMPONENTDIR="
        return
    fi
    install -d "$destdir$components"
    for name in $names; do
        link=$destdir$components/mca_$name.so
        if [ -e "$link" ] || [ -L "$link" ]; then
            if ! ours "$link"; then
                echo "left alone: $link belongs to somebody else; the OFI MTL is also there under the name hawser: --mca pml cm --mca mtl hawser"
                continue
            fi
        fi
        ln -sfn "$library" "$link"
        echo "component: $link"
    done
}

uninstall_all() {
    local page header
    if [ -n "$components" ]; then
        for name in $names; do
            link=$destdir$components/mca_$name.so
            if ours "$link"; then rm -f "$link"; fi
        done
    fi
    rm -f "$destdir$provider" "$destdir$library" "$destdir$libdir/$soname" "$destdir$library.$version" "$destdir$prefix/bin/hawser-info" \
        "$destdir$prefix/bin/hawser-perf" "$destdir$libdir/pkgconfig/hawser.pc" "$destdir$prefix/share/hawser/help-hawser.txt" \
        "$destdir$prefix/share/hawser/hawser-usnic.lua" "$destdir$license"
    for page in docs/*.[1-8]; do rm -f "$destdir$(installed "$page")"; done
    for header in include/hawser*.h; do rm -f "$destdir$prefix/include/hawser/$(basename "$header")"; done
    rmdir "$destdir$prefix/include/hawser" "$destdir$prefix/share/hawser" "$destdir${license%/*}" "$destdir$libdir/hawser/fi" "$destdir$libdir/hawser" 2>/dev/null || true
    tell_loader
}

case ${1:-} in
install) install_all ;;
uninstall) uninstall_all ;;
*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac
