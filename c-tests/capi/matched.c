/* Two processes over the matching transport, by the C functions.
 *
 *     matched PROVIDER CASE
 */
#include "matching.h"

#include <pthread.h>

static const size_t lengths[] = {0, 1, 8, 63, 64, 65, 1000, 4096, 16384, 16385, 65536, 100001, 1 << 20, 4 << 20};
enum { LENGTHS = sizeof lengths / sizeof *lengths, LONGEST = 4 << 20 };

static unsigned char mine[LONGEST], room[LONGEST + 8];

/* Every length, awaited and unexpected, blocking and not, synchronous and not. */
static void case_lengths(void)
{
    struct ended sent, received;
    start();
    join();
    for (size_t number = 0; number < 4 * LENGTHS; number++) {
        size_t length = lengths[number % LENGTHS];
        uint32_t flags = number % 3 == 0 ? HAWSER_SYNCHRONOUS : 0;
        int way = (int)(number / LENGTHS), sender = (int)(number % 2);
        if (me == sender) {
            fill(mine, number, 0, length);
            if (way >= 2) meet();
            if (way % 2 == 0) {
                send_to(match.to, CONTEXT, TAG, mine, length, flags, &sent);
                SENT(sent);
            } else {
                IS(0, match.table->send(match.module, match.to, CONTEXT, TAG, mine, length, flags));
            }
        } else {
            memset(room, 0xEE, length + 8);
            hawser_envelope envelope = {.size = sizeof envelope};
            int32_t found;
            /* Unexpected: it is here before anybody wants it. */
            while (way < 2 && (found = match.table->iprobe(match.module, anybody, CONTEXT, HAWSER_ANY_TAG, &envelope)) != 0) {
                IS(HAWSER_ERR_NOT_FOUND, found);
                sched_yield();
            }
            receive(match.to, CONTEXT, TAG, room, length, &received);
            if (way >= 2) meet();
            RECEIVED(received, 0, TAG, length);
            CHECK(is_filled(room, number, length) && room[length] == 0xEE);
        }
    }
    leave();
}

/* What a receive asks for is what it gets, in the order in which it was sent. */
static void case_matching(void)
{
    enum { MANY = 6 };
    struct ended sent[MANY], received[MANY];
    static const struct {
        uint32_t context;
        int32_t tag;
    } sends[MANY] = {{1, 10}, {2, 10}, {1, 11}, {1, 10}, {0, 0}, {1, 12}};
    /* Of the wildcards the first takes what was sent first. */
    static const struct {
        uint32_t context;
        int32_t tag;
        int any_source, is_of;
    } wants[MANY] = {{1, 11, 0, 2}, {2, HAWSER_ANY_TAG, 1, 1}, {1, 10, 1, 0}, {1, HAWSER_ANY_TAG, 1, 3}, {0, 0, 0, 4}, {1, HAWSER_ANY_TAG, 0, 5}};
    unsigned char bytes[MANY] = {0}, got[MANY];
    start();
    join();
    for (int round = 0; round < 2; round++) {
        /* Once they are awaited, once they are there before. */
        if (round == 0 && me == 0) meet();
        if (me == 0) {
            for (int at = 0; at < MANY; at++) {
                bytes[at] = (unsigned char)(at + 100);
                send_to(match.to, sends[at].context, sends[at].tag, &bytes[at], 1, 0, &sent[at]);
            }
            for (int at = 0; at < MANY; at++) SENT(sent[at]);
        } else {
            if (round == 1) {
                hawser_envelope envelope = {.size = sizeof envelope};
                while (match.table->iprobe(match.module, match.to, 1, 12, &envelope) != 0) sched_yield();
            }
            for (int at = 0; at < MANY; at++) {
                receive(wants[at].any_source ? anybody : match.to, wants[at].context, wants[at].tag, &got[at], 1, &received[at]);
            }
            if (round == 0) meet();
            for (int at = 0; at < MANY; at++) {
                RECEIVED(received[at], 0, sends[wants[at].is_of].tag, 1);
                CHECK(got[at] == wants[at].is_of + 100);
            }
        }
        meet();
    }
    /* The greatest of each. */
    uint32_t context = match.limits.max_context;
    int32_t tag = match.limits.max_tag;
    receive(anybody, context, tag, got, 1, &received[0]);
    send_to(match.to, context, tag, bytes, 1, 0, &sent[0]);
    RECEIVED(received[0], 0, tag, 1);
    SENT(sent[0]);
    leave();
}

