/* Memory of another process, read and written without its doing: PUT and GET by a byte transport of hawser's.
 *
 *     cc -Wall get.c -o get $(pkg-config --cflags --libs hawser)
 *     ./get [smcuda|usnic|verbs] [BYTES]
 */
#include "pair.h"

#include <sched.h>
#include <sys/wait.h>

static void check(const char *what, int32_t code)
{
    if (code >= 0) return;
    fprintf(stderr, "get: %s: %s\n", what, hawser_strerror(code));
    exit(1);
}

/* A PUT or GET has ended. */
static void ended(void *context, hawser_btl module, hawser_endpoint peer, int32_t status)
{
    (void)module, (void)peer;
    check("a transfer", status);
    *(int *)context = 1;
}

/* Waits for one, by what it has returned: HAWSER_DONE is over already, and nobody is called back. */
static void finish(const hawser_btl_component *btl, const char *what, int32_t code, int *is_over)
{
    check(what, code);
    while (code != HAWSER_DONE && !*is_over) {
        int32_t count = btl->progress();
        check("progress", count);
        if (count == 0) sched_yield();
    }
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "smcuda";
    size_t length = argc > 2 ? strtoul(argv[2], NULL, 0) : 1 << 20, wrong = 0;
    struct pair pair;
    if (length < 1 || pair_fork(&pair) != 0) return 1;

    /* Open the component, and publish how this process is reached. */
    const hawser_btl_component *btl = hawser_btl_find(name);
    if (btl == NULL || btl->abi != HAWSER_ABI) {
        fprintf(stderr, "get: there is no transport %s\n", name);
        return 1;
    }
    hawser_host host = pair_host(&pair);
    size_t count;
    check("open", btl->open(&host));
    check("register_parameters", btl->register_parameters());
    check("init", btl->init(&count));

    /* Behind the barrier the other one's record is there. */
    if (pair_barrier(&pair) != 0) return 1;
    hawser_peer peer = {.name = pair_name(&pair, !pair.rank)};
    hawser_btl module = {0};
    hawser_endpoint to = {0};
    for (size_t at = 0; at < count && to.id == 0; at++) {
        check("module_at", btl->module_at(at, &module));
        check("add_peers", btl->module->add_peers(module, 1, &peer, &to));
    }
    if (to.id == 0) check("add_peers", HAWSER_ERR_UNREACHABLE);

    /* Each opens its memory to the other, and gives it the name: plain bytes, which any means may carry. */
    unsigned char *mine = malloc(length), *copy = malloc(length);
    hawser_memory memory;
    hawser_remote own, theirs;
    if (mine == NULL || copy == NULL) return 1;
    for (size_t at = 0; at < length; at++) mine[at] = (unsigned char)(at * 7 + (size_t)pair.rank);
    check("register_memory", btl->module->register_memory(module, mine, length, HAWSER_READ | HAWSER_WRITE, &memory));
    check("memory_key", btl->module->memory_key(module, memory, &own));
    pair.progress = btl->progress;
    if (pair_swap(&pair, &own, &theirs, sizeof own) != 0) return 1;

    /* The parent reads all that the child has, and writes it back with one more in each byte. */
    if (pair.rank == 0) {
        int is_got = 0, is_put = 0;
        finish(btl, "get", btl->module->get(module, to, copy, length, &theirs, 0, ended, &is_got), &is_got);
        for (size_t at = 0; at < length; at++) wrong += copy[at] != (unsigned char)(at * 7 + 1);
        for (size_t at = 0; at < length; at++) copy[at]++;
        finish(btl, "put", btl->module->put(module, to, copy, length, &theirs, 0, ended, &is_put), &is_put);
    }

    /* What was put is there behind the barrier. */
    if (pair_barrier(&pair) != 0) return 1;
    for (size_t at = 0; pair.rank == 1 && at < length; at++) wrong += mine[at] != (unsigned char)(at * 7 + 2);
    check("deregister_memory", btl->module->deregister_memory(module, memory));
    check("close", btl->close());
    free(mine);
    free(copy);
    if (pair.rank == 1) return wrong != 0;
    int status = 1;
    waitpid(pair.child, &status, 0);
    printf("%s, %zu bytes: got and put, %zu wrong\n", name, length, wrong);
    return wrong != 0 || status != 0;
}
