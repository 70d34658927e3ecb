/* Every function of the matching transport with what it must not be given: a code comes back, and nothing else happens.
 *
 *     refused PROVIDER CASE
 */
#include "matching.h"

static struct ended ended;
static unsigned char bytes[64];

/* Without the other process. */
static void case_names(void)
{
    CHECK(hawser_mtl_find(NULL) == NULL && hawser_mtl_find("") == NULL && hawser_mtl_find("smcuda") == NULL);
    CHECK(hawser_btl_find("ofi") == NULL);
    size_t count = 0;
    while (hawser_mtl_list(count) != NULL) {
        const hawser_mtl_component *one = hawser_mtl_list(count++);
        CHECK(hawser_mtl_find(one->name) == one && one->abi == HAWSER_ABI);
    }
    CHECK(count >= 1 && hawser_mtl_list(count + 1) == NULL && hawser_mtl_list(SIZE_MAX) == NULL);
}

static void case_tables(void)
{
    refuse_tables(match.mtl->open, match.mtl->close);
}

static long declared;

static void declare(void *context, const hawser_parameter *one)
{
    CHECK(context == &two.pair && one->size == sizeof *one && one->kind <= HAWSER_KIND_BOOL);
    CHECK(strncmp(one->name, "mtl_ofi_", 8) == 0 && strlen(one->help) > 0 && one->level >= 1 && one->level <= 9);
    declared++;
}

/* Values that no parameter may have, and providers that nobody has. */
static void case_parameters(void)
{
    static const char *const none[][2] = {
        {"mtl_ofi_tag_mode", "ofi_tag_3"},       {"mtl_ofi_tag_mode", "5"},  {"mtl_ofi_progress_event_cnt", "0"}, {"mtl_ofi_progress_event_cnt", "many"},
        {"mtl_ofi_num_ctxts", "0"},              {"mtl_ofi_av", ""},         {"mtl_ofi_thread_grouping", "1"},    {"mtl_ofi_enable_sep", "2"},
    };
    two.host.declare = declare;
    IS(0, match.mtl->open(&two.host));
    for (size_t at = 0; at < sizeof none / sizeof *none; at++) {
        long before = two.logged;
        match.name = none[at][0], match.value = none[at][1];
        IS(HAWSER_ERR_PARAMETER, match.mtl->register_parameters());
        CHECK(two.logged == before + 1);
        IS(HAWSER_ERR_STATE, match.mtl->init(&match.module));
    }
    CHECK(declared >= 8 * 10);
    long before = two.logged;
    match.name = "mtl_ofi_provider_include", match.value = "pigeons";
    IS(0, match.mtl->register_parameters());
    IS(HAWSER_ERR_NOT_AVAILABLE, match.mtl->init(&match.module));
    CHECK(two.logged == before + 1);
    match.name = NULL;
    IS(0, match.mtl->register_parameters());
    IS(0, match.mtl->init(&match.module));
    IS(0, match.mtl->close());
    meet();
}

/* Without libfabric: the log has the one line. */
static void case_missing(void)
{
    IS(0, match.mtl->open(&two.host));
    IS(0, match.mtl->register_parameters());
    IS(HAWSER_ERR_NOT_AVAILABLE, match.mtl->init(&match.module));
    CHECK(two.logged == 1);
    IS(HAWSER_ERR_NOT_AVAILABLE, match.mtl->init(&match.module));
    IS(HAWSER_ERR_STATE, match.mtl->progress());
    IS(0, match.mtl->close());
}

