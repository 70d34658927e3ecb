/* Messages between two ranks, from and to the memory of CUDA devices or the host's.
 *
 *     device device|host [SECONDS]     seconds a figure, 0.3
 *
 * Rank 0 prints a line a figure: `latency size=8 median_us=..`, half a round trip, and `bandwidth size=.. median_mb_s=..`,
 * one way, eight messages at a time. What arrives is checked once a size, before. */
#include "../c-tests/accelerator/cuda.h"

enum { SAMPLES = 21, WINDOW = 8 };

static int peer;

static int by_value(const void *left, const void *right)
{
    double first = *(const double *)left, second = *(const double *)right;
    return (first > second) - (first < second);
}

static double round_trips(const struct buffer *from, const struct buffer *to, int len, int count)
{
    double start = MPI_Wtime();
    for (int turn = 0; turn < count; turn++) {
        if (check_rank == 0) MPI_Send(from->start, len, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
        MPI_Recv(to->start, len, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (check_rank == 1) MPI_Send(from->start, len, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
    }
    return (MPI_Wtime() - start) / count / 2 * 1e6;
}

static double stream(const struct buffer *from, const struct buffer *to, int len, int count)
{
    MPI_Request requests[WINDOW];
    double start = MPI_Wtime();
    for (int turn = 0; turn < count; turn++) {
        for (int place = 0; place < WINDOW; place++) {
            if (check_rank == 0)
                MPI_Isend(from->start, len, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[place]);
            else
                MPI_Irecv(to->start, len, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[place]);
        }
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (check_rank == 0)
            MPI_Recv(NULL, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(NULL, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
    }
    return (double)len * WINDOW * count / (MPI_Wtime() - start) / 1e6;
}

/* The median of some samples, each of which takes about as long. */
static double figure(double (*sample)(const struct buffer *, const struct buffer *, int, int), const struct buffer *from,
    const struct buffer *to, int len, double seconds)
{
    double samples[SAMPLES], begin = MPI_Wtime();
    sample(from, to, len, 3);
    int count = (int)(seconds / SAMPLES / ((MPI_Wtime() - begin) / 3));
    if (count < 1) count = 1;
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int number = 0; number < SAMPLES; number++) samples[number] = sample(from, to, len, count);
    qsort(samples, SAMPLES, sizeof *samples, by_value);
    return samples[SAMPLES / 2];
}

int main(int argc, char **argv)
{
    static const int latencies[] = {1, 8, 512, 4096, 8192, 65536, 1 << 20}, bandwidths[] = {65536, 1 << 20, 4 << 20, 64 << 20};
    enum kind kind = argc > 1 && strcmp(argv[1], "host") == 0 ? HEAP : FIRST;
    double seconds = argc > 2 ? atof(argv[2]) : 0.3;
    check_start(&argc, &argv, "device", MPI_THREAD_SINGLE, 2);
    peer = 1 - check_rank;
    cuda_begin();
    struct buffer from = buffer_new(kind, 64 << 20), to = buffer_new(kind, 64 << 20);
    for (size_t number = 0; number < sizeof bandwidths / sizeof *bandwidths; number++) {
        doing("check", bandwidths[number]);
        buffer_fill(&from, 0, (size_t)bandwidths[number], (unsigned)check_rank);
        round_trips(&from, &to, bandwidths[number], 1);
        buffer_holds(&to, 0, (size_t)bandwidths[number], (unsigned)peer);
    }
    for (size_t number = 0; number < sizeof latencies / sizeof *latencies; number++) {
        doing("latency", latencies[number]);
        double us = figure(round_trips, &from, &to, latencies[number], seconds);
        if (check_rank == 0) printf("latency size=%d median_us=%.2f\n", latencies[number], us);
    }
    for (size_t number = 0; number < sizeof bandwidths / sizeof *bandwidths; number++) {
        doing("bandwidth", bandwidths[number]);
        double rate = figure(stream, &from, &to, bandwidths[number], seconds);
        if (check_rank == 0) printf("bandwidth size=%d median_mb_s=%.0f\n", bandwidths[number], rate);
    }
    buffer_free(&from);
    buffer_free(&to);
    int status = check_finish();
    cuda_end();
    return status;
}
