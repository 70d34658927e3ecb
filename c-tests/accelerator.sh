#!/usr/bin/env bash
# Buffers in the memory of CUDA devices, in a real mpirun of an Open MPI that was built without CUDA: hawser's
# accelerator component beside the software stand-in for the driver (c-tests/cuda), which ends the process when the
# processor touches a device's memory, and whose ledger tells what was not given back.
#
#     c-tests/accelerator.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, whose Open MPI 4.1 knows no accelerators: there it is hawser's hook of copies that is
# tried (op_hawser_copy_hook), and what is refused without it. debian13 is the chroot that tests/hosts/debian13.sh keeps. Needs target/mca (`make stage`). With words, only the runs whose line holds all of
# them. Logs lie in target/c-tests/HOST/accelerator; that of a failed run is shown. The last line is
# `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh
. c-tests/cuda/build.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
shift
words=("$@")
work=target/c-tests/$host/accelerator
log=$work/log
rm -rf "$work"
mkdir -p "$work/ledgers" || exit 2
unset "${!HAWSER_CUDA_@}" CUDA_VISIBLE_DEVICES

[ -e target/mca/libhawser.so ] || give_up "target/mca is staged"
cuda_library "$work" || give_up "the stand-in compiles"
for source in c-tests/accelerator/*.c; do
    # Kernels are what the stand-in has not: c-tests/gpu.sh is about them.
    [ "$source" != c-tests/accelerator/kernels.c ] || continue
    name=$(basename "$source" .c)
    "${there[@]}" mpicc -std=gnu11 -O1 -Wall -Wextra -Werror "$source" -o "$work/$name" -ldl >"$log" 2>&1 || give_up "$name.c compiles"
done

# job RANKS OPTION… -- PROGRAM ARGUMENT…: a job with the stand-in; fills `log` and `status`.
job() {
    local ranks=$1 options=()
    shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    rm -f "$work/ledgers/"*
    c-tests/patience.sh 180 "${there[@]}" mpirun --oversubscribe -n "$ranks" \
        --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" -x "LD_LIBRARY_PATH=$root/$work" \
        -x "HAWSER_CUDA_LEDGER=$root/$work/ledgers/rank" "${options[@]}" "$root/$work/$1" "${@:2}" >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" != 0 ] || grep -qx "PASS $1" "$log" || status="no PASS"
}

# run LINE RANKS OPTION… -- PROGRAM ARGUMENT…: it passes, and nothing is left in the driver.
run() {
    local line=$1 begin=$SECONDS
    shift
    wanted "$line" || return 0
    log=$work/$(tr -c 'a-z0-9\n' - <<<"$line").log
    job "$@"
    if [ "$status" = 0 ]; then cuda_ledger "$work/ledgers/rank" "$1" >>"$log" 2>&1 || status=ledger; fi
    check "$line ($((SECONDS - begin)) s)" "$status"
}

case $host in
debian12) cuda=(--mca op_hawser_copy_hook 1) memory=vader ;;
debian13) cuda=(--mca accelerator cuda) memory=sm ;;
esac
ob1=("${cuda[@]}" --mca pml ob1)
sm=("${ob1[@]}" --mca btl "$memory,self")
tcp=("${ob1[@]}" --mca btl "tcp,self" --mca btl_tcp_if_include lo)
usnic=("${ob1[@]}" --mca btl "usnic,self" --mca btl_usnic_if_include lo)
smcuda=("${ob1[@]}" --mca btl "smcuda,self")
mtl=("${cuda[@]}" --mca pml cm --mca mtl hawser --mca mtl_hawser_provider_include tcp)

# The grid of transfers: what passes is said by the runs, and shown as a table at the end. What the host has not, it
# has not: there are no windows over an MTL alone (pml/cm), and 4.1 brings its own for host memory alone.
grid=$work/table
name_of() { if [ "$1" = sm ]; then echo "$memory"; else echo "$1"; fi; }
# cells LINE COLUMN OPERATION OPTION…: all cells of a column.
cells() {
    local line=$1 column=$2 operation=$3
    shift 3
    wanted "$line" || return 0
    run "$line" 2 "$@" -- grid "$operation"
    sed -n "s/^cell /$column: /p" "$log" >>"$grid"
}
# Without `make test-all`, the column in which most is the host's own.
columns=(sm)
if whole; then
    columns+=(tcp usnic smcuda)
    [ "$host" = debian12 ] || columns+=(mtl)
fi
for column in "${columns[@]}"; do
    declare -n way=$column
    for operation in messages collectives reductions windows; do
        [ "$host $operation" != "debian12 windows" ] && [ "$column $operation" != "mtl windows" ] || continue
        cells "grid, $operation, $(name_of "$column")" "$column" "$operation" "${way[@]}"
    done
done
# The table: a line for each cell that any column has.
table() {
    local column cell
    [ -s "$grid" ] || return 0
    printf '| %s: what, elements, buffers' "$host"
    for column in "${columns[@]}"; do printf ' | %s' "$(name_of "$column")"; done
    echo ' |'
    sed 's/^[a-z]*: //' "$grid" | sort -u | while read -r cell; do
        printf '| %s' "$cell"
        for column in "${columns[@]}"; do
            if grep -qxF "$column: $cell" "$grid"; then printf ' | yes'; else printf ' | no'; fi
        done
        echo ' |'
    done
}

# replaced LINE seldom|often OPTION…: memory of a device in the place of host memory that was in use; and how often the
# driver is asked about 8000 and more messages from host memory.
replaced() {
    local line=$1 often=$2 asked
    shift 2
    wanted "$line" || return 0
    log=$work/$(tr -c 'a-z0-9\n' - <<<"$line").log
    echo 'char room[8 << 20];' | "${there[@]}" mpicc -shared -fPIC -x c - -o "$work/libroom.so" || give_up "a library is made"
    job 2 "$@" -- reused 1000 "$root/$work/libroom.so"
    if [ "$status" = 0 ]; then cuda_ledger "$work/ledgers/rank" 2 >>"$log" 2>&1 || status=ledger; fi
    asked=$(awk '$1 == "call" && $2 == "cuPointerGetAttributes" { sum += $3 } END { print sum + 0 }' "$work/ledgers/"*)
    case $often in
    seldom) [ "$asked" -gt 0 ] && [ "$asked" -lt 1500 ] ;;
    often) [ "$asked" -gt 8000 ] ;;
    esac || { [ "$status" != 0 ] || status="asked $asked times"; }
    check "$line (the driver is asked $asked times)" "$status"
}

# refused LINE OPTION… -- ARGUMENT…: without the hook's copies the job ends with one line about it, the host says which
# rank has ended it, and nobody dies of a signal.
refused() {
    local line=$1
    shift
    wanted "$line" || return 0
    log=$work/$(tr -c 'a-z0-9\n' - <<<"$line").log
    retold job 2 "$@"
    case $status in 0 | 124 | 13? | "no PASS") status="$status, not refused" ;; *) status=0 ;; esac
    [ "$(grep -ac 'lies in the memory of a CUDA device, of which this Open MPI 4.1 does not know' "$log")" = 1 ] || status="not one line"
    says 'MPI_ABORT was invoked on rank [01]' || status="the host has not ended it"
    ! says 'ignal|Segmentation|core dumped|watchdog|panicked|^PASS' || status=signal
    check "$line" "$status"
}

# Open MPI has its hooks in place where it has looked at UCX.
for column in sm smcuda; do
    declare -n way=$column
    replaced "host memory that becomes a device's, $(name_of "$column")" seldom "${way[@]/#ob1/ob1,ucx}"
done
replaced "host memory that becomes a device's, and Open MPI does not tell" often "${sm[@]}"
run "contexts that end before MPI does, $memory" 2 "${sm[@]}" -- reset
run "contexts that end before MPI does, of one device, $memory" 2 "${sm[@]}" -x HAWSER_CUDA_DEVICES=1 -- reset
run "many threads, $memory" 2 "${sm[@]}" -- threads
run "other threads unmap memory from before MPI until after it" 2 "${sm[@]}" -- unmapping

if [ "$host" = debian12 ]; then
    plain=(--mca pml ob1 --mca btl "$memory,self")
    over_tcp=(--mca pml ob1 --mca btl "tcp,self" --mca btl_tcp_if_include lo)
    over_usnic=(--mca pml ob1 --mca btl "usnic,self" --mca btl_usnic_if_include lo)
    over_smcuda=(--mca pml ob1 --mca btl "smcuda,self")
    over_mtl=(--mca pml cm --mca mtl hawser --mca mtl_hawser_provider_include net)
    # Over shared memory, which this component takes only if told so.
    over_ucx=(--mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any --mca osc sm,rdma --mca btl "$memory,self")
    by_word=(--mca op_hawser_copy_hook refuse)
    messages=(send receive unexpected long-send long-receive bsend self derived-send derived-receive)
    collectives=(bcast allgather copy allreduce reduce-local own fortran)
    one_sided=(window attach put get-long accumulate fetch swap)
    if whole; then
        messages+=(tiny derived-blocks pack persistent-send persistent-receive matched-receive begun-matched-receive)
        collectives+=(alltoall allreduce-long own-allreduce)
        one_sided+=(put-long get get-accumulate rput rget raccumulate rget-accumulate)
    fi
    for what in "${messages[@]}" "${collectives[@]}" "${one_sided[@]}"; do
        refused "refused, vader: $what" "${plain[@]}" -- refused early "$what"
    done
    for what in receive long-send derived-receive allreduce; do
        refused "refused, tcp: $what" "${over_tcp[@]}" -- refused early "$what"
        refused "refused, usnic: $what" "${over_usnic[@]}" -- refused early "$what"
    done
    refused "refused, usnic: send" "${over_usnic[@]}" -- refused early send
    refused "refused, usnic: long-receive" "${over_usnic[@]}" -- refused early long-receive
    refused "refused, smcuda: absolute-send" "${over_smcuda[@]}" -- refused early absolute-send
    refused "refused, smcuda: absolute-receive" "${over_smcuda[@]}" -- refused early absolute-receive
    refused "refused, usnic: absolute-send" "${over_usnic[@]}" -- refused early absolute-send
    for what in pack-external unpack-external; do
        refused "refused: $what" "${plain[@]}" -- refused early "$what"
        refused "refused, with copies, too: $what" "${sm[@]}" -- refused early "$what"
    done
    for what in file-write file-read file-iwrite file-iread; do
        refused "refused, ompio: $what" "${plain[@]}" --mca io ompio -- refused early "$what"
        refused "refused, romio: $what" "${plain[@]}" --mca io romio321 -- refused early "$what"
    done
    refused "refused, with copies, too: file-write" "${sm[@]}" -- refused early file-write
    refused "refused, MTL: send" "${over_mtl[@]}" -- refused early send
    refused "refused, MTL: long-receive" "${over_mtl[@]}" -- refused early long-receive
    for what in send receive long-send long-receive bsend persistent-send persistent-receive matched-receive \
        begun-matched-receive self absolute-receive allgather; do
        refused "refused, UCX: $what" "${over_ucx[@]}" -- refused early "$what"
    done
    refused "refused, UCX, with copies, too: send" "${over_ucx[@]}" "${cuda[@]}" -- refused early send
    refused "refused, osc/pt2pt: put" --mca osc pt2pt "${over_tcp[@]}" -- refused early put
    refused "refused, osc/pt2pt: fetch" --mca osc pt2pt "${over_tcp[@]}" -- refused early fetch
    refused "refused, CUDA begun after MPI: receive" "${plain[@]}" "${by_word[@]}" -- refused late receive
    refused "refused, CUDA begun after MPI: allreduce" "${plain[@]}" "${by_word[@]}" -- refused late allreduce
    refused "refused, with copies, too: a window on a device" "${sm[@]}" -- refused early window
    refused "refused, with copies, too: a buffer of one-sided communication" "${sm[@]}" -- refused early fetch
    # looked LINE 0|1 OPTION… -- ARGUMENT…: whether the host's copies are looked at.
    looked() {
        local line=$1 answer=$2
        shift 2
        wanted "$line" || return 0
        log=$work/$(tr -c 'a-z0-9\n' - <<<"$line").log
        job 1 "${plain[@]}" "$@"
        [ "$status" != 0 ] || grep -qx "looked $answer" "$log" || status="another answer"
        check "$line" "$status"
    }
    looked "no copy is looked at on a machine without the driver" 0 -- slots
    looked "nor where the program has loaded it, and not initialised" 0 -- slots loaded
    looked "nor where there is no device" 0 -x HAWSER_CUDA_DEVICES=0 -- slots loaded
    looked "nor where the user does not want it" 0 --mca op_hawser_copy_hook 0 -- slots initialised
    looked "copies are looked at where CUDA is in use" 1 -- slots initialised
    looked "and where the user says so" 1 "${by_word[@]}" -- slots
    run "not refused: host memory, vader" 2 "${plain[@]}" -- refused early host
    run "not refused: host memory, tcp" 2 --mca osc sm,pt2pt "${over_tcp[@]}" -- refused early host
    run "not refused: host memory, usnic" 2 --mca osc sm,pt2pt "${over_usnic[@]}" -- refused early host
    run "not refused: host memory, smcuda" 2 --mca osc sm,pt2pt "${over_smcuda[@]}" -- refused early host
    run "not refused: host memory, CUDA begun after MPI" 2 "${plain[@]}" "${by_word[@]}" -- refused late host
    run "not refused: host memory, UCX" 2 "${over_ucx[@]}" -- refused early host
    run "not refused: host memory, with copies, vader" 2 "${sm[@]}" -- refused early host
    run "not refused: host memory, with copies, for any number of threads, vader" 2 "${sm[@]}" -- refused early host threads
    run "not refused: managed memory" 2 "${plain[@]}" -- refused early managed
    run "not refused: nothing of a buffer" 2 "${plain[@]}" -- refused early nothing
    run "an operation that Fortran has made, vader" 2 "${sm[@]}" -- refused early fortran
    run "messages, vader" 2 "${sm[@]}" -- messages late 300000
    run "messages, CUDA begun before MPI, vader" 2 "${sm[@]}" -- messages early 65537
    run "messages, tcp" 2 "${tcp[@]}" -- messages late 1048576
    run "messages, usnic" 2 "${usnic[@]}" -- messages late 1048576
    run "collectives and datatypes, vader" 3 "${sm[@]}" -- collectives 300000
    run "collectives and datatypes, tcp" 2 "${tcp[@]}" -- collectives 5000
    run "collectives and datatypes, usnic" 2 "${usnic[@]}" -- collectives 5000
    run "reductions, vader" 3 "${sm[@]}" -- reductions 5000
    run "reductions, smcuda" 2 "${smcuda[@]}" -- reductions 5000
    run "reductions, usnic" 2 "${usnic[@]}" -- reductions 5000
    run "elements that a message is cut in, vader" 2 "${sm[@]}" -- elements
    run "elements that a message is cut in, tcp" 2 "${tcp[@]}" -- elements
    run "elements that a message is cut in, usnic" 2 "${usnic[@]}" -- elements 200000
    run "elements that a message is cut in, smcuda" 2 "${smcuda[@]}" -- elements
    table
    sum
    exit
fi

long=1048576
! whole || long=4194304
run "messages, sm, CUDA begun after MPI" 2 "${sm[@]}" -- messages late 4194304
run "messages, sm, CUDA begun before MPI" 2 "${ob1[@]}" --mca btl "sm,self" -- messages early 65537
run "messages, sm, work takes time" 2 "${sm[@]}" -x HAWSER_CUDA_DELAY=200 -- messages late 65537
run "messages, tcp" 2 "${tcp[@]}" -- messages late "$long"
run "messages, usnic" 2 "${usnic[@]}" -- messages late "$long"
run "messages, MTL" 2 "${mtl[@]}" -- messages late "$long"
run "collectives and datatypes, sm" 3 "${sm[@]}" -- collectives 300000
run "collectives and datatypes, tcp" 2 "${tcp[@]}" -- collectives 5000
run "collectives and datatypes, usnic" 2 "${usnic[@]}" -- collectives 5000
run "collectives and datatypes, MTL" 2 "${mtl[@]}" -- collectives 5000
run "reductions, sm" 3 "${sm[@]}" -- reductions 5000
run "long reductions, sm" 2 "${sm[@]}" -- reductions 150000
run "reductions, usnic" 2 "${usnic[@]}" -- reductions 5000
run "reductions, MTL" 2 "${mtl[@]}" -- reductions 5000
run "an operation that Fortran has made, sm" 2 "${sm[@]}" -- refused early fortran
run "elements that a message is cut in, sm" 2 "${sm[@]}" -- elements
run "elements that a message is cut in, tcp" 2 "${tcp[@]}" -- elements
run "elements that a message is cut in, usnic" 2 "${usnic[@]}" -- elements 200000
run "one-sided operations, sm" 2 "${sm[@]}" -- windows all dddh
run "windows of other memory, sm" 2 "${sm[@]}" -- windows others d
run "a window from before CUDA, sm" 2 "${sm[@]}" -- windows early -
if whole; then
    run "one-sided operations of all kinds, sm" 3 "${sm[@]}" -- windows all hhhdddoadh
    run "one-sided operations, tcp" 2 "${tcp[@]}" -- windows all dddh
    run "one-sided operations, usnic" 2 "${usnic[@]}" -- windows all dddh
    run "one-sided operations, smcuda" 2 "${smcuda[@]}" -- windows all dddh
    run "windows of other memory of all kinds, sm" 2 "${sm[@]}" -- windows others hdua
    run "windows of other memory, usnic" 3 "${usnic[@]}" -- windows others do
    run "a window from before CUDA, tcp" 2 "${tcp[@]}" -- windows early -
    run "windows and buffers of all kinds, sm" 2 "${sm[@]}" -- windows hdou hmpdua
    run "windows and buffers of all kinds, usnic" 2 "${usnic[@]}" -- windows dou hdo
fi
# Without the hook the host refuses the window, and nothing crashes.
line="without the hook there are no windows on devices, and MPI says so"
if wanted "$line"; then
    job 2 "${sm[@]}" --mca accelerator_cuda_copy_hook 0 -- windows d h
    says 'MPI_ERR_WIN' && ! says 'ignal 11|Segmentation'
    check "$line" $?
fi

# What is chosen. `support` says what MPIX_Query_cuda_support does.
# chosen LINE WANTED RANKS OPTION… -- ARGUMENT…
chosen() {
    local line=$1 answer=$2
    shift 2
    wanted "$line" || return 0
    log=$work/$(tr -c 'a-z0-9\n' - <<<"$line").log
    job "$@"
    [ "$status" != 0 ] || grep -qx "support $answer" "$log" || status="another answer"
    check "$line" "$status"
}
chosen "no driver in the process, and none in the machine: not used" 0 1 -- support
line="and nothing is said of it"
if wanted "$line"; then
    log=$work/quiet.log
    job 1 -- support
    ! grep -iv '^support\|^PASS' "$log" | grep -i 'hawser\|cuda\|accelerator'
    check "$line" $?
fi
chosen "the program has initialised the driver: used" 1 1 -- support initialised
chosen "there is no device: not used" 0 1 -x HAWSER_CUDA_DEVICES=0 -- support initialised
chosen "named: used" 1 1 --mca accelerator cuda -- support
chosen "the user does not want it" 0 1 --mca accelerator null -- support initialised

table
sum
