/* Ends that come too early: endpoints that were given up, modules that end in the middle of everything,
 * peers that die. A send that was posted is completed once, or, if its module has ended before, never. */
#include "btl.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint32_t CALLED = MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
static unsigned char memory[1 << 18];
static unsigned errors;
static struct btl btl;

/* Sends to whom there is no way any more; reads and writes there. */
static void everything_is_refused(uint64_t from)
{
    mca_btl_base_module_t *module = btl.module;
    unsigned char handle[MCA_BTL_REG_HANDLE_MAX_SIZE] = {0};
    opal_convertor_t convertor;

    for (uint64_t i = 0; i < 10; i++) {
        mca_btl_base_descriptor_t *left = NULL;
        CHECK(btl_post(&btl, from + i, HEADER + i * 3000, i % 2 ? CALLED : MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) < 0);
        host_contiguous(&convertor, memory, i * 100);
        CHECK(module->btl_sendi(module, btl.peer, &convertor, memory, 20, i * 100, MCA_BTL_NO_ORDER, 0, TAG,
                                i % 2 ? &left : NULL) < 0);
        CHECK(left == NULL || module->btl_free(module, left) == OPAL_SUCCESS);
        CHECK(module->btl_put(module, btl.peer, memory, 0, NULL, (void *)handle, i, 0, MCA_BTL_NO_ORDER, NULL,
                              NULL, NULL) < 0);
        CHECK(module->btl_get(module, btl.peer, memory, 0, NULL, (void *)handle, i, 0, MCA_BTL_NO_ORDER, NULL,
                              NULL, NULL) < 0);
    }
    module->btl_dump(module, btl.peer, 1);
}

/* An endpoint is used after del_procs, and given up again. */
static void deleted_endpoints(void)
{
    opal_proc_t *procs[1] = {&host_proc[other]->super};

    btl_begin(&btl, btl_parameters(), false);
    for (int number = 0; number < 50; number++)
        btl_post(&btl, number, HEADER + number * 50, CALLED);
    btl_settle(&btl);
    btl_part(&btl);
    everything_is_refused(100);
    for (int i = 0; i < 3; i++)
        CHECK(btl.module->btl_del_procs(btl.module, 1, procs, &btl.peer) == OPAL_SUCCESS);
    everything_is_refused(200);
    for (int i = 0; i < 1000; i++)
        host_progress();
    CHECK(books.refused == 20);
    btl_finalize(&btl);
}

/* An endpoint that never was. */
static void endpoints_of_nobody(void)
{
    static const uintptr_t addresses[] = {1, 2, 64, 4096, UINTPTR_MAX, UINTPTR_MAX / 2, 0xdeadbeef};
    endpoint_t true_peer;

    btl_begin(&btl, btl_parameters(), false);
    true_peer = btl.peer;
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        btl.peer = (endpoint_t)(addresses[i] ^ (uintptr_t)true_peer);
        if (btl.peer != NULL && btl.peer != true_peer && btl.peer != btl.itself)
            everything_is_refused(100 + i * 10);
    }
    btl.peer = true_peer;
    for (int number = 0; number < 50; number++)
        btl_post(&btl, number, HEADER + number * 50, CALLED);
    btl_settle(&btl);
    btl_end(&btl);
}

/* The peers part and meet again, in the same modules. */
static void met_again(void)
{
    btl_begin(&btl, btl_parameters(), false);
    for (int turn = 0; turn < 5; turn++) {
        for (int number = 0; number < 50; number++)
            btl_post(&btl, (uint64_t)turn * 50 + number, HEADER + number * 50, CALLED);
        btl_settle(&btl);
        btl_part(&btl);
        fence();
        btl_meet(&btl);
        fence();
    }
    btl_end(&btl);
}

/* The peer is given up with everything under way: del_procs sends what was posted. */
static void parted_with_everything_under_way(void)
{
    btl_begin(&btl, btl_parameters(), false);
    for (int number = 0; number < 500; number++)
        btl_post(&btl, number, HEADER + number * 31, CALLED);
    btl_part(&btl);
    step("waits for its sends");
    while (books.completed < books.posted)
        host_progress();
    CHECK(books.completed == 500);
    remark("%lu of 500 were lost, %lu came", books.failed, books.delivered);
    fence();
    btl_finalize(&btl);
}

/* No del_procs, no waiting: one ends in the middle, and no callback follows; the other one gives the peer
 * up, and all that it has posted is completed, well or not. */
