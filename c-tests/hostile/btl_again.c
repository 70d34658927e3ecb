/* Peers that are given up and wanted again: in haste, in callbacks, by one thread while others send; and what a host may
 * write into its arguments without being asked to. */
#include "btl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t CALLED = MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
static struct btl btl;

/* Both part, and then each meets the other when it comes to it: what the faster one sends is not lost. */
static void in_haste(void)
{
    btl_begin(&btl, btl_parameters(), false);
    for (uint64_t turn = 0; turn < 20; turn++) {
        for (uint64_t number = 0; number < 10; number++)
            btl_post(&btl, turn * 20 + number, HEADER + number * 50, CALLED);
        btl_settle(&btl);
        btl_part(&btl);
        fence();
        if (turn % 2 == (uint64_t)self)
            for (int i = 0; i < 1000; i++)
                host_progress();
        btl_meet(&btl);
        for (uint64_t number = 10; number < 20; number++)
            btl_post(&btl, turn * 20 + number, HEADER + number * 50, CALLED);
        btl_settle(&btl);
    }
    btl_end(&btl);
}

/* One gives the other up and wants it again, which knows nothing of it: nothing is under way, and nobody loses anything. */
static void by_one_side(void)
{
    btl_begin(&btl, btl_parameters(), false);
    for (uint64_t turn = 0; turn < 20; turn++) {
        if (turn % 2 == (uint64_t)self) {
            btl_part(&btl);
            btl_meet(&btl);
        }
        fence();
        /* Whoever was given up does not know where it is, before it is sent something. */
        if (turn % 2 == (uint64_t)self)
            btl_post(&btl, turn * 20, HEADER, CALLED);
        btl_settle(&btl);
        for (uint64_t number = 1; number < 20; number++)
            btl_post(&btl, turn * 20 + number, HEADER + number * 500, CALLED);
        btl_settle(&btl);
    }
    CHECK(books.failed == 0 && books.refused == 0);
    btl_end(&btl);
}

static unsigned times;

static void part_and_meet(struct btl *to, uint64_t number, size_t size)
{
    (void)size;
    if (self != 0 || number % 20 != 7)
        return;
    times++;
    btl_part(to);
    host_progress();
    btl_meet(to);
    /* Over usnic, a peer that has lost something thereby is not reached before it has given us up, too; that is told. */
    int posted = btl_post(to, 1000 + number, HEADER, CALLED);
    CHECK(posted >= 0 || transport == USNIC, "%d", posted);
    host_progress();
}

enum { LATER = 2000, LATER_COUNT = 100 };
static unsigned later;

/* What was sent before may still come. */
static void count_later(struct btl *from, uint64_t number, size_t size)
{
    (void)from, (void)size;
    later += number >= LATER;
}

/* The peer whose message is being delivered is given up, and wanted again, before the callback returns. Each send ends;
 * and once both have given each other up, they have each other as before. */
static void in_a_callback(void)
{
    btl_begin(&btl, btl_parameters(), false);
    on_received = part_and_meet;
    for (uint64_t number = 0; number < 400; number++)
        btl_post(&btl, number, HEADER + number * 20, CALLED);
    step("waits for its sends");
    while (books.completed < books.posted || (self == 0 && times == 0))
        host_progress();
    /* Before the fence: whoever passes it sends what is counted, and giving its sender up would drop that. */
    on_received = count_later;
    fence();
    if (transport == USNIC) {
        btl_part(&btl);
        fence();
        btl_meet(&btl);
        fence();
    }
    for (uint64_t number = LATER; number < LATER + LATER_COUNT; number++)
        btl_post(&btl, number, HEADER + number * 3, CALLED);
    while (books.completed < books.posted)
        host_progress();
    while (later < LATER_COUNT)
        host_progress();
    fence();
    CHECK(later == LATER_COUNT);
    btl_end(&btl);
}

enum { THREADS = 4, EACH = 1500 };
static _Atomic unsigned at_work = THREADS - 1;

