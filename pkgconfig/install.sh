#!/usr/bin/env bash
# Installs or removes hawser; called by `make install` and `make uninstall`.
#
#     PREFIX=… LIBDIR=… DESTDIR=… COMPONENTDIR=… pkgconfig/install.sh install|uninstall
#
# LIBDIR is PREFIX/lib where it is not given; a relative one is below PREFIX. The component links go where the host looks
# for components, or to COMPONENTDIR; `uninstall` finds them where hawser.pc says. A file of somebody else's is never touched:
# where the host's package has a component of its own under the name `ofi`, the OFI MTL is installed under its second name
# `hawser` only.
set -euo pipefail

die() { echo "${0##*/}: $*" >&2; exit 1; }

# absolute NAME PATH: without what is said twice. It stands in hawser.pc and in links, so that not every path can be one.
absolute() {
    case $2 in
    *[[:space:]\"\'\\\&\|\$\#\;]*) die "$1 is \`$2\`: no blank and none of \" ' \\ & | \$ # ; may be in it" ;;
    /*) realpath -ms -- "$2" ;;
    *) die "$1 is \`$2\`: it has to begin with /" ;;
    esac
}

destdir=${DESTDIR:-}
[ -z "$destdir" ] || destdir=$(realpath -ms -- "$destdir")
cd "$(dirname "$0")/.."

prefix=$(absolute PREFIX "${PREFIX:-/usr/local}")
libdir=${LIBDIR:-lib}
case $libdir in /*) ;; *) libdir=$prefix/$libdir ;; esac
libdir=$(absolute LIBDIR "$libdir")
# Who removes it may not say again where it lies.
if [ "${1-}" = uninstall ] && [ -z "${LIBDIR:-}" ]; then
    for found in "$destdir$prefix"/lib*/pkgconfig/hawser.pc "$destdir$prefix"/lib/*/pkgconfig/hawser.pc; do
        [ ! -e "$found" ] || libdir=${found#"$destdir"} libdir=${libdir%/pkgconfig/hawser.pc}
    done
fi
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

# The first directory of the host's component path.
host_directory() {
    command -v ompi_info >/dev/null || return 0
    env -u OMPI_MCA_mca_base_component_path ompi_info --parsable --all 2>/dev/null |
        sed -n 's/^mca:mca:base:param:mca_\(base_\)\{0,1\}component_path:value:"\{0,1\}\([^":]*\).*/\2/p' | head -n 1
}

# What was said when it was installed.
described() { sed -n 's/^componentdir=//p' "$destdir$libdir/pkgconfig/hawser.pc" 2>/dev/null || true; }

components=${COMPONENTDIR:-}
[ -n "$components" ] || [ "${1-}" != uninstall ] || components=$(described)
components=${components:-$(host_directory)}
[ -z "$components" ] || components=$(absolute COMPONENTDIR "$components")
# The file; programs that are linked to it ask for it by its soname (build.rs), and linkers by the shortest name.
soname=libhawser.so.0
library=$libdir/libhawser.so
# The libfabric provider: a folder of its own, where neither libfabric nor the loader looks unless FI_PROVIDER_PATH names it.
provider=$libdir/hawser/fi/libgni-fi.so
license=$prefix/share/doc/hawser/LICENSE
# Asked first: without the list nothing is touched.
names=$(pkgconfig/components.sh)

# Ours is a link that points at our library.
ours() { [ -L "$1" ] && [ "$(realpath -ms -- "$(readlink "$1")")" = "$library" ]; }

# others LINK: it leads to the library of another installation, which is there; left LINK: which is there no more.
others() { [ -L "$1" ] && [[ $(readlink "$1") = */libhawser.so ]] && ! ours "$1" && [ -e "$destdir$(readlink "$1")" ]; }
left() { [ -L "$1" ] && [[ $(readlink "$1") = */libhawser.so ]] && ! [ -e "$destdir$(readlink "$1")" ]; }

# writable PATH: what there is of it, from the root on, is a folder that can be written to.
writable() {
    local path=$1
    while [ ! -e "$path" ]; do path=$(dirname "$path"); done
    [ -d "$path" ] && [ -w "$path" ]
}

# Whatever cannot be done is found before anything is done.
may_install() {
    local path name link
    for path in "$libdir" "$prefix/include" "$prefix/bin" "$prefix/share"; do
        writable "$destdir$path" || die "$destdir$path cannot be written to: name another folder with PREFIX, or be who may"
    done
    [ -n "$components" ] || return 0
    writable "$destdir$components" || die "$destdir$components, where Open MPI looks for components, cannot be written to: \
name a folder of your own with COMPONENTDIR, and tell Open MPI of it with \`--mca mca_base_component_path\`"
    for name in $names; do
        link=$destdir$components/mca_$name.so
        ! others "$link" || die "$link is of another hawser, $(readlink "$link"): uninstall that, or name a folder of your own with COMPONENTDIR"
    done
}

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
    local page old also
    may_install
    install -d "$destdir$libdir/pkgconfig" "$destdir$prefix/include/hawser" "$destdir$prefix/bin" "$destdir$prefix/share/hawser"
    install -m 755 target/release/libhawser.so "$destdir$library.$version"
    ln -sfn "libhawser.so.$version" "$destdir$libdir/$soname"
    ln -sfn "$soname" "$destdir$library"
    for old in "$destdir$library".[0-9]*.[0-9]*.[0-9]*; do
        [ "$old" = "$destdir$library.$version" ] || rm -f "$old"
    done
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
        # With a link that leads nowhere Open MPI 4.1 finds no component at all.
        if { [ -e "$link" ] || [ -L "$link" ]; } && ! ours "$link" && ! left "$link"; then
            case $name in
            mtl_ofi) also="; the OFI MTL is also there under the name hawser" ;;
            btl_openib) also="; the verbs BTL is also there under the name verbs" ;;
            *) also= ;;
            esac
            [ -e "$link" ] || also="$also; but it leads nowhere, and Open MPI 4.1 finds no component in this folder or any behind it: remove it"
            echo "left alone: $link belongs to somebody else$also"
            continue
        fi
        ln -sfn "$library" "$link"
        echo "component: $link"
    done
}

uninstall_all() {
    local page header folder link
    # Of a version that had others, too.
    for folder in "$components" "$(described)"; do
        [ -n "$folder" ] || continue
        for link in "$destdir$folder"/mca_*.so; do
            if ours "$link"; then rm -f "$link"; fi
        done
    done
    rm -f "$destdir$provider" "$destdir$library" "$destdir$libdir/$soname" "$destdir$library".[0-9]*.[0-9]*.[0-9]* "$destdir$prefix/bin/hawser-info" \
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
