/* Odd ranks compute, and call no MPI, while the rank below each sends it a long message; then they
 * receive the rest. All payloads are verified. An even number of ranks.
 *
 * usage: busy [seconds, default 1] */
#include "check.h"
#include <time.h>

enum { TAG = 3, LONG = 1 << 26 };

/* Until some of the message has arrived and some has not; false if all of it came at once. */
static bool begun(const unsigned char *in, MPI_Request *request)
{
    const volatile unsigned char *first = in;
    int done = 0;
    while (!done && *first == 0)
        MPI(MPI_Test(request, &done, MPI_STATUS_IGNORE));
    return !done;
}

/* To MPI it is the same whether the processor is busy. */
static void compute(int seconds)
{
    struct timespec rest = {seconds, 0};
    doing("computing, seconds", seconds);
    while (nanosleep(&rest, &rest) != 0)
        ;
}

int main(int argc, char **argv)
{
    MPI_Request request;
    unsigned char *bytes;
    int seconds, peer;
    bool computed = false;

    check_start(&argc, &argv, "busy", MPI_THREAD_SINGLE, 2);
    seconds = argc > 1 ? atoi(argv[1]) : 1;
    if (!CHECK(check_size % 2 == 0) || !CHECK(seconds > 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    bytes = malloc(LONG);
    if (bytes == NULL)
        abort();
    peer = check_rank ^ 1;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int go_on = 1; go_on;) {
        if (check_rank % 2 == 0) {
            doing("sending to", peer);
            memset(bytes, 7, LONG);
            MPI(MPI_Send(bytes, LONG, MPI_BYTE, peer, TAG, MPI_COMM_WORLD));
            MPI(MPI_Recv(&go_on, 1, MPI_INT, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            continue;
        }
        doing("receiving from", peer);
        memset(bytes, 0, LONG);
        MPI(MPI_Irecv(bytes, LONG, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request));
        if (begun(bytes, &request)) {
            printf("rank %d computes\n", check_rank);
            fflush(stdout);
            compute(seconds);
            computed = true;
        }
        doing("receiving the rest from", peer);
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(bytes[0] == 7 && memcmp(bytes, bytes + 1, LONG - 1) == 0);
        go_on = !computed;
        MPI(MPI_Send(&go_on, 1, MPI_INT, peer, TAG, MPI_COMM_WORLD));
    }
    free(bytes);
    return check_finish();
}
