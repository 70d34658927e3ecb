/* Shared by the MPI test programs: counted checks with their place and values, payload
 * patterns, guarded receive buffers and a watchdog that says what hung. */
#ifndef CHECK_H
#define CHECK_H

#include <limits.h>
#include <mpi.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A program hangs that for so many seconds has taken no step (`doing`), and has had the processor for
 * a quarter of them; or for ten times as long, if it sleeps or gets no processor.
 * CHECK_WATCHDOG in the environment asks for another time, in seconds. */
#ifndef CHECK_PRINTED_FAILURES
#define CHECK_PRINTED_FAILURES 20
#endif

enum { CHECK_WATCHDOG_SECONDS = 120, CHECK_GUARD = 64 };

static const char *check_name;
static int check_rank, check_size;
static atomic_int check_failures;
static _Atomic(const char *) check_what = "starting";
static atomic_llong check_detail;
static atomic_ulong check_steps;

/* Names the step in hand, for failure lines and for the watchdog. */
static inline void doing(const char *what, long long detail)
{
    atomic_fetch_add(&check_steps, 1);
    atomic_store(&check_what, what);
    atomic_store(&check_detail, detail);
}

static inline bool check_report(const char *file, int line, const char *text, long long got,
                                long long want)
{
    if (atomic_fetch_add(&check_failures, 1) < CHECK_PRINTED_FAILURES) {
        fprintf(stderr, "%s:%d: rank %d: %s: got %lld, want %lld [%s %lld]\n", file, line,
                check_rank, text, got, want, atomic_load(&check_what),
                atomic_load(&check_detail));
    }
    return false;
}

#define CHECK(condition) \
    ((condition) ? true : check_report(__FILE__, __LINE__, #condition, 0, 1))
#define CHECK_EQ(got, want) check_equal(__FILE__, __LINE__, #got, (long long)(got), (long long)(want))
#define MPI(call) CHECK_EQ(call, MPI_SUCCESS)

static inline bool check_equal(const char *file, int line, const char *text, long long got,
                               long long want)
{
    return got == want ? true : check_report(file, line, text, got, want);
}

/* The handler may use only async-signal-safe calls. */
static inline void check_put(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        _exit(4);
}

static inline void check_put_number(long long value)
{
    char digits[24];
    char *p = digits + sizeof digits - 1;
    unsigned long long rest = value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value;
    *p = '\0';
    do {
        *--p = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest != 0);
    if (value < 0)
        *--p = '-';
    check_put(p);
}

/* Of this process, in seconds. */
static inline long check_processor_time(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (long)used.tv_sec;
}

static unsigned check_seconds;

static inline void check_on_alarm(int signal_number)
{
    static unsigned long steps;
    static long used;
    static int times;
    (void)signal_number;
    if (steps != atomic_load(&check_steps) || times == 0) {
        steps = atomic_load(&check_steps);
        used = check_processor_time();
        times = 0;
    }
    if (times == 0 || (times < 10 && (check_processor_time() - used) * 4 < (long)check_seconds)) {
        times++;
        alarm(check_seconds);
        return;
    }
    check_put("watchdog: ");
    check_put(check_name);
    check_put(": rank ");
    check_put_number(check_rank);
    check_put(" hung in ");
    check_put(atomic_load(&check_what));
    check_put(" ");
    check_put_number(atomic_load(&check_detail));
    check_put("\n");
    _exit(3);
}

static inline void check_arm(const char *name)
{
    const char *seconds = getenv("CHECK_WATCHDOG");
    check_name = name;
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGALRM, check_on_alarm);
    check_seconds = seconds != NULL ? (unsigned)atoi(seconds) : CHECK_WATCHDOG_SECONDS;
    check_on_alarm(0);
}

/* Initialises MPI at the wanted thread level; the program needs at least `ranks` ranks. */
static inline void check_start(int *argc, char ***argv, const char *name, int level, int ranks)
{
    int provided;
    check_arm(name);
    MPI_Init_thread(argc, argv, level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &check_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &check_size);
    CHECK(provided >= level);
    if (!CHECK(check_size >= ranks))
        MPI_Abort(MPI_COMM_WORLD, 2);
}

static inline int check_print_verdict(int total)
{
    if (check_rank == 0) {
        if (total == 0)
            printf("PASS %s\n", check_name);
        else
            printf("FAIL %s: %d checks failed\n", check_name, total);
    }
    fflush(stdout);
    return total != 0 || atomic_load(&check_failures) != 0;
}

/* Adds up the failures of all ranks, finalises and gives the exit code. */
static inline int check_finish(void)
{
    int mine, total = 0;
    doing("adding up failures", 0);
    mine = atomic_load(&check_failures);
    MPI(MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(total >= mine);
    doing("MPI_Finalize", 0);
    MPI_Finalize();
    return check_print_verdict(total);
}

/* Payload byte `i` of the message named by `seed`. */
static inline unsigned char pattern(unsigned seed, size_t i)
{
    unsigned x = (unsigned)i * 0x9E3779B1u + seed * 0x85EBCA6Bu;
    x ^= x >> 15;
    x *= 0x2C1B3C6Du;
    return (unsigned char)(x >> 24);
}

static inline unsigned seed_of(int source, int tag, size_t size)
{
    return (unsigned)source * 7919u + (unsigned)tag * 104729u + (unsigned)size * 31u + 1u;
}

static inline void fill(void *buffer, size_t size, unsigned seed)
{
    unsigned char *bytes = buffer;
    for (size_t i = 0; i < size; i++)
        bytes[i] = pattern(seed, i);
}

/* One failure per buffer, naming the first wrong byte. */
#define VERIFY(buffer, size, seed) check_bytes(__FILE__, __LINE__, buffer, size, seed)

static inline bool check_bytes(const char *file, int line, const void *buffer, size_t size,
                               unsigned seed)
{
    const unsigned char *bytes = buffer;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != pattern(seed, i)) {
            char text[80];
            snprintf(text, sizeof text, "byte %zu of %zu", i, size);
            return check_report(file, line, text, bytes[i], pattern(seed, i));
        }
    }
    return true;
}

