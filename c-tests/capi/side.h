/* One of two processes of a test of the C functions: over examples/pair.h, with what it checks. */
#ifndef SIDE_H
#define SIDE_H

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
#define UNTIL(what)                                        \
    do {                                                   \
        while (!(what)) {                                  \
            int32_t until_code = side.btl->progress();     \
            CHECK(until_code >= 0);                        \
            if (until_code == 0) sched_yield();            \
        }                                                  \
    } while (0)

enum { MODULES = 32 };

/* This process: 0 or 1. */
static int me;

static struct {
    struct pair pair;
    const hawser_btl_component *btl;
    const hawser_btl_module *table;
    hawser_btl modules[MODULES];
    size_t count;
    /* Where messages to the other process go. */
    hawser_btl module;
    hawser_endpoint to;
    hawser_btl_limits limits;
    hawser_host host;
    long logged;
} side;

/* Both processes are on this node. */
static const char *parameter(const char *name)
{
    return strcmp(name, "btl_usnic_if_include") == 0 ? "lo" : NULL;
}

static void logged(void *context, uint32_t level, const char *line)
{
    CHECK(context == &side.pair && level <= HAWSER_LOG_INFO && strchr(line, '\n') == NULL);
    side.logged++;
    if (getenv("LOUD") != NULL) fprintf(stderr, "%d: %s\n", me, line);
}

/* Both meet here, and make progress meanwhile. */
static void meet(void)
{
    CHECK(pair_barrier(&side.pair) == 0);
}

/* Makes the other process. */
static void begin(const char *transport)
{
    CHECK(pair_fork(&side.pair) == 0);
    me = side.pair.rank;
    side.pair.parameter = parameter;
    side.btl = hawser_btl_find(transport);
    CHECK(side.btl != NULL && side.btl->abi == HAWSER_ABI && side.btl->size >= sizeof *side.btl);
    side.table = side.btl->module;
    CHECK(side.table->abi == HAWSER_ABI && side.table->size >= sizeof *side.table);
    side.host = pair_host(&side.pair);
    side.host.log = logged;
}

/* Opens the component, without the other process. */
static void start(void)
{
    IS(0, side.btl->open(&side.host));
    IS(0, side.btl->register_parameters());
    IS(0, side.btl->init(&side.count));
    CHECK(side.count >= 1 && side.count <= MODULES);
    for (size_t at = 0; at < side.count; at++) IS(0, side.btl->module_at(at, &side.modules[at]));
    side.module = side.modules[0];
    side.limits.size = sizeof side.limits;
    IS(0, side.table->limits(side.module, &side.limits));
}

/* Meets the other process, through the first module, which both have. */
static void join(void)
{
    meet();
    hawser_peer peer = {.name = pair_name(&side.pair, !me), .node = "here"};
    IS(0, side.table->add_peers(side.module, 1, &peer, &side.to));
    CHECK(side.to.id != 0);
    side.pair.progress = side.btl->progress;
    meet();
}

/* Both leave. */
static void leave(void)
{
    meet();
    side.pair.progress = NULL;
    IS(0, side.btl->close());
}

/* The other process must end well. */
static int end(void)
{
    int status = 0;
    if (me == 0) CHECK(waitpid(side.pair.child, &status, 0) == side.pair.child && status == 0);
    if (me == 0) puts("PASS");
    return 0;
}

#endif