/* A message that is longer than its receive. */
static void case_truncation(void)
{
    static const size_t some[] = {9, 5000, 1 << 20};
    struct ended sent, received;
    start();
    join();
    for (size_t at = 0; at < 6; at++) {
        size_t length = some[at % 3];
        uint32_t flags = at < 3 ? 0 : HAWSER_SYNCHRONOUS;
        if (me == 0) {
            fill(mine, at, 0, length);
            meet();
            send_to(match.to, CONTEXT, TAG, mine, length, flags, &sent);
            UNTIL(sent.count == 1);
        } else {
            memset(room, 0xEE, sizeof room);
            receive(match.to, CONTEXT, TAG, room, 8, &received);
            meet();
            UNTIL(received.count == 1);
            IS(HAWSER_ERR_TRUNCATED, received.status);
            CHECK(received.envelope.length <= 8 && room[8] == 0xEE && room[sizeof room - 1] == 0xEE);
        }
        meet();
    }
    leave();
}

/* Probes that find and do not find, and those that claim. */
static void case_probes(void)
{
    struct ended sent, received[2];
    hawser_envelope envelope = {.size = sizeof envelope};
    hawser_message messages[2], none = {0};
    hawser_request request;
    start();
    join();
    IS(HAWSER_ERR_NOT_FOUND, match.table->iprobe(match.module, match.to, CONTEXT, TAG, &envelope));
    IS(HAWSER_ERR_NOT_FOUND, match.table->improbe(match.module, anybody, CONTEXT, HAWSER_ANY_TAG, &envelope, &messages[0]));
    meet();
    for (size_t at = 0; at < LENGTHS; at++) {
        size_t length = lengths[at];
        if (me == 0) {
            fill(mine, at, 0, length);
            for (int32_t tag = 0; tag < 2; tag++) {
                send_to(match.to, CONTEXT, TAG + tag, mine, length, tag == 1 ? HAWSER_SYNCHRONOUS : 0, &sent);
                SENT(sent);
            }
        } else {
            int32_t found;
            for (int claimed = 0; claimed < 2; claimed++) {
                /* The second one comes when the first has been received. */
                while ((found = match.table->improbe(match.module, claimed ? match.to : anybody, CONTEXT, HAWSER_ANY_TAG, &envelope, &messages[claimed])) != 0) {
                    IS(HAWSER_ERR_NOT_FOUND, found);
                    sched_yield();
                }
                CHECK(envelope.size == sizeof envelope && envelope.length == length && envelope.tag == TAG + claimed);
                CHECK(envelope.rank == 0 && envelope.source.id == match.to.id && messages[claimed].id != 0);
                /* It is nobody else's. */
                IS(HAWSER_ERR_NOT_FOUND, match.table->iprobe(match.module, anybody, CONTEXT, TAG + claimed, &envelope));
                memset(room, 0xEE, length + 1);
                memset(&received[claimed], 0, sizeof received[claimed]);
                IS(0, match.table->imrecv(match.module, messages[claimed], room, length, over, &received[claimed], &request));
                IS(HAWSER_ERR_STALE, match.table->imrecv(match.module, messages[claimed], room, length, over, &received[claimed], &request));
                RECEIVED(received[claimed], 0, TAG + claimed, length);
                CHECK(is_filled(room, at, length) && room[length] == 0xEE);
            }
        }
        meet();
    }
    IS(HAWSER_ERR_STALE, match.table->imrecv(match.module, none, room, 1, over, &received[0], &request));
    leave();
}

/* Receives that are given up. */
static void case_cancel(void)
{
    struct ended sent, received, other;
    start();
    join();
    for (int round = 0; round < 100; round++) {
        hawser_request request = receive(round % 2 ? match.to : anybody, CONTEXT, round % 3 ? TAG : HAWSER_ANY_TAG, room, 64, &received);
        IS(0, match.table->cancel(match.module, request));
        UNTIL(received.count == 1);
        IS(HAWSER_ERR_CANCELLED, received.status);
        CHECK(received.request.id == request.id);
        IS(HAWSER_ERR_STALE, match.table->cancel(match.module, request));
    }
    meet();
    /* One that is not cancelled is received, and one that was takes nothing. */
    hawser_request given_up = receive(match.to, CONTEXT, TAG, room, 64, &other);
    receive(match.to, CONTEXT, TAG, room + 64, 64, &received);
    IS(0, match.table->cancel(match.module, given_up));
    UNTIL(other.count == 1);
    IS(HAWSER_ERR_CANCELLED, other.status);
    meet();
    send_to(match.to, CONTEXT, TAG, mine, 64, 0, &sent);
    SENT(sent);
    RECEIVED(received, 0, TAG, 64);
    IS(HAWSER_ERR_STALE, match.table->cancel(match.module, received.request));
    /* A send is not given up. */
    hawser_request request;
    memset(&sent, 0, sizeof sent);
    IS(0, match.table->isend(match.module, match.to, CONTEXT, TAG, mine, 64, HAWSER_SYNCHRONOUS, over, &sent, &request));
    IS(HAWSER_ERR_UNSUPPORTED, match.table->cancel(match.module, request));
    receive(match.to, CONTEXT, TAG, room, 64, &received);
    RECEIVED(received, 0, TAG, 64);
    SENT(sent);
    leave();
}