static void *send_on(void *thread)
{
    for (uint64_t number = 0; number < EACH; number++) {
        btl_post(&btl, number * THREADS + (uintptr_t)thread, HEADER + number % 3000, CALLED);
        host_progress();
    }
    at_work--;
    return NULL;
}

/* One thread gives the peer up and wants it again, without end, while others send to whichever endpoint there is. */
static void by_one_thread(void)
{
    pthread_t threads[THREADS];
    opal_proc_t *procs[1];

    btl_begin(&btl, btl_parameters(), true);
    procs[0] = &host_proc[other]->super;
    for (uintptr_t i = 1; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, send_on, (void *)i) == 0);
    while (at_work > 0) {
        if (self == 0) {
            endpoint_t peer = btl.peer, again[1] = {NULL};
            CHECK(btl.module->btl_del_procs(btl.module, 1, procs, &peer) == OPAL_SUCCESS);
            CHECK(btl.module->btl_add_procs(btl.module, 1, procs, again, NULL) == OPAL_SUCCESS);
            CHECK(again[0] != NULL && again[0] != peer);
            btl.peer = again[0];
        }
        host_progress();
    }
    for (int i = 1; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    step("waits for its sends");
    while (books.completed < books.posted)
        host_progress();
    fence();
    btl_end(&btl);
}

/* Orders, flags and bytes of all kinds: none of them means anything here but those that are agreed. */
static void absurd_arguments(void)
{
    static const uint8_t orders[] = {0, 1, 7, 254, 255};
    static unsigned char bytes[512];
    mca_btl_base_module_t *module;
    unsigned long ours = 0;
    uint32_t random = 12345;

    btl_begin(&btl, btl_parameters(), false);
    module = btl.module;
    for (uint64_t number = 0; number < 500; number++) {
        uint32_t flags = (random = random * 1664525 + 1013904223) & ~(uint32_t)MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
        CHECK(btl_post(&btl, number, HEADER + random % 4000, flags | CALLED) >= 0);
        if (number % 10 == 0) {
            opal_convertor_t convertor;
            mca_btl_base_descriptor_t *left = NULL;
            unsigned char header[HEADER];

            message_fill(header, HEADER, 1000 + number);
            host_contiguous(&convertor, header, 0);
            if (module->btl_sendi(module, btl.peer, &convertor, header, HEADER, 0, orders[number / 10 % 5], flags, TAG,
                                  &left) == OPAL_SUCCESS)
                ours++;
            else if (left != NULL)
                CHECK(module->btl_free(module, left) == OPAL_SUCCESS);
        }
        /* Under the tag of the transport itself. */
        for (size_t at = 0; at < sizeof bytes; at++)
            bytes[at] = (unsigned char)((random = random * 1664525 + 1013904223) >> 24);
        mca_btl_base_descriptor_t *descriptor = module->btl_alloc(
            module, btl.peer, orders[number % 5], random % sizeof bytes, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
        CHECK(descriptor != NULL);
        memcpy(descriptor->des_segments->seg_addr.pval, bytes, descriptor->des_segments->seg_len);
        if (number % 3 == 0)
            bytes[0] = (unsigned char)(number % 9);
        descriptor->order = orders[number % 5];
        if (module->btl_send(module, btl.peer, descriptor, 0x22) < 0)
            CHECK(module->btl_free(module, descriptor) == OPAL_SUCCESS);
        host_progress();
    }
    step("waits for its sends");
    while (books.completed < books.posted)
        host_progress();
    tell(books.posted + ours);
    fence();
    btl_await_received(told());
    fence();
    btl_end(&btl);
}

const struct test btl_again_tests[] = {
    {"btl met again in haste", in_haste, RETURNS},
    {"btl met again by one side", by_one_side, RETURNS},
    {"btl met again in a callback", in_a_callback, RETURNS},
    {"smcuda met again by one thread", by_one_thread, RETURNS},
    {"btl absurd arguments", absurd_arguments, RETURNS},
    {0},
};
