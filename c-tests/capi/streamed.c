/* Two processes over the byte transports, of which one deletes the other and adds it again, over and over, while that keeps its
 * endpoint and sends all the time. What has been sent with success is delivered, once, whatever its sender knew.
 *
 *     streamed TRANSPORT CASE
 */
#include "side.h"

/* MANY messages; the receiver deletes and adds whenever it has had EVERY. */
enum { TAG = 7, MANY = 3000, EVERY = 100, SHORT = 40, UNKNOWN = 1 };

/* How each has ended for the sender, and how often it came. */
static int32_t ends[MANY];
static int came[MANY];
static long received, ended, deleted;

static void take(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    uint64_t number;
    (void)context, (void)module, (void)from;
    CHECK(tag == TAG && length >= sizeof number);
    memcpy(&number, bytes, sizeof number);
    CHECK(number < MANY && length == (number % 7 == 0 ? side.limits.max_send : SHORT));
    const unsigned char *data = bytes;
    for (size_t at = sizeof number; at < length; at++) CHECK(data[at] == pattern(number, at));
    came[number]++;
    received++;
}

static void over(void *context, hawser_btl module, hawser_endpoint to, int32_t status)
{
    int32_t *end = context;
    (void)module, (void)to;
    CHECK(*end == UNKNOWN && status <= 0);
    *end = status;
    ended++;
}

static void add(void)
{
    hawser_peer peer = {.name = pair_name(&two.pair, !me), .node = "here"};
    IS(0, side.table->add_peers(side.module, 1, &peer, &side.to));
    CHECK(side.to.id != 0);
}

static void send_one(uint64_t number)
{
    size_t length = number % 7 == 0 ? side.limits.max_send : SHORT;
    hawser_fragment fragment;
    void *memory;
    IS(0, side.table->alloc(side.module, length, &fragment, &memory));
    fill(memory, number, 0, length);
    memcpy(memory, &number, sizeof number);
    for (;;) {
        int32_t code = side.table->send(side.module, side.to, fragment, TAG, HAWSER_AWAITED, over, &ends[number]);
        if (code == HAWSER_SUCCESS) return;
        CHECK(code == HAWSER_ERR_AGAIN && side.btl->progress() >= 0);
    }
}

/* Progress of the receiver's. */
static int32_t receive(void)
{
    int32_t count = side.btl->progress();
    CHECK(count >= 0);
    if (received / EVERY > deleted) {
        deleted = received / EVERY;
        IS(0, side.table->del_peers(side.module, 1, &side.to));
        add();
    }
    return count;
}

static void begin_here(void)
{
    for (int number = 0; number < MANY; number++) ends[number] = UNKNOWN;
    start();
    IS(0, side.table->register_receive(side.module, TAG, take, NULL));
    join();
}

/* What the sender has been told has come, once. How many have failed. */
static int compare(void)
{
    static int32_t other[MANY];
    int failed = 0, lost = 0, doubled = 0;
    CHECK(pair_swap(&two.pair, ends, other, sizeof ends) == 0);
    for (long calls = 0; me == 0 && calls < 3000; calls++) {
        failed = lost = doubled = 0;
        for (int number = 0; number < MANY; number++) {
            failed += other[number] < 0;
            lost += other[number] == 0 && came[number] == 0;
            doubled += came[number] > 1;
        }
        if (lost == 0) break;
        /* It is with this process's device. */
        for (int turn = 0; turn < 1000; turn++) receive();
        sched_yield();
    }
    if (failed + lost + doubled != 0) fprintf(stderr, "%ld received, %ld times deleted, %d failed, %d lost, %d doubled\n", received, deleted, failed, lost, doubled);
    CHECK(lost == 0 && doubled == 0);
    return failed;
}

/* Nothing is lost or fails. */
static void case_busy(void)
{
    begin_here();
    if (me == 1) {
        for (uint64_t number = 0; number < MANY; number++) {
            send_one(number);
            if (number % 3 == 0) CHECK(side.btl->progress() >= 0);
        }
        UNTIL(ended == MANY);
    } else {
        two.pair.progress = receive;
    }
    IS(0, compare());
    CHECK(me == 1 || deleted == MANY / EVERY || deleted == MANY / EVERY - 1);
    two.pair.progress = side.btl->progress;
    leave();
}

/* It makes no progress while it is deleted, and does not know of it when it sends: that may fail. From then on it is heard. */
static void case_blind(void)
{
    uint64_t number = 0;
    begin_here();
    for (int round = 0; round < 3; round++) {
        long before = ended;
        if (me == 1) send_one(number);
        number++;
        if (me == 1) UNTIL(ended == before + 1);
        if (me == 0) UNTIL(came[number - 1] == 1);
        if (me == 1) two.pair.progress = NULL;
        meet();
        if (me == 0) IS(0, side.table->del_peers(side.module, 1, &side.to));
        meet();
        for (int more = 0; more < 15; more++, number++) {
            if (me == 1) send_one(number);
        }
        meet();
        two.pair.progress = side.btl->progress;
        if (me == 0) add();
        if (me == 1) UNTIL(ended == before + 16);
        compare();
    }
    leave();
}

static const struct one_case cases[] = {{"busy", case_busy}, {"blind", case_blind}};

MAIN(cases)
