/* Messages that nobody receives, and receives of messages that nobody sends, are left behind: MPI_Finalize comes
 * while they are under way, one of them too long to have come whole. No correct program does that, but none that
 * does it may crash in the end.
 *
 * usage: unmatched keep|free|early|even|odd    whether the requests are kept, or freed before MPI_Finalize; `early`: freed,
 *                                              and nothing was sent before, so that some are not connected yet when others
 *                                              end; `even`, `odd`: only these ranks leave messages behind, and short ones */
#include "check.h"

enum { PENDING = 10, MANY = 40, SHORT = 4096, LONG = 4 << 20, RECEIVED = 500, SENT = 600 };

static unsigned char in[PENDING][SHORT], out[PENDING][SHORT], last[100], longer[LONG];

/* Messages that are sent as they are, and that nobody waits for. */
static void leave_short(int other)
{
    MPI_Request request;
    for (int n = 0; n < MANY; n++) {
        MPI(MPI_Isend(out[0], n, MPI_BYTE, other, SENT + n, MPI_COMM_WORLD, &request));
        MPI(MPI_Request_free(&request));
    }
}

static int finish(void)
{
    doing("MPI_Finalize", 0);
    MPI_Finalize();
    return check_print_verdict(atomic_load(&check_failures));
}

int main(int argc, char **argv)
{
    MPI_Request requests[2 * PENDING + 2];
    int count = 0, token = 0, other, early, odd;
    check_start(&argc, &argv, "unmatched", MPI_THREAD_MULTIPLE, 2);
    if (!CHECK(argc >= 2))
        MPI_Abort(MPI_COMM_WORLD, 2);
    other = check_rank ^ 1;
    odd = strcmp(argv[1], "odd") == 0;
    if (odd || strcmp(argv[1], "even") == 0) {
        doing("leaving short messages behind", 0);
        if (check_rank % 2 == odd)
            leave_short(other);
        return finish();
    }
    early = strcmp(argv[1], "early") == 0;
    if (!early)
        MPI(MPI_Sendrecv_replace(&token, 1, MPI_INT, other, 1, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    doing("leaving messages behind", 0);
    for (int n = 0; n < PENDING; n++) {
        MPI(MPI_Irecv(in[n], SHORT, MPI_BYTE, n % 2 ? MPI_ANY_SOURCE : other, RECEIVED + n, MPI_COMM_WORLD,
                      &requests[count++]));
        MPI(MPI_Isend(out[n], n * 400, MPI_BYTE, other, SENT + n, MPI_COMM_WORLD, &requests[count++]));
    }
    MPI(MPI_Isend(longer, LONG, MPI_BYTE, other, SENT + PENDING, MPI_COMM_WORLD, &requests[count++]));
    MPI(MPI_Issend(last, sizeof last, MPI_BYTE, other, SENT + PENDING + 1, MPI_COMM_WORLD, &requests[count++]));
    if (early || strcmp(argv[1], "free") == 0) {
        while (count > 0)
            MPI(MPI_Request_free(&requests[--count]));
    }
    return finish();
}
