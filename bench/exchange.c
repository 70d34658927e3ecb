/* Two ranks exchange 8-byte messages over a BTL, for counting instructions under callgrind, which collects only `measured`
 * (--toggle-collect=measured). The difference between two counts is the cost of so many messages.
 *
 *     exchange FILE message COUNT    COUNT messages are sent and as many taken, by either rank, in batches: all of a batch is
 *                                    there before it is looked for, so that hardly anything is polled in vain
 *     exchange FILE idle COUNT       COUNT tests of a receive that nothing comes for
 *
 * FILE is where the ranks meet, beside MPI: it is made by the first, and a new one for each run. The software stand-in for
 * libibverbs (c-tests/verbs) says what is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BATCH = 16, TAG = 1, WARM_UP = 20 };

static int rank;
static long wrong, sent, taken;
static int is_connected;
static _Atomic int *arrived;

/* Both ranks are here. */
static void meet(void)
{
    static int times;
    times++;
    atomic_store(&arrived[rank], times);
    while (atomic_load(&arrived[!rank]) < times) usleep(100);
}

/* So many messages have come, and are not read; or it has been waited for long, since a sender that has no credit sends the rest
 * only when it has read what came for it. */
static void wait_for(long messages)
{
    static long (*unread)(void);
    if (unread == NULL) {
        void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
        if (library != NULL) *(void **)&unread = dlsym(library, "standin_unread");
        if (unread == NULL) {
            fprintf(stderr, "exchange: this is not the stand-in\n");
            exit(2);
        }
    }
    for (int i = 0; i < 500 && unread() < messages; i++) usleep(100);
}

static void send_batch(void)
{
    for (int i = 0; i < BATCH; i++) {
        long value = sent++;
        MPI_Send(&value, 8, MPI_BYTE, !rank, TAG, MPI_COMM_WORLD);
    }
}

static MPI_Request requests[BATCH];
static long values[BATCH];

static void post_batch(void)
{
    for (int i = 0; i < BATCH; i++) MPI_Irecv(&values[i], 8, MPI_BYTE, !rank, TAG, MPI_COMM_WORLD, &requests[i]);
}

static void take_batch(void) { MPI_Waitall(BATCH, requests, MPI_STATUSES_IGNORE); }

static int polls;
static void poll_often(void)
{
    long unused;
    int flag;
    MPI_Request request;
    MPI_Irecv(&unused, 8, MPI_BYTE, !rank, TAG, MPI_COMM_WORLD, &request);
    for (int i = 0; i < polls; i++) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        wrong += flag != 0;
    }
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

__attribute__((noipa)) void measured(void (*act)(void))
{
    act();
    __asm__ volatile("" ::: "memory"); /* keeps the call from becoming a jump */
}
static void plainly(void (*act)(void)) { act(); }

static void exchange(void (*through)(void (*)(void)))
{
    post_batch();
    meet();
    through(send_batch);
    if (is_connected) wait_for(BATCH);
    through(take_batch);
    for (int i = 0; i < BATCH; i++) wrong += values[i] != taken++;
}

int main(int argc, char **argv)
{
    if (argc != 4 || (strcmp(argv[2], "message") != 0 && strcmp(argv[2], "idle") != 0)) {
        fprintf(stderr, "usage: exchange FILE message|idle COUNT\n");
        return 2;
    }
    int count = atoi(argv[3]), fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0) return 2;
    arrived = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (arrived == MAP_FAILED) return 2;

    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < WARM_UP; i++) {
        exchange(plainly);
        is_connected = 1;
    }
    if (strcmp(argv[2], "idle") == 0) {
        polls = 100;
        poll_often();
        polls = count;
        meet();
        measured(poll_often);
        meet();
    } else {
        for (int i = 0; i < count / BATCH; i++) exchange(measured);
    }
    MPI_Finalize();
    if (wrong != 0) fprintf(stderr, "exchange: %ld wrong results\n", wrong);
    return wrong != 0;
}
