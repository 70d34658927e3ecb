# The commands of README.md, each as it stands there, on a machine of tests/hosts/empty.sh on which `make demo` has run.
# Sourced by that script. What each of them says is kept in target/hosts/newcomer-HOST.txt, as a newcomer sees it.

# readme_commands: one a line, those of several lines joined, without what README says beside one.
readme_commands() {
    sed -n 's/^    //p' "$repository/README.md" |
        awk '{ if (joined != "") sub(/^ +/, "") }
            sub(/ *\\$/, " ") { joined = joined $0; next }
            { print joined $0; joined = "" }' |
        sed 's/   *.*//'
}

# elsewhere COMMAND: it has just run, is for another host, or what it does is a step of the tests by itself.
elsewhere() {
    case $1 in
    "make demo" | "make check" | "make test" | "make test-all") ;;
    *LD_PRELOAD=*) [ "$suite" = bookworm ] ;;
    *) false ;;
    esac
}

# adapted COMMAND: with what README says is another on Debian 13.
adapted() {
    if [ "$suite" = trixie ]; then
        sed "s#\(/openmpi/lib/\)openmpi3#\1$components --pmixmca mca_base_component_show_load_errors none#" <<<"$1"
    else
        echo "$1"
    fi
}

# expected COMMAND: a pattern that a line of what it says must have, if any must; fails where README has a new command.
expected() {
    case $1 in
    make | "make help") echo . ;;
    "make install "*) echo '^component: .*/mca_mtl_hawser\.so$' ;;
    "make uninstall "*) echo '^' ;;
    "target/release/hawser-info") echo '^    mpirun -n 2 .*--mca btl smcuda,self PROGRAM$' ;;
    "target/release/hawser-info --doctor") echo '^bad   btl smcuda: mca_btl_smcuda\.so is in none of the folders' ;;
    "target/release/hawser-info --params") echo '^  btl_usnic_protect_payload = ' ;;
    "target/release/hawser-info --params btl_usnic --json") echo '"btl_usnic_protect_payload"' ;;
    *" fi_info -p gni") echo '^provider: gni$' ;;
    "mpirun "* | *" mpirun "*) echo '^ring: .* by 2 ranks, .*, 0 wrong$' ;;
    "target/release/hawser-perf "*) echo '^ +[0-9]+ +[0-9]+( +[0-9.]+)+$' ;;
    "cc -o "*) echo ;;
    ./*) echo '\b0 (of 10000 |answers )?wrong$' ;;
    *) false ;;
    esac
}

# says COMMAND PATTERN: runs it as a newcomer does; whether it ends well, and a line of it has that pattern, if there is one.
# The doctor ends as what it has found.
says() {
    local out=$copy/root/said ends=0
    on bash -c "$1" >"$out" 2>&1 </dev/null || ends=$?
    { printf '\n$ %s\n' "$1"; cat "$out"; } >>"$told"
    cat "$out"
    [[ $ends = 0 || $1 = *--doctor ]] || { echo "it ends with $ends"; return 1; }
    [ -z "$2" ] || grep -Eq -- "$2" "$out" || { echo "no line has $2"; return 1; }
}

# serves: hawser serves both ranks of the job that has just run.
serves() { [ "$(grep -c 'served by .*/libhawser\.so' "$copy/root/said")" = 2 ]; }

# readme HOST: all of them, in their order, but that what is installed is removed at the end.
readme() {
    local command removal='' line pattern
    told=$repository/target/hosts/newcomer-$1.txt
    : >"$told"
    check "$1: a program of the newcomer's" says "mpicc -O2 bench/ring.c -o program" ""
    while read -r line; do
        ! elsewhere "$line" || { say "README: $line: not here"; continue; }
        case $line in "make uninstall"*) removal=$line; continue ;; esac
        command=$(adapted "$line")
        pattern=$(expected "$line") || { check "$1: it is known what this says: $line" false; continue; }
        check "$1: README: $line" says "$command" "$pattern"
        case $line in
        # Under the host's own MTL, which is what is seen there.
        *"provider_include gni"*) ;;
        *"mpirun "*) check "$1: hawser serves both ranks" serves ;;
        esac
    done < <(readme_commands)
    # What hawser-info prints is there to be copied.
    while read -r line; do
        check "$1: hawser-info: $line" says "${line/%PROGRAM/.\/program}" '^ring: .* by 2 ranks, .*, 0 wrong$'
        check "$1: hawser serves both ranks" serves
    done < <(sed -n 's/^    \(mpirun -n 2 .* PROGRAM\)$/\1/p' "$told" | sort -u)
    check "$1: what is installed is found, and nothing is bad" says "hawser-info --doctor" '^good  btl smcuda'
    check "$1: README: $removal" says "${removal:-false}" ""
    check "$1: nothing is left of it" eval '! find "$copy/usr" "$copy/etc" -name "*hawser*" | grep .'
}