/* Functions out of their order. */
static void case_order(void)
{
    hawser_mtl module = {0};
    IS(HAWSER_ERR_STATE, match.mtl->register_parameters());
    IS(HAWSER_ERR_STATE, match.mtl->init(&module));
    IS(HAWSER_ERR_STATE, match.mtl->progress());
    IS(HAWSER_ERR_STATE, match.mtl->close());
    IS(0, match.mtl->open(&two.host));
    IS(HAWSER_ERR_STATE, match.mtl->open(&two.host));
    IS(HAWSER_ERR_STATE, match.mtl->init(&module));
    IS(HAWSER_ERR_STATE, match.mtl->progress());
    IS(0, match.mtl->register_parameters());
    IS(0, match.mtl->register_parameters());
    IS(HAWSER_ERR_ARGUMENT, match.mtl->init(NULL));
    IS(0, match.mtl->init(&module));
    IS(HAWSER_ERR_STATE, match.mtl->init(&module));
    IS(HAWSER_ERR_STATE, match.mtl->register_parameters());
    CHECK(match.mtl->progress() >= 0);
    IS(0, match.table->finalize(module));
    IS(0, match.mtl->progress());
    IS(HAWSER_ERR_STATE, match.mtl->init(&module));
    IS(0, match.mtl->close());
    IS(HAWSER_ERR_STATE, match.mtl->close());
    IS(HAWSER_ERR_STALE, match.table->finalize(module));
    meet();
}

static int32_t publish_nothing(void *context, const char *key, const void *record, size_t length)
{
    (void)context;
    CHECK(strcmp(key, "mtl_ofi") == 0 && record != NULL && length > 13);
    return HAWSER_ERR_SYSTEM;
}

static int spoil;

/* What the other process may have published. */
static int32_t look_up(void *context, const char *key, uint64_t name, void *buffer, size_t *length)
{
    unsigned char *record = buffer;
    size_t room = *length;
    int32_t code = pair_lookup(context, key, name, buffer, length);
    if (code != 0) return code;
    switch (spoil) {
    case 0: return HAWSER_ERR_NOT_FOUND;
    case 1: *length = room + 1; return HAWSER_SUCCESS;
    case 2: *length = SIZE_MAX; return HAWSER_ERR_TOO_LONG;
    case 3: *length = 0; return HAWSER_SUCCESS;
    case 4: *length = 13; return HAWSER_SUCCESS;
    case 5: record[0]++; return HAWSER_SUCCESS;
    case 6: record[1]++; return HAWSER_SUCCESS;
    case 7: return -12345;
    /* An address of a family that nobody has. */
    case 8: record[14] = 0x7F; return HAWSER_SUCCESS;
    default: return HAWSER_SUCCESS;
    }
}

/* Functions of the caller's that fail. */
static void case_host(void)
{
    struct hawser_host host = two.host;
    host.publish = publish_nothing;
    IS(0, match.mtl->open(&host));
    IS(0, match.mtl->register_parameters());
    IS(HAWSER_ERR_HOST, match.mtl->init(&match.module));
    IS(0, match.mtl->close());
    /* A name whose upper half is no rank. */
    host = two.host, host.name = UINT64_MAX;
    IS(0, match.mtl->open(&host));
    IS(0, match.mtl->register_parameters());
    IS(HAWSER_ERR_NOT_AVAILABLE, match.mtl->init(&match.module));
    IS(0, match.mtl->close());
    two.host.lookup = look_up;
    start();
    meet();
    hawser_peer peer = {.name = pair_name(&two.pair, !me)};
    for (spoil = 0; spoil < 9; spoil++) {
        match.to.id = 1;
        IS(0, match.table->add_peers(match.module, 1, &peer, &match.to));
        CHECK(match.to.id == 0);
    }
    IS(0, match.table->add_peers(match.module, 1, &peer, &match.to));
    CHECK(match.to.id != 0);
    leave();
}

