/* Two processes, and what one of them cannot go on with. What is under way by that ends, once, and with an error unless it has
 * arrived; the peer is lost by it, once, and what goes by another device goes on.
 *
 *     rails TRANSPORT queues       in the first process the completion queues of the second device end, with messages and gets
 *                                  under way by both devices
 *     rails TRANSPORT shared       its shared receive queues do, likewise
 *     rails TRANSPORT no-sends     in the first process no device takes work any more, while messages wait for their turn
 *     rails TRANSPORT no-gets      the same, while gets do
 *
 * The software stand-in for libibverbs (c-tests/verbs) has them end. HAWSER_VERBS_DEVICES has the two devices, `first` and `second`;
 * for the last two one is enough. QUEUES says which receive queues there are.
 */
#include "side.h"

#include <dlfcn.h>

enum { FIRST, SECOND, BOTH, TAG = 7, UNREAD, ROUNDS = 40, FLOOD = 1500, SHORT = 1000, GETS = 64, BYTES = 1 << 16, MARK = 0xAA };

/* Something that has an end. */
struct job {
    int ended;
};

static int devices = BOTH;
static hawser_endpoint to[BOTH];
static struct job words[BOTH], floods[BOTH][FLOOD], gets[GETS];
static long said[BOTH], came[BOTH], came_as[BOTH][2], unread[BOTH], begun[BOTH], ended[BOTH], failed[BOTH], lost[BOTH];
static unsigned char mine[BYTES], copies[GETS][BYTES];
static hawser_memory memory;
static hawser_remote theirs;

/* --- the host */

static int number_of(hawser_btl module)
{
    int by = module.id == side.modules[FIRST].id ? FIRST : SECOND;
    CHECK(by < devices && module.id == side.modules[by].id);
    return by;
}

/* A long one may overtake the short one before it, and a short one the long one; those of one length stay in order. */
static void take(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    int by = number_of(module), is_long = length > 8;
    (void)context;
    CHECK(tag == TAG && from.id == to[by].id && is_filled(bytes, (size_t)(2 * came_as[by][is_long] + is_long), length));
    came_as[by][is_long]++;
    came[by]++;
}

/* In the order in which they were sent: none of those that come is missed before another one. */
static void count(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    int by = number_of(module);
    (void)context;
    CHECK(tag == UNREAD && from.id == to[by].id && length == SHORT && is_filled(bytes, (size_t)unread[by], length));
    unread[by]++;
}

static void spoken(void *context, hawser_btl module, hawser_endpoint endpoint, int32_t status)
{
    struct job *word = context;
    CHECK(word == &words[number_of(module)] && endpoint.id == to[number_of(module)].id && status == 0);
    word->ended++;
}

static void over(void *context, hawser_btl module, hawser_endpoint endpoint, int32_t status)
{
    struct job *job = context;
    int by = number_of(module);
    CHECK(endpoint.id == to[by].id && (status == 0 || status == HAWSER_ERR_UNREACHABLE) && job->ended == 0);
    job->ended++;
    ended[by]++;
    failed[by] += status != 0;
    /* What it used is ours again: no device writes there any more. */
    if (job >= gets && job < gets + GETS && status != 0) memset(copies[job - gets], MARK, BYTES);
}

static void lose(void *context, hawser_btl module, hawser_endpoint peer, uint64_t name)
{
    int by = number_of(module);
    (void)context;
    CHECK(peer.id == to[by].id && name == pair_name(&two.pair, !me));
    /* All that was under way has ended before. */
    CHECK(ended[by] == begun[by]);
    lost[by]++;
}

/* --- messages */

static int32_t send_by(int by, uint8_t tag, size_t length, size_t number, hawser_completed callback, struct job *job)
{
    hawser_fragment fragment;
    void *bytes;
    IS(0, side.table->alloc(side.modules[by], length, &fragment, &bytes));
    fill(bytes, number, 0, length);
    int32_t code = side.table->send(side.modules[by], to[by], fragment, tag, HAWSER_AWAITED, callback, job);
    if (code != 0) IS(0, side.table->free(side.modules[by], fragment));
    return code;
}

/* Messages both ways, short and long in turn. */
static void talk(int by)
{
    for (int round = 0; round < ROUNDS; round++) {
        size_t length = round % 2 ? side.limits.max_send : 8;
        words[by].ended = 0;
        IS(0, send_by(by, TAG, length, (size_t)said[by], spoken, &words[by]));
        said[by]++;
        UNTIL(words[by].ended == 1 && came[by] >= said[by]);
    }
}

static void flood(int by)
{
    for (int number = 0; number < FLOOD; number++) IS(0, send_by(by, UNREAD, SHORT, (size_t)number, over, &floods[by][number]));
    begun[by] += FLOOD;
}

static void get_all(int by)
{
    for (int number = 0; number < GETS; number++)
        IS(0, side.table->get(side.modules[by], to[by], copies[number], BYTES, &theirs, 0, over, &gets[number]));
    begun[by] += GETS;
}

static uint64_t counter(int by, const char *name)
{
    uint64_t value = 0;
    IS(0, side.table->counter(side.modules[by], name, &value));
    return value;
}

/* --- beginning and end */

static void add(int by)
{
    hawser_peer peer = {.name = pair_name(&two.pair, !me), .node = "here"};
    IS(0, side.table->add_peers(side.modules[by], 1, &peer, &to[by]));
}

