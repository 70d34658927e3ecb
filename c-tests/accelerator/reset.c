/* Contexts that end while MPI goes on, and before it ends, with all that was in them.
 *
 *     reset [LEN] */
#include "cuda.h"

static void exchange(enum kind from, enum kind to, size_t len, unsigned seed)
{
    struct buffer source = buffer_new(from, len), target = buffer_new(to, len);
    int peer = check_rank ^ 1;
    doing("exchange", (long long)(len * 100 + from * 10 + to));
    buffer_fill(&source, 0, len, seed + (unsigned)check_rank);
    buffer_fill(&target, 0, len, seed + 50);
    MPI(MPI_Sendrecv(source.start, (int)len, MPI_BYTE, peer, 1, target.start, (int)len, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    buffer_holds(&target, 0, len, seed + (unsigned)peer);
    buffer_free(&source);
    buffer_free(&target);
}

int main(int argc, char **argv)
{
    size_t len = argc > 1 ? strtoul(argv[1], NULL, 0) : 300000;
    check_start(&argc, &argv, "reset", MPI_THREAD_SINGLE, 2);
    cuda_begin();
    for (unsigned round = 0; round < 4; round++) {
        for (enum kind from = 0; from < KINDS; from++)
            for (enum kind to = 0; to < KINDS; to++) {
                exchange(from, to, 100, round * 100 + from * 10 + to);
                exchange(from, to, len, round * 100 + from * 10 + to);
            }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        /* One of both alone, too. */
        if (round < 2 || check_rank == 0) {
            cuda_reset();
            cuda_again();
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    cuda_reset();
    return check_finish();
}
