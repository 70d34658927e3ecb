/* One of two processes of a test of the C functions: over examples/pair.h, with what it checks, and the cases by their
 * names. */
#ifndef TWO_H
#define TWO_H

#include "pair.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#define CHECK(what)                                                                           \
    do {                                                                                      \
        if (!(what)) {                                                                        \
            fprintf(stderr, "%s:%d: process %d: not so: %s\n", __FILE__, __LINE__, me, #what); \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

/* A call returns this code. */
#define IS(code, call)                                                                                  \
    do {                                                                                                \
        int32_t is_code = (call);                                                                       \
        if (is_code != (code)) {                                                                        \
            fprintf(stderr, "%s:%d: process %d: %s is %d (%s), not %s\n", __FILE__, __LINE__, me, #call, \
                    (int)is_code, hawser_strerror(is_code), #code);                                     \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)

/* Makes progress until something holds. */
#define UNTIL(what)                                    \
    do {                                               \
        while (!(what)) {                              \
            int32_t until_code = two.progress();       \
            CHECK(until_code >= 0);                    \
            if (until_code == 0) sched_yield();        \
        }                                              \
    } while (0)

/* This process: 0 or 1. */
static int me;

static struct {
    struct pair pair;
    hawser_host host;
    /* That of the component under test. */
    int32_t (*progress)(void);
    long logged;
} two;

static void logged(void *context, uint32_t level, const char *line)
{
    CHECK(context == &two.pair && level <= HAWSER_LOG_INFO && strchr(line, '\n') == NULL);
    two.logged++;
    if (getenv("LOUD") != NULL) fprintf(stderr, "%d: %s\n", me, line);
}

/* Both meet here, and make progress meanwhile. */
static void meet(void)
{
    CHECK(pair_barrier(&two.pair) == 0);
}

/* Makes the other process, and the caller's table for both. */
static void fork_two(const char *(*parameter)(const char *name))
{
    CHECK(pair_fork(&two.pair) == 0);
    me = two.pair.rank;
    two.pair.parameter = parameter;
    two.host = pair_host(&two.pair);
    two.host.log = logged;
}

/* The other process must end well. */
static int end(void)
{
    int status = 0;
    if (me == 0) CHECK(waitpid(two.pair.child, &status, 0) == two.pair.child && status == 0);
    if (me == 0) puts("PASS");
    return 0;
}

/* What a table of component's lacks, whichever kind of component it is: `host` is spoiled and `open` refuses it. */
static inline void refuse_tables(int32_t (*open)(const hawser_host *host), int32_t (*close)(void))
{
    struct hawser_host host = two.host;
    IS(HAWSER_ERR_ARGUMENT, open(NULL));
    IS(HAWSER_ERR_ARGUMENT, open((const hawser_host *)((const char *)&host + 1)));
    host.size = 0;
    IS(HAWSER_ERR_ABI, open(&host));
    host.size = sizeof host - 1;
    IS(HAWSER_ERR_ABI, open(&host));
    host = two.host, host.abi = HAWSER_ABI + 1;
    IS(HAWSER_ERR_ABI, open(&host));
    host = two.host, host.publish = NULL;
    IS(HAWSER_ERR_ARGUMENT, open(&host));
    host = two.host, host.lookup = NULL;
    IS(HAWSER_ERR_ARGUMENT, open(&host));
    host = two.host, host.threads = 4;
    IS(HAWSER_ERR_ARGUMENT, open(&host));
    host = two.host, host.reserved = 1;
    IS(HAWSER_ERR_ARGUMENT, open(&host));
    /* A later version's is longer. */
    struct {
        struct hawser_host host;
        uint64_t more;
    } longer = {two.host, 1};
    longer.host.size = sizeof longer;
    IS(0, open(&longer.host));
    IS(0, close());
}

/* The bytes of a message, by its number. */
static inline unsigned char pattern(size_t number, size_t at)
{
    return (unsigned char)(number * 31 + at * 7 + (at >> 8));
}

static inline void fill(void *memory, size_t number, size_t from, size_t length)
{
    unsigned char *bytes = memory;
    for (size_t at = 0; at < length; at++) bytes[at] = pattern(number, from + at);
}

static inline int is_filled(const void *memory, size_t number, size_t length)
{
    const unsigned char *bytes = memory;
    for (size_t at = 0; at < length; at++) {
        if (bytes[at] != pattern(number, at)) return 0;
    }
    return 1;
}

struct one_case {
    const char *name;
    void (*run)(void);
};

/* Runs the case that the command line names behind what it is about. */
#define MAIN(cases)                                                              \
    int main(int argc, char **argv)                                              \
    {                                                                            \
        if (argc != 3) return 2;                                                 \
        for (size_t at = 0; at < sizeof(cases) / sizeof *(cases); at++) {        \
            if (strcmp((cases)[at].name, argv[2]) != 0) continue;                \
            begin(argv[1]);                                                      \
            (cases)[at].run();                                                   \
            return end();                                                        \
        }                                                                        \
        return 2;                                                                \
    }

#endif
