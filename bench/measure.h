/* Latency, bandwidth and message rate between two ranks, with checked payload, over whatever medium a
 * program beside this file brings.
 *
 *     PROGRAM [-m MIN] [-M MAX] [-f FACTOR] [-c SAMPLES] [-n ITERATIONS] [-t SECONDS] [-b | -l] [-i INTERFACE]
 *
 * -m, -M, -f    sizes in bytes, from 1 to 4 MiB by factors of 2
 * -c, -n        samples of a figure, 20, and messages in a sample of small ones, 500
 * -t            about how long one figure may take: first its samples shrink, then their number
 * -b, -l        bandwidth only, or latency only
 * -i            the interface, where the medium asks for one
 *
 * Rank 0 prints one line a figure, words of the form key=value after the first:
 *
 *     component rank=0 object=PATH           what serves the rank
 *     latency size=8 iterations=500 samples=20 median_us=.. min_us=..      half a round trip
 *     bandwidth size=8 window=64 bursts=50 samples=20 median_mb_s=.. max_mb_s=..     one way
 *     rate size=8 window=64 bursts=50 samples=20 median_msg_s=.. max_msg_s=..
 *     check messages=.. wrong=..
 *
 * The first and last byte of every message are checked, and every byte of one message for each size
 * before and after its samples. A program exits with 1 when any was wrong. */

#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGE (1 << 20)         /* from here on the smaller window */
#define WINDOW_MAX 64
#define WINDOW_LARGE 16
#define SAMPLE_BYTES (16 << 20) /* a sample of large messages moves about this much */
#define RATE_SIZE 8
#define SLACK 65536             /* behind what a message fills */

/* What messages travel over. Each is called by both ranks. */
struct medium {
    /* Messages of the size to and fro; rank 0's seconds, or less than 0 if one got lost. */
    double (*ping_pong)(int size, int count);
    /* Bursts of `window` messages one way, each burst acknowledged; rank 0's seconds from the first
     * send to the acknowledgement, likewise. With `posted`, a burst starts when its receives are. */
    double (*stream)(int size, int window, int bursts, int posted);
    /* One message each way, every byte checked. */
    void (*check_whole)(int size);
    /* Before and after the samples of a bandwidth, or NULL. */
    void (*before_stream)(void);
    void (*after_stream)(int size);
};

static int rank, peer;
static int min_size = 1, max_size = 4 << 20, factor = 2, samples = 20, iterations = 500;
static int bandwidth_only, latency_only;
static double patience; /* seconds for a figure; 0: as long as it takes */
static const char *interface_name;
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

/* Fills what goes out with a pattern, and what comes in with another. */
static void lay_out(int size)
{
    for (int i = 0; i < size; i++) {
        outgoing[i] = (unsigned char)((i + size) * 31 + (i >> 8));
        incoming[i] = (unsigned char)~outgoing[i];
    }
}

