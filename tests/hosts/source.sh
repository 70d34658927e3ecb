#!/usr/bin/env bash
# The upstream part of a source package of Debian, from this machine's own mirror, unpacked into a folder.
#
#     tests/hosts/source.sh SUITE PACKAGE FILE FOLDER
#
# FILE is how the archive's name begins (libfabric_2.1.0.orig.tar). The archive's first folder is left out. Of the package only
# that file is fetched, by the size and the digest of the mirror's signed list.
set -euo pipefail
[ $# = 4 ] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 2; }
suite=$1 package=$2 file=$3 folder=$4
mkdir -p "$folder"
. "$(dirname "$0")/tree.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/source.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial"
mirror=$(mirror || true) # of several places that are looked at some are not there
[ -n "$mirror" ] || { echo "$0: apt has no mirror" >&2; exit 1; }
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$work/list"
options=(-o Dir::Etc::SourceParts=/dev/null -o "Dir::Etc::SourceList=$work/list" -o "Dir::State::Lists=$work/lists"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
apt-get "${options[@]}" update >&2
# name, size and digest of each file
apt-get "${options[@]}" --print-uris source --download-only "$package" |
    sed -n "s/^'\([^']*\)' \($file[^ ]*\) [0-9]* SHA256:\([0-9a-f]*\)$/\1 \2 \3/p" >"$work/found"
read -r address name digest <"$work/found" || { echo "$0: $package has no $file" >&2; exit 1; }
/usr/lib/apt/apt-helper download-file "$address" "$work/$name" "SHA256:$digest" >&2
tar -xf "$work/$name" --strip-components=1 -C "$folder"