/* A synchronous send is over when it is received, and not before. */
static void case_synchronous(void)
{
    struct ended sent, received;
    start();
    join();
    for (size_t at = 0; at < 5; at++) {
        size_t length = lengths[at * 3];
        if (me == 0) {
            send_to(match.to, CONTEXT, TAG, mine, length, HAWSER_SYNCHRONOUS, &sent);
            CHECK(sent.count == 0);
            /* The other one has seen that it is there. */
            meet();
            for (int pass = 0; pass < 1000; pass++) CHECK(match.mtl->progress() >= 0);
            CHECK(sent.count == 0);
            meet();
            SENT(sent);
        } else {
            hawser_envelope envelope = {.size = sizeof envelope};
            while (match.table->iprobe(match.module, match.to, CONTEXT, TAG, &envelope) != 0) sched_yield();
            meet();
            meet();
            receive(match.to, CONTEXT, TAG, room, length, &received);
            RECEIVED(received, 0, TAG, length);
        }
        meet();
    }
    leave();
}

/* Many under way, in both directions, received from the last to the first. */
static void case_many(void)
{
    enum { MANY = 1000, BYTES = 300 };
    static struct ended sent[MANY], received[MANY];
    static unsigned char out[MANY][BYTES], in[MANY][BYTES];
    start();
    join();
    for (int number = 0; number < MANY; number++) {
        fill(out[number], (size_t)number, 0, BYTES);
        send_to(match.to, (uint32_t)(number % 3), number, out[number], BYTES, number % 5 == 0 ? HAWSER_SYNCHRONOUS : 0, &sent[number]);
    }
    for (int number = MANY; number-- > 0;) {
        receive(number % 2 ? match.to : anybody, (uint32_t)(number % 3), number, in[number], BYTES, &received[number]);
    }
    for (int number = 0; number < MANY; number++) {
        RECEIVED(received[number], 0, number, (size_t)BYTES);
        CHECK(is_filled(in[number], (size_t)number, BYTES));
    }
    for (int number = 0; number < MANY; number++) SENT(sent[number]);
    leave();
}

/* From callbacks: each message is answered where it has come, progress nests, and nothing can be ended. */
static long answered, depth;
static unsigned char word[64];

static void answer(void *context, hawser_mtl module, hawser_request request, int32_t status, const hawser_envelope *envelope)
{
    (void)context, (void)request;
    IS(0, status);
    CHECK(envelope->length == sizeof word);
    IS(HAWSER_ERR_BUSY, match.table->finalize(module));
    IS(HAWSER_ERR_BUSY, match.mtl->close());
    IS(HAWSER_ERR_STATE, match.mtl->open(&two.host));
    IS(HAWSER_ERR_STALE, match.table->cancel(module, request));
    answered++;
    if (answered < 500) {
        hawser_request again;
        IS(0, match.table->irecv(module, envelope->source, CONTEXT, TAG, word, sizeof word, answer, NULL, &again));
    }
    if (me == 1 || answered < 500) {
        IS(0, match.table->send(module, envelope->source, CONTEXT, TAG, word, sizeof word, 0));
    }
    if (depth < 5) {
        depth++;
        CHECK(match.mtl->progress() >= 0);
        depth--;
    }
}

static void case_reentry(void)
{
    hawser_request request;
    start();
    join();
    IS(0, match.table->irecv(match.module, anybody, CONTEXT, TAG, word, sizeof word, answer, NULL, &request));
    if (me == 0) IS(0, match.table->send(match.module, match.to, CONTEXT, TAG, word, sizeof word, 0));
    UNTIL(answered == 500);
    leave();
}

enum { ROUNDS = 3 };
static hawser_endpoint itself;
static long dug, refused;