static void check_bytes(int size, int count)
{
    checked++;
    wrong += count != size || memcmp(outgoing, incoming, size) != 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the seconds of the samples; returns their median. */
static double median(double *seconds, int count)
{
    qsort(seconds, count, sizeof *seconds, ascending);
    return count % 2 ? seconds[count / 2] : (seconds[count / 2 - 1] + seconds[count / 2]) / 2;
}

/* Something to measure: so many repeats, and their seconds. */
struct subject {
    const struct medium *medium;
    int size, window, posted; /* no window: a ping-pong */
};

static double sample(const struct subject *what, int count)
{
    /* What got lost is measured again. */
    for (int attempt = 0; attempt < 50; attempt++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double seconds = what->window
                             ? what->medium->stream(what->size, what->window, count, what->posted)
                             : what->medium->ping_pong(what->size, count);
        int lost = seconds < 0, any;
        MPI_Allreduce(&lost, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (!any)
            return seconds;
    }
    fprintf(stderr, "rank %d: messages of %d bytes get lost again and again\n", rank, what->size);
    MPI_Abort(MPI_COMM_WORLD, 3);
    return -1;
}

/* What rank 0 has decided. */
static int agreed(int number)
{
    MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return number;
}

/* Takes samples of `*count` repeats into `seconds`, fewer and shorter ones where time is short;
 * returns how many. */
static int take(const struct subject *what, int *count, double *seconds)
{
    double start = MPI_Wtime();
    if (patience > 0) {
        /* The quickest of three single ones says how many fit; slow media get fewer. */
        double one = 1e9;
        for (int i = 0; i < 3; i++) {
            double seconds = sample(what, 1);
            one = seconds < one ? seconds : one;
            if (agreed(MPI_Wtime() - start > patience))
                break;
        }
        double fits = patience / samples / (one > 0 ? one : 1e-9);
        *count = agreed(fits < 1 ? 1 : fits < *count ? (int)fits : *count);
    }
    if (patience <= 0 || *count > 1)
        sample(what, *count);
    int taken = 0;
    while (taken < samples) {
        seconds[taken++] = sample(what, *count);
        if (patience > 0 && agreed(taken >= 3 ? MPI_Wtime() - start > 2 * patience
                                              : MPI_Wtime() - start > 20 * patience))
            break;
    }
    return taken;
}

static void latency(const struct medium *medium, int size)
{
    struct subject what = {.medium = medium, .size = size};
    int count = repeats(iterations, size);
    double seconds[samples];

    medium->check_whole(size);
    int taken = take(&what, &count, seconds);
    medium->check_whole(size);

    double middle = median(seconds, taken), scale = 1e6 / count / 2;
    if (rank == 0)
        printf("latency size=%d iterations=%d samples=%d median_us=%.4f min_us=%.4f\n", size,
               count, taken, middle * scale, seconds[0] * scale);
}

/* Prints a stream's speed in `unit`, of which a message counts as `worth`. */
static void throughput(const struct medium *medium, const char *what, const char *unit, double worth,
                       int size, int posted)
{
    struct subject stream = {.medium = medium, .size = size, .window = window_of(size),
                             .posted = posted};
    int window = stream.window;
    int bursts = repeats(iterations / 10 > 0 ? iterations / 10 : 1, (int64_t)window * size);
    double seconds[samples];

    int taken = take(&stream, &bursts, seconds);

    double middle = median(seconds, taken), total = worth * window * bursts;
    if (rank == 0)
        printf("%s size=%d window=%d bursts=%d samples=%d median_%s=%.6f max_%s=%.6f\n", what, size,
               window, bursts, taken, unit, total / middle, unit, total / seconds[0]);
}

static int positive(const char *text)
{
    int value = atoi(text);
    return value > 0 ? value : 1;
}

static void parse_options(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "m:M:f:c:n:t:i:bl")) != -1) {
        switch (option) {
        case 'm': min_size = positive(optarg); break;
        case 'M': max_size = positive(optarg); break;
        case 'f': factor = positive(optarg) < 2 ? 2 : positive(optarg); break;
        case 'c': samples = positive(optarg); break;
        case 'n': iterations = positive(optarg); break;
        case 't': patience = atof(optarg); break;
        case 'i': interface_name = optarg; break;
        case 'b': bandwidth_only = 1; break;
        case 'l': latency_only = 1; break;
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
    return most + SLACK;
}

/* Starts MPI, which launches the ranks and lets them agree, whatever is measured. */
static void begin(int argc, char **argv)
{
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) {
        if (rank == 0)
            fprintf(stderr, "%s: needs 2 ranks, not %d\n", argv[0], ranks);
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
}

/* Says on rank 0 what serves each rank. */
static void say_served(const char *by)
{
    char objects[2][4096];
    snprintf(objects[rank], sizeof objects[rank], "%s", by);
    MPI_Bcast(objects[0], sizeof objects[0], MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Bcast(objects[1], sizeof objects[1], MPI_BYTE, 1, MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < 2; r++)
        printf("component rank=%d object=%s\n", r, objects[r]);
}

/* All figures; returns the exit status. */
static int measure(const struct medium *medium)
{
    for (int64_t size = min_size; size <= max_size && !bandwidth_only; size *= factor)
        latency(medium, (int)size);
    for (int64_t size = min_size; size <= max_size && !latency_only; size *= factor) {
        if (medium->before_stream)
            medium->before_stream();
        throughput(medium, "bandwidth", "mb_s", (double)size / 1e6, (int)size, 1);
        if (medium->after_stream)
            medium->after_stream((int)size);
    }
    if (!bandwidth_only && !latency_only)
        throughput(medium, "rate", "msg_s", 1, RATE_SIZE, 0);

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

#endif
