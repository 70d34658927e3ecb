/* A peer is forgotten while something is under way with it: in a callback of the very call that is about it, and beside
 * a thread that sends to it.
 *
 *     parting PROVIDER CASE
 */
#include "matching.h"

#include <pthread.h>

enum { LENGTH = 300, EACH = 100, PARTED = 5, LAST = TAG + 1 };

/* What comes back where a callback wants to forget the peer. */
static long wanted;

static void forget(void *context, hawser_mtl module, hawser_request request, int32_t status, const hawser_envelope *envelope)
{
    IS(HAWSER_ERR_BUSY, match.table->del_peers(module, 1, &match.to));
    wanted++;
    over(context, module, request, status, envelope);
}

/* Receives in a call's own progress what the other process sends now. */
static void expect(struct ended *ended)
{
    static unsigned char room[LENGTH];
    hawser_request request;
    memset(ended, 0, sizeof *ended);
    IS(0, match.table->irecv(match.module, anybody, CONTEXT, TAG, room, sizeof room, forget, ended, &request));
    /* Only the call makes progress. */
    two.pair.progress = NULL;
    meet();
}

static void case_within(void)
{
    static unsigned char bytes[LENGTH];
    struct ended ended;
    hawser_envelope envelope = {.size = sizeof envelope};
    hawser_message message;
    start();
    join();
    fill(bytes, 1, 0, sizeof bytes);
    for (long call = 0; call < 3; call++) {
        if (me == 1) {
            meet();
            send_to(match.to, CONTEXT, TAG, bytes, sizeof bytes, 0, &ended);
            SENT(ended);
            if (call > 0) continue;
            receive(match.to, CONTEXT, LAST, bytes, sizeof bytes, &ended);
            RECEIVED(ended, HAWSER_SUCCESS, LAST, sizeof bytes);
            continue;
        }
        expect(&ended);
        switch (call) {
        case 0: IS(0, match.table->send(match.module, match.to, CONTEXT, LAST, bytes, sizeof bytes, HAWSER_SYNCHRONOUS)); break;
        case 1:
            while (wanted <= call) IS(HAWSER_ERR_NOT_FOUND, match.table->iprobe(match.module, match.to, CONTEXT, LAST, &envelope));
            break;
        default:
            while (wanted <= call) IS(HAWSER_ERR_NOT_FOUND, match.table->improbe(match.module, match.to, CONTEXT, LAST, &envelope, &message));
        }
        CHECK(wanted == call + 1 && ended.count == 1 && ended.status == 0);
        two.pair.progress = match.mtl->progress;
    }
    meet();
    /* Now nothing is under way with it. */
    hawser_endpoint before = match.to;
    IS(0, match.table->del_peers(match.module, 1, &match.to));
    IS(HAWSER_ERR_STALE, match.table->del_peers(match.module, 1, &match.to));
    join();
    CHECK(match.to.id != before.id);
    IS(HAWSER_ERR_STALE, match.table->send(match.module, before, CONTEXT, TAG, bytes, 1, 0));
    receive(match.to, CONTEXT, TAG, bytes, sizeof bytes, &ended);
    IS(0, match.table->send(match.module, match.to, CONTEXT, TAG, "again", 5, 0));
    RECEIVED(ended, HAWSER_SUCCESS, TAG, 5);
    CHECK(memcmp(bytes, "again", 5) == 0);
    leave();
}

static uint64_t endpoint;
static long parted;

/* Sends, each message to the endpoint that the peer has now. */
static void *send_all(void *nothing)
{
    (void)nothing;
    static unsigned char bytes[LENGTH];
    long number = 0;
    for (;;) {
        int is_last = number >= EACH && __atomic_load_n(&parted, __ATOMIC_ACQUIRE) >= PARTED;
        hawser_endpoint to = {__atomic_load_n(&endpoint, __ATOMIC_ACQUIRE)};
        fill(bytes, (size_t)number, 0, sizeof bytes);
        int32_t code = match.table->send(match.module, to, CONTEXT, is_last ? LAST : TAG, bytes, sizeof bytes, HAWSER_SYNCHRONOUS);
        CHECK(code == HAWSER_SUCCESS || code == HAWSER_ERR_STALE);
        if (code == HAWSER_SUCCESS && is_last) return NULL;
        number += code == HAWSER_SUCCESS;
        sched_yield();
    }
}

static void case_beside(void)
{
    two.host.threads = HAWSER_THREAD_MULTIPLE;
    start();
    join();
    if (me == 1) {
        unsigned char room[LENGTH];
        struct ended ended = {0};
        for (size_t number = 0; ended.envelope.tag != LAST; number++) {
            receive(match.to, CONTEXT, HAWSER_ANY_TAG, room, sizeof room, &ended);
            UNTIL(ended.count == 1);
            CHECK(ended.status == 0 && ended.envelope.length == sizeof room && is_filled(room, number, sizeof room));
        }
        leave();
        return;
    }
    pthread_t thread;
    endpoint = match.to.id;
    CHECK(pthread_create(&thread, NULL, send_all, NULL) == 0);
    while (parted < PARTED) {
        int32_t code = match.table->del_peers(match.module, 1, &match.to);
        CHECK(code == HAWSER_SUCCESS || code == HAWSER_ERR_BUSY);
        if (code == HAWSER_SUCCESS) {
            hawser_peer peer = {.name = pair_name(&two.pair, !me), .node = "here"};
            hawser_endpoint before = match.to;
            IS(0, match.table->add_peers(match.module, 1, &peer, &match.to));
            CHECK(match.to.id != 0 && match.to.id != before.id);
            __atomic_store_n(&endpoint, match.to.id, __ATOMIC_RELEASE);
            __atomic_store_n(&parted, parted + 1, __ATOMIC_RELEASE);
        }
        sched_yield();
    }
    CHECK(pthread_join(thread, NULL) == 0);
    leave();
}

static const struct one_case cases[] = {{"within", case_within}, {"beside", case_beside}};

MAIN(cases)
