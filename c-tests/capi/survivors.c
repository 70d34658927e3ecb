/* Three processes over a byte transport, of which two lose each other: they hear of that, once, and of nothing else, and all
 * that is under way between others arrives, before, meanwhile and afterwards.
 *
 *     survivors TRANSPORT killed       the third is killed with messages to it under way
 *     survivors TRANSPORT unplugged    its link goes down for good: HAWSER_VERBS_CONTROL says where that is ordered, and
 *                                      HAWSER_VERBS_DEVICES has a device of its own for each process (first, second, third)
 *     survivors TRANSPORT removed      its device is taken out, likewise
 *     survivors TRANSPORT queues       its completion queues end, likewise
 *     survivors TRANSPORT completion   something that the first has posted ends in error, to whichever peer that was
 *     survivors TRANSPORT corrupt      what the first receives is no message, from whichever peer it comes
 */
#include <errno.h>
#include <hawser/hawser.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST, SECOND, THIRD, ALL, EVERYBODY = (1 << ALL) - 1 };
enum { TAG = 7, UNREAD, FEW_ROUNDS = 10, ROUNDS = 60, MANY_ROUNDS = 300, ALL_ROUNDS = MANY_ROUNDS + ROUNDS, FLOOD = 2000, NOBODY = -1 };

/* So many completions and messages are more than FEW_ROUNDS have, and fewer than MANY_ROUNDS. */
#define BREAKS_AT "300"

static int me;

/* What all three have in common beside the transport. */
static struct {
    struct {
        char key[56];
        size_t length;
        unsigned char bytes[4096];
    } records[ALL];
    atomic_int met, is_paused, flooded, is_done, broken_with, has_failed;
} *common;

/* Ends this process, and the others, which would wait for it. */
static _Noreturn void fail(void)
{
    if (common != NULL) common->has_failed = 1;
    exit(1);
}

