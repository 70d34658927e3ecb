/* Short messages that are sent in a row by a program which then computes arrive while it does: they may
 * wait for each other, but not for its next call. Rank 0 computes until a file tells it that the other
 * has them all, and in vain only where they were more than may be under way, because some were lost: after a
 * while it looks after its messages. That may not be the rule.
 *
 * usage: stranded FILE COUNT     a name that is free, in a folder that both ranks see; messages in a row */
#include "check.h"

#include <unistd.h>

enum { TAG = 5, WARM = 20, ROUNDS = 60, LOOKS = 300000 };

int main(int argc, char **argv)
{
    int in_time = 0, count;
    check_start(&argc, &argv, "stranded", MPI_THREAD_SINGLE, 2);
    if (!CHECK(argc == 3))
        MPI_Abort(MPI_COMM_WORLD, 2);
    count = atoi(argv[2]);
    for (int round = 0; round < ROUNDS; round++) {
        char file[512];
        CHECK((size_t)snprintf(file, sizeof file, "%s.%d", argv[1], round) < sizeof file);
        doing("round", round);
        for (int n = 0, got; n < WARM; n++) {
            MPI(MPI_Sendrecv(&n, 1, MPI_INT, 1 - check_rank, TAG, &got, 1, MPI_INT, 1 - check_rank, TAG,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
        if (check_rank == 0) {
            int looks = 0, flag;
            for (int n = 0; n < count; n++)
                MPI(MPI_Send(&n, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD));
            while (looks < LOOKS && access(file, F_OK) != 0)
                looks++;
            in_time += looks < LOOKS;
            while (access(file, F_OK) != 0)
                MPI(MPI_Iprobe(1, TAG + 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
        } else {
            FILE *all;
            for (int n = 0, got; n < count; n++) {
                MPI(MPI_Recv(&got, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                CHECK(got == n);
            }
            all = fopen(file, "w");
            CHECK(all != NULL && fclose(all) == 0);
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        if (check_rank == 0)
            CHECK(unlink(file) == 0);
    }
    if (check_rank == 0) {
        printf("%d of %d rounds in time\n", in_time, ROUNDS);
        CHECK(in_time * 4 >= ROUNDS);
    }
    return check_finish();
}
