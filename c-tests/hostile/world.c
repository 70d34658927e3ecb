/* Two processes and their driver. Each test runs in processes of its own, so that one that ends badly
 * harms no other, and nothing is left of the tests before it. */
#include "world.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host.h"

enum { RECORDS = 8, RECORD = 4096, PATIENCE = 120 };

struct record {
    char key[64];
    size_t size;
    unsigned char bytes[RECORD];
};

struct process {
    _Atomic uint64_t progress, number;
    _Atomic unsigned fences;
    _Atomic(const char *) step;
    _Atomic unsigned records;
    struct record record[RECORDS];
};

int self, other;
uint32_t job;
bool is_slow;
enum transport transport;
static struct process *shared;

_Noreturn void fail(const char *file, int line, const char *condition, const char *format, ...)
{
    char text[256];
    va_list rest;

    va_start(rest, format);
    vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    printf("    | rank %d: %s:%d: %s: not so.%s\n", self, strrchr(file, '/') + 1, line, condition, text);
    fflush(stdout);
    _exit(1);
}

void remark(const char *format, ...)
{
    va_list rest;

    if (getenv("HAWSER_HOSTILE_VERBOSE") == NULL)
        return;
    printf("    | rank %d: ", self);
    va_start(rest, format);
    vprintf(format, rest);
    va_end(rest);
    printf("\n");
    fflush(stdout);
}

void note_progress(void)
{
    atomic_fetch_add_explicit(&shared[self].progress, 1, memory_order_relaxed);
}

void step(const char *what)
{
    atomic_store(&shared[self].step, what);
    note_progress();
    remark("%s", what);
}

static void wait_for_other(bool still)
{
    unsigned own = atomic_fetch_add(&shared[self].fences, 1) + 1;

    note_progress();
    while (atomic_load(&shared[other].fences) < own) {
        if (!still)
            host_progress();
        sched_yield();
    }
}

void fence(void) { wait_for_other(false); }

void fence_still(void) { wait_for_other(true); }

void tell(uint64_t number) { atomic_store(&shared[self].number, number); }

uint64_t told(void) { return atomic_load(&shared[other].number); }

void publish(const char *key, const void *bytes, size_t size)
{
    struct process *own = &shared[self];
    unsigned index = 0, count = atomic_load(&own->records);

    while (index < count && strcmp(own->record[index].key, key) != 0)
        index++;
    CHECK(index < RECORDS && size <= RECORD && strlen(key) < sizeof own->record[0].key);
    strcpy(own->record[index].key, key);
    memcpy(own->record[index].bytes, bytes, size);
    own->record[index].size = size;
    if (index == count)
        atomic_store(&own->records, count + 1);
}

bool look_up(uint32_t rank, const char *key, const void **bytes, size_t *size)
{
    if (rank >= RANKS)
        return false;
    for (unsigned index = 0; index < atomic_load(&shared[rank].records); index++) {
        const struct record *record = &shared[rank].record[index];
        if (strcmp(record->key, key) == 0) {
            *bytes = record->bytes;
            *size = record->size;
            return true;
        }
    }
    return false;
}

static pid_t begin(const struct test *test, int rank)
{
    pid_t child = fork();

    if (child != 0)
        return child;
    self = rank;
    other = 1 - rank;
    step("begins");
    test->run();
    host_end();
    exit(0);
}