/* Handles of nothing. */
static void case_handles(void)
{
    hawser_request request;
    hawser_message message = {0};
    hawser_envelope envelope = {.size = sizeof envelope};
    uint64_t value;
    start();
    join();
    for (int bit = 0; bit < 65; bit++) {
        /* Every neighbour of what is there, and none. */
        uint64_t flip = bit < 64 ? UINT64_C(1) << bit : 0;
        hawser_mtl module = {bit < 64 ? match.module.id ^ flip : 0};
        hawser_endpoint to = {bit < 64 ? match.to.id ^ flip : 0};
        IS(HAWSER_ERR_STALE, match.table->limits(module, &match.limits));
        IS(HAWSER_ERR_STALE, match.table->send(module, match.to, CONTEXT, TAG, bytes, 8, 0));
        IS(HAWSER_ERR_STALE, match.table->isend(module, match.to, CONTEXT, TAG, bytes, 8, 0, over, &ended, &request));
        IS(HAWSER_ERR_STALE, match.table->irecv(module, match.to, CONTEXT, TAG, bytes, 8, over, &ended, &request));
        IS(HAWSER_ERR_STALE, match.table->imrecv(module, message, bytes, 8, over, &ended, &request));
        IS(HAWSER_ERR_STALE, match.table->iprobe(module, match.to, CONTEXT, TAG, &envelope));
        IS(HAWSER_ERR_STALE, match.table->improbe(module, match.to, CONTEXT, TAG, &envelope, &message));
        IS(HAWSER_ERR_STALE, match.table->finalize(module));
        IS(HAWSER_ERR_STALE, match.table->send(match.module, to, CONTEXT, TAG, bytes, 8, 0));
        IS(HAWSER_ERR_STALE, match.table->isend(match.module, to, CONTEXT, TAG, bytes, 8, 0, over, &ended, &request));
        IS(HAWSER_ERR_STALE, match.table->peer_name(match.module, to, &value));
        if (bit == 64) break;
        /* Zeros are any. */
        IS(HAWSER_ERR_STALE, match.table->irecv(match.module, to, CONTEXT, TAG, bytes, 8, over, &ended, &request));
        IS(HAWSER_ERR_STALE, match.table->iprobe(match.module, to, CONTEXT, TAG, &envelope));
        IS(HAWSER_ERR_STALE, match.table->del_peers(match.module, 1, &to));
    }
    hawser_request kept = receive(match.to, CONTEXT, TAG, bytes, 8, &ended);
    for (int bit = 0; bit < 64; bit++) {
        IS(HAWSER_ERR_STALE, match.table->cancel(match.module, (hawser_request){kept.id ^ UINT64_C(1) << bit}));
    }
    IS(HAWSER_ERR_STALE, match.table->cancel(match.module, (hawser_request){match.to.id}));
    IS(HAWSER_ERR_STALE, match.table->imrecv(match.module, (hawser_message){kept.id}, bytes, 8, over, &ended, &request));
    /* A peer that something is under way with stays. */
    IS(HAWSER_ERR_BUSY, match.table->del_peers(match.module, 1, &match.to));
    IS(0, match.table->peer_name(match.module, match.to, &value));
    CHECK(value == pair_name(&two.pair, !me) && ended.count == 0);
    IS(0, match.table->cancel(match.module, kept));
    UNTIL(ended.count == 1);
    meet();
    two.pair.progress = NULL;
    IS(0, match.table->del_peers(match.module, 1, &match.to));
    IS(HAWSER_ERR_STALE, match.table->del_peers(match.module, 1, &match.to));
    IS(HAWSER_ERR_STALE, match.table->send(match.module, match.to, CONTEXT, TAG, bytes, 8, 0));
    IS(0, match.mtl->close());
}

