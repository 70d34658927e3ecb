/* What a message costs a receiver that computes: rank 1 is out of MPI for a while, then receives one message of
 * rank 0's, and so on. The time is rank 1's, from its return into MPI until it has the message, whole.
 *
 *     computing [-s SIZE] [-n STEPS] MILLISECONDS…
 *
 * Rank 1 prints one line for each time of computing, after what serves each rank:
 *
 *     computing ms=100 size=1048576 steps=40 median_us=.. p90_us=.. max_us=..
 *
 * The first and last byte of each message are checked; the program exits with 1 when one was wrong. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "served_by.h"

enum { TAG = 7, MOST_STEPS = 10000 };

static int rank, checked, wrong;
static unsigned char *message;

static int by_value(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void compute(double seconds)
{
    double end = MPI_Wtime() + seconds;
    volatile unsigned work = 0;
    while (MPI_Wtime() < end)
        for (int i = 0; i < 1000; i++)
            work += i;
}

static void steps_of(int milliseconds, int size, int steps)
{
    static double times[MOST_STEPS];
    /* The first ones make the connection, and are not counted. */
    for (int step = -2; step < steps; step++) {
        unsigned char expected = (unsigned char)step;
        if (rank == 0) {
            message[0] = message[size - 1] = expected;
            MPI_Send(message, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
            continue;
        }
        compute(milliseconds / 1e3);
        double start = MPI_Wtime();
        MPI_Recv(message, size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (step >= 0)
            times[step] = MPI_Wtime() - start;
        checked++;
        wrong += message[0] != expected || message[size - 1] != expected;
    }
    if (rank == 0)
        return;
    qsort(times, steps, sizeof times[0], by_value);
    printf("computing ms=%d size=%d steps=%d median_us=%.2f p90_us=%.2f max_us=%.2f\n", milliseconds, size, steps,
           times[steps / 2] * 1e6, times[steps * 9 / 10] * 1e6, times[steps - 1] * 1e6);
}

int main(int argc, char **argv)
{
    int size = 1 << 20, steps = 40, option;
    char path[4096];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    while ((option = getopt(argc, argv, "s:n:")) != -1) {
        if (option == 's')
            size = atoi(optarg);
        else if (option == 'n')
            steps = atoi(optarg);
        else
            MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (size < 1 || steps < 1 || steps > MOST_STEPS || optind == argc)
        MPI_Abort(MPI_COMM_WORLD, 2);
    message = calloc(1, (size_t)size);
    if (!message)
        MPI_Abort(MPI_COMM_WORLD, 2);
    served_by(path, sizeof path);
    printf("component rank=%d object=%s\n", rank, path);
    for (int next = optind; next < argc; next++)
        steps_of(atoi(argv[next]), size, steps);
    if (rank == 1)
        printf("check messages=%d wrong=%d\n", checked, wrong);
    free(message);
    MPI_Finalize();
    return wrong != 0;
}
