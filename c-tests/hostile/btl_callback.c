/* Callbacks that call back: every one of them sends, allocates, frees, and lets the host make progress. */
#include "btl.h"

#include <stdatomic.h>

enum { DEEPEST = 20 };
static const uint32_t CALLED = MCA_BTL_DES_SEND_ALWAYS_CALLBACK;

/* Numbers of messages that callbacks send, beyond those that the test sends. */
static _Atomic uint64_t next_number;
static uint64_t limit;

static void send_another(struct btl *btl, size_t size, uint32_t flags)
{
    uint64_t number = atomic_fetch_add(&next_number, 1);

    if (number < limit)
        CHECK(btl_post(btl, number, size, flags) >= 0);
}

static void alloc_and_free(struct btl *btl, size_t size)
{
    mca_btl_base_descriptor_t *descriptor =
        btl->module->btl_alloc(btl->module, btl->peer, MCA_BTL_NO_ORDER, size, 0);

    CHECK(descriptor != NULL);
    CHECK(btl->module->btl_free(btl->module, descriptor) == OPAL_SUCCESS);
}

static void answer(struct btl *btl, uint64_t number, size_t size)
{
    send_another(btl, HEADER + (size * 7 + number) % 9000, number % 2 ? CALLED : 0);
    alloc_and_free(btl, size);
    if (depth < DEEPEST)
        host_progress();
    send_another(btl, HEADER + number % 300, CALLED | MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
}

static void go_on(struct btl *btl, uint64_t number, int status)
{
    CHECK(status == OPAL_SUCCESS);
    send_another(btl, HEADER + number * 13 % 20000, CALLED);
    alloc_and_free(btl, number % 5000);
    if (depth < DEEPEST)
        host_progress();
}

/* Starts with a few messages; callbacks send the others, up to `count`. */
static void storm(uint64_t count)
{
    struct btl btl;

    limit = is_slow ? count / 4 : count;
    btl_begin(&btl, btl_parameters(), false);
    step("sends");
    for (int i = 0; i < 8; i++)
        send_another(&btl, HEADER + 1000 * i, CALLED);
    while (next_number < limit || books.completed < books.posted) {
        host_progress();
        /* Who has nothing to answer any more would leave the other one without work. */
        if (books.completed == books.posted)
            send_another(&btl, HEADER, CALLED);
    }
    CHECK(books.posted == limit && books.refused == 0);
    btl_settle(&btl);
    on_sent = NULL;
    on_received = NULL;
    btl_end(&btl);
}

static void receive_callbacks_call(void)
{
    on_received = answer;
    storm(3000);
}

static void send_callbacks_call(void)
{
    on_sent = go_on;
    storm(3000);
}

static void both_call(void)
{
    on_sent = go_on;
    on_received = answer;
    storm(8000);
}

static void freed_later(void)
{
    keeping = FREE_LATER;
    on_received = answer;
    storm(3000);
}

/* Nobody frees anything: what the host keeps, it may still read and write after everything. */
static void never_freed(void)
{
    static mca_btl_base_descriptor_t *kept[500];
    struct btl btl;

    btl_begin(&btl, btl_parameters(), false);
    for (int i = 0; i < 500; i++) {
        kept[i] = btl.module->btl_alloc(btl.module, btl.peer, MCA_BTL_NO_ORDER, 1 + i * 9, 0);
        CHECK(kept[i] != NULL);
        message_fill(kept[i]->des_segments->seg_addr.pval, kept[i]->des_segments->seg_len, i);
    }
    keeping = KEEP;
    for (int number = 0; number < 500; number++)
        btl_post(&btl, number, HEADER + number * 11, CALLED);
    while (books.completed < books.posted)
        host_progress();
    tell(books.posted);
    fence();
    btl_await_received(told());
    fence();
    for (int i = 0; i < 500; i++)
        message_fill(kept[i]->des_segments->seg_addr.pval, kept[i]->des_segments->seg_len, i + 1);
    btl_end(&btl);
}

/* Waits in a callback until the other side has answered: progress is the only way to get there. */
static unsigned long wanted;

static void wait_inside(struct btl *btl, uint64_t number, size_t size)
{
    unsigned long before = books.completed;

    (void)size;
    if (number % 8 != 0 || depth > 3)
        return;
    send_another(btl, HEADER + 5000, CALLED);
    while (books.completed == before && books.completed < books.posted)
        host_progress();
    wanted++;
}

static void callbacks_wait(void)
{
    on_received = wait_inside;
    storm(600);
    CHECK(wanted > 0);
}

const struct test btl_callback_tests[] = {
    {"btl receive callbacks call", receive_callbacks_call, RETURNS},
    {"btl send callbacks call", send_callbacks_call, RETURNS},
    {"btl both callbacks call", both_call, RETURNS},
    {"btl freed later", freed_later, RETURNS},
    {"btl never freed", never_freed, RETURNS},
    {"btl callbacks wait", callbacks_wait, RETURNS},
    {0},
};
