/* Messages between two processes, matched by context, source and tag as MPI's are, over libfabric and without Open MPI.
 * One process hands out work, the other one does it: tasks in any order, answers under the number of their task.
 *
 *     cc -Wall tagged.c -o tagged $(pkg-config --cflags --libs hawser)
 *     ./tagged [PROVIDER] [TASKS]
 */
#include "pair.h"

#include <sched.h>
#include <sys/wait.h>

/* Who receives in one context does not see what is sent in the other. */
enum { TASKS = 1, ANSWERS = 2, MOST = 1000 };

static const hawser_mtl_component *mtl;
static const char *provider;

static void check(const char *what, int32_t code)
{
    if (code >= 0) return;
    fprintf(stderr, "tagged: %s: %s\n", what, hawser_strerror(code));
    exit(1);
}

static const char *parameter(const char *name)
{
    return strcmp(name, "mtl_ofi_provider_include") == 0 ? provider : NULL;
}

/* One pass; whoever finds nothing to do lets others run. */
static void progress(void)
{
    int32_t code = mtl->progress();
    check("progress", code);
    if (code == 0) sched_yield();
}

/* A send or receive has ended: its memory is ours again. */
static void ended(void *context, hawser_mtl module, hawser_request request, int32_t status, const hawser_envelope *envelope)
{
    (void)module, (void)request, (void)envelope;
    check("a message", status);
    ++*(long *)context;
}

/* Hands out numbers, and gets their squares: all receives are there before the first task is. Returns how many are wrong. */
static long give(hawser_mtl module, hawser_endpoint worker, long tasks)
{
    static uint64_t numbers[MOST], squares[MOST];
    hawser_request request;
    long received = 0, sent = 0, wrong = 0;
    for (long at = 0; at < tasks; at++) {
        check("irecv", mtl->module->irecv(module, worker, ANSWERS, (int32_t)at, &squares[at], sizeof squares[at], ended, &received, &request));
    }
    for (long at = 0; at < tasks; at++) {
        numbers[at] = (uint64_t)(at * 7 + 3);
        int32_t code;
        /* The worker may not be ready for so many: then nothing was sent. */
        while ((code = mtl->module->isend(module, worker, TASKS, (int32_t)at, &numbers[at], sizeof numbers[at], 0, ended, &sent, &request)) == HAWSER_ERR_AGAIN) progress();
        check("isend", code);
        /* Over at once: then nobody is called back. */
        if (code == HAWSER_DONE) sent++;
    }
    while (received < tasks || sent < tasks) progress();
    for (long at = 0; at < tasks; at++) wrong += squares[at] != numbers[at] * numbers[at];
    return wrong;
}

/* Takes whatever comes, from anybody and under any tag. */
static void work(hawser_mtl module, long tasks)
{
    const hawser_endpoint anybody = {0};
    for (long done = 0; done < tasks; done++) {
        hawser_envelope envelope = {.size = sizeof envelope};
        hawser_message message;
        hawser_request request;
        uint64_t number;
        long received = 0;
        int32_t code;
        while ((code = mtl->module->improbe(module, anybody, TASKS, HAWSER_ANY_TAG, &envelope, &message)) == HAWSER_ERR_NOT_FOUND) sched_yield();
        check("improbe", code);
        /* It is ours alone now, and its length is known. */
        if (envelope.length != sizeof number) exit(1);
        check("imrecv", mtl->module->imrecv(module, message, &number, sizeof number, ended, &received, &request));
        while (received == 0) progress();
        number *= number;
        /* The last one is over when it is received: behind it nothing is under way. */
        uint32_t flags = done == tasks - 1 ? HAWSER_SYNCHRONOUS : 0;
        check("send", mtl->module->send(module, envelope.source, ANSWERS, envelope.tag, &number, sizeof number, flags));
    }
}

int main(int argc, char **argv)
{
    provider = argc > 1 ? argv[1] : NULL;
    long tasks = argc > 2 ? strtol(argv[2], NULL, 0) : 100, wrong = 0;
    struct pair pair;
    if (tasks < 1 || tasks > MOST || pair_fork(&pair) != 0) return 1;
    pair.parameter = parameter;

    /* Open the component, and publish how this process is reached. */
    mtl = hawser_mtl_find("ofi");
    if (mtl == NULL || mtl->abi != HAWSER_ABI) return 1;
    hawser_host host = pair_host(&pair);
    hawser_mtl module;
    check("open", mtl->open(&host));
    check("register_parameters", mtl->register_parameters());
    check("init", mtl->init(&module));

    /* Behind the barrier the other one's record is there. */
    if (pair_barrier(&pair) != 0) return 1;
    hawser_peer peer = {.name = pair_name(&pair, !pair.rank)};
    hawser_endpoint other;
    check("add_peers", mtl->module->add_peers(module, 1, &peer, &other));
    if (other.id == 0) check("add_peers", HAWSER_ERR_UNREACHABLE);

    if (pair.rank == 0) wrong = give(module, other, tasks);
    if (pair.rank == 1) work(module, tasks);

    /* Both make progress until both have done. */
    pair.progress = mtl->progress;
    if (pair_barrier(&pair) != 0) return 1;
    check("close", mtl->close());
    if (pair.rank == 1) return 0;
    int status = 1;
    waitpid(pair.child, &status, 0);
    printf("%ld tasks, %ld answers wrong\n", tasks, wrong);
    return wrong != 0 || status != 0;
}
