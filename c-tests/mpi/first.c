/* The first messages between two ranks are long, go both ways at once, and nothing has been sent
 * before. Then the same again, and short ones between all ranks. All payloads are verified. An even
 * number of ranks.
 *
 * usage: first BYTES [messages each way, default 1] */
#include "check.h"

enum { TAG = 5, MOST = 16, ROUNDS = 3, SHORT = 2000 };

int main(int argc, char **argv)
{
    static MPI_Request requests[2 * MOST];
    static unsigned char *out[MOST], *in[MOST];
    size_t size;
    int count, peer;

    check_start(&argc, &argv, "first", MPI_THREAD_SINGLE, 2);
    size = argc > 1 ? (size_t)atol(argv[1]) : 0;
    count = argc > 2 ? atoi(argv[2]) : 1;
    if (!CHECK(check_size % 2 == 0) || !CHECK(size > 0 && size <= INT32_MAX) || !CHECK(count > 0 && count <= MOST))
        MPI_Abort(MPI_COMM_WORLD, 2);
    peer = check_rank ^ 1;
    for (int i = 0; i < count; i++) {
        out[i] = malloc(size);
        in[i] = malloc(size);
        if (out[i] == NULL || in[i] == NULL)
            abort();
    }
    for (int round = 0; round < ROUNDS; round++) {
        doing("round", round);
        for (int i = 0; i < count; i++) {
            int tag = TAG + round * MOST + i;
            fill(out[i], size, seed_of(check_rank, tag, size));
            memset(in[i], 0, size);
            MPI(MPI_Irecv(in[i], (int)size, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[i]));
            MPI(MPI_Isend(out[i], (int)size, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[count + i]));
        }
        MPI(MPI_Waitall(2 * count, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < count; i++)
            VERIFY(in[i], size, seed_of(peer, TAG + round * MOST + i, size));
    }
    for (int i = 0; i < count; i++) {
        free(out[i]);
        free(in[i]);
    }
    doing("short messages between all", check_size);
    unsigned char *to = malloc((size_t)check_size * SHORT), *from = malloc((size_t)check_size * SHORT);
    if (to == NULL || from == NULL)
        abort();
    for (int other = 0; other < check_size; other++)
        fill(to + other * SHORT, SHORT, seed_of(check_rank, other, SHORT));
    MPI(MPI_Alltoall(to, SHORT, MPI_BYTE, from, SHORT, MPI_BYTE, MPI_COMM_WORLD));
    for (int other = 0; other < check_size; other++)
        VERIFY(from + other * SHORT, SHORT, seed_of(other, check_rank, SHORT));
    free(to);
    free(from);
    return check_finish();
}
