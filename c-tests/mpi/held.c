/* One rank keeps much of its memory in a window for as long as the job runs; long messages go to it and from it meanwhile, for
 * so many seconds. All payloads are verified, and the window works at the end.
 *
 * usage: held WINDOW_BYTES MESSAGE_BYTES SECONDS */
#include "check.h"

enum { TAG = 5 };

/* Rank 0 says each time whether another exchange follows: both end at the same one. */
static bool follows(double end)
{
    int more = MPI_Wtime() < end;

    MPI(MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD));
    return more != 0;
}

int main(int argc, char **argv)
{
    unsigned char *window_memory = NULL, *out, *in;
    size_t window_size, size;
    int round = 0, peer, put;
    double end;
    MPI_Win window;

    check_start(&argc, &argv, "held", MPI_THREAD_SINGLE, 2);
    if (!CHECK_EQ(argc, 4) || !CHECK_EQ(check_size, 2))
        MPI_Abort(MPI_COMM_WORLD, 2);
    window_size = (size_t)atol(argv[1]);
    size = (size_t)atol(argv[2]);
    end = MPI_Wtime() + atof(argv[3]);
    put = (int)(size < window_size ? size : window_size);
    peer = check_rank ^ 1;
    out = malloc(size);
    in = malloc(size);
    if (check_rank == 0)
        window_memory = calloc(window_size, 1);
    if (out == NULL || in == NULL || (check_rank == 0 && window_memory == NULL))
        abort();
    MPI(MPI_Win_create(window_memory, check_rank == 0 ? (MPI_Aint)window_size : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    while (follows(end)) {
        MPI_Request requests[2];

        doing("exchange", ++round);
        fill(out, size, seed_of(check_rank, round, size));
        memset(in, 0, size);
        MPI(MPI_Irecv(in, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[0]));
        MPI(MPI_Isend(out, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[1]));
        MPI(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        VERIFY(in, size, seed_of(peer, round, size));
    }
    CHECK(round > 0);
    doing("the window", put);
    MPI(MPI_Win_fence(0, window));
    if (check_rank == 1)
        MPI(MPI_Put(out, put, MPI_BYTE, 0, 0, put, MPI_BYTE, window));
    MPI(MPI_Win_fence(0, window));
    if (check_rank == 0)
        VERIFY(window_memory, (size_t)put, seed_of(1, round, size));
    MPI(MPI_Win_free(&window));
    free(window_memory);
    free(out);
    free(in);
    return check_finish();
}
