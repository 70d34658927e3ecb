/* Two processes over the matching transport, one of which is killed or stopped, or has a child.
 *
 *     halted PROVIDER CASE
 */
#include "matching.h"

#include <sys/prctl.h>

enum { LONGEST = 1 << 16 };

static unsigned char mine[LONGEST], room[LONGEST];

/* The other process is killed: what is under way ends once, with an error or with the module. */
static void case_killed(void)
{
    enum { OPEN = 50 };
    static struct ended sent[OPEN], received[OPEN];
    struct ended first;
    start();
    join();
    receive(match.to, CONTEXT, TAG, room, 64, &first);
    IS(0, match.table->send(match.module, match.to, CONTEXT, TAG, mine, 64, 0));
    RECEIVED(first, 0, TAG, 64);
    meet();
    if (me == 1) raise(SIGKILL);
    int status;
    CHECK(waitpid(two.pair.child, &status, 0) == two.pair.child && WIFSIGNALED(status));
    long owed = 0, ended = 0, refused = 0;
    for (int at = 0; at < OPEN && refused == 0; at++) {
        hawser_request request;
        receive(match.to, CONTEXT, TAG, room, 64, &received[at]);
        memset(&sent[at], 0, sizeof sent[at]);
        int32_t code;
        while ((code = match.table->isend(match.module, match.to, CONTEXT, TAG, mine, 1 << 16, 0, over, &sent[at], &request)) == HAWSER_ERR_AGAIN) {
            CHECK(match.mtl->progress() >= 0);
        }
        CHECK(code == HAWSER_SUCCESS || code == HAWSER_ERR_UNREACHABLE || code == HAWSER_ERR_SYSTEM);
        owed += 1 + (code == HAWSER_SUCCESS);
        refused += code < 0;
    }
    for (int pass = 0; pass < 1000; pass++) CHECK(match.mtl->progress() >= 0);
    IS(0, match.mtl->close());
    for (int at = 0; at < OPEN; at++) {
        CHECK(sent[at].count <= 1 && received[at].count <= 1);
        ended += sent[at].count + received[at].count;
        CHECK(received[at].count == 0 || received[at].status < 0);
    }
    CHECK(ended == owed && refused <= 1);
    puts("PASS");
    exit(0);
}

/* The other process is stopped, after both have met. */
static void stop_other(void)
{
    int status;
    if (me == 1) raise(SIGSTOP);
    if (me == 0) CHECK(waitpid(two.pair.child, &status, WUNTRACED) == two.pair.child && WIFSTOPPED(status));
}

static void continue_other(void)
{
    if (me == 0) CHECK(kill(two.pair.child, SIGCONT) == 0);
}

/* The other process is stopped before there is a connection, and makes none: a send says soon that there is no room, and
 * goes when there is. Receives and the end of the module do not wait for it either. */
static void case_stopped(void)
{
    enum { KINDS = 4, TRIES = 100, BYTES = 1 << 16 };
    static const struct {
        size_t length;
        uint32_t flags;
    } kinds[KINDS] = {{8, 0}, {BYTES, 0}, {8, HAWSER_SYNCHRONOUS}, {BYTES, HAWSER_SYNCHRONOUS}};
    struct ended sent[KINDS], received;
    /* None that is stopped is left behind. */
    if (me == 1) CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    for (int life = 0; life < 2; life++) {
        start();
        join();
        stop_other();
        for (int number = 0; me == 0 && number < KINDS * TRIES; number++) {
            int kind = number % KINDS;
            hawser_request request = {1};
            sent[kind].count = 0;
            IS(HAWSER_ERR_AGAIN, match.table->isend(match.module, match.to, CONTEXT, TAG, mine, kinds[kind].length, kinds[kind].flags, over, &sent[kind], &request));
            CHECK(request.id == 1 && sent[kind].count == 0);
        }
        if (me == 0) {
            hawser_request request = receive(match.to, CONTEXT, TAG, room, 8, &received);
            IS(0, match.table->cancel(match.module, request));
            UNTIL(received.count == 1);
            IS(HAWSER_ERR_CANCELLED, received.status);
            IS(0, match.table->del_peers(match.module, 1, &match.to));
            hawser_peer peer = {.name = pair_name(&two.pair, 1)};
            IS(0, match.table->add_peers(match.module, 1, &peer, &match.to));
            CHECK(match.to.id != 0);
        }
        if (life == 1) break;
        continue_other();
        for (size_t kind = 0; kind < KINDS; kind++) {
            size_t length = kinds[kind].length;
            if (me == 0) {
                fill(mine, kind, 0, length);
                send_to(match.to, CONTEXT, TAG, mine, length, kinds[kind].flags, &sent[kind]);
                SENT(sent[kind]);
            } else {
                receive(match.to, CONTEXT, TAG, room, length, &received);
                RECEIVED(received, 0, TAG, length);
                CHECK(is_filled(room, kind, length));
            }
        }
        /* Nothing came twice. */
        meet();
        hawser_envelope envelope = {.size = sizeof envelope};
        IS(HAWSER_ERR_NOT_FOUND, match.table->iprobe(match.module, anybody, CONTEXT, HAWSER_ANY_TAG, &envelope));
        leave();
    }
    /* This one ends while the other is stopped. */
    two.pair.progress = NULL;
    IS(0, match.mtl->close());
    continue_other();
}

