/* One rank talks to itself, for counting instructions under callgrind.
 *
 *     selfmsg CASE ITERATIONS
 *
 * Only `measured` is collected (--toggle-collect=measured); the warm-up before it binds symbols
 * and fills free lists. The difference between two iteration counts is the cost of the loop. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG 1
#define WARM_UP 200

static long wrong;

static void send_and_wait(int iterations)
{
    for (long i = 0; i < iterations; i++) {
        long received = -1;
        MPI_Request request;
        MPI_Irecv(&received, 8, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
        MPI_Send(&i, 8, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        wrong += received != i;
    }
}

static void isend_and_waitall(int iterations)
{
    for (long i = 0; i < iterations; i++) {
        long received = -1;
        MPI_Request requests[2];
        MPI_Irecv(&received, 8, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(&i, 8, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        wrong += received != i;
    }
}

/* A test of a receive that nothing matches: each enters the progress engine once. */
static void idle_poll(int iterations)
{
    long unused;
    int flag;
    MPI_Request request;
    MPI_Irecv(&unused, 8, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
    for (int i = 0; i < iterations; i++) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        wrong += flag != 0;
    }
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void iprobe_miss(int iterations)
{
    int flag;
    for (int i = 0; i < iterations; i++) {
        MPI_Iprobe(0, TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        wrong += flag != 0;
    }
}

static const struct {
    const char *name;
    void (*loop)(int iterations);
} cases[] = {
    {"send", send_and_wait},
    {"waitall", isend_and_waitall},
    {"poll", idle_poll},
    {"iprobe", iprobe_miss},
};

__attribute__((noinline)) void measured(void (*loop)(int), int iterations)
{
    loop(iterations);
    __asm__ volatile("" ::: "memory"); /* keeps the call from becoming a jump */
}

int main(int argc, char **argv)
{
    void (*loop)(int) = NULL;
    for (size_t i = 0; argc == 3 && i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(argv[1], cases[i].name) == 0)
            loop = cases[i].loop;
    if (!loop) {
        fprintf(stderr, "usage: selfmsg send|waitall|poll|iprobe ITERATIONS\n");
        return 2;
    }

    MPI_Init(NULL, NULL);
    loop(WARM_UP);
    measured(loop, atoi(argv[2]));
    MPI_Finalize();

    if (wrong)
        fprintf(stderr, "selfmsg: %ld wrong results\n", wrong);
    return wrong != 0;
}