/* Everything else. */
static void case_values(void)
{
    hawser_request request;
    hawser_message message;
    hawser_envelope envelope = {.size = sizeof envelope}, small = {.size = sizeof small - 1};
    uint64_t value;
    start();
    join();
    uint32_t context = match.limits.max_context + 1;
    int32_t most = match.limits.max_tag;
    IS(HAWSER_ERR_ARGUMENT, match.table->limits(match.module, NULL));
    match.limits.size = 8;
    IS(HAWSER_ERR_ABI, match.table->limits(match.module, &match.limits));

    hawser_endpoint endpoints[3] = {{1}, {1}, {1}};
    uint64_t other = pair_name(&two.pair, !me);
    hawser_peer peers[3] = {{.name = other}, {.name = other}, {.name = UINT64_C(7) << 32 | 1}};
    IS(HAWSER_ERR_ARGUMENT, match.table->add_peers(match.module, 1, NULL, endpoints));
    IS(HAWSER_ERR_ARGUMENT, match.table->add_peers(match.module, 1, peers, NULL));
    IS(HAWSER_ERR_ARGUMENT, match.table->add_peers(match.module, SIZE_MAX, peers, endpoints));
    IS(0, match.table->add_peers(match.module, 0, NULL, NULL));
    IS(0, match.table->add_peers(match.module, 2, peers, endpoints));
    CHECK(endpoints[0].id == match.to.id && endpoints[1].id == match.to.id && endpoints[2].id == 1);
    /* One that has published nothing, another of the same rank, and one whose rank is none. */
    IS(0, match.table->add_peers(match.module, 3, peers, endpoints));
    CHECK(endpoints[1].id == match.to.id && endpoints[2].id == 0);
    peers[2].name = other ^ 1;
    IS(HAWSER_ERR_ARGUMENT, match.table->add_peers(match.module, 3, peers, endpoints));
    peers[2].name = UINT64_MAX;
    IS(HAWSER_ERR_ARGUMENT, match.table->add_peers(match.module, 3, peers, endpoints));
    IS(HAWSER_ERR_ARGUMENT, match.table->del_peers(match.module, 1, NULL));
    IS(HAWSER_ERR_ARGUMENT, match.table->del_peers(match.module, SIZE_MAX, endpoints));
    IS(0, match.table->del_peers(match.module, 1, &endpoints[2]));
    IS(HAWSER_ERR_ARGUMENT, match.table->peer_name(match.module, match.to, NULL));

    static const int32_t no_tags[] = {-2, INT32_MIN};
    for (size_t at = 0; at < 3; at++) {
        /* Any tag is nothing to send with; the next one behind the greatest is none where there is one. */
        int32_t tag = at == 2 ? most == INT32_MAX ? -7 : most + 1 : no_tags[at];
        IS(HAWSER_ERR_ARGUMENT, match.table->send(match.module, match.to, CONTEXT, tag, bytes, 8, 0));
        IS(HAWSER_ERR_ARGUMENT, match.table->isend(match.module, match.to, CONTEXT, tag, bytes, 8, 0, over, &ended, &request));
        IS(HAWSER_ERR_ARGUMENT, match.table->irecv(match.module, match.to, CONTEXT, tag, bytes, 8, over, &ended, &request));
        IS(HAWSER_ERR_ARGUMENT, match.table->iprobe(match.module, match.to, CONTEXT, tag, &envelope));
        IS(HAWSER_ERR_ARGUMENT, match.table->improbe(match.module, match.to, CONTEXT, tag, &envelope, &message));
    }
    IS(HAWSER_ERR_ARGUMENT, match.table->send(match.module, match.to, CONTEXT, HAWSER_ANY_TAG, bytes, 8, 0));
    IS(HAWSER_ERR_ARGUMENT, match.table->isend(match.module, match.to, CONTEXT, HAWSER_ANY_TAG, bytes, 8, 0, over, &ended, &request));
    IS(HAWSER_ERR_ARGUMENT, match.table->send(match.module, match.to, context, TAG, bytes, 8, 0));
    IS(HAWSER_ERR_ARGUMENT, match.table->isend(match.module, match.to, UINT32_MAX, TAG, bytes, 8, 0, over, &ended, &request));
    IS(HAWSER_ERR_ARGUMENT, match.table->irecv(match.module, match.to, context, TAG, bytes, 8, over, &ended, &request));
    IS(HAWSER_ERR_ARGUMENT, match.table->iprobe(match.module, match.to, context, TAG, &envelope));

    IS(HAWSER_ERR_ARGUMENT, match.table->send(match.module, match.to, CONTEXT, TAG, NULL, 1, 0));
    IS(HAWSER_ERR_ARGUMENT, match.table->send(match.module, match.to, CONTEXT, TAG, bytes, SIZE_MAX, 0));
    IS(HAWSER_ERR_ARGUMENT, match.table->send(match.module, match.to, CONTEXT, TAG, bytes, 8, 1));
    IS(HAWSER_ERR_ARGUMENT, match.table->isend(match.module, match.to, CONTEXT, TAG, NULL, 1, 0, over, &ended, &request));
    IS(HAWSER_ERR_ARGUMENT, match.table->isend(match.module, match.to, CONTEXT, TAG, bytes, SIZE_MAX, 0, over, &ended, &request));
    IS(HAWSER_ERR_ARGUMENT, match.table->isend(match.module, match.to, CONTEXT, TAG, bytes, 8, UINT32_MAX, over, &ended, &request));
    IS(HAWSER_ERR_ARGUMENT, match.table->isend(match.module, match.to, CONTEXT, TAG, bytes, 8, 0, NULL, &ended, &request));
    IS(HAWSER_ERR_ARGUMENT, match.table->isend(match.module, match.to, CONTEXT, TAG, bytes, 8, 0, over, &ended, NULL));
    IS(HAWSER_ERR_ARGUMENT, match.table->irecv(match.module, match.to, CONTEXT, TAG, NULL, 1, over, &ended, &request));
    IS(HAWSER_ERR_ARGUMENT, match.table->irecv(match.module, match.to, CONTEXT, TAG, bytes, SIZE_MAX, over, &ended, &request));
    IS(HAWSER_ERR_ARGUMENT, match.table->irecv(match.module, match.to, CONTEXT, TAG, bytes, 8, NULL, &ended, &request));
    IS(HAWSER_ERR_ARGUMENT, match.table->irecv(match.module, match.to, CONTEXT, TAG, bytes, 8, over, &ended, NULL));
    IS(HAWSER_ERR_ARGUMENT, match.table->iprobe(match.module, match.to, CONTEXT, TAG, NULL));
    IS(HAWSER_ERR_ABI, match.table->iprobe(match.module, match.to, CONTEXT, TAG, &small));
    IS(HAWSER_ERR_ARGUMENT, match.table->improbe(match.module, match.to, CONTEXT, TAG, NULL, &message));
    IS(HAWSER_ERR_ARGUMENT, match.table->improbe(match.module, match.to, CONTEXT, TAG, &envelope, NULL));
    IS(HAWSER_ERR_ARGUMENT, match.table->counter(match.module, NULL, &value));
    IS(HAWSER_ERR_ARGUMENT, match.table->counter(match.module, "probes", NULL));
    IS(HAWSER_ERR_NOT_FOUND, match.table->counter(match.module, "num_nothing", &value));

    /* Nothing of all this was sent or is awaited, and what is wrong about the receive of a claimed message leaves it. */
    meet();
    struct ended sent;
    send_to(match.to, CONTEXT, TAG, "word", 4, 0, &sent);
    int32_t found;
    while ((found = match.table->improbe(match.module, anybody, CONTEXT, HAWSER_ANY_TAG, &envelope, &message)) != 0) {
        IS(HAWSER_ERR_NOT_FOUND, found);
        sched_yield();
    }
    CHECK(envelope.length == 4);
    IS(HAWSER_ERR_ARGUMENT, match.table->imrecv(match.module, message, NULL, 4, over, &ended, &request));
    IS(HAWSER_ERR_ARGUMENT, match.table->imrecv(match.module, message, bytes, 4, NULL, &ended, &request));
    IS(HAWSER_ERR_ARGUMENT, match.table->imrecv(match.module, message, bytes, 4, over, &ended, NULL));
    IS(0, match.table->imrecv(match.module, message, bytes, 4, over, &ended, &request));
    RECEIVED(ended, 0, TAG, 4);
    SENT(sent);
    CHECK(memcmp(bytes, "word", 4) == 0);
    IS(0, match.table->counter(match.module, "probes", &value));
    CHECK(value >= 1);
    leave();
}

static const struct one_case cases[] = {
    {"names", case_names}, {"tables", case_tables},   {"parameters", case_parameters}, {"missing", case_missing},
    {"order", case_order}, {"handles", case_handles}, {"host", case_host},             {"values", case_values},
};

MAIN(cases)
