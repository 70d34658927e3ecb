/* PUT and GET: into memory that is there, was there, never was, or may not be touched.
 *
 * usnic asks the peer, which knows what it has registered; smcuda copies itself, from the address that the handle
 * says, and knows only what the handle says: it takes no part where the handle is a lie, or older than what is there. */
#include "btl.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 1 << 18, OPERATIONS = 4096 };
static const int BOTH = MCA_BTL_REG_FLAG_REMOTE_READ | MCA_BTL_REG_FLAG_REMOTE_WRITE;

/* What a process tells the other of its memory, as the PML does, in a message. */
struct offer {
    uint64_t address;
    unsigned char handle[MCA_BTL_REG_HANDLE_MAX_SIZE];
};

static unsigned char window[WINDOW], local[WINDOW];
static struct mca_btl_base_registration_handle_t *own;
static struct offer theirs;
static unsigned long started, ended, refused;
static _Atomic unsigned char state[OPERATIONS];
static int outcome[OPERATIONS];
static void (*on_ended)(struct btl *btl, uintptr_t number);

static void offer(struct btl *btl, int flags)
{
    struct offer mine = {.address = (uintptr_t)window};
    const void *bytes;
    size_t size;

    own = btl->module->btl_register_mem(btl->module, NULL, window, sizeof window, flags);
    CHECK(own != NULL);
    memcpy(mine.handle, own, btl->module->btl_registration_handle_size);
    publish("window", &mine, sizeof mine);
    fence();
    CHECK(look_up(other, "window", &bytes, &size) && size == sizeof theirs);
    memcpy(&theirs, bytes, sizeof theirs);
    fence();
}

static void withdraw(struct btl *btl)
{
    CHECK(btl->module->btl_deregister_mem(btl->module, own) == OPAL_SUCCESS);
    own = NULL;
}

static void over(mca_btl_base_module_t *module, endpoint_t endpoint, void *address,
                 struct mca_btl_base_registration_handle_t *handle, void *context, void *data, int status)
{
    uintptr_t number = (uintptr_t)data;
    struct btl *btl = context;

    CHECK(!books.closed && module == btl->module && endpoint != NULL && handle == NULL);
    CHECK((unsigned char *)address >= local && (unsigned char *)address <= local + WINDOW);
    CHECK(number < OPERATIONS && atomic_exchange(&state[number], 2) == 1, "operation %lu ends twice", number);
    outcome[number] = status;
    ended++;
    note_progress();
    if (on_ended != NULL) {
        depth++;
        on_ended(btl, number);
        depth--;
    }
}

/* Starts operation `number`; what it returns. */
static int start(struct btl *btl, bool put, uintptr_t number, size_t at, uint64_t remote, size_t size)
{
    /* A handle may lie at any address: the host keeps it in a message. */
    static unsigned char odd[MCA_BTL_REG_HANDLE_MAX_SIZE + 1];
    struct mca_btl_base_registration_handle_t *handle = (void *)(odd + 1);
    int result;

    CHECK(number < OPERATIONS && atomic_exchange(&state[number], 1) == 0);
    memcpy(odd + 1, theirs.handle, sizeof theirs.handle);
    started++;
    result = (put ? btl->module->btl_put : btl->module->btl_get)(
        btl->module, btl->peer, local + at, remote, NULL, handle, size, 0, MCA_BTL_NO_ORDER, over, btl,
        (void *)number);
    memset(odd, 0x5a, sizeof odd);
    if (result < 0) {
        CHECK(atomic_exchange(&state[number], 3) == 1, "a refused operation has ended");
        started--;
        refused++;
    }
    return result;
}

static void await_all(void)
{
    while (ended < started)
        host_progress();
    CHECK(ended == started);
}

static unsigned char at_put(size_t at) { return (unsigned char)(at * 7 + 1 + self * 100); }
static unsigned char at_get(size_t at) { return (unsigned char)(at * 11 + 5 + self * 50); }

/* Of all lengths and alignments, none included. */
static void puts_and_gets(void)
{
    struct btl btl;
    uintptr_t number = 0;
    size_t at = 0;

    btl_begin(&btl, btl_parameters(), false);
    for (size_t i = 0; i < WINDOW; i++)
        local[i] = at_put(i);
    offer(&btl, BOTH);
    for (size_t size = 0; at + size < WINDOW / 2; size = size * 2 + number % 3, number++) {
        CHECK(start(&btl, true, number, at, theirs.address + at, size) >= 0);
        at += size;
    }
    await_all();
    CHECK(btl.module->btl_flush(btl.module, btl.peer) == OPAL_SUCCESS);
    for (uintptr_t i = 0; i < number; i++)
        CHECK(outcome[i] == OPAL_SUCCESS);
    fence();
    for (size_t i = 0; i < WINDOW; i++) {
        self = 1 - self;
        unsigned char expected = i < at ? at_put(i) : 0;
        self = 1 - self;
        CHECK(window[i] == expected, "byte %zu", i);
    }
    fence();
    for (size_t i = 0; i < WINDOW; i++)
        window[i] = at_get(i);
    memset(local, 0, sizeof local);
    fence();
    at = 0;
    uintptr_t first = number;
    for (size_t size = 0; at + size < WINDOW / 2; size = size * 2 + number % 3, number++) {
        CHECK(start(&btl, false, number, at, theirs.address + at, size) >= 0);
        at += size;
    }
    CHECK(btl.module->btl_flush(btl.module, NULL) == OPAL_SUCCESS);
    CHECK(ended == started, "flush has waited for all");
    for (uintptr_t i = first; i < number; i++)
        CHECK(outcome[i] == OPAL_SUCCESS);
    for (size_t i = 0; i < WINDOW; i++) {
        self = 1 - self;
        unsigned char expected = i < at ? at_get(i) : 0;
        self = 1 - self;
        CHECK(local[i] == expected, "byte %zu", i);
    }
    fence();
    withdraw(&btl);
    btl_end(&btl);
}

