/* A program that calls MPI seldom: the ranks exchange messages, compute, look once whether something has come, compute for
 * longer, and exchange messages again. What has become of a peer meanwhile is not told by how long nobody has looked. 2 ranks.
 * Last it says what the verbs component counted.
 *
 * usage: seldom FIRST SECOND           milliseconds for which is computed before and after the look
 *        seldom FIRST SECOND begun     instead of the first messages rank 1 begins one, and looks at it for a while */
#include "check.h"
#include "counters.h"

enum { TAG = 4, ROUNDS = 200, LENGTH = 5000 };

static void compute(long milliseconds)
{
    struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0) {}
}

static void exchange(int other)
{
    static unsigned char in[LENGTH], out[LENGTH];
    for (int round = 0; round < ROUNDS; round++) {
        doing("round", round);
        fill(out, LENGTH, (unsigned)(round + check_rank));
        memset(in, 0, LENGTH);
        MPI(MPI_Sendrecv(out, LENGTH, MPI_BYTE, other, TAG, in, LENGTH, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        VERIFY(in, LENGTH, (unsigned)(round + other));
    }
}

/* One that may have to wait for what it is sent from. */
static void begin(MPI_Request *request)
{
    static unsigned char bytes[LENGTH];
    int is_over = 0;
    *request = MPI_REQUEST_NULL;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (check_rank == 0) MPI(MPI_Irecv(bytes, LENGTH, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD, request));
    else {
        MPI(MPI_Isend(bytes, LENGTH, MPI_BYTE, 0, TAG + 1, MPI_COMM_WORLD, request));
        for (int look = 0; look < 300 && !is_over; look++) {
            MPI(MPI_Test(request, &is_over, MPI_STATUS_IGNORE));
            compute(1);
        }
    }
}

int main(int argc, char **argv)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int has_come = 0;
    check_start(&argc, &argv, "seldom", MPI_THREAD_SINGLE, 2);
    if (argc != 3 && !(argc == 4 && strcmp(argv[3], "begun") == 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    counters_begin("btl_verbs_");
    if (argc == 4) begin(&request);
    else exchange(1 - check_rank);
    doing("look", 0);
    compute(atol(argv[1]));
    MPI(MPI_Iprobe(1 - check_rank, TAG, MPI_COMM_WORLD, &has_come, MPI_STATUS_IGNORE));
    compute(atol(argv[2]));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    exchange(1 - check_rank);
    counters_print();
    return check_finish();
}
