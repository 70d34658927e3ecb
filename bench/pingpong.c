/* Latency, bandwidth and message rate between two ranks, with checked payload.
 *
 *     pingpong [-m MIN] [-M MAX] [-f FACTOR] [-c SAMPLES] [-n ITERATIONS]
 *
 * Rank 0 prints one line a figure, words of the form key=value after the first:
 *
 *     component rank=0 object=PATH           the object that serves the OFI MTL
 *     latency size=8 iterations=500 samples=20 median_us=.. min_us=..      half a round trip
 *     bandwidth size=8 window=64 bursts=50 samples=20 median_mb_s=.. max_mb_s=..     one way
 *     rate size=8 window=64 bursts=50 samples=20 median_msg_s=.. max_msg_s=..
 *     check messages=.. wrong=..
 *
 * The first and last byte of every message are checked, and every byte of one message for each
 * size before and after its samples. Exits with 1 when any was wrong. */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "served_by.h"

#define TAG 3
#define TAG_CONTROL 4
#define LARGE (1 << 20)         /* from here on the smaller window */
#define WINDOW_MAX 64
#define WINDOW_LARGE 16
#define SAMPLE_BYTES (16 << 20) /* a sample of large messages moves about this much */
#define RATE_SIZE 8

static int rank, peer;
static int min_size = 1, max_size = 4 << 20, factor = 2, samples = 20, iterations = 500;
static unsigned char *outgoing, *incoming;
static uint64_t checked, wrong;

static int window_of(int size)
{
    return size < LARGE ? WINDOW_MAX : WINDOW_LARGE;
}

/* How often a sample repeats something that moves `bytes`. */
static int repeats(int wanted, int64_t bytes)
{
    int64_t most = SAMPLE_BYTES / bytes;
    if (most < 1)
        most = 1;
    return wanted < most ? wanted : (int)most;
}

static void stamp(unsigned char *message, int size, unsigned serial)
{
    message[0] = message[size - 1] = (unsigned char)serial;
}

static void check_stamp(const unsigned char *message, int size, unsigned serial)
{
    unsigned char value = (unsigned char)serial;
    checked++;
    wrong += message[0] != value || message[size - 1] != value;
}

static unsigned char pattern(int i, int size)
{
    return (unsigned char)((i + size) * 31 + (i >> 8));
}

