/* Rank 1's completion queues end while it is outside of MPI, and its component has heard of that when it comes back. The software
 * stand-in for libibverbs (c-tests/verbs) has them end.
 *
 * usage: endings last       when each rank has had what it wants of each other: MPI_Finalize comes next, and nobody misses anything
 *        endings stranger   when it has talked with rank 0 alone; what it does next is to send to rank 2, for the first time. Who
 *                           goes on without that says so and fails */
#include "check.h"

#include <dlfcn.h>

enum { VICTIM = 1, OTHER = 2, TAG = 4, ROUNDS = 20, EACH = 20000, MOST = 8 };

static unsigned char out[MOST * EACH], in[MOST * EACH];

static void nap(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }

static void end_queues(void)
{
    void (*end_all)(const char *device, int shared) = NULL;
    int (*untold)(void) = NULL;
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library != NULL) {
        *(void **)&end_all = dlsym(library, "standin_end_queues");
        *(void **)&untold = dlsym(library, "standin_untold");
    }
    if (!CHECK(end_all != NULL && untold != NULL)) MPI_Abort(MPI_COMM_WORLD, 2);
    end_all(NULL, 0);
    while (untold() > 0) nap();
}

/* Short and long messages between all. */
static void last(void)
{
    doing("everybody with everybody", 0);
    fill(out, (size_t)check_size * EACH, (unsigned)check_rank);
    for (int round = 0; round < ROUNDS; round++) {
        int each = round % 2 ? EACH : 8;
        MPI(MPI_Alltoall(out, each, MPI_BYTE, in, each, MPI_BYTE, MPI_COMM_WORLD));
        for (int other = 0; other < check_size; other++)
            for (int at = 0; at < each; at++)
                if (in[other * each + at] != pattern((unsigned)other, (size_t)(check_rank * each + at))) CHECK_EQ(other, -1);
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (check_rank == VICTIM) end_queues();
}

static void stranger(void)
{
    doing("ranks 0 and 1", 0);
    for (int round = 0; round < ROUNDS && check_rank <= VICTIM; round++)
        MPI(MPI_Sendrecv(out, EACH, MPI_BYTE, 1 - check_rank, TAG, in, EACH, MPI_BYTE, 1 - check_rank, TAG, MPI_COMM_WORLD,
            MPI_STATUS_IGNORE));
    if (check_rank == VICTIM) {
        end_queues();
        doing("send to whom it has not met", 0);
        MPI(MPI_Send(out, 8, MPI_BYTE, OTHER, TAG, MPI_COMM_WORLD));
    } else {
        MPI(MPI_Recv(in, 8, MPI_BYTE, VICTIM, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    printf("rank %d goes on\n", check_rank);
}

int main(int argc, char **argv)
{
    const char *when = argc > 1 ? argv[1] : "";
    bool is_last = strcmp(when, "last") == 0;
    check_start(&argc, &argv, "endings", MPI_THREAD_SINGLE, is_last ? 2 : 3);
    if (!CHECK(check_size <= MOST) || (!is_last && strcmp(when, "stranger") != 0)) MPI_Abort(MPI_COMM_WORLD, 2);
    if (is_last) last();
    else stranger();
    doing("MPI_Finalize", 0);
    MPI_Finalize();
    return check_print_verdict(atomic_load(&check_failures));
}
