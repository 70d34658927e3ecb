/* Two processes over the byte transports, of which one deletes the other and adds it again, while that keeps its endpoint.
 *
 *     again TRANSPORT CASE
 */
#include "side.h"

enum { TAG = 7, ROUNDS = 6, OFTEN = 300 };

static long received, ended, failed;
/* What has to be received and to end. */
static long heard, said;

static void take(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    uint64_t name;
    (void)context;
    CHECK(tag == TAG && is_filled(bytes, length, length));
    IS(0, side.table->peer_name(module, from, &name));
    CHECK(name == pair_name(&two.pair, !me));
    received++;
}

static void over(void *context, hawser_btl module, hawser_endpoint to, int32_t status)
{
    (void)context, (void)module, (void)to;
    ended++;
    failed += status != 0;
}

static void lost(void *context, hawser_btl module, hawser_endpoint peer, uint64_t name)
{
    (void)context, (void)module, (void)peer;
    fprintf(stderr, "process %d: lost %llu\n", me, (unsigned long long)name);
    exit(1);
}

/* Sends one message; its callback follows. */
static void send_one(size_t length)
{
    hawser_fragment fragment;
    void *memory;
    IS(0, side.table->alloc(side.module, length, &fragment, &memory));
    fill(memory, length, 0, length);
    for (;;) {
        int32_t code = side.table->send(side.module, side.to, fragment, TAG, HAWSER_AWAITED, over, NULL);
        if (code == HAWSER_SUCCESS) return;
        CHECK(code == HAWSER_ERR_AGAIN && side.btl->progress() >= 0);
    }
}

static void add(void)
{
    hawser_peer peer = {.name = pair_name(&two.pair, !me), .node = "here"};
    IS(0, side.table->add_peers(side.module, 1, &peer, &side.to));
    CHECK(side.to.id != 0);
}

static void begin_here(void)
{
    start();
    IS(0, side.table->register_receive(side.module, TAG, take, NULL));
    IS(0, side.table->register_error(side.module, lost, NULL));
    join();
    said = heard = 1;
    send_one(100);
    UNTIL(received == heard && ended == said);
    meet();
}

/* Both send once, the one that was deleted first, and both are heard. */
static void both_are_heard(size_t length)
{
    heard++, said++;
    if (me == 0) UNTIL(received == heard);
    send_one(length);
    UNTIL(received == heard && ended == said);
    meet();
    CHECK(received == heard && ended == said && failed == 0);
}

/* It is added again before the other sends. */
static void case_kept(void)
{
    begin_here();
    for (int round = 0; round < ROUNDS; round++) {
        if (me == 0) {
            IS(0, side.table->del_peers(side.module, 1, &side.to));
            add();
        }
        meet();
        both_are_heard(round % 2 == 0 ? 40 : side.limits.max_send);
    }
    leave();
}

/* It is added again while the other's message is under way. */
static void case_waited(void)
{
    begin_here();
    for (int round = 0; round < ROUNDS; round++) {
        if (me == 0) IS(0, side.table->del_peers(side.module, 1, &side.to));
        meet();
        if (me == 1) send_one(40);
        meet();
        if (me == 0) {
            add();
            UNTIL(received == heard + 1);
            heard++;
        } else {
            UNTIL(ended == said + 1);
            said++;
        }
        meet();
        both_are_heard(side.limits.max_send);
    }
    leave();
}

static uint64_t counter(const char *name)
{
    uint64_t value = 0;
    IS(0, side.table->counter(side.module, name, &value));
    return value;
}

/* More often than eight bits count, and each time the one sends first that has to ask the other to connect. */
static void case_often(void)
{
    begin_here();
    int asks = counter("num_initiated") == 0;
    uint64_t kicks = counter("num_kicks");
    for (int round = 0; round < OFTEN; round++) {
        if (me == 0) {
            IS(0, side.table->del_peers(side.module, 1, &side.to));
            add();
        }
        meet();
        heard++, said++;
        if (!asks) UNTIL(received == heard);
        send_one(40);
        UNTIL(received == heard && ended == said);
    }
    /* What crosses is asked again. */
    CHECK(counter("num_connected") >= 1 + OFTEN && counter("num_attempts") >= 1 + OFTEN && failed == 0);
    CHECK(asks ? counter("num_kicks") - kicks >= OFTEN : counter("num_rejects") >= OFTEN);
    leave();
}

static const struct one_case cases[] = {{"kept", case_kept}, {"waited", case_waited}, {"often", case_often}};

MAIN(cases)
