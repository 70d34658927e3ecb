/* What the first message to a peer takes, with which a BTL connects, and what memory the process has then, registered and not.
 *
 *     first FILE
 *
 * Rank 0 exchanges 8 bytes with each other rank in turn, and again and again: the first round trip less a later one is what
 * the connection took. The others sleep until it is their turn. Bytes that are registered with devices come from the software
 * stand-in for libibverbs (c-tests/verbs). FILE is where the ranks meet, beside MPI: it is made by the first, and a new one
 * for each run. Of rank 0, before anybody is connected and after each peer:
 *
 *     registered ranks=5 connected=1 bytes=..
 *     memory ranks=5 connected=1 unregistered=.. heap=..     bytes in pages that it alone has written; bytes of malloc in use
 *
 * Both have the stand-in's own in them, and all of Open MPI's: they are for comparing two components over the same stand-in, or
 * two lines. `unregistered` is what the process takes of the machine, in whole pages; `heap` is exact, but has what was never
 * written, and what is registered, in it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { TAG = 1, AGAIN = 101 };
static _Atomic int *turn, *ready;

static double exchange(int peer, int is_first)
{
    long value = peer;
    double begin = MPI_Wtime();
    if (is_first) MPI_Send(&value, 8, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
    MPI_Recv(&value, 8, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!is_first) MPI_Send(&value, 8, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
    return (MPI_Wtime() - begin) * 1e6;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void registered(int ranks, int connected)
{
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    uint64_t (*bytes)(void) = NULL;
    if (library != NULL) *(void **)&bytes = dlsym(library, "standin_registered");
    if (bytes != NULL) printf("registered ranks=%d connected=%d bytes=%lu\n", ranks, connected, (unsigned long)bytes());
}

/* Pages that are registered are known by the memory policy with which the stand-in marks them. Where the kernel has no policies,
 * or refuses them, nothing is said. */
static void memory(int ranks, int connected)
{
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    char line[8192], policy[64], *count;
    long unregistered = 0, registered = 0;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        if (sscanf(line, "%*s %63s", policy) == 1 && (count = strstr(line, " anon=")) != NULL)
            *(strncmp(policy, "prefer", 6) == 0 ? &registered : &unregistered) += atol(count + 6);
    if (maps != NULL) fclose(maps);
    if (unregistered != 0 && (connected == 0 || registered != 0))
        printf("memory ranks=%d connected=%d unregistered=%ld heap=%zu\n", ranks, connected, unregistered * sysconf(_SC_PAGESIZE),
            mallinfo2().uordblks);
}

int main(int argc, char **argv)
{
    int rank, ranks, fd;
    if (argc != 2) return 2;
    fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0) return 2;
    turn = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (turn == MAP_FAILED) return 2;
    ready = turn + 1;

    /* A huge page would count as a whole, whatever was written of it. */
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 0) {
        registered(ranks, 0);
        memory(ranks, 0);
        for (int peer = 1; peer < ranks; peer++) {
            double times[AGAIN];
            atomic_store(turn, peer);
            while (atomic_load(ready) != peer) usleep(1000);
            usleep(20000); /* it waits for the message by now */
            double first = exchange(peer, 1);
            for (int i = 0; i < AGAIN; i++) times[i] = exchange(peer, 1);
            qsort(times, AGAIN, sizeof *times, ascending);
            printf("first ranks=%d peer=%d us=%.1f again_us=%.1f\n", ranks, peer, first, times[AGAIN / 2]);
            registered(ranks, peer);
            memory(ranks, peer);
        }
        atomic_store(turn, ranks);
    } else {
        while (atomic_load(turn) != rank) usleep(1000);
        atomic_store(ready, rank);
        for (int i = 0; i <= AGAIN; i++) exchange(0, 0);
        while (atomic_load(turn) != ranks) usleep(1000);
    }
    MPI_Finalize();
    return 0;
}
