/* Two processes over the byte transports: a long get, and messages behind it that are gone long before it is answered. It is over
 * when its bytes are here. And messages that are sent right before their peer is deleted, which short ones behind them must not
 * overtake: they arrive.
 *
 *     overtaken TRANSPORT CASE
 */
#include "side.h"

enum { TAG = 7, BYTES = 3 << 20, MESSAGE = 20000, BEHIND = 4, ROUNDS = 20 };

static unsigned char mine[BYTES], copy[BYTES];
static long received, sent;
static int round_now;

static void take(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    (void)context, (void)module, (void)from;
    CHECK(tag == TAG && length == MESSAGE && *(const unsigned char *)bytes == pattern(0, 0));
    received++;
}

static void gone(void *context, hawser_btl module, hawser_endpoint to, int32_t status)
{
    (void)context, (void)module, (void)to;
    IS(0, status);
    sent++;
}

static void is_here(void *context, hawser_btl module, hawser_endpoint to, int32_t status)
{
    (void)module, (void)to;
    IS(0, status);
    for (size_t at = 0; at < BYTES; at++) {
        if (copy[at] == pattern((size_t)!me, at)) continue;
        fprintf(stderr, "get %d is over, and byte %zu is not here\n", round_now, at);
        exit(1);
    }
    *(int *)context = 1;
}

static void send_one(void)
{
    hawser_fragment fragment;
    void *memory;
    IS(0, side.table->alloc(side.module, MESSAGE, &fragment, &memory));
    fill(memory, 0, 0, MESSAGE);
    for (;;) {
        int32_t code = side.table->send(side.module, side.to, fragment, TAG, HAWSER_AWAITED, gone, NULL);
        if (code == HAWSER_SUCCESS) return;
        CHECK(code == HAWSER_ERR_AGAIN && side.btl->progress() >= 0);
    }
}

static void case_get(void)
{
    hawser_memory memory;
    hawser_remote remote, theirs;
    start();
    IS(0, side.table->register_receive(side.module, TAG, take, NULL));
    join();
    CHECK(side.limits.max_send >= MESSAGE);
    fill(mine, (size_t)me, 0, BYTES);
    IS(0, side.table->register_memory(side.module, mine, BYTES, HAWSER_READ, &memory));
    IS(0, side.table->memory_key(side.module, memory, &remote));
    CHECK(pair_swap(&two.pair, &remote, &theirs, sizeof remote) == 0);
    for (round_now = 0; round_now < ROUNDS; round_now++) {
        int is_over = 0;
        memset(copy, 0xAA, BYTES);
        if (me == 0) {
            int32_t code = side.table->get(side.module, side.to, copy, BYTES, &theirs, 0, is_here, &is_over);
            CHECK(code >= 0);
            if (code == HAWSER_DONE && !is_over) is_here(&is_over, side.module, side.to, 0);
            for (int number = 0; number < BEHIND; number++) send_one();
            UNTIL(is_over && sent == BEHIND * (round_now + 1));
        } else {
            UNTIL(received == BEHIND * (round_now + 1));
        }
        meet();
    }
    IS(0, side.table->deregister_memory(side.module, memory));
    leave();
}

/* A message, and nothing is waited for but what follows. Half of them are not waited for by anybody. */
static void case_end(void)
{
    start();
    IS(0, side.table->register_receive(side.module, TAG, take, NULL));
    join();
    CHECK(side.limits.max_send >= MESSAGE);
    for (round_now = 0; round_now < ROUNDS / 2; round_now++) {
        if (me == 0) {
            send_one();
            UNTIL(sent > 0);
        } else {
            UNTIL(received == 2 * round_now + 1);
        }
        meet();
        sent = 0;
        if (me == 0) {
            hawser_fragment fragment;
            hawser_peer peer = {.name = pair_name(&two.pair, !me), .node = "here"};
            void *memory;
            IS(0, side.table->alloc(side.module, MESSAGE, &fragment, &memory));
            fill(memory, 0, 0, MESSAGE);
            int32_t code = side.table->send(side.module, side.to, fragment, TAG, round_now % 2 == 0 ? 0 : HAWSER_AWAITED, gone, NULL);
            CHECK(code >= 0);
            IS(0, side.table->del_peers(side.module, 1, &side.to));
            meet();
            IS(0, side.table->add_peers(side.module, 1, &peer, &side.to));
        } else {
            UNTIL(received == 2 * round_now + 2);
            meet();
        }
        meet();
        sent = 0;
    }
    leave();
}

static const struct one_case cases[] = {{"get", case_get}, {"end", case_end}};

MAIN(cases)
