/* Ping-pong between two processes over a byte transport of hawser's, without Open MPI.
 *
 *     cc -Wall pingpong.c -o pingpong $(pkg-config --cflags --libs hawser)
 *     ./pingpong [smcuda|usnic|verbs] [BYTES] [ROUNDS]
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, also where a compiler is told -std=c11 */

#include "pair.h"

#include <sched.h>
#include <sys/wait.h>
#include <time.h>

enum { TAG = 1 };

/* What the callbacks share with main. */
struct game {
    size_t length;
    long received, wrong, lost;
};

static void fail(const char *what, int32_t code)
{
    fprintf(stderr, "pingpong: %s: %s\n", what, hawser_strerror(code));
    exit(1);
}

static void check(const char *what, int32_t code)
{
    if (code < 0) fail(what, code);
}

/* One pass; whoever finds nothing to do lets others run. */
static void progress(const hawser_btl_component *btl)
{
    int32_t code = btl->progress();
    check("progress", code);
    if (code == 0) sched_yield();
}

/* A message has come: its bytes are ours for the time of the call. */
static void received(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    struct game *game = context;
    (void)module, (void)from, (void)tag;
    unsigned char first = 0, last = 0;
    if (length > 0) {
        first = *(const unsigned char *)bytes;
        last = *((const unsigned char *)bytes + length - 1);
    }
    unsigned char expected = length > 0 ? (unsigned char)game->received : 0;
    game->wrong += length != game->length || first != expected || last != expected;
    game->received++;
}

static void lost(void *context, hawser_btl module, hawser_endpoint peer, uint64_t name)
{
    struct game *game = context;
    (void)module, (void)peer, (void)name;
    game->lost++;
}

/* Sends one message; asks again while there is no room. */
static void send_one(const hawser_btl_component *btl, hawser_btl module, hawser_endpoint to, size_t length, int fill)
{
    hawser_fragment fragment;
    void *memory;
    check("alloc", btl->module->alloc(module, length, &fragment, &memory));
    memset(memory, fill, length);
    for (;;) {
        /* Nobody waits for its end, so there is no callback; once it is sent, the fragment is hawser's. */
        int32_t code = btl->module->send(module, to, fragment, TAG, HAWSER_PRIORITY, NULL, NULL);
        if (code >= 0) return;
        if (code != HAWSER_ERR_AGAIN) fail("send", code);
        progress(btl);
    }
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "smcuda";
    struct game game = {.length = argc > 2 ? strtoul(argv[2], NULL, 0) : 8};
    long rounds = argc > 3 ? strtol(argv[3], NULL, 0) : 10000;

    struct pair pair;
    if (pair_fork(&pair) != 0) {
        perror("pingpong");
        return 1;
    }

    /* Open the component, and publish how this process is reached. */
    const hawser_btl_component *btl = hawser_btl_find(name);
    if (btl == NULL || btl->abi != HAWSER_ABI) {
        fprintf(stderr, "pingpong: there is no transport %s\n", name);
        return 1;
    }
    hawser_host host = pair_host(&pair);
    size_t count;
    check("open", btl->open(&host));
    check("register_parameters", btl->register_parameters());
    check("init", btl->init(&count));

    /* Behind the barrier the other one's record is there. The first module that reaches it sends; any may receive. */
    if (pair_barrier(&pair) != 0) return 1;
    hawser_peer peer = {.name = pair_name(&pair, !pair.rank)};
    hawser_btl module = {0};
    hawser_endpoint to = {0};
    for (size_t at = 0; at < count; at++) {
        hawser_btl one;
        hawser_endpoint found;
        check("module_at", btl->module_at(at, &one));
        check("register_receive", btl->module->register_receive(one, TAG, received, &game));
        check("register_error", btl->module->register_error(one, lost, &game));
        check("add_peers", btl->module->add_peers(one, 1, &peer, &found));
        if (to.id == 0) module = one, to = found;
    }
    if (to.id == 0) fail("add_peers", HAWSER_ERR_UNREACHABLE);
    if (pair_barrier(&pair) != 0) return 1;

    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long round = 0; round < rounds; round++) {
        if (pair.rank == 0) send_one(btl, module, to, game.length, (int)(round & 0xFF));
        while (game.received <= round && game.lost == 0) progress(btl);
        if (game.lost != 0) fail("the other process", HAWSER_ERR_UNREACHABLE);
        if (pair.rank == 1) send_one(btl, module, to, game.length, (int)(round & 0xFF));
    }
    clock_gettime(CLOCK_MONOTONIC, &end);

    /* What was sent is over when the other one has made progress: both do so until both have done. */
    check("flush", btl->module->flush(module, to, 10000));
    pair.progress = btl->progress;
    if (pair_barrier(&pair) != 0) return 1;
    check("close", btl->close());
    if (pair.rank == 1) return game.wrong != 0;
    int status = 1;
    waitpid(pair.child, &status, 0);
    double time = (double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) / 1e3;
    printf("%s, %zu bytes: %.2f us one way, %ld of %ld wrong\n", name, game.length, time / (2.0 * (double)rounds), game.wrong, rounds);
    return game.wrong != 0 || status != 0;
}