/* Each sends the next, and is not over before that has come, as deep as that goes. */
static void dig(void *context, hawser_mtl module, hawser_request request, int32_t status, const hawser_envelope *envelope)
{
    (void)context, (void)request, (void)envelope;
    hawser_request next;
    IS(0, status);
    long before = ++dug;
    int32_t code = match.mtl->progress();
    if (code < 0) {
        hawser_envelope seen = {.size = sizeof seen};
        IS(HAWSER_ERR_BUSY, code);
        IS(HAWSER_ERR_BUSY, match.table->send(module, itself, CONTEXT, TAG, word, sizeof word, 0));
        IS(HAWSER_ERR_BUSY, match.table->iprobe(module, anybody, CONTEXT, TAG, &seen));
        refused++;
        return;
    }
    IS(0, match.table->irecv(module, itself, CONTEXT, TAG, word, sizeof word, dig, NULL, &next));
    IS(0, match.table->send(module, itself, CONTEXT, TAG, word, sizeof word, 0));
    UNTIL(dug > before);
}

/* Every callback makes progress until another has been called: the stack holds. */
static void case_nested(void)
{
    hawser_peer peer = {.name = two.host.name};
    hawser_request request;
    start();
    join();
    IS(0, match.table->add_peers(match.module, 1, &peer, &itself));
    for (int round = 1; round <= ROUNDS; round++) {
        IS(0, match.table->irecv(match.module, itself, CONTEXT, TAG, word, sizeof word, dig, NULL, &request));
        IS(0, match.table->send(match.module, itself, CONTEXT, TAG, word, sizeof word, 0));
        UNTIL(refused == round);
    }
    leave();
}

enum { QUEUED = 20000 };

static void pass(void *context, hawser_mtl module, hawser_request request, int32_t status, const hawser_envelope *envelope)
{
    (void)context, (void)module, (void)request, (void)envelope;
    IS(0, status);
    dug++;
    int32_t code = match.mtl->progress();
    CHECK(code >= 0 || code == HAWSER_ERR_BUSY);
}

/* Many messages wait when progress is made, and every callback makes some: the stack holds, and each is told once. */
static void case_queued(void)
{
    hawser_request request;
    start();
    join();
    for (int number = 0; me == 1 && number < QUEUED; number++) {
        IS(0, match.table->irecv(match.module, match.to, CONTEXT, TAG, word, sizeof word, pass, NULL, &request));
    }
    meet();
    for (int number = 0; me == 0 && number < QUEUED; number++) {
        IS(0, match.table->send(match.module, match.to, CONTEXT, TAG, word, sizeof word, 0));
    }
    if (me == 1) UNTIL(dug == QUEUED);
    leave();
    CHECK(me == 0 || dug == QUEUED);
}

/* A process may send to itself. */
static void case_self(void)
{
    struct ended sent, received;
    hawser_peer peer = {.name = two.host.name};
    hawser_endpoint self;
    start();
    join();
    IS(0, match.table->add_peers(match.module, 1, &peer, &self));
    CHECK(self.id != 0 && self.id != match.to.id);
    for (size_t at = 0; at < LENGTHS; at++) {
        size_t length = lengths[at];
        fill(mine, at, 0, length);
        receive(at % 2 ? self : anybody, CONTEXT, TAG, room, length, &received);
        send_to(self, CONTEXT, TAG, mine, length, at % 3 == 0 ? HAWSER_SYNCHRONOUS : 0, &sent);
        UNTIL(received.count == 1);
        IS(0, received.status);
        CHECK(received.envelope.source.id == self.id && received.envelope.rank == me && is_filled(room, at, length));
        SENT(sent);
    }
    leave();
}

/* One life after the other; what is under way at the end of one is told, once, and nothing of it is anything later. */
static void case_reopen(void)
{
    enum { OPEN = 20 };
    static struct ended open[OPEN];
    struct ended sent, received;
    hawser_mtl module = {0};
    hawser_endpoint to = {0};
    for (int life = 0; life < 4; life++) {
        start();
        if (life > 0) {
            uint64_t name;
            CHECK(module.id != match.module.id);
            IS(HAWSER_ERR_STALE, match.table->finalize(module));
            IS(HAWSER_ERR_STALE, match.table->peer_name(match.module, to, &name));
            IS(HAWSER_ERR_STALE, match.table->cancel(match.module, open[0].request));
        }
        join();
        CHECK(to.id != match.to.id);
        receive(match.to, CONTEXT, TAG, room, 100, &received);
        send_to(match.to, CONTEXT, TAG, mine, 100, 0, &sent);
        RECEIVED(received, 0, TAG, 100);
        SENT(sent);
        for (int at = 0; at < OPEN; at++) receive(at % 2 ? match.to : anybody, CONTEXT, TAG + 1, room, 100, &open[at]);
        module = match.module, to = match.to;
        if (life % 2 == 1) {
            meet();
            two.pair.progress = NULL;
            IS(0, match.table->finalize(match.module));
            IS(HAWSER_ERR_STALE, match.table->finalize(match.module));
            IS(0, match.mtl->progress());
            IS(0, match.mtl->close());
        } else {
            leave();
        }
        for (int at = 0; at < OPEN; at++) {
            CHECK(open[at].count == 1);
            IS(HAWSER_ERR_CLOSED, open[at].status);
        }
        IS(HAWSER_ERR_STALE, match.table->finalize(module));
    }
}