#define CHECK(what)                                                                           \
    do {                                                                                      \
        if (!(what)) {                                                                        \
            fprintf(stderr, "%s:%d: process %d: not so: %s\n", __FILE__, __LINE__, me, #what); \
            fail();                                                                           \
        }                                                                                     \
    } while (0)

/* A call returns this code. */
#define IS(code, call)                                                                                  \
    do {                                                                                                \
        int32_t is_code = (call);                                                                       \
        if (is_code != (code)) {                                                                        \
            fprintf(stderr, "%s:%d: process %d: %s is %d (%s), not %s\n", __FILE__, __LINE__, me, #call, \
                    (int)is_code, hawser_strerror(is_code), #code);                                     \
            fail();                                                                                     \
        }                                                                                               \
    } while (0)

/* Makes progress until something holds. */
#define UNTIL(what)                                 \
    do {                                            \
        while (!(what)) {                           \
            int32_t until_code = btl->progress();   \
            CHECK(until_code >= 0);                 \
            if (common->has_failed) fail();         \
            if (until_code == 0) sched_yield();     \
        }                                           \
    } while (0)

static const char *const devices[ALL] = {"first", "second", "third"};

static struct peer {
    hawser_endpoint to;
    /* Of the messages that are sent in turn: sent, over, come; and how many shall be. Two may be under way, by different ways. */
    long sent, over, failed, came, wanted;
    char has_come[ALL_ROUNDS];
    int lost;
} peers[ALL];

static int is_unplugged, flood_over, flood_failed;
static pid_t children[ALL];
static char order[4096];
static const hawser_btl_component *btl;
static const hawser_btl_module *table;
static hawser_btl module;
static hawser_btl_limits limits = {.size = sizeof limits};

/* --- the host */

static uint64_t name_of(int process)
{
    return (uint64_t)process << 32 | (uint64_t)(me == FIRST ? getpid() : getppid());
}

static int32_t publish(void *context, const char *key, const void *bytes, size_t length)
{
    (void)context;
    CHECK(length <= sizeof common->records[me].bytes && strlen(key) < sizeof common->records[me].key);
    strcpy(common->records[me].key, key);
    memcpy(common->records[me].bytes, bytes, length);
    common->records[me].length = length;
    return HAWSER_SUCCESS;
}

static int32_t lookup(void *context, const char *key, uint64_t name, void *buffer, size_t *length)
{
    int process = (int)(name >> 32);
    size_t room = *length;
    (void)context;
    CHECK(process < ALL && name == name_of(process));
    if (strcmp(common->records[process].key, key) != 0) return HAWSER_ERR_NOT_FOUND;
    *length = common->records[process].length;
    if (*length > room) return HAWSER_ERR_TOO_LONG;
    memcpy(buffer, common->records[process].bytes, *length);
    return HAWSER_SUCCESS;
}

static const char *parameter(void *context, const char *name)
{
    (void)context;
    if (strcmp(name, "btl_verbs_ipaddr_include") == 0) return "127.0.0.0/8";
    if (!is_unplugged) return NULL;
    if (strcmp(name, "btl_verbs_if_include") == 0) return devices[me];
    /* A device that is silent for that long has gone. */
    return strcmp(name, "btl_verbs_peer_timeout") == 0 ? "10000" : NULL;
}

static void logged(void *context, uint32_t level, const char *line)
{
    (void)context, (void)level;
    if (getenv("LOUD") != NULL) fprintf(stderr, "%d: %s\n", me, line);
}

/* --- messages */

static size_t length_of(long round)
{
    return round % 3 == 0 ? 8 : round % 3 == 1 ? 1000 : limits.max_send;
}

static unsigned char byte_of(int from, long round, size_t at)
{
    return (unsigned char)(from * 101 + round * 31 + (long)(at * 7 + (at >> 8)));
}

static int peer_at(hawser_endpoint endpoint)
{
    int other = 0;
    while (other < ALL && (other == me || peers[other].to.id != endpoint.id)) other++;
    CHECK(other < ALL);
    return other;
}

static void take(void *context, hawser_btl by, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    int other = peer_at(from);
    const unsigned char *data = bytes;
    int64_t round;
    (void)context, (void)by;
    CHECK(tag == TAG && length >= sizeof round);
    memcpy(&round, bytes, sizeof round);
    CHECK(round >= 0 && round < ALL_ROUNDS && length == length_of(round) && !peers[other].has_come[round]);
    for (size_t at = sizeof round; at < length; at++) CHECK(data[at] == byte_of(other, round, at));
    peers[other].has_come[round] = 1;
    peers[other].came++;
}

static void ignore(void *context, hawser_btl by, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    (void)context, (void)by, (void)from, (void)bytes;
    CHECK(tag == UNREAD && length == 1000);
}

static void over(void *context, hawser_btl by, hawser_endpoint to, int32_t status)
{
    struct peer *peer = context;
    (void)by;
    CHECK(peer == &peers[peer_at(to)] && (status == 0 || status == HAWSER_ERR_UNREACHABLE));
    if (status == 0) peer->over++;
    else peer->failed++;
}

static void flooded(void *context, hawser_btl by, hawser_endpoint to, int32_t status)
{
    (void)context, (void)by;
    CHECK(peer_at(to) == THIRD && (status == 0 || status == HAWSER_ERR_UNREACHABLE));
    flood_over++;
    flood_failed += status != 0;
}

static void lose(void *context, hawser_btl by, hawser_endpoint peer, uint64_t name)
{
    int other = peer_at(peer);
    (void)context, (void)by;
    CHECK(name == name_of(other));
    peers[other].lost++;
}

static int32_t send_to(int other, uint8_t tag, size_t length, hawser_completed callback)
{
    hawser_fragment fragment;
    void *memory;
    IS(0, table->alloc(module, length, &fragment, &memory));
    for (size_t at = 0; at < length; at++) ((unsigned char *)memory)[at] = byte_of(me, peers[other].sent, at);
    memcpy(memory, &(int64_t){peers[other].sent}, sizeof(int64_t));
    int32_t code = table->send(module, peers[other].to, fragment, tag, HAWSER_AWAITED, callback, &peers[other]);
    if (code != 0) IS(0, table->free(module, fragment));
    return code;
}

/* With each the next message when the last one has come and gone. Whether all have come and gone that shall. */
static int step(void)
{
    int is_done = 1;
    for (int other = 0; other < ALL; other++) {
        struct peer *peer = &peers[other];
        if (other == me || peer->lost) continue;
        if (peer->sent == peer->over && peer->sent <= peer->came && peer->sent < peer->wanted) {
            int32_t code = send_to(other, TAG, length_of(peer->sent), over);
            CHECK(code == 0 || code == HAWSER_ERR_UNREACHABLE);
            peer->sent += code == 0;
        }
        /* It may be further, and have begun what follows. */
        is_done &= peer->over == peer->wanted && peer->came >= peer->wanted;
    }
    return is_done;
}

/* So many messages each way with all of these that are not lost. */
static void talk(int with, long rounds)
{
    for (int other = 0; other < ALL; other++) peers[other].wanted += with & 1 << other ? rounds : 0;
    UNTIL(step());
}

/* So many processes meet, for this time, and make progress meanwhile. */
static void meet(int all)
{
    static int met;
    met += all;
    common->met++;
    UNTIL(common->met >= met);
}

static uint64_t counter(const char *name)
{
    uint64_t value = 0;
    IS(0, table->counter(module, name, &value));
    return value;
}

/* --- beginning and end */

static void fork_all(void)
{
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(common != MAP_FAILED);
    common->broken_with = NOBODY;
    for (int other = SECOND; other < ALL && me == FIRST; other++) {
        children[other] = fork();
        CHECK(children[other] >= 0);
        if (children[other] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            me = other;
        }
    }
}

static void start(const char *transport)
{
    static hawser_host host = {.size = sizeof host, .abi = HAWSER_ABI, .publish = publish, .lookup = lookup, .parameter = parameter,
                               .log = logged};
    size_t count;
    host.name = name_of(me);
    btl = hawser_btl_find(transport);
    CHECK(btl != NULL);
    table = btl->module;
    IS(0, btl->open(&host));
    IS(0, btl->register_parameters());
    IS(0, btl->init(&count));
    CHECK(count >= 1);
    IS(0, btl->module_at(0, &module));
    IS(0, table->limits(module, &limits));
    IS(0, table->register_receive(module, TAG, take, NULL));
    IS(0, table->register_receive(module, UNREAD, ignore, NULL));
    IS(0, table->register_error(module, lose, NULL));
    meet(ALL);
    for (int other = 0; other < ALL; other++) {
        hawser_peer peer = {.name = name_of(other), .node = "here"};
        if (other != me) IS(0, table->add_peers(module, 1, &peer, &peers[other].to));
        CHECK(other == me || peers[other].to.id != 0);
    }
    meet(ALL);
}

/* What an endpoint is that has ended: nothing goes by it any more, and all that was under way has been told of, once. */
static void is_lost(int other)
{
    CHECK(peers[other].lost == 1 && peers[other].sent == peers[other].over + peers[other].failed);
    IS(HAWSER_ERR_UNREACHABLE, send_to(other, TAG, 8, over));
    IS(HAWSER_ERR_UNREACHABLE, table->sendi(module, peers[other].to, TAG, "a", 1, "b", 1));
}

static int end(void)
{
    int status = 0;
    IS(0, table->flush(module, (hawser_endpoint){0}, 60000));
    IS(0, btl->close());
    if (me != FIRST) return 0;
    for (int child = SECOND; child < ALL; child++) {
        if (children[child] != 0) CHECK(waitpid(children[child], &status, 0) == children[child] && status == 0);
    }
    puts("PASS");
    return 0;
}

/* --- cases */

/* The third makes no progress from here on, and is gone before it does again. */
static void be_left(void)
{
    common->is_paused = 1;
    while (!is_unplugged) pause();
    while (!common->is_done && !common->has_failed) sched_yield();
    UNTIL(peers[FIRST].lost && peers[SECOND].lost);
    is_lost(FIRST);
    is_lost(SECOND);
}

static void take_the_third_away(void)
{
    int status;
    if (is_unplugged) {
        FILE *file = fopen(order, "w");
        CHECK(file != NULL && fclose(file) == 0);
    } else {
        CHECK(kill(children[THIRD], SIGKILL) == 0 && waitpid(children[THIRD], &status, 0) == children[THIRD]);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        children[THIRD] = 0;
    }
    common->is_done = 1;
}

static int lose_the_third(void)
{
    int other = SECOND - me;
    talk(EVERYBODY, ROUNDS);
    if (me == THIRD) {
        be_left();
        return end();
    }
    UNTIL(common->is_paused);
    /* More than it has room for, so that some are under way and some wait. */
    for (int number = 0; number < FLOOD; number++) IS(0, send_to(THIRD, UNREAD, 1000, flooded));
    common->flooded++;
    UNTIL(common->flooded == 2);
    CHECK(flood_over < FLOOD && peers[THIRD].lost == 0);
    if (me == FIRST) take_the_third_away();
    UNTIL(common->is_done);
    talk(1 << other, ROUNDS);
    UNTIL(peers[THIRD].lost && flood_over == FLOOD);
    CHECK(flood_failed > 0);
    is_lost(THIRD);
    talk(1 << other, ROUNDS);
    CHECK(peers[other].lost == 0 && peers[other].came == 3 * ROUNDS && peers[other].over == 3 * ROUNDS);
    CHECK(counter("num_failed") == 1 && counter("num_corrupt") == 0 && counter("num_rnr") == 0 && counter("num_connected") == 2);
    meet(2);
    return end();
}

/* One connection of the first ends, whichever meets with that; both its ends hear of it, and nobody else. */
static int lose_one(const char *counted)
{
    /* What ends before it is connected is tried again. */
    talk(EVERYBODY, FEW_ROUNDS);
    talk(EVERYBODY, MANY_ROUNDS - FEW_ROUNDS);
    if (me == FIRST) common->broken_with = peers[SECOND].lost ? SECOND : THIRD;
    UNTIL(common->broken_with != NOBODY);
    int other = me == FIRST ? common->broken_with : me == common->broken_with ? FIRST : NOBODY;
    CHECK(counter("num_failed") == (other != NOBODY) && counter(counted) == (me == FIRST));
    for (int process = 0; process < ALL; process++) CHECK(peers[process].lost == (process == other));
    if (other != NOBODY) is_lost(other);
    meet(ALL);
    talk(EVERYBODY, ROUNDS);
    for (int process = 0; process < ALL; process++)
        CHECK(process == me || process == other || peers[process].came == MANY_ROUNDS + ROUNDS);
    meet(ALL);
    return end();
}

int main(int argc, char **argv)
{
    const char *folder = getenv("HAWSER_VERBS_CONTROL"), *how = argv[argc - 1];
    if (argc != 3) return 2;
    static const char *const hows[] = {"unplugged", "removed", "queues"}, *const orders[] = {"link-down", "removed", "queues-failed"};
    char wanted[sizeof order] = "";
    for (size_t at = 0; at < sizeof hows / sizeof *hows; at++) {
        /* None is ordered as yet: another case may have left its file. */
        if (folder != NULL) {
            snprintf(order, sizeof order, "%s/%s.%s", folder, orders[at], devices[THIRD]);
            CHECK(unlink(order) == 0 || errno == ENOENT);
        }
        if (strcmp(how, hows[at]) != 0) continue;
        CHECK(folder != NULL);
        is_unplugged = 1;
        strcpy(wanted, order);
    }
    strcpy(order, wanted);
    fork_all();
    if (me == FIRST && strcmp(how, "completion") == 0) setenv("HAWSER_VERBS_FAULTS", "send-completion:" BREAKS_AT ":13", 1);
    if (me == FIRST && strcmp(how, "corrupt") == 0) setenv("HAWSER_VERBS_FAULTS", "message:" BREAKS_AT ":4", 1);
    start(argv[1]);
    if (is_unplugged || strcmp(how, "killed") == 0) return lose_the_third();
    if (strcmp(how, "completion") == 0) return lose_one("num_rnr");
    if (strcmp(how, "corrupt") == 0) return lose_one("num_corrupt");
    return 2;
}