/* Before the memory, behind it, around it; with the address space's end between. */
static void out_of_bounds(void)
{
    struct btl btl;
    uintptr_t number = 0;

    btl_begin(&btl, btl_parameters(), false);
    memset(window, 0x77, sizeof window);
    offer(&btl, BOTH);
    for (int put = 0; put < 2; put++) {
        const struct {
            uint64_t address;
            size_t size;
        } wrong[] = {
            {theirs.address - 1, 1},          {theirs.address - 8, 16},
            {theirs.address + WINDOW, 1},     {theirs.address + WINDOW - 1, 2},
            {theirs.address + 1, WINDOW},     {0, 8},
            {UINT64_MAX, 1},                  {theirs.address + WINDOW / 2, WINDOW},
            {theirs.address + UINT64_MAX, 4}, {UINT64_MAX - 3, 8},
        };
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
            start(&btl, put, number++, 0, wrong[i].address, wrong[i].size);
    }
    await_all();
    for (uintptr_t i = 0; i < number; i++)
        CHECK(state[i] == 3 || outcome[i] < 0, "operation %lu has gone well", i);
    fence();
    for (size_t i = 0; i < WINDOW; i++)
        CHECK(window[i] == 0x77);
    withdraw(&btl);
    btl_end(&btl);
}

/* Memory that may only be read is not written, and the other way round. */
static void against_the_flags(void)
{
    struct btl btl;
    uintptr_t number = 0;

    btl_begin(&btl, btl_parameters(), false);
    for (int turn = 0; turn < 2; turn++) {
        memset(window, 0x77, sizeof window);
        memset(local, 0x11, sizeof local);
        offer(&btl, turn ? MCA_BTL_REG_FLAG_REMOTE_WRITE : MCA_BTL_REG_FLAG_REMOTE_READ);
        for (int i = 0; i < 20; i++)
            start(&btl, turn == 0, number++, 0, theirs.address, 1 + i * 1000);
        await_all();
        fence();
        for (size_t i = 0; i < WINDOW; i++)
            CHECK(window[i] == 0x77 && local[i] == 0x11);
        withdraw(&btl);
        fence();
    }
    for (uintptr_t i = 0; i < number; i++)
        CHECK(state[i] == 3 || outcome[i] < 0);
    btl_end(&btl);
}

/* A handle of garbage, of zeros, of memory that is not registered any more. */
static void handles_of_nothing(void)
{
    struct btl btl;
    uintptr_t number = 0;

    btl_begin(&btl, btl_parameters(), false);
    offer(&btl, BOTH);
    fence();
    withdraw(&btl);
    memset(window, 0x77, sizeof window);
    memset(local, 0x11, sizeof local);
    fence();
    for (size_t bit = 0; bit < btl.module->btl_registration_handle_size * 8; bit++) {
        theirs.handle[bit / 8] ^= 1 << bit % 8;
        start(&btl, bit % 2, number++, 0, theirs.address, 16 + bit * 10);
        theirs.handle[bit / 8] ^= 1 << bit % 8;
        if (bit % 16 == 0)
            await_all();
    }
    for (int fill = 0; fill < 256; fill += 255) {
        memset(theirs.handle, fill, sizeof theirs.handle);
        start(&btl, true, number++, 0, theirs.address, 16);
        start(&btl, false, number++, 0, theirs.address, 16);
        start(&btl, true, number++, 0, 0, 16);
        start(&btl, false, number++, 0, UINT64_MAX, 16);
    }
    await_all();
    for (uintptr_t i = 0; i < number; i++)
        CHECK(state[i] == 3 || outcome[i] < 0, "operation %lu has gone well", i);
    fence();
    for (size_t i = 0; i < WINDOW; i++)
        CHECK(window[i] == 0x77 && local[i] == 0x11);
    btl_end(&btl);
}

/* Both refuse what the other one asks, by the hundred. */
static void refused_in_both_directions(void)
{
    struct btl btl;
    uintptr_t number = 0;

    btl_begin(&btl, btl_parameters(), false);
    offer(&btl, BOTH);
    fence();
    withdraw(&btl);
    fence();
    for (int i = 0; i < 200; i++) {
        CHECK(start(&btl, true, number++, 0, theirs.address + i, 5000) >= 0);
        CHECK(start(&btl, false, number++, 0, theirs.address + i, 5000) >= 0);
    }
    await_all();
    for (uintptr_t i = 0; i < number; i++)
        CHECK(outcome[i] < 0, "operation %lu has gone well", i);
    btl_end(&btl);
}

