/* Two processes with a core each, and figures that the first one prints, as measure.h does for ranks of MPI:
 *
 *     latency size=8 iterations=500 samples=60 median_us=.. min_us=..      half a round trip
 *     bandwidth size=8 window=64 bursts=50 samples=60 median_mb_s=.. max_mb_s=..     one way
 *     rate size=8 window=64 bursts=50 samples=60 median_msg_s=.. max_msg_s=..
 *     check messages=.. wrong=..
 *
 * A sample is short, so that on a busy machine some are not interrupted; there are as many as the time for a figure allows. */

#ifndef BENCH_PINNED_H
#define BENCH_PINNED_H

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WINDOW 64
#define WINDOW_LARGE 16  /* from 1 MiB on, as in measure.h */
#define SAMPLE 0.0003    /* seconds, if one repeat is not longer */
#define SAMPLES_MOST 400
#define SAMPLES_LEAST 3
#define RATE_SIZE 8
#define LARGEST (4 << 20)
#define BYTES (16 << 20) /* of what goes out, and of what comes in */

static int rank, wire = -1;
static double patience = 0.1; /* seconds for a figure */
static unsigned char *outgoing, *incoming;
static uint64_t checked, wrong;
static pid_t other;

/* What both see: how often each has met the other, and what was agreed. */
static struct {
    _Alignas(128) _Atomic uint64_t met[2][16];
    double number;
} *both;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* To the other process, and from it, when neither measures. */
static void tell(const void *bytes, size_t length)
{
    if (write(wire, bytes, length) != (ssize_t)length)
        fail("write");
}

static void hear(void *bytes, size_t length)
{
    if (recv(wire, bytes, length, MSG_WAITALL) != (ssize_t)length)
        exit(1); /* the other one has ended, and has said why */
}

/* Without sleep: neither has to be woken for what follows. */
static void meet(void)
{
    uint64_t turn = both->met[rank][0] + 1;
    atomic_store(&both->met[rank][0], turn);
    for (unsigned looks = 1; atomic_load(&both->met[!rank][0]) < turn; looks++)
        if (looks % 65536 == 0)
            sched_yield();
}

/* What the first one has found, or decided. */
static double agreed(double number)
{
    if (rank == 0)
        both->number = number;
    meet();
    number = both->number;
    meet();
    return number;
}

static void deserted(int signal)
{
    (void)signal;
    _exit(1);
}

/* Makes the second process, in the network namespace `away` unless that is less than 0. */
static void part(int away)
{
    int ends[2];
    cpu_set_t core;
    both = mmap(NULL, sizeof *both, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (both == MAP_FAILED)
        fail("mmap");
    signal(SIGCHLD, deserted);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        fail("socketpair");
    other = fork();
    if (other < 0)
        fail("fork");
    rank = other == 0;
    wire = ends[rank];
    close(ends[!rank]);
    if (rank == 1) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (away >= 0 && syscall(SYS_setns, away, 0) != 0)
            fail("setns");
    }
    CPU_ZERO(&core);
    CPU_SET(rank, &core);
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1 && sched_setaffinity(0, sizeof core, &core) != 0)
        fail("sched_setaffinity");
    outgoing = aligned_alloc(4096, BYTES);
    incoming = aligned_alloc(4096, BYTES);
    if (!outgoing || !incoming)
        fail("aligned_alloc");
    memset(outgoing, 1, BYTES);
    memset(incoming, 2, BYTES);
}

static int window_of(int size) { return size < 1 << 20 ? WINDOW : WINDOW_LARGE; }

/* The place of a message in its window: what is long shares some. */
static size_t place(int size, int at)
{
    return (size_t)(at % (BYTES / size < WINDOW ? BYTES / size : WINDOW)) * (size_t)size;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of a sample of so many repeats, as the first process sees them. */
typedef double sample(int size, int count);

/* Takes the samples of a figure, sorted, and how many repeats each has; returns how many samples. */
static int take(sample *run, int size, double *seconds, int *count)
{
    double start, one;
    int taken = 0, more = 1;
    for (*count = 1; more; *count *= more ? 2 : 1) {
        /* The quickest of some: others may have been interrupted. */
        one = 1e9;
        for (int i = 0; i < 8 && one > SAMPLE / 2; i++) {
            meet();
            double some = run(size, *count);
            one = agreed(some < one ? some : one);
        }
        more = one < SAMPLE / 2;
    }
    start = now();
    do {
        meet();
        seconds[taken++] = run(size, *count);
    } while (agreed(taken < SAMPLES_MOST && (taken < SAMPLES_LEAST || now() - start < patience)) != 0);
    qsort(seconds, (size_t)taken, sizeof *seconds, ascending);
    return taken;
}

static void latency(sample *run, int size)
{
    double seconds[SAMPLES_MOST];
    int count, taken = take(run, size, seconds, &count);
    double scale = 1e6 / count / 2;
    if (rank == 0)
        printf("latency size=%d iterations=%d samples=%d median_us=%.4f min_us=%.4f\n", size, count, taken,
               seconds[taken / 2] * scale, seconds[0] * scale);
}

/* A stream's speed in `unit`, of which a message counts as `worth`. */
static void throughput(sample *run, const char *what, const char *unit, double worth, int size)
{
    double seconds[SAMPLES_MOST];
    int count, taken = take(run, size, seconds, &count);
    int window = window_of(size);
    double total = worth * window * count;
    if (rank == 0)
        printf("%s size=%d window=%d bursts=%d samples=%d median_%s=%.3f max_%s=%.3f\n", what, size, window, count,
               taken, unit, total / seconds[taken / 2], unit, total / seconds[0]);
}

static void bandwidth(sample *run, int size) { throughput(run, "bandwidth", "mb_s", size / 1e6, size); }

/* Ends both; returns the exit status. */
static int finish(void)
{
    uint64_t far[2] = {checked, wrong};
    int status = 0;
    signal(SIGCHLD, SIG_DFL);
    meet();
    if (rank == 1) {
        tell(far, sizeof far);
        return wrong != 0;
    }
    hear(far, sizeof far);
    printf("check messages=%llu wrong=%llu\n", (unsigned long long)(checked + far[0]), (unsigned long long)(wrong + far[1]));
    if (waitpid(other, &status, 0) != other)
        fail("waitpid");
    return status != 0 || wrong + far[1] != 0;
}

#endif
