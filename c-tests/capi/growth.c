/* Two processes over a byte transport, for as long as it takes to see whether something grows.
 *
 *     growth TRANSPORT short|million
 */
#include "side.h"

#include "growth.h"

enum { TAG = 7, ROUNDS = 50, LONGEST = 100000, ROOM = 1 << 20 };

static long received, awaited, ended, owed;
static unsigned char mine[ROOM], open_room[ROOM], copy[ROOM];
static hawser_remote theirs;

static void take(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    (void)context, (void)module, (void)from, (void)tag;
    CHECK(length == 0 || *(const unsigned char *)bytes == (unsigned char)length);
    received++;
}

static void over(void *context, hawser_btl module, hawser_endpoint to, int32_t status)
{
    (void)context, (void)module, (void)to;
    IS(0, status);
    ended++;
}

/* Makes room: one pass. */
static void pass(void)
{
    int32_t code = side.btl->progress();
    CHECK(code >= 0);
    if (code == 0) sched_yield();
}

/* It has begun, or is over; or there is no room yet: 0. */
static int begun(int32_t code)
{
    if (code == HAWSER_ERR_AGAIN) {
        pass();
        return 0;
    }
    CHECK(code == HAWSER_SUCCESS || code == HAWSER_DONE);
    owed += code == HAWSER_SUCCESS;
    return 1;
}

static long batch(void)
{
    static const size_t sizes[] = {1, 64, 100, 4000, 8, 20000, 64, 300};
    static long number;
    hawser_fragment fragment;
    hawser_memory memory;
    hawser_remote remote;
    void *start;
    long operations = 0;
    for (int round = 0; round < ROUNDS; round++, number++) {
        size_t length = sizes[number % 8], far = number % 40 == 0 ? LONGEST : length;
        if (length > side.limits.max_send) length = side.limits.max_send;
        IS(0, side.table->alloc(side.module, length, &fragment, &start));
        IS(0, side.table->free(side.module, fragment));
        IS(0, side.table->alloc(side.module, length, &fragment, &start));
        memset(start, (int)length, length);
        while (!begun(side.table->send(side.module, side.to, fragment, TAG, number % 3 ? HAWSER_AWAITED : 0, over, NULL))) {}
        IS(0, side.table->prepare_src(side.module, 1, mine, 100, &fragment, &start));
        memset(start, 101, 1);
        while (!begun(side.table->send(side.module, side.to, fragment, TAG, HAWSER_AWAITED, over, NULL))) {}
        for (int32_t code = HAWSER_ERR_AGAIN; code != 0;) {
            code = side.table->sendi(side.module, side.to, TAG, "\4abc", 4, NULL, 0);
            CHECK(code == 0 || code == HAWSER_ERR_AGAIN);
            if (code != 0) pass();
        }
        awaited += 3;
        IS(0, side.table->register_memory(side.module, mine, far, HAWSER_READ | HAWSER_WRITE, &memory));
        IS(0, side.table->memory_key(side.module, memory, &remote));
        IS(0, side.table->deregister_memory(side.module, memory));
        while (!begun(side.table->put(side.module, side.to, mine, far, &theirs, 0, over, NULL))) {}
        while (!begun(side.table->get(side.module, side.to, copy, far, &theirs, 0, over, NULL))) {}
        operations += 10;
    }
    /* The other one has done as much. */
    UNTIL(ended == owed && received >= awaited);
    IS(0, side.table->flush(side.module, side.to, 60000));
    return operations + 1;
}

static void grow(long most, long most_bytes)
{
    hawser_memory memory;
    hawser_remote remote;
    start();
    IS(0, side.table->register_receive(side.module, TAG, take, NULL));
    join();
    IS(0, side.table->register_memory(side.module, open_room, ROOM, HAWSER_READ | HAWSER_WRITE, &memory));
    IS(0, side.table->memory_key(side.module, memory, &remote));
    CHECK(pair_swap(&two.pair, &remote, &theirs, sizeof remote) == 0);
    grow_over(most, most_bytes, batch);
    leave();
}

MAIN(growth_cases)