/* The tag bits are shared out as the parameter says, and who has another layout is not reached. */
static void case_layouts(void)
{
    static const struct {
        const char *mode;
        int32_t max_tag;
    } modes[] = {{"ofi_tag_1", INT32_MAX}, {"ofi_tag_2", 0x7FFFF}, {"2", INT32_MAX}, {"auto", INT32_MAX}};
    struct ended sent, received;
    match.name = "mtl_ofi_tag_mode";
    for (size_t at = 0; at < 4; at++) {
        match.value = modes[at].mode;
        start();
        CHECK(match.limits.max_tag == modes[at].max_tag && match.limits.max_context >= 255 && match.limits.max_rank >= 262143);
        join();
        receive(anybody, match.limits.max_context, HAWSER_ANY_TAG, room, 64, &received);
        send_to(match.to, match.limits.max_context, modes[at].max_tag, mine, 64, HAWSER_SYNCHRONOUS, &sent);
        RECEIVED(received, 0, modes[at].max_tag, 64);
        SENT(sent);
        leave();
    }
    match.value = me == 0 ? "ofi_tag_1" : "ofi_tag_2";
    start();
    meet();
    hawser_peer peer = {.name = pair_name(&two.pair, !me)};
    long before = two.logged;
    IS(0, match.table->add_peers(match.module, 1, &peer, &match.to));
    CHECK(match.to.id == 0 && two.logged == before + 1);
    leave();
}

enum { THREADS = 4, EACH = 300 };
static long open_threads = THREADS, thread_ended;

static void end_atomically(void *context, hawser_mtl module, hawser_request request, int32_t status, const hawser_envelope *envelope)
{
    (void)module, (void)request, (void)envelope;
    IS(0, status);
    __atomic_store_n((int *)context, 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&thread_ended, 1, __ATOMIC_RELAXED);
}

static void *work(void *argument)
{
    int32_t tag = (int32_t)(intptr_t)argument;
    for (int number = 0; number < EACH; number++) {
        uint32_t out = (uint32_t)number, in = 0;
        int is_received = 0, is_sent = 0;
        hawser_request request;
        IS(0, match.table->irecv(match.module, match.to, CONTEXT, tag, &in, sizeof in, end_atomically, &is_received, &request));
        uint32_t flags = number % 2 ? HAWSER_SYNCHRONOUS : 0;
        int32_t code;
        while ((code = match.table->isend(match.module, match.to, CONTEXT, tag, &out, sizeof out, flags, end_atomically, &is_sent, &request)) == HAWSER_ERR_AGAIN) {
            CHECK(match.mtl->progress() >= 0);
        }
        CHECK(code == HAWSER_SUCCESS || code == HAWSER_DONE);
        while (!__atomic_load_n(&is_received, __ATOMIC_ACQUIRE) || (code == HAWSER_SUCCESS && !__atomic_load_n(&is_sent, __ATOMIC_ACQUIRE))) {
            if (match.mtl->progress() == 0) sched_yield();
        }
        CHECK(in == (uint32_t)number);
    }
    __atomic_fetch_sub(&open_threads, 1, __ATOMIC_RELAXED);
    return argument;
}

/* All threads send, receive and make progress. */
static void case_threads(void)
{
    pthread_t threads[THREADS];
    two.host.threads = HAWSER_THREAD_MULTIPLE;
    start();
    join();
    for (int at = 0; at < THREADS; at++) CHECK(pthread_create(&threads[at], NULL, work, (void *)(intptr_t)at) == 0);
    UNTIL(__atomic_load_n(&open_threads, __ATOMIC_RELAXED) == 0);
    for (int at = 0; at < THREADS; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    CHECK(thread_ended >= THREADS * EACH);
    leave();
}

static const struct one_case cases[] = {
    {"lengths", case_lengths},         {"matching", case_matching}, {"truncation", case_truncation}, {"probes", case_probes},
    {"cancel", case_cancel},           {"many", case_many},         {"reentry", case_reentry},       {"nested", case_nested}, {"queued", case_queued},     {"self", case_self},
    {"synchronous", case_synchronous}, {"reopen", case_reopen},     {"layouts", case_layouts},       {"threads", case_threads},
};

MAIN(cases)
