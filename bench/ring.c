/* Passes a growing, checked message around a ring of ranks. Every rank says which shared object
 * serves the OFI MTL for it. Exits with 1 when any rank received a wrong byte. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "served_by.h"

#define LAPS 4
#define TAG 7

static const int sizes[] = {1, 8, 1000, 65536, 1 << 20};
#define SIZES ((int)(sizeof sizes / sizeof sizes[0]))

/* Byte `i` of the message after `hops` hops. */
static unsigned char expected(int i, int hops)
{
    return (unsigned char)(i * 31 + hops);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);

    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;

    char path[4096];
    served_by(path, sizeof path);
    printf("rank %d of %d, process %d: served by %s\n", rank, ranks, (int)getpid(), path);
    fflush(stdout);

    unsigned char *message = malloc(sizes[SIZES - 1]);
    long received = 0, wrong = 0;

    for (int s = 0; s < SIZES; s++) {
        for (int lap = 0; lap < LAPS; lap++) {
            int hops = lap * ranks + rank;

            if (rank == 0) {
                for (int i = 0; i < sizes[s]; i++)
                    message[i] = expected(i, hops);
                unsigned char *back = malloc(sizes[s]);
                MPI_Request request;
                MPI_Status status;
                int count;
                MPI_Isend(message, sizes[s], MPI_BYTE, next, TAG, MPI_COMM_WORLD, &request);
                MPI_Recv(back, sizes[s], MPI_BYTE, previous, TAG, MPI_COMM_WORLD, &status);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
                MPI_Get_count(&status, MPI_BYTE, &count);
                wrong += count != sizes[s] || status.MPI_SOURCE != previous;
                for (int i = 0; i < sizes[s]; i++)
                    wrong += back[i] != expected(i, hops + ranks - 1);
                free(back);
            } else {
                MPI_Status status;
                int count;
                MPI_Recv(message, sizes[s], MPI_BYTE, previous, TAG, MPI_COMM_WORLD, &status);
                MPI_Get_count(&status, MPI_BYTE, &count);
                wrong += count != sizes[s] || status.MPI_SOURCE != previous;
                for (int i = 0; i < sizes[s]; i++) {
                    wrong += message[i] != expected(i, hops - 1);
                    message[i] = expected(i, hops);
                }
                MPI_Send(message, sizes[s], MPI_BYTE, next, TAG, MPI_COMM_WORLD);
            }
            received++;
        }
    }

    long mine[2] = {received, wrong}, all[2];
    MPI_Allreduce(mine, all, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("ring: %ld messages received by %d ranks, %d sizes up to %d bytes, "
               "every byte checked, %ld wrong\n",
               all[0], ranks, SIZES, sizes[SIZES - 1], all[1]);

    free(message);
    MPI_Finalize();
    return all[1] != 0;
}