/* Eight bytes of a long payload. A byte for itself would cost more than the transfer. */
static inline uint64_t word_of(uint64_t seed, uint64_t i)
{
    uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u + seed * 0xBF58476D1CE4E5B9u;
    return x ^ (x >> 29);
}

static inline unsigned char byte_of(uint64_t seed, size_t k)
{
    uint64_t word = word_of(seed, k / 8);
    return ((unsigned char *)&word)[k % 8];
}

static inline void fill_words(unsigned char *buffer, size_t n, uint64_t seed)
{
    size_t k = 0;
    for (; k + 8 <= n; k += 8) {
        uint64_t word = word_of(seed, k / 8);
        memcpy(buffer + k, &word, 8);
    }
    for (; k < n; k++)
        buffer[k] = byte_of(seed, k);
}

#define VERIFY_WORDS(buffer, size, seed) check_words(__FILE__, __LINE__, buffer, size, seed)

static inline void check_words(const char *file, int line, const unsigned char *buffer, size_t n,
                               uint64_t seed)
{
    size_t k = 0;
    for (; k + 8 <= n; k += 8) {
        uint64_t word = word_of(seed, k / 8), got;
        memcpy(&got, buffer + k, 8);
        if (got != word)
            break;
    }
    for (; k < n; k++) {
        if (buffer[k] != byte_of(seed, k)) {
            char text[80];
            snprintf(text, sizeof text, "byte %zu of %zu", k, n);
            check_report(file, line, text, buffer[k], byte_of(seed, k));
            return;
        }
    }
}

/* A buffer between guard zones, all of it 0xA5 at first. */
static inline unsigned char *guarded_new(size_t size)
{
    unsigned char *whole = malloc(size + 2 * CHECK_GUARD);
    if (whole == NULL)
        abort();
    memset(whole, 0xA5, size + 2 * CHECK_GUARD);
    return whole + CHECK_GUARD;
}

/* True while all of [from, to) still holds the guard value. */
#define UNTOUCHED(from, to) check_untouched(__FILE__, __LINE__, from, to)

static inline bool check_untouched(const char *file, int line, const unsigned char *from,
                                   const unsigned char *to)
{
    for (const unsigned char *p = from; p < to; p++) {
        if (*p != 0xA5) {
            char text[80];
            snprintf(text, sizeof text, "guard byte %td of %td", p - from, to - from);
            return check_report(file, line, text, *p, 0xA5);
        }
    }
    return true;
}

#define GUARDED_FREE(buffer, size) check_guarded_free(__FILE__, __LINE__, buffer, size)

static inline void check_guarded_free(const char *file, int line, unsigned char *buffer,
                                      size_t size)
{
    check_untouched(file, line, buffer - CHECK_GUARD, buffer);
    check_untouched(file, line, buffer + size, buffer + size + CHECK_GUARD);
    free(buffer - CHECK_GUARD);
}

#define CHECK_STATUS(status, source, tag, bytes) \
    check_status(__FILE__, __LINE__, status, source, tag, bytes)

static inline void check_status(const char *file, int line, MPI_Status *status, int source,
                                int tag, int bytes)
{
    int count = -1, cancelled = -1;
    MPI_Get_count(status, MPI_BYTE, &count);
    MPI_Test_cancelled(status, &cancelled);
    check_equal(file, line, "status.MPI_SOURCE", status->MPI_SOURCE, source);
    check_equal(file, line, "status.MPI_TAG", status->MPI_TAG, tag);
    check_equal(file, line, "count", count, bytes);
    check_equal(file, line, "cancelled", cancelled, 0);
}

/* Empty messages that order the two sides of a test. */
static inline void send_token(int peer, int tag, MPI_Comm comm)
{
    MPI(MPI_Send(NULL, 0, MPI_BYTE, peer, tag, comm));
}

static inline void await_token(int peer, int tag, MPI_Comm comm)
{
    MPI(MPI_Recv(NULL, 0, MPI_BYTE, peer, tag, comm, MPI_STATUS_IGNORE));
}

/* Resident set in KiB. */
static inline long resident_kib(void)
{
    long total = 0, resident = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!CHECK(statm != NULL))
        return 0;
    CHECK_EQ(fscanf(statm, "%ld %ld", &total, &resident), 2);
    fclose(statm);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

#endif
