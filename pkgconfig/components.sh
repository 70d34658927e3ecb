#!/bin/sh
# The components of the library, one a line, as `mtl_ofi`: read from the one list, src/host/components.rs.
#
#     pkgconfig/components.sh [FEATURE]     with those that only this feature of the crate has
awk -v feature="${1-}" '
    /#\[cfg\(feature = "/ { match($0, /"[a-z]+"/); needed = substr($0, RSTART + 1, RLENGTH - 2); next }
    /=> mca_[a-z]+_[a-z]+_component,$/ {
        if (needed == "" || needed == feature) {
            sub(/.*=> mca_/, ""); sub(/_component,$/, ""); print
        }
        needed = ""
    }
' "$(dirname "$0")/../src/host/components.rs"
