# Debian systems in folders, made with debootstrap and kept outside the repository. Sourced by the
# scripts beside it, which set
#
#     name       what it is called in messages and in the cache
#     suite      the release, and `packages`, what is installed in it besides `base`
#     kind       how its folder's name begins; the release, unless set
#     own_root   yes: a command's root is there by pivot_root(2), not by chroot(2), under which nobody may make
#                namespaces for users
#     answers    commands, one a line: what they print there is what the tree was made with
#
# A tree lies below ${XDG_CACHE_HOME:-~/.cache}/hawser under a name that holds the hash of its recipe:
# another recipe is another tree, and all checkouts of the same recipe share one. It is made under a
# lock, beside its place, and then renamed: who finds it finds it whole. Needs root.

# Raised when the commands of tree_build change what comes of them.
edition=1

say() { printf '%s: %s\n' "$name" "$*"; }

# tree_path: sets `tree`, and `given` if the user has named it.
tree_path() {
    local hash
    given=${HAWSER_CHROOT:-}
    [ "$name" = "second host" ] || given=
    hash=$(printf '%s\n' "$edition" "$suite" "$base" "$packages" "$answers" "$(uname -m)" | sha256sum | cut -c 1-12)
    cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/hawser
    kind=${kind:-$suite}
    tree=${given:-$cache/$kind-$hash}
    stamp=$tree/.hawser-answers
}

tree_able() {
    [ "$(id -u)" = 0 ] || { say "cannot be made here: it needs root for chroot and mounts"; return 1; }
    unshare -m true 2>/dev/null || { say "cannot be made here: private mounts are not allowed"; return 1; }
    [ -z "$given" ] || return 0
    command -v debootstrap >/dev/null || { say "cannot be made here: debootstrap is missing (make setup installs it)"; return 1; }
}

# sources: where this machine itself gets its packages, in either form that apt reads.
sources() {
    {
        sed -n 's/^URIs:[[:space:]]*//p' /etc/apt/sources.list.d/*.sources 2>/dev/null
        sed -n 's/^deb[[:space:]]\(\[[^]]*\][[:space:]]*\)\{0,1\}\([^[:space:]]*\).*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null
    } | tr ' ' '\n' | grep -v '^$'
}
mirror() { sources | grep -v security | head -n 1; }
security() { sources | grep security | head -n 1; }

# tree_answers FOLDER: what the commands print there, a line of each.
tree_answers() {
    # shellcheck disable=SC2016 # expanded there
    (work=/ tree_run "$1" sh -c 'printf "%s\n" "$1" | while read -r command; do
        printf "%s: %s\n" "$command" "$($command 2>/dev/null </dev/null | head -n 1)"
    done' sh "$answers")
}

# tree_whole: it is there, its packages are installed, and it answers as it did when it was made. One
# that the user has named must answer.
tree_whole() {
    local now package
    [ -d "$tree/usr" ] || return 1
    for package in $packages; do
        [ -e "$tree/var/lib/dpkg/info/$package.list" ] || [ -e "$tree/var/lib/dpkg/info/$package:amd64.list" ] ||
            chroot "$tree" dpkg-query -W "$package" >/dev/null 2>&1 || { say "$tree lacks $package"; return 1; }
    done
    now=$(tree_answers "$tree")
    ! grep -q ': $' <<<"$now" || { say "$tree does not answer to: $(sed -n 's/: $//p' <<<"$now" | head -n 1)"; return 1; }
    [ -n "$given" ] || [ "$now" = "$(cat "$stamp" 2>/dev/null)" ] || { say "$tree is not what it was made as"; return 1; }
}

# tree_make: makes it, if it is not there or not whole.
tree_make() {
    local lock old
    tree_able || return 1
    if [ -n "$given" ]; then
        tree_whole || { say "HAWSER_CHROOT names a folder that cannot be used"; return 1; }
        say "is there ($tree, named by HAWSER_CHROOT)"
        return
    fi
    mkdir -p "$cache"
    exec {lock}>"$cache/$kind.lock"
    flock --nonblock "$lock" || { say "somebody else makes it; waiting"; flock "$lock"; }
    if tree_whole; then
        say "is there ($tree)"
    else
        tree_build "$tree.new" "$cache/$kind.log"
        # What was there and is not whole any more.
        rm -rf --one-file-system "$tree"
        mv -T "$tree.new" "$tree"
        say "ready ($tree)"
    fi
    exec {lock}>&-
    for old in "$cache/$kind"-*; do
        [ "$old" = "$tree" ] || say "$old was made by another recipe; remove it when no checkout needs it"
    done
}

# tree_build FOLDER LOG
tree_build() {
    local new=$1 log=$2 file begin=$SECONDS
    rm -rf --one-file-system "$new"
    mkdir -p "$new"
    say "1/3 unpacking the base system (log: $log)"
    debootstrap --variant=minbase --include="$base" "$suite" "$new" "$(mirror)" >"$log" 2>&1 || tree_failed "$log"
    for file in /etc/apt/apt.conf.d/*; do
        case $file in *docker*) ;; *) cp -n "$file" "$new/etc/apt/apt.conf.d/" ;; esac
    done
    [ -z "$(security)" ] || echo "deb $(security) $suite-security main" >"$new/etc/apt/sources.list.d/security.list"
    cp -L /etc/resolv.conf "$new/etc/resolv.conf"
    mkdir -p "$new/hawser"
    say "2/3 reading the package lists"
    chroot "$new" apt-get update >>"$log" 2>&1 || tree_failed "$log"
    say "3/3 installing $packages"
    # shellcheck disable=SC2086 # a list of words
    chroot "$new" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages >>"$log" 2>&1 || tree_failed "$log"
    chroot "$new" apt-get clean
    tree_answers "$new" | tee "$new/.hawser-answers" | sed "s/^/$name: /"
    say "made in $((SECONDS - begin)) s"
}

tree_failed() {
    tail -n 20 "$1"
    exit 1
}

# tree_run FOLDER COMMAND…: runs a command there, with the repository at /hawser and /tmp empty and its
# own. Nothing stays mounted: the mounts live in a mount namespace of the command's own.
tree_run() {
    local keep=() variable
    export folder=$1 repository own_root=${own_root:-}
    shift
    # What a test may set from outside, and the way to the network; everything else is the tree's own.
    while IFS='=' read -r -d '' variable value; do
        case $variable in
        HAWSER_CHROOT) ;;
        HAWSER_* | OMPI_* | PMIX_* | PRTE_* | FI_* | CI | *_proxy | *_PROXY) keep+=("$variable=$value") ;;
        esac
    done < <(env -0)
    exec unshare -m --propagation private bash -c '
        set -e
        [ -z "$own_root" ] || mount --bind "$folder" "$folder"
        for place in proc sys dev; do mount --rbind "/$place" "$folder/$place"; done
        [ ! -d "$folder/hawser" ] || mount --bind "$repository" "$folder/hawser"
        mount -t tmpfs -o mode=1777 none "$folder/tmp"
        [ -n "$own_root" ] || exec chroot "$folder" env -i "$@"
        cd "$folder"
        pivot_root . .
        umount -l .
        exec env -i "$@"
    ' run "${keep[@]}" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        sh -c 'cd "$1" && shift && exec "$@"' sh "${work:-/hawser}" "$@"
}