/* One message each way, every byte checked. */
static void check_whole(int size)
{
    for (int i = 0; i < size; i++) {
        outgoing[i] = pattern(i, size);
        incoming[i] = (unsigned char)~outgoing[i];
    }
    MPI_Status status;
    int count;
    MPI_Sendrecv(outgoing, size, MPI_BYTE, peer, TAG, incoming, size, MPI_BYTE, peer, TAG,
                 MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    checked++;
    wrong += count != size || memcmp(outgoing, incoming, size) != 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the seconds of all samples; returns their median. */
static double median(double *seconds)
{
    qsort(seconds, samples, sizeof *seconds, ascending);
    return samples % 2 ? seconds[samples / 2]
                       : (seconds[samples / 2 - 1] + seconds[samples / 2]) / 2;
}

static double ping_pong(int size, int count)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < count; i++) {
        if (rank == 0) {
            stamp(outgoing, size, 2 * i);
            MPI_Send(outgoing, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
            MPI_Recv(incoming, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check_stamp(incoming, size, 2 * i + 1);
        } else {
            MPI_Recv(incoming, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check_stamp(incoming, size, 2 * i);
            stamp(outgoing, size, 2 * i + 1);
            MPI_Send(outgoing, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        }
    }
    return MPI_Wtime() - start;
}

static void latency(int size)
{
    int count = repeats(iterations, size);
    double seconds[samples];

    check_whole(size);
    ping_pong(size, count);
    for (int s = 0; s < samples; s++)
        seconds[s] = ping_pong(size, count);
    check_whole(size);

    double middle = median(seconds), scale = 1e6 / count / 2;
    if (rank == 0)
        printf("latency size=%d iterations=%d samples=%d median_us=%.4f min_us=%.4f\n", size,
               count, samples, middle * scale, seconds[0] * scale);
}

/* Bursts of `window` messages one way, each acknowledged; returns rank 0's seconds from the first
 * send to the acknowledgement. With `posted`, a burst starts when its receives are posted. */
static double stream(int size, int window, int bursts, int posted)
{
    MPI_Request requests[WINDOW_MAX];
    char token = 0;
    double seconds = 0;

    MPI_Barrier(MPI_COMM_WORLD);
    for (int b = 0; b < bursts; b++) {
        if (rank == 0) {
            for (int w = 0; w < window; w++)
                stamp(outgoing + (size_t)w * size, size, b + w);
            if (posted)
                MPI_Recv(&token, 1, MPI_BYTE, peer, TAG_CONTROL, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            double start = MPI_Wtime();
            for (int w = 0; w < window; w++)
                MPI_Isend(outgoing + (size_t)w * size, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                          &requests[w]);
            MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
            MPI_Recv(&token, 1, MPI_BYTE, peer, TAG_CONTROL, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            seconds += MPI_Wtime() - start;
        } else {
            for (int w = 0; w < window; w++)
                MPI_Irecv(incoming + (size_t)w * size, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                          &requests[w]);
            if (posted)
                MPI_Send(&token, 1, MPI_BYTE, peer, TAG_CONTROL, MPI_COMM_WORLD);
            MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
            MPI_Send(&token, 1, MPI_BYTE, peer, TAG_CONTROL, MPI_COMM_WORLD);
            for (int w = 0; w < window; w++)
                check_stamp(incoming + (size_t)w * size, size, b + w);
        }
    }
    return seconds;
}

/* Prints a stream's speed in `unit`, of which a message counts as `worth`. */
static void throughput(const char *what, const char *unit, double worth, int size, int posted)
{
    int window = window_of(size);
    int bursts = repeats(iterations / 10 > 0 ? iterations / 10 : 1, (int64_t)window * size);
    double seconds[samples];

    stream(size, window, bursts, posted);
    for (int s = 0; s < samples; s++)
        seconds[s] = stream(size, window, bursts, posted);

    double middle = median(seconds), total = worth * window * bursts;
    if (rank == 0)
        printf("%s size=%d window=%d bursts=%d samples=%d median_%s=%.3f max_%s=%.3f\n", what, size,
               window, bursts, samples, unit, total / middle, unit, total / seconds[0]);
}

static int positive(const char *text)
{
    int value = atoi(text);
    return value > 0 ? value : 1;
}

static void parse_options(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "m:M:f:c:n:")) != -1) {
        switch (option) {
        case 'm': min_size = positive(optarg); break;
        case 'M': max_size = positive(optarg); break;
        case 'f': factor = positive(optarg) < 2 ? 2 : positive(optarg); break;
        case 'c': samples = positive(optarg); break;
        case 'n': iterations = positive(optarg); break;
        default: MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
}

/* The largest window of any size up to the largest, in bytes. */
static size_t buffer_size(void)
{
    size_t most = WINDOW_MAX * RATE_SIZE;
    for (int64_t size = min_size; size <= max_size; size *= factor) {
        size_t bytes = (size_t)size * window_of((int)size);
        most = bytes > most ? bytes : most;
    }
    return most;
}

int main(int argc, char **argv)
{
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) {
        if (rank == 0)
            fprintf(stderr, "pingpong: needs 2 ranks, not %d\n", ranks);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    peer = 1 - rank;
    parse_options(argc, argv);

    size_t bytes = buffer_size();
    outgoing = malloc(bytes);
    incoming = malloc(bytes);
    if (!outgoing || !incoming)
        MPI_Abort(MPI_COMM_WORLD, 2);
    memset(outgoing, 0, bytes);
    memset(incoming, 0, bytes);

    char paths[2][4096];
    served_by(paths[rank], sizeof paths[rank]);
    MPI_Bcast(paths[0], sizeof paths[0], MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Bcast(paths[1], sizeof paths[1], MPI_BYTE, 1, MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < 2; r++)
        printf("component rank=%d object=%s\n", r, paths[r]);

    for (int64_t size = min_size; size <= max_size; size *= factor)
        latency((int)size);
    for (int64_t size = min_size; size <= max_size; size *= factor)
        throughput("bandwidth", "mb_s", (double)size / 1e6, (int)size, 1);
    throughput("rate", "msg_s", 1, RATE_SIZE, 0);

    uint64_t mine[2] = {checked, wrong}, all[2];
    MPI_Allreduce(mine, all, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("check messages=%llu wrong=%llu\n", (unsigned long long)all[0],
               (unsigned long long)all[1]);

    free(outgoing);
    free(incoming);
    MPI_Finalize();
    return all[1] != 0;
}