/* The memory is taken back and freed while the peer reads and writes it. */
static void withdrawn_under_way(void)
{
    struct btl btl;
    struct mca_btl_base_registration_handle_t *handle;
    uintptr_t number = 0;

    btl_begin(&btl, btl_parameters(), false);
    for (int turn = 0; turn < 20; turn++) {
        struct offer mine;
        const void *bytes;
        size_t size;
        unsigned char *memory = malloc(WINDOW);

        memset(memory, 0x77, WINDOW);
        handle = btl.module->btl_register_mem(btl.module, NULL, memory, WINDOW, BOTH);
        CHECK(handle != NULL);
        mine.address = (uintptr_t)memory;
        memcpy(mine.handle, handle, btl.module->btl_registration_handle_size);
        publish("window", &mine, sizeof mine);
        fence();
        CHECK(look_up(other, "window", &bytes, &size));
        memcpy(&theirs, bytes, sizeof theirs);
        fence();
        for (int i = 0; i < 4; i++)
            start(&btl, i % 2, number++, i * WINDOW / 4, theirs.address + i * WINDOW / 4, WINDOW / 4);
        for (int i = 0; i < turn * 3; i++)
            host_progress();
        CHECK(btl.module->btl_deregister_mem(btl.module, handle) == OPAL_SUCCESS);
        free(memory);
        await_all();
        fence();
    }
    btl_end(&btl);
}

/* The callback of each operation starts the next one, and lets the host make progress. */
static uintptr_t next_operation;

static void start_another(struct btl *btl, uintptr_t number)
{
    if (next_operation < 1000) {
        uintptr_t own_number = next_operation++;
        CHECK(start(btl, number % 2, own_number, own_number * 16 % (WINDOW / 2),
                    theirs.address + own_number * 16 % (WINDOW / 2), own_number % 30000) >= 0);
    }
    if (depth < 10)
        host_progress();
    /* It waits for those that are under way, this one not among them. */
    if (number % 100 == 0 && depth < 3)
        CHECK(btl->module->btl_flush(btl->module, btl->peer) == OPAL_SUCCESS);
}

static void callbacks_call(void)
{
    struct btl btl;

    btl_begin(&btl, btl_parameters(), false);
    offer(&btl, BOTH);
    on_ended = start_another;
    for (int i = 0; i < 8; i++)
        start_another(&btl, 1);
    await_all();
    CHECK(ended == 1000, "%lu", ended);
    on_ended = NULL;
    fence();
    withdraw(&btl);
    btl_end(&btl);
}

/* Nobody wants to hear of it: no callback at all. */
static void without_callback(void)
{
    struct btl btl;

    btl_begin(&btl, btl_parameters(), false);
    for (size_t i = 0; i < WINDOW; i++)
        local[i] = at_put(i);
    offer(&btl, BOTH);
    for (int i = 0; i < 50; i++)
        CHECK(btl.module->btl_put(btl.module, btl.peer, local + i * 100, theirs.address + i * 100, NULL,
                                  (void *)theirs.handle, 100, 0, MCA_BTL_NO_ORDER, NULL, NULL, NULL) >= 0);
    CHECK(btl.module->btl_flush(btl.module, btl.peer) == OPAL_SUCCESS);
    fence();
    for (size_t i = 0; i < 5000; i++)
        CHECK(window[i] == (unsigned char)(i * 7 + 1 + other * 100));
    fence();
    withdraw(&btl);
    btl_end(&btl);
}

/* Registered often, not always given back before the module ends. */
static void registered_often(void)
{
    static struct mca_btl_base_registration_handle_t *handles[3000];
    struct btl btl;

    btl_begin(&btl, btl_parameters(), false);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 3000; i++) {
            handles[i] = btl.module->btl_register_mem(btl.module, i % 2 ? btl.peer : NULL, window + i,
                                                      (size_t)i, i % 4 * 2);
            CHECK(handles[i] != NULL);
        }
        for (int i = 0; i < 3000 && turn < 2; i++)
            CHECK(btl.module->btl_deregister_mem(btl.module, handles[(i * 7 + turn) % 3000]) == OPAL_SUCCESS);
    }
    btl_end(&btl);
}

const struct test btl_memory_tests[] = {
    {"btl puts and gets", puts_and_gets, RETURNS},
    {"btl put and get out of bounds", out_of_bounds, RETURNS},
    {"btl put and get against the flags", against_the_flags, RETURNS},
    {"usnic handles of nothing", handles_of_nothing, RETURNS},
    {"usnic refused in both directions", refused_in_both_directions, RETURNS},
    {"usnic memory withdrawn under way", withdrawn_under_way, RETURNS},
    {"btl put and get callbacks call", callbacks_call, RETURNS},
    {"btl put without callback", without_callback, RETURNS},
    {"btl registered often", registered_often, RETURNS},
    {0},
};