/* The other process is stopped after the first messages: what goes out meanwhile is all there when it goes on. */
static void case_paused(void)
{
    enum { MANY = 300, BYTES = 1 << 16 };
    static struct ended sent[MANY];
    static unsigned char out[MANY][BYTES];
    struct ended received;
    int number = 0;
    if (me == 1) CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    start();
    join();
    receive(match.to, CONTEXT, TAG, room, 1, &received);
    IS(0, match.table->send(match.module, match.to, CONTEXT, TAG, mine, 1, 0));
    RECEIVED(received, 0, TAG, 1);
    meet();
    stop_other();
    for (int at = 0; at < MANY; at++) fill(out[at], (size_t)at, 0, BYTES);
    for (int32_t code = 0; me == 0 && number < MANY; number += code >= 0) {
        hawser_request request;
        code = match.table->isend(match.module, match.to, CONTEXT, TAG, out[number], BYTES, 0, over, &sent[number], &request);
        if (code == HAWSER_ERR_AGAIN) break;
        CHECK(code == HAWSER_SUCCESS || code == HAWSER_DONE);
        sent[number].count += code == HAWSER_DONE;
    }
    continue_other();
    for (; me == 0 && number < MANY; number++) send_to(match.to, CONTEXT, TAG, out[number], BYTES, 0, &sent[number]);
    for (int at = 0; at < MANY; at++) {
        if (me == 0) {
            SENT(sent[at]);
        } else {
            receive(match.to, CONTEXT, TAG, room, BYTES, &received);
            RECEIVED(received, 0, TAG, (size_t)BYTES);
            CHECK(is_filled(room, (size_t)at, BYTES));
        }
    }
    leave();
}

/* A child of fork(2): every function refuses what its parent has opened. */
static void refuse(void)
{
    struct ended ended = {0};
    hawser_envelope envelope = {.size = sizeof envelope};
    hawser_message message;
    hawser_request request;
    hawser_mtl module;
    uint64_t name;
    IS(HAWSER_ERR_STATE, match.mtl->open(&two.host));
    IS(HAWSER_ERR_STATE, match.mtl->register_parameters());
    IS(HAWSER_ERR_STATE, match.mtl->init(&module));
    IS(HAWSER_ERR_STATE, match.mtl->progress());
    IS(HAWSER_ERR_STATE, match.table->limits(match.module, &match.limits));
    IS(HAWSER_ERR_STATE, match.table->peer_name(match.module, match.to, &name));
    IS(HAWSER_ERR_STATE, match.table->send(match.module, match.to, CONTEXT, TAG, mine, 8, 0));
    IS(HAWSER_ERR_STATE, match.table->isend(match.module, match.to, CONTEXT, TAG, mine, 8, 0, over, &ended, &request));
    IS(HAWSER_ERR_STATE, match.table->irecv(match.module, anybody, CONTEXT, TAG, room, 8, over, &ended, &request));
    IS(HAWSER_ERR_STATE, match.table->iprobe(match.module, anybody, CONTEXT, TAG, &envelope));
    IS(HAWSER_ERR_STATE, match.table->improbe(match.module, anybody, CONTEXT, TAG, &envelope, &message));
    IS(HAWSER_ERR_STATE, match.table->del_peers(match.module, 1, &match.to));
    IS(HAWSER_ERR_STATE, match.table->finalize(match.module));
    IS(HAWSER_ERR_STATE, match.mtl->close());
}

/* A child ends, and its parent and the peer go on. */
static void case_forked(void)
{
    start();
    join();
    for (int round = 0; round < 3; round++) {
        struct ended sent, received;
        receive(match.to, CONTEXT, TAG, room, LONGEST, &received);
        send_to(match.to, CONTEXT, TAG, mine, LONGEST, 0, &sent);
        RECEIVED(received, 0, TAG, (size_t)LONGEST);
        SENT(sent);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            refuse();
            _exit(0);
        }
        int status = -1;
        UNTIL(waitpid(child, &status, WNOHANG) == child);
        CHECK(status == 0);
        meet();
    }
    leave();
}

/* A callback makes a child, which returns from it: the call that it was in ends there, and what comes later is its
 * parent's. */
enum { MESSAGES = 20 };
static pid_t made = -1;
static long heard;

static void over_in_two(void *context, hawser_mtl module, hawser_request request, int32_t status, const hawser_envelope *envelope)
{
    (void)context, (void)module, (void)request, (void)envelope;
    IS(0, status);
    heard++;
    if (made < 0) CHECK((made = fork()) >= 0);
}

static void case_returned(void)
{
    static unsigned char rooms[MESSAGES][64];
    struct ended sent;
    start();
    join();
    for (int at = 0; at < MESSAGES && me == 1; at++) {
        hawser_request request;
        IS(0, match.table->irecv(match.module, match.to, CONTEXT, TAG, rooms[at], sizeof rooms[at], over_in_two, NULL, &request));
    }
    two.pair.progress = NULL;
    meet();
    if (me == 0) {
        for (int at = 0; at < MESSAGES; at++) {
            fill(mine, (size_t)at, 0, 64);
            send_to(match.to, CONTEXT, TAG, mine, 64, 0, &sent);
            SENT(sent);
        }
    }
    while (me == 1 && heard < MESSAGES) {
        int32_t code = match.mtl->progress();
        if (made == 0) {
            IS(HAWSER_ERR_STATE, code);
            CHECK(heard == 1);
            refuse();
            _exit(0);
        }
        CHECK(code >= 0);
    }
    if (me == 1) {
        int status = -1;
        CHECK(made > 0 && waitpid(made, &status, 0) == made && status == 0);
        for (size_t at = 0; at < MESSAGES; at++) CHECK(is_filled(rooms[at], at, 64));
    }
    two.pair.progress = match.mtl->progress;
    leave();
}

static const struct one_case cases[] = {
    {"killed", case_killed}, {"stopped", case_stopped}, {"paused", case_paused}, {"forked", case_forked},
    {"returned", case_returned},
};

MAIN(cases)