/* Both are known by each device, and memory is open to the other by this one. */
static void begin_here(int by)
{
    hawser_remote ours;
    start();
    CHECK(side.count == (size_t)devices);
    for (int module = 0; module < devices; module++) {
        IS(0, side.table->register_receive(side.modules[module], TAG, take, NULL));
        IS(0, side.table->register_receive(side.modules[module], UNREAD, count, NULL));
        IS(0, side.table->register_error(side.modules[module], lose, NULL));
    }
    join();
    to[FIRST] = side.to;
    for (int module = SECOND; module < devices; module++) {
        hawser_btl_limits limits = {.size = sizeof limits};
        IS(0, side.table->limits(side.modules[module], &limits));
        CHECK(strncmp(limits.device, "second", strlen("second")) == 0);
        add(module);
        CHECK(to[module].id != 0);
    }
    fill(mine, (size_t)me, 0, BYTES);
    IS(0, side.table->register_memory(side.modules[by], mine, BYTES, HAWSER_READ, &memory));
    IS(0, side.table->memory_key(side.modules[by], memory, &ours));
    CHECK(pair_swap(&two.pair, &ours, &theirs, sizeof ours) == 0);
}

/* What an endpoint is that has ended. */
static void is_lost(int by)
{
    CHECK(lost[by] == 1 && counter(by, "num_failed") == 1);
    IS(HAWSER_ERR_UNREACHABLE, send_by(by, UNREAD, SHORT, 0, over, &words[by]));
    IS(HAWSER_ERR_UNREACHABLE, side.table->sendi(side.modules[by], to[by], UNREAD, "a", 1, "b", 1));
    IS(HAWSER_ERR_UNREACHABLE, side.table->get(side.modules[by], to[by], copies[0], 8, &theirs, 0, over, &words[by]));
}

/* Each has ended once; what was got is there, and what was not got was left alone. */
static void have_ended(int by)
{
    for (int number = 0; number < FLOOD && ended[by] >= FLOOD; number++) CHECK(floods[by][number].ended == 1);
    for (int number = 0; number < GETS && gets[0].ended != 0; number++) {
        CHECK(gets[number].ended == 1);
        if (copies[number][0] == MARK) {
            for (size_t at = 0; at < BYTES; at++) CHECK(copies[number][at] == MARK);
        } else {
            CHECK(is_filled(copies[number], 1, BYTES));
        }
    }
}

/* --- cases */

/* In this process, on the second device; the component has heard of it. */
static void end_queues(int shared)
{
    void (*end_all)(const char *name, int shared) = NULL;
    int (*untold)(void) = NULL;
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    CHECK(library != NULL);
    *(void **)&end_all = dlsym(library, "standin_end_queues");
    *(void **)&untold = dlsym(library, "standin_untold");
    CHECK(end_all != NULL && untold != NULL);
    end_all("second", shared);
    while (untold() > 0) sched_yield();
}

static void one_ends(int shared)
{
    long before;
    begin_here(SECOND);
    for (int by = 0; by < BOTH; by++) talk(by);
    meet();
    before = two.logged;
    if (me == 0) {
        for (int by = 0; by < BOTH; by++) flood(by);
        get_all(SECOND);
        /* More than there is room for: some are under way, and some wait. */
        CHECK(ended[FIRST] + ended[SECOND] == 0);
        end_queues(shared);
    } else {
        two.pair.progress = NULL;
    }
    meet();
    two.pair.progress = side.btl->progress;
    UNTIL(lost[SECOND] == 1);
    if (me == 0) {
        UNTIL(ended[FIRST] == FLOOD);
        CHECK(ended[SECOND] == begun[SECOND] && failed[FIRST] == 0 && failed[SECOND] > 0 && two.logged > before);
        for (int by = 0; by < BOTH; by++) have_ended(by);
    } else {
        UNTIL(unread[FIRST] == FLOOD);
    }
    is_lost(SECOND);
    talk(FIRST);
    meet();
    CHECK(lost[FIRST] == 0 && lost[SECOND] == 1 && counter(FIRST, "num_failed") == 0);
    if (me == 0) have_ended(SECOND);
    IS(0, side.table->deregister_memory(side.modules[SECOND], memory));
    if (me == 0) {
        /* Nobody is met by it any more. */
        IS(0, side.table->del_peers(side.modules[SECOND], 1, &to[SECOND]));
        add(SECOND);
        CHECK(to[SECOND].id == 0);
    }
    talk(FIRST);
    leave();
}

static void case_queues(void) { one_ends(0); }

static void case_shared(void) { one_ends(1); }

/* From this piece of work on: more than there is room for at once, and fewer than there are. */
static void nothing_is_taken_from(const char *number, void (*begin_all)(int by))
{
    char fault[64];
    devices = 1;
    snprintf(fault, sizeof fault, "ibv_post_send:%s+:5", number);
    if (me == 0) CHECK(setenv("HAWSER_VERBS_FAULTS", fault, 1) == 0);
    begin_here(FIRST);
    if (me == 0) begin_all(FIRST);
    UNTIL(lost[FIRST] == 1);
    if (me == 0) {
        CHECK(failed[FIRST] > 0 && failed[FIRST] < begun[FIRST]);
        have_ended(FIRST);
    }
    is_lost(FIRST);
    meet();
    IS(0, side.table->deregister_memory(side.modules[FIRST], memory));
    leave();
}

static void case_no_sends(void) { nothing_is_taken_from("400", flood); }

static void case_no_gets(void) { nothing_is_taken_from("30", get_all); }

static const struct one_case cases[] = {
    {"queues", case_queues}, {"shared", case_shared}, {"no-sends", case_no_sends}, {"no-gets", case_no_gets}};

MAIN(cases)