static void finalized_under_way(void)
{
    btl_begin(&btl, btl_parameters(), false);
    for (int number = 0; number < 500; number++)
        btl_post(&btl, number, HEADER + number * 31,
                 number % 3 ? CALLED : CALLED | MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
    for (int i = 0; i < 5; i++)
        host_progress();
    if (self == 0) {
        btl_finalize(&btl);
        fence();
        return;
    }
    fence();
    btl_part(&btl);
    step("waits for its sends");
    while (books.completed < books.posted)
        host_progress();
    btl_finalize(&btl);
}

static void put_over(mca_btl_base_module_t *module, endpoint_t endpoint, void *address,
                     struct mca_btl_base_registration_handle_t *handle, void *context, void *data, int status)
{
    (void)module, (void)endpoint, (void)address, (void)handle, (void)context, (void)data, (void)status;
    CHECK(!books.closed, "an operation ends after finalize");
    books.completed++;
    note_progress();
}

/* The same with PUTs and GETs, in both processes. */
static void finalized_with_transfers(void)
{
    struct {
        uint64_t address;
        unsigned char handle[MCA_BTL_REG_HANDLE_MAX_SIZE];
    } mine = {.address = (uintptr_t)memory}, theirs;
    struct mca_btl_base_registration_handle_t *own;
    const void *bytes;
    size_t size;

    btl_begin(&btl, btl_parameters(), false);
    own = btl.module->btl_register_mem(btl.module, NULL, memory, sizeof memory,
                                       MCA_BTL_REG_FLAG_REMOTE_READ | MCA_BTL_REG_FLAG_REMOTE_WRITE);
    memcpy(mine.handle, own, btl.module->btl_registration_handle_size);
    publish("window", &mine, sizeof mine);
    fence();
    CHECK(look_up(other, "window", &bytes, &size));
    memcpy(&theirs, bytes, sizeof theirs);
    for (int i = 0; i < 16; i++)
        /* Where it is copied at once, the other one must still be there. */
        CHECK((i % 2 ? btl.module->btl_put : btl.module->btl_get)(
                  btl.module, btl.peer, memory, theirs.address, NULL, (void *)theirs.handle, sizeof memory, 0,
                  MCA_BTL_NO_ORDER, put_over, NULL, NULL) >= 0 ||
              transport == SMCUDA);
    for (int i = 0; i < 3; i++)
        host_progress();
    CHECK(btl.module->btl_deregister_mem(btl.module, own) == OPAL_SUCCESS);
    btl_finalize(&btl);
    memset(memory, 1, sizeof memory);
}

/* Peers that die. */

static void lost(mca_btl_base_module_t *module, int32_t flags, opal_proc_t *proc, char *text)
{
    CHECK(!books.closed, "an error after finalize");
    CHECK(module == btl.module && flags == version_loss, "flags %d", flags);
    CHECK(proc == &host_proc[other]->super && text != NULL && *text != '\0');
    errors++;
    step("hears that its peer is lost");
}

/* In the error callback: what a host does that wants to go on without this peer. */
static void lost_and_acts(mca_btl_base_module_t *module, int32_t flags, opal_proc_t *proc, char *text)
{
    opal_proc_t *procs[1] = {proc};

    lost(module, flags, proc, text);
    everything_is_refused(1000 + errors * 100);
    host_progress();
    CHECK(module->btl_del_procs(module, 1, procs, &btl.peer) == OPAL_SUCCESS);
    everything_is_refused(1500 + errors * 100);
    host_progress();
}

static void go_on(struct btl *to, uint64_t number, int status)
{
    static uint64_t next = 5000;

    (void)number;
    if (status == OPAL_SUCCESS && next < 60000) {
        btl_post(to, next, HEADER + next % 5000, CALLED);
        next++;
    }
}

static void wait_for_the_error(void)
{
    step("waits for the error callback");
    while (errors == 0)
        host_progress();
    step("waits for its sends");
    while (books.completed < books.posted)
        host_progress();
    for (int i = 0; i < 2000; i++)
        host_progress();
    CHECK(errors == 1, "%u errors", errors);
    CHECK(books.completed == books.posted);
    CHECK(host_help >= 1);
}

static void dies(mca_btl_base_module_error_cb_fn_t callback, bool idle)
{
    btl_begin(&btl, btl_parameters(), false);
    CHECK(btl.module->btl_register_error(btl.module, callback) == OPAL_SUCCESS);
    for (int number = 0; number < 100; number++)
        btl_post(&btl, number, HEADER + number * 31, CALLED);
    btl_settle(&btl);
    if (self == 1) {
        kill(getpid(), SIGKILL);
        pause();
    }
    on_sent = go_on;
    for (int number = 100; number < 150; number++)
        btl_post(&btl, number, HEADER + number * 301, CALLED);
    if (!idle)
        wait_for_the_error();
    on_sent = NULL;
    step("ends");
    if (callback != lost_and_acts || idle)
        btl_part(&btl);
    while (books.completed < books.posted)
        host_progress();
    btl_finalize(&btl);
}

static void peer_dies(void) { dies(lost, false); }

static void peer_dies_and_callback_acts(void) { dies(lost_and_acts, false); }

/* Nobody notices before the peer is given up. */
static void peer_dies_unnoticed(void) { dies(lost, true); }

/* In the middle of what it sends itself. */
static void peer_dies_sending(void)
{
    btl_begin(&btl, btl_parameters(), false);
    CHECK(btl.module->btl_register_error(btl.module, lost) == OPAL_SUCCESS);
    on_sent = go_on;
    for (int number = 0; number < 60; number++)
        btl_post(&btl, number, HEADER + number * 2000, CALLED);
    if (self == 1) {
        while (books.delivered < 300)
            host_progress();
        kill(getpid(), SIGKILL);
        pause();
    }
    wait_for_the_error();
    on_sent = NULL;
    btl_end(&btl);
}

const struct test btl_loss_tests[] = {
    {"btl deleted endpoints", deleted_endpoints, RETURNS},
    {"btl endpoints of nobody", endpoints_of_nobody, RETURNS},
    {"btl met again", met_again, RETURNS},
    {"btl parted with everything under way", parted_with_everything_under_way, RETURNS},
    {"btl finalized under way", finalized_under_way, RETURNS},
    {"btl finalized with transfers", finalized_with_transfers, RETURNS},
    {"btl peer dies", peer_dies, IS_KILLED},
    {"btl peer dies and the callback acts", peer_dies_and_callback_acts, IS_KILLED},
    {"btl peer dies unnoticed", peer_dies_unnoticed, IS_KILLED},
    {"btl peer dies sending", peer_dies_sending, IS_KILLED},
    {0},
};
