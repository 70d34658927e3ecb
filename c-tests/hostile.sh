#!/usr/bin/env bash
# A hostile host: a C program that has the symbols of an Open MPI in its own image, loads the library and
# drives its components through their tables, as no sane host would. It runs as it is, under
# AddressSanitizer with leak detection (what is freed is filled, since the library is not instrumented), and
# under valgrind.
#
#     c-tests/hostile.sh debian12|debian13 [WORD …]     all tests, or those whose names begin so
#
# HAWSER_HOSTILE_WAYS names the ways (plain asan valgrind). The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2
# shellcheck source=c-tests/host.sh
. c-tests/host.sh
. c-tests/verbs/build.sh
host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
shift

work=target/hostile/$host
mkdir -p "$work"
log=$work/cc.log
flags="-std=gnu11 -O1 -g -Wall -Wextra -Wpedantic -Werror"
headers="-isystem $libraries/openmpi/include -isystem $libraries/openmpi/include/openmpi"
case $host in
debian12) version=v4_1 pal=libopen-pal.so.40 ;;
debian13)
    version=v5_0 pal=libopen-pal.so.80
    headers="-Ic-tests/layout/stubs $headers -isystem $libraries/pmix2/include"
    ;;
esac

# RDMA devices, as RoCE, for the tests of the verbs BTL alone: libfabric looks for devices as well, in ways that the
# stand-in refuses.
mkdir -p "$work/verbs" && verbs_libraries "$work/verbs" || give_up "the stand-in for the RDMA libraries compiles"
devices=("LD_LIBRARY_PATH=$root/$work/verbs" HAWSER_VERBS_DEVICES=roce_0=127.0.0.1/roce)

# By these names hawser knows the process of an Open MPI; there is nothing in them.
for name in $pal libmpi.so.40; do
    "${there[@]}" cc -shared -x c /dev/null -Wl,-soname,"$name" -o "$work/$name" >"$log" 2>&1 || give_up "$name"
done
sources=(c-tests/hostile/*.c)
for other in v4_1 v5_0; do
    [ "$other" = "$version" ] || sources=("${sources[@]/c-tests\/hostile\/$other.c/}")
done
# compile NAME FLAG…
compile() {
    # shellcheck disable=SC2086,SC2068 # lists of words
    "${there[@]}" cc $flags "${@:2}" $headers ${sources[@]} -o "$work/$1" -rdynamic \
        -Wl,--no-as-needed "$work/$pal" "$work/libmpi.so.40" -Wl,-rpath,'$ORIGIN' -lpthread -ldl >"$log" 2>&1
}
compile hostile && compile hostile-asan -fsanitize=address -fno-omit-frame-pointer || give_up "the hostile host compiles"

bare_library "$work/bare/libhawser.so" || give_up "the library can be stripped"

# run WAY COMMAND…: what of `words` is of verbs apart from what is not.
run() {
    local way=$1 word library=target/mca/libhawser.so
    local -a over_verbs=() others=()
    shift
    case " ${HAWSER_HOSTILE_WAYS:-plain asan valgrind} " in *" $way "*) ;; *) return ;; esac
    [ "$way" = plain ] || library=$work/bare/libhawser.so
    for word in ${words[@]+"${words[@]}"}; do
        case $word in verbs*) over_verbs+=("$word") ;; *) others+=("$word") ;; esac
    done
    [ ${#words[@]} != 0 ] && [ ${#others[@]} = 0 ] ||
        drive "$way" "$work/$way.log" "$@" "$root/$library" ${others[@]+"${others[@]}"}
    [ ${#words[@]} != 0 ] && [ ${#over_verbs[@]} = 0 ] ||
        drive "$way" "$work/$way-verbs.log" env "${devices[@]}" "$@" "$root/$library" ${over_verbs[@]+"${over_verbs[@]}"}
}

# drive WAY LOG COMMAND…: prefixes its verdicts.
drive() {
    local way=$1 line good=0
    log=$2
    shift 2
    c-tests/patience.sh 600 "${there[@]}" "$@" >"$log" 2>&1 </dev/null
    status=$?
    while IFS= read -r line; do
        good=1
        case $line in
        "ok "*) ok "$way: ${line#ok }" ;;
        *) not_ok "$way: ${line#not ok }" ;;
        esac
    done < <(grep -aE '^(ok|not ok) ' "$log")
    if [ "$good" = 0 ] || { [ "$status" != 0 ] && ! grep -aq '^not ok ' "$log"; }; then
        not_ok "$way: the program (status $status)"
    fi
    [ "$status" = 0 ] || grep -avE '^ok ' "$log" | head -n 100 | sed 's/^/    | /'
}
words=("$@")
# Only what is driven is loaded.
export FI_PROVIDER=$own HAWSER_HOSTILE_PROVIDER=$own
run plain "$root/$work/hostile"
run asan env HAWSER_HOSTILE_SLOW=1 \
    ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:exitcode=98:max_free_fill_size=1048576:free_fill_byte=251 \
    LSAN_OPTIONS="suppressions=$root/c-tests/hostile/leaks.supp:print_suppressions=0" \
    "$root/$work/hostile-asan"
# Of smcuda, what is freed or unmapped while others use it; the rest takes valgrind longer than it is worth.
[ "${#words[@]}" != 0 ] || whole || words=(btl usnic mtl "smcuda pe" "smcuda pu" "smcuda finalized" "smcuda threads send")
run valgrind env HAWSER_HOSTILE_SLOW=1 \
    valgrind --quiet --read-inline-info=no --error-exitcode=99 --leak-check=no --fair-sched=yes --num-callers=30 \
    --suppressions="$root/c-tests/hostile/memory.supp" "$root/$work/hostile"
sum
