#!/usr/bin/env bash
# What it costs Open MPI 4.1 that its copies are looked at (op_hawser_copy_hook): instructions by callgrind and
# nanoseconds of an MPI_Pack of 64 bytes with the hook, less those without. The driver is the software stand-in
# (c-tests/cuda): how long a driver thinks about an address is its own matter. Open MPI looks at UCX, and so tells when memory
# is unmapped. Needs target/mca (`make stage`) and valgrind.
#
#     bench/copy-hook.sh
set -eu
cd "$(dirname "$0")/.."

. c-tests/host.sh
. c-tests/cuda/build.sh
host_use debian12
work=target/bench/copy-hook
log=$work/log
mkdir -p "$work"
cuda_library "$work"
mpicc -std=gnu11 -O2 -Wall -Wextra bench/copyhook.c -o "$work/copyhook" -ldl
export LD_LIBRARY_PATH=$PWD/$work OMPI_MCA_mca_base_component_path=$PWD/target/mca:$stock OMPI_MCA_pml=ob1,ucx OMPI_MCA_btl=self

# count MODE WHERE TURNS: instructions of the turns of a run.
count() {
    OMPI_MCA_op_hawser_copy_hook=$1 valgrind --quiet --tool=callgrind --toggle-collect=turns \
        --callgrind-out-file="$work/out" "$work/copyhook" "$2" 0 "$3" >/dev/null 2>"$log"
    sed -n 's/^\(summary\|totals\): //p' "$work/out" | tail -n 1
}

# instructions WHERE: what a turn has more, of 9 * 200 that one run has more than the other. Not of the heap: under
# valgrind it does not lie where the kernel says.
instructions() {
    [ "$1" != heap ] || { echo -; return; }
    echo $((($(count refuse "$1" 400) - $(count refuse "$1" 200) - $(count 0 "$1" 400) + $(count 0 "$1" 200)) / 1800))
}

time_of() { OMPI_MCA_op_hawser_copy_hook=$1 "$work/copyhook" "$2" "$3" 2000000; }

echo '| driver | buffer | instructions more | ns more |'
echo '|---|---|---|---|'
for loaded in 0 1; do
    for where in heap stack mapped; do
        more=-
        [ $loaded = 1 ] || more=$(instructions "$where")
        plain=$(time_of 0 "$where" "$loaded") looked=$(time_of refuse "$where" "$loaded")
        awk -v loaded="$loaded" -v where="$where" -v more="$more" -v plain="$plain" -v looked="$looked" 'BEGIN {
            printf "| %s | %s | %s | %.1f (%.1f, was %.1f) |\n", loaded ? "loaded" : "not loaded", where, more,
                looked - plain, looked, plain }'
    done
done
