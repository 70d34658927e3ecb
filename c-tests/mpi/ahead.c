/* Rank 0 sends far more than rank 1 has received, which computes before it begins: it has to wait then, and takes little memory
 * for what nobody has.
 *
 *     ahead MESSAGES BYTES
 */
#include "check.h"

#include <sys/resource.h>

enum { MOST = 64 << 10 };

/* The most memory that this process has had so far, KiB, as `MOST`. */
static long peak(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static void send_all(int count, int length, char *bytes)
{
    int come = 0;
    long before = peak();
    for (int number = 0; number < count; number++) {
        if (number % 1000 == 0) doing("message", number);
        memcpy(bytes, &number, sizeof(number));
        MPI(MPI_Send(bytes, length, MPI_BYTE, 1, 0, MPI_COMM_WORLD));
    }
    MPI(MPI_Recv(&come, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK_EQ(come, count);
    long more = peak() - before;
    if (!CHECK(more <= MOST)) fprintf(stderr, "%ld KiB for what rank 1 had not received\n", more);
}

static void receive_all(int count, int length, char *bytes)
{
    int come = 0;
    double begin = MPI_Wtime();
    while (MPI_Wtime() - begin < 1)
        ;
    for (; come < count; come++) {
        int number;
        if (come % 1000 == 0) doing("message", come);
        MPI(MPI_Recv(bytes, length, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        memcpy(&number, bytes, sizeof(number));
        CHECK_EQ(number, come);
    }
    MPI(MPI_Send(&come, 1, MPI_INT, 0, 1, MPI_COMM_WORLD));
}

int main(int argc, char **argv)
{
    check_start(&argc, &argv, "ahead", MPI_THREAD_SINGLE, 2);
    int count = argc > 1 ? atoi(argv[1]) : 300000, length = argc > 2 ? atoi(argv[2]) : 8;
    char *bytes = calloc(1, (size_t)length + sizeof(int));
    if (check_rank == 0) send_all(count, length, bytes);
    else receive_all(count, length, bytes);
    free(bytes);
    return check_finish();
}
