/* What the machine itself allows between two processes with a core each, printed as pinned.h says.
 *
 *     limits [-t SECONDS] flag|copy
 *
 * flag    the latency of a number that each writes into a line of the cache that the other reads, again and again
 * copy    the bandwidth of process_vm_readv(2), of 64 KiB and more, a call for each message */

#define _GNU_SOURCE
#include <sys/uio.h>

#include "pinned.h"

static struct {
    _Alignas(128) _Atomic uint64_t number;
} *lines;
static uint64_t turn;
static void *far_bytes;

static double flags(int size, int count)
{
    double start = now();
    (void)size;
    for (int i = 0; i < count; i++) {
        turn++;
        if (rank == 0)
            atomic_store_explicit(&lines[0].number, turn, memory_order_release);
        while (atomic_load_explicit(&lines[!rank].number, memory_order_acquire) != turn)
            ;
        if (rank == 1)
            atomic_store_explicit(&lines[1].number, turn, memory_order_release);
    }
    return now() - start;
}

static double copies(int size, int count)
{
    double start = now();
    if (rank == 1)
        return 0;
    for (int i = 0; i < count * window_of(size); i++) {
        struct iovec here = {incoming + place(size, i), (size_t)size};
        struct iovec there = {(char *)far_bytes + place(size, i), (size_t)size};
        if (process_vm_readv(other, &here, 1, &there, 1, 0) != size)
            fail("process_vm_readv");
    }
    checked++;
    wrong += incoming[0] != 1 || incoming[size - 1] != 1;
    return now() - start;
}

int main(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "t:")) != -1)
        patience = option == 't' ? atof(optarg) : patience;
    const char *what = optind < argc ? argv[optind] : "";
    lines = mmap(NULL, 2 * sizeof *lines, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (lines == MAP_FAILED)
        fail("mmap");
    part(-1);
    if (strcmp(what, "flag") == 0) {
        latency(flags, RATE_SIZE);
    } else if (strcmp(what, "copy") == 0) {
        if (rank == 1)
            tell(&outgoing, sizeof outgoing);
        else
            hear(&far_bytes, sizeof far_bytes);
        for (int size = 64 << 10; size <= LARGEST; size *= 2)
            bandwidth(copies, size);
    } else {
        return 2;
    }
    return finish();
}