static bool ended_well(int status, bool is_killed)
{
    if (is_killed)
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Waits for both; ends what has not moved for long, or has lost its peer to a failure. */
static bool watch(const struct test *test, pid_t child[RANKS])
{
    uint64_t seen = 0;
    time_t since = time(NULL);
    int left = RANKS;
    bool good = true;

    while (left > 0) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        uint64_t now = shared[0].progress + shared[1].progress;

        if (ended > 0) {
            int rank = ended == child[1];
            child[rank] = 0;
            left--;
            if (!ended_well(status, rank == 1 && test->ending == IS_KILLED)) {
                if (good)
                    printf("    | rank %d has ended with %s %d at: %s\n", rank,
                           WIFSIGNALED(status) ? "signal" : "status",
                           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                           atomic_load(&shared[rank].step));
                good = false;
                if (child[1 - rank] > 0)
                    kill(child[1 - rank], SIGKILL);
            }
            since = time(NULL);
            continue;
        }
        if (now != seen) {
            seen = now;
            since = time(NULL);
        } else if (time(NULL) - since > PATIENCE) {
            printf("    | nothing has moved for %d s; rank 0 is at: %s; rank 1 at: %s\n", PATIENCE,
                   atomic_load(&shared[0].step), atomic_load(&shared[1].step));
            good = false;
            since = time(NULL);
            for (int rank = 0; rank < RANKS; rank++)
                if (child[rank] > 0)
                    kill(child[rank], SIGKILL);
        }
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return good;
}

static bool run(const struct test *test, const char *name)
{
    pid_t child[RANKS];
    time_t begun = time(NULL);
    bool good;

    shared = mmap(NULL, sizeof *shared * RANKS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return false;
    }
    job++;
    fflush(stdout);
    for (int rank = 0; rank < RANKS; rank++)
        child[rank] = begin(test, rank);
    good = watch(test, child);
    munmap(shared, sizeof *shared * RANKS);
    printf("%s %s (%d s)\n", good ? "ok" : "not ok", name, (int)(time(NULL) - begun));
    fflush(stdout);
    return good;
}

/* What a test is called over a transport; null where it has no meaning. */
static const char *name_over(const char *name, char *room, size_t size)
{
    static const char *const prefixes[TRANSPORTS] = {[SMCUDA] = "smcuda", [VERBS] = "verbs"};
    enum transport own = USNIC;

    for (enum transport each = SMCUDA; each < TRANSPORTS; each++)
        if (strncmp(name, prefixes[each], strlen(prefixes[each])) == 0)
            own = each;
    if (transport == own)
        return name;
    if (strncmp(name, "btl ", 4) != 0)
        return NULL;
    snprintf(room, size, "%s%s", prefixes[transport], name + 3);
    return room;
}

/* hostile LIBRARY [TEST …]: all tests, or those whose names begin so; where there are RDMA devices of the stand-in's, those of
 * the verbs BTL, and else all others. */
int main(int argc, char **argv)
{
    const struct test *const all[] = {btl_life_tests,   btl_callback_tests, btl_argument_tests,
                                      btl_memory_tests, btl_loss_tests,     btl_again_tests,   btl_thread_tests,   btl_death_tests,
                                      mtl_life_tests,   mtl_message_tests,  mtl_loss_tests};
    const bool is_over_verbs = getenv("HAWSER_VERBS_DEVICES") != NULL;
    unsigned passed = 0, failed = 0;

    if (argc < 2) {
        printf("usage: %s LIBRARY [TEST …]\n", argv[0]);
        return 2;
    }
    host_library = argv[1];
    /* Loaded before the fork, once for all tests: valgrind needs seconds for it. The library's constructor
     * only looks which host this is; libfabric's does nothing before its first use. */
    if (dlopen(host_library, RTLD_LAZY | RTLD_GLOBAL) == NULL) {
        printf("%s\n", dlerror());
        return 2;
    }
    dlopen("libfabric.so.1", RTLD_LAZY | RTLD_LOCAL);
    is_slow = getenv("HAWSER_HOSTILE_SLOW") != NULL;
    job = (uint32_t)getpid() << 16;
    for (size_t each = 0; each < TRANSPORTS * (sizeof all / sizeof *all); each++) {
        transport = (enum transport)(each / (sizeof all / sizeof *all));
        for (const struct test *test = all[each % (sizeof all / sizeof *all)]; test->name != NULL; test++) {
            char room[80];
            const char *name = name_over(test->name, room, sizeof room);
            bool is_here = name != NULL && (transport == VERBS) == is_over_verbs;
            bool wanted = is_here && argc == 2;
            for (int i = 2; i < argc && is_here; i++)
                wanted = wanted || strncmp(name, argv[i], strlen(argv[i])) == 0;
            if (wanted)
                *(run(test, name) ? &passed : &failed) += 1;
        }
    }
    return failed != 0 || passed == 0;
}
