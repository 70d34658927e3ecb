#!/bin/sh
# The components of the library, one a line, as `mtl_ofi`: read from the one list, src/host/components.rs.
#
#     pkgconfig/components.sh [FEATURE]     with those that only this feature of the crate has
#
# A line of the list that is not understood is an error: no component is left out unseen, or linked that
# the library does not have.
awk -v feature="${1-}" '
    function refuse(what) { print FILENAME ": " what | "cat >&2"; refused = 1; exit 1 }

    # The list is what the macros are called with.
    /^[a-z_]+! \{$/ { inside = 1; next }
    !inside { next }
    /^\}$/ { inside = 0; next }
    /^ *(\/\/.*)?$/ { next }
    /^ *#\[cfg\(feature = "[^"]+"\)\]$/ && needed == "" { split($0, parts, "\""); needed = parts[2]; next }
    /^ *[A-Za-z_][^,]* => mca_[a-z0-9]+_[a-z0-9_]+_component,$/ {
        found = 1
        sub(/.*=> mca_/, "")
        sub(/_component,$/, "")
        if (needed == "" || needed == feature) print
        needed = ""
        next
    }
    { refuse("line " FNR " is not understood: " $0) }
    END { if (!refused && (inside || !found)) refuse("there is no list of components") }
' "$(dirname "$0")/../src/host/components.rs"
