/* Every function of the C interface with what it must not be given: a code comes back, and nothing else happens.
 *
 *     argument TRANSPORT CASE
 */
#include "side.h"

enum { TAG = 7 };

static long received, ended;

static void ignore(void *context, hawser_btl module, hawser_endpoint from, uint8_t tag, const void *bytes, size_t length)
{
    (void)context, (void)module, (void)from, (void)tag, (void)bytes, (void)length;
    received++;
}

static void over(void *context, hawser_btl module, hawser_endpoint to, int32_t status)
{
    (void)context, (void)module, (void)to, (void)status;
    ended++;
}

/* Without the other process. */
static void case_names(void)
{
    CHECK(hawser_btl_find(NULL) == NULL && hawser_btl_find("") == NULL && hawser_btl_find("tcp") == NULL);
    size_t count = 0;
    while (hawser_btl_list(count) != NULL) {
        const hawser_btl_component *one = hawser_btl_list(count++);
        CHECK(hawser_btl_find(one->name) == one && one->abi == HAWSER_ABI);
    }
    CHECK(count >= 2 && hawser_btl_list(count + 1) == NULL && hawser_btl_list(SIZE_MAX) == NULL);
    CHECK(strcmp(hawser_strerror(HAWSER_SUCCESS), "success") == 0);
    for (int32_t code = -22; code <= 1; code++) {
        CHECK(strcmp(hawser_strerror(code), hawser_strerror(12345)) != 0);
        for (int32_t before = -22; before < code; before++) CHECK(strcmp(hawser_strerror(code), hawser_strerror(before)) != 0);
    }
    CHECK(strcmp(hawser_strerror(INT32_MIN), hawser_strerror(INT32_MAX)) == 0);
    CHECK(strlen(hawser_version()) > 0 && strlen(hawser_refusal()) == 0);
}

static void case_tables(void)
{
    refuse_tables(side.btl->open, side.btl->close);
}

static const char *given_name, *given_value;
static long declared;

static const char *give(const char *name)
{
    return given_name != NULL && strcmp(name, given_name) == 0 ? given_value : parameter(name);
}

static void declare(void *context, const hawser_parameter *one)
{
    CHECK(context == &two.pair && one->size == sizeof *one && one->kind <= HAWSER_KIND_BOOL);
    CHECK(strncmp(one->name, "btl_", 4) == 0 && strlen(one->help) > 0 && one->level >= 1 && one->level <= 9);
    CHECK(one->kind == HAWSER_KIND_TEXT || one->default_value != NULL);
    declared++;
}

/* Values that no parameter may have. */
static void case_parameters(void)
{
    char name[64];
    size_t count;
    two.pair.parameter = give;
    two.host.declare = declare;
    snprintf(name, sizeof name, "btl_%s_eager_limit", side.btl->name);
    given_name = name;
    IS(0, side.btl->open(&two.host));
    static const char *const none[] = {"", "many", "12kb", "08", "99999999999", "0x", "1 2", "1\n2"};
    for (size_t at = 0; at < sizeof none / sizeof *none; at++) {
        long before = two.logged;
        given_value = none[at];
        IS(HAWSER_ERR_PARAMETER, side.btl->register_parameters());
        CHECK(two.logged == before + 1);
        IS(HAWSER_ERR_STATE, side.btl->init(&count));
    }
    /* A number, but none of those that it may be: the transport sees it. */
    given_value = "-5";
    IS(0, side.btl->register_parameters());
    IS(HAWSER_ERR_NOT_AVAILABLE, side.btl->init(&count));
    given_value = "0x2000";
    IS(0, side.btl->register_parameters());
    IS(0, side.btl->init(&count));
    CHECK(declared > 20);
    IS(0, side.btl->module_at(0, &side.module));
    side.limits.size = sizeof side.limits;
    IS(0, side.table->limits(side.module, &side.limits));
    CHECK(side.limits.eager == 0x2000);
    IS(0, side.btl->close());
    /* All are defaults again where nothing is said. */
    two.host.parameter = NULL, two.host.log = NULL, two.host.node = "a node";
    IS(0, side.btl->open(&two.host));
    IS(0, side.btl->register_parameters());
    IS(0, side.btl->close());
    meet();
}

/* Functions out of their order. */
static void case_order(void)
{
    size_t count;
    hawser_btl module = {0};
    IS(HAWSER_ERR_STATE, side.btl->register_parameters());
    IS(HAWSER_ERR_STATE, side.btl->init(&count));
    IS(HAWSER_ERR_STATE, side.btl->module_at(0, &module));
    IS(HAWSER_ERR_STATE, side.btl->progress());
    IS(HAWSER_ERR_STATE, side.btl->close());
    IS(0, side.btl->open(&two.host));
    IS(HAWSER_ERR_STATE, side.btl->open(&two.host));
    IS(HAWSER_ERR_STATE, side.btl->init(&count));
    IS(HAWSER_ERR_STATE, side.btl->progress());
    IS(0, side.btl->register_parameters());
    IS(0, side.btl->register_parameters());
    IS(HAWSER_ERR_ARGUMENT, side.btl->init(NULL));
    IS(0, side.btl->init(&count));
    IS(HAWSER_ERR_STATE, side.btl->init(&count));
    IS(HAWSER_ERR_STATE, side.btl->register_parameters());
    IS(HAWSER_ERR_STATE, side.btl->open(&two.host));
    IS(HAWSER_ERR_ARGUMENT, side.btl->module_at(0, NULL));
    IS(HAWSER_ERR_NOT_FOUND, side.btl->module_at(count, &module));
    IS(HAWSER_ERR_NOT_FOUND, side.btl->module_at(SIZE_MAX, &module));
    CHECK(side.btl->progress() >= 0);
    IS(0, side.btl->close());
    IS(HAWSER_ERR_STATE, side.btl->close());
    IS(HAWSER_ERR_STATE, side.btl->progress());
    /* What the other one has published goes nowhere when this one has ended. */
    meet();
}

static int calls;

/* What the caller's own functions may call: nothing that the component is in. */
static int32_t publish_and_call(void *context, const char *key, const void *bytes, size_t length)
{
    size_t count;
    hawser_btl module;
    calls++;
    IS(HAWSER_ERR_BUSY, side.btl->open(&two.host));
    IS(HAWSER_ERR_BUSY, side.btl->register_parameters());
    IS(HAWSER_ERR_BUSY, side.btl->init(&count));
    IS(HAWSER_ERR_BUSY, side.btl->module_at(0, &module));
    IS(HAWSER_ERR_BUSY, side.btl->progress());
    IS(HAWSER_ERR_BUSY, side.btl->close());
    return pair_publish(context, key, bytes, length);
}

static int32_t lookup_and_call(void *context, const char *key, uint64_t name, void *buffer, size_t *length)
{
    calls++;
    IS(HAWSER_ERR_BUSY, side.table->finalize(side.module));
    IS(HAWSER_ERR_BUSY, side.btl->close());
    CHECK(side.btl->progress() >= 0);
    return pair_lookup(context, key, name, buffer, length);
}

static int32_t publish_nothing(void *context, const char *key, const void *bytes, size_t length)
{
    (void)context, (void)key, (void)bytes, (void)length;
    return HAWSER_ERR_HOST;
}

/* A caller whose functions lie. */
static int lie;

static int32_t lookup_lies(void *context, const char *key, uint64_t name, void *buffer, size_t *length)
{
    size_t room = *length;
    int32_t code = HAWSER_SUCCESS;
    calls++;
    switch (lie) {
    case 0: *length = room + 1; break;
    case 1: *length = SIZE_MAX; return HAWSER_ERR_TOO_LONG;
    case 2: *length = 0; return HAWSER_ERR_TOO_LONG;
    case 3: memset(buffer, 0xA5, room); break;
    case 4: *length = 0; break;
    case 5: return 77;
    default:
        /* Less room than is needed, first. */
        if (room < 100000) {
            *length = 100000;
            return HAWSER_ERR_TOO_LONG;
        }
        code = pair_lookup(context, key, name, buffer, length);
    }
    return code;
}

static void case_host(void)
{
    size_t count;
    two.host.publish = publish_nothing;
    IS(0, side.btl->open(&two.host));
    IS(0, side.btl->register_parameters());
    IS(HAWSER_ERR_NOT_AVAILABLE, side.btl->init(&count));
    IS(HAWSER_ERR_NOT_AVAILABLE, side.btl->init(&count));
    IS(0, side.btl->close());
    two.host.publish = publish_and_call, two.host.lookup = lookup_and_call;
    start();
    join();
    CHECK(calls >= 2);
    leave();
    two.host.publish = pair_publish, two.host.lookup = lookup_lies;
    start();
    meet();
    hawser_peer peer = {.name = pair_name(&two.pair, !me), .node = NULL};
    for (lie = 0; lie < 6; lie++) {
        hawser_endpoint to = {1};
        IS(0, side.table->add_peers(side.module, 1, &peer, &to));
        CHECK(to.id == 0);
    }
    IS(0, side.table->add_peers(side.module, 1, &peer, &side.to));
    CHECK(side.to.id != 0);
    leave();
}

/* Calls all functions with a handle of a module that is none. */
static void try_module(int32_t code, hawser_btl module)
{
    hawser_btl_limits limits = {.size = sizeof limits};
    hawser_peer peer = {0};
    hawser_endpoint endpoint = side.to;
    hawser_fragment fragment = {0};
    hawser_memory memory = {0};
    static hawser_remote remote;
    void *start_of = NULL;
    uint64_t value;
    char byte = 0;
    IS(code, side.table->limits(module, &limits));
    IS(code, side.table->add_peers(module, 1, &peer, &endpoint));
    IS(code, side.table->del_peers(module, 1, &endpoint));
    IS(code, side.table->peer_name(module, endpoint, &value));
    IS(code, side.table->register_receive(module, TAG, ignore, NULL));
    IS(code, side.table->register_error(module, NULL, NULL));
    IS(code, side.table->alloc(module, 1, &fragment, &start_of));
    IS(code, side.table->prepare_src(module, 1, &byte, 1, &fragment, &start_of));
    IS(code, side.table->free(module, fragment));
    IS(code, side.table->send(module, endpoint, fragment, TAG, 0, NULL, NULL));
    IS(code, side.table->sendi(module, endpoint, TAG, &byte, 1, &byte, 1));
    IS(code, side.table->put(module, endpoint, &byte, 1, &remote, 0, NULL, NULL));
    IS(code, side.table->get(module, endpoint, &byte, 1, &remote, 0, NULL, NULL));
    IS(code, side.table->register_memory(module, &byte, 1, HAWSER_READ, &memory));
    IS(code, side.table->register_device(module, endpoint, &byte, 1, &memory));
    IS(code, side.table->memory_key(module, memory, &remote));
    IS(code, side.table->deregister_memory(module, memory));
    IS(code, side.table->flush(module, endpoint, 0));
    IS(code, side.table->dump(module, endpoint));
    IS(code, side.table->counter(module, "num_sends", &value));
    IS(code, side.table->finalize(module));
    CHECK(start_of == NULL && fragment.id == 0 && memory.id == 0);
}

static void case_handles(void)
{
    size_t count;
    start();
    join();
    hawser_btl stale = side.module;
    static const uint64_t invented[] = {0, 1, 8, 0xFFFFFFFF, UINT64_MAX, 0xDEADBEEFDEADBEEF, 1ULL << 32, 1ULL << 63};
    for (size_t at = 0; at < sizeof invented / sizeof *invented; at++) try_module(HAWSER_ERR_STALE, (hawser_btl){invented[at]});
    for (int bit = 0; bit < 64; bit++) {
        hawser_btl near = {side.module.id ^ 1ULL << bit};
        int known = 0;
        for (size_t at = 0; at < side.count; at++) known |= near.id == side.modules[at].id;
        if (!known) try_module(HAWSER_ERR_STALE, near);
    }
    /* Handles of another kind, and of another transport. */
    try_module(HAWSER_ERR_STALE, (hawser_btl){side.to.id});
    struct hawser_host host = two.host;
    static struct pair nobody;
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    nobody.rank = me, nobody.wire = ends[0], nobody.parameter = parameter;
    host.context = &nobody, host.log = NULL;
    const hawser_btl_component *other = hawser_btl_find(strcmp(side.btl->name, "smcuda") == 0 ? "usnic" : "smcuda");
    IS(0, other->open(&host));
    IS(0, other->register_parameters());
    IS(0, other->init(&count));
    hawser_btl theirs;
    IS(0, other->module_at(0, &theirs));
    CHECK(theirs.id != side.module.id);
    try_module(HAWSER_ERR_STALE, theirs);
    hawser_fragment fragment, mine;
    void *memory;
    IS(0, other->module->alloc(theirs, 8, &fragment, &memory));
    IS(0, side.table->alloc(side.module, 8, &mine, &memory));
    memset(memory, 0, 8);
    IS(HAWSER_ERR_STALE, side.table->free(side.module, fragment));
    IS(HAWSER_ERR_STALE, side.table->send(side.module, side.to, fragment, TAG, 0, NULL, NULL));
    IS(0, other->close());
    close(ends[0]), close(ends[1]);

    /* Endpoints, fragments and memory that are none. */
    uint64_t name;
    IS(0, side.table->peer_name(side.module, side.to, &name));
    CHECK(name == pair_name(&two.pair, !me));
    char byte = 0;
    static hawser_remote remote;
    for (size_t at = 0; at < 2 * sizeof invented / sizeof *invented; at++) {
        uint64_t id = at % 2 ? invented[at / 2] : side.module.id + invented[at / 2];
        hawser_endpoint to = {id};
        hawser_memory none = {id};
        IS(HAWSER_ERR_STALE, side.table->peer_name(side.module, to, &name));
        IS(id == 0 ? 0 : HAWSER_ERR_STALE, side.table->del_peers(side.module, 1, &to));
        IS(HAWSER_ERR_STALE, side.table->send(side.module, to, mine, TAG, 0, NULL, NULL));
        IS(HAWSER_ERR_STALE, side.table->sendi(side.module, to, TAG, &byte, 1, NULL, 0));
        IS(HAWSER_ERR_STALE, side.table->put(side.module, to, &byte, 1, &remote, 0, NULL, NULL));
        IS(HAWSER_ERR_STALE, side.table->get(side.module, to, &byte, 1, &remote, 0, NULL, NULL));
        IS(HAWSER_ERR_STALE, side.table->register_device(side.module, to, &byte, 1, &none));
        IS(id == 0 ? 0 : HAWSER_ERR_STALE, side.table->flush(side.module, to, 0));
        IS(id == 0 ? 0 : HAWSER_ERR_STALE, side.table->dump(side.module, to));
        IS(HAWSER_ERR_STALE, side.table->free(side.module, (hawser_fragment){id}));
        IS(HAWSER_ERR_STALE, side.table->memory_key(side.module, none, &remote));
        IS(HAWSER_ERR_STALE, side.table->deregister_memory(side.module, none));
    }
    IS(HAWSER_ERR_STALE, side.table->free(side.module, (hawser_fragment){side.to.id}));
    IS(0, side.table->free(side.module, mine));
    IS(HAWSER_ERR_STALE, side.table->free(side.module, mine));
    IS(HAWSER_ERR_STALE, side.table->send(side.module, side.to, mine, TAG, 0, NULL, NULL));
    leave();
    try_module(HAWSER_ERR_STALE, stale);
}

static void case_values(void)
{
    start();
    IS(0, side.table->register_receive(side.module, TAG, ignore, NULL));
    join();
    char bytes[16] = {0};
    uint64_t value;
    size_t most = side.limits.max_send;
    hawser_fragment fragment;
    hawser_memory memory;
    static hawser_remote remote;
    void *start_of;

    hawser_btl_limits limits = {.size = sizeof limits - 1};
    IS(HAWSER_ERR_ARGUMENT, side.table->limits(side.module, NULL));
    IS(HAWSER_ERR_ARGUMENT, side.table->limits(side.module, (hawser_btl_limits *)((char *)&limits + 1)));
    IS(HAWSER_ERR_ABI, side.table->limits(side.module, &limits));
    limits.size = sizeof limits;
    IS(0, side.table->limits(side.module, &limits));
    CHECK(limits.eager > 0 && limits.max_send >= limits.eager && strlen(limits.device) > 0);
    CHECK((limits.flags & HAWSER_CAN_SEND) != 0);

    /* The second is the name of neither, whichever process ids they have. */
    hawser_peer peers[3] = {{.name = pair_name(&two.pair, me)}, {.name = pair_name(&two.pair, 2)}, {.name = pair_name(&two.pair, !me)}};
    hawser_endpoint endpoints[3] = {{1}, {2}, {3}};
    IS(HAWSER_ERR_ARGUMENT, side.table->add_peers(side.module, 1, NULL, endpoints));
    IS(HAWSER_ERR_ARGUMENT, side.table->add_peers(side.module, 1, peers, NULL));
    IS(HAWSER_ERR_ARGUMENT, side.table->add_peers(side.module, SIZE_MAX, peers, endpoints));
    IS(HAWSER_ERR_ARGUMENT, side.table->add_peers(side.module, 1, (hawser_peer *)((char *)peers + 1), endpoints));
    IS(0, side.table->add_peers(side.module, 0, NULL, NULL));
    CHECK(endpoints[0].id == 1);
    /* Itself, nobody, and who is known already. */
    IS(0, side.table->add_peers(side.module, 3, peers, endpoints));
    CHECK(endpoints[0].id == 0);
    CHECK(endpoints[1].id == 0);
    CHECK(endpoints[2].id != 0);
    CHECK(endpoints[2].id == side.to.id);
    IS(HAWSER_ERR_ARGUMENT, side.table->del_peers(side.module, 1, NULL));
    IS(HAWSER_ERR_ARGUMENT, side.table->del_peers(side.module, SIZE_MAX, endpoints));
    IS(0, side.table->del_peers(side.module, 2, endpoints));
    /* One that is stale, and nothing happens to the others. */
    endpoints[1].id = 99;
    IS(HAWSER_ERR_STALE, side.table->del_peers(side.module, 3, endpoints));
    IS(0, side.table->peer_name(side.module, side.to, &value));
    IS(HAWSER_ERR_ARGUMENT, side.table->peer_name(side.module, side.to, NULL));

    static const uint8_t reserved[] = {0x22, 0xFF};
    for (size_t at = 0; at < 2; at++) {
        IS(HAWSER_ERR_ARGUMENT, side.table->register_receive(side.module, reserved[at], ignore, NULL));
        IS(HAWSER_ERR_ARGUMENT, side.table->sendi(side.module, side.to, reserved[at], bytes, 1, NULL, 0));
        IS(0, side.table->alloc(side.module, 1, &fragment, &start_of));
        IS(HAWSER_ERR_ARGUMENT, side.table->send(side.module, side.to, fragment, reserved[at], 0, NULL, NULL));
        IS(0, side.table->free(side.module, fragment));
    }
    IS(0, side.table->register_receive(side.module, 0, NULL, NULL));
    IS(0, side.table->register_error(side.module, NULL, NULL));

    IS(HAWSER_ERR_ARGUMENT, side.table->alloc(side.module, 1, NULL, &start_of));
    IS(HAWSER_ERR_ARGUMENT, side.table->alloc(side.module, 1, &fragment, NULL));
    IS(HAWSER_ERR_TOO_LONG, side.table->alloc(side.module, most + 1, &fragment, &start_of));
    IS(HAWSER_ERR_TOO_LONG, side.table->alloc(side.module, SIZE_MAX, &fragment, &start_of));
    IS(HAWSER_ERR_ARGUMENT, side.table->prepare_src(side.module, 1, NULL, 1, &fragment, &start_of));
    IS(HAWSER_ERR_ARGUMENT, side.table->prepare_src(side.module, 1, bytes, 1, NULL, &start_of));
    IS(HAWSER_ERR_ARGUMENT, side.table->prepare_src(side.module, 1, bytes, 1, &fragment, NULL));
    IS(HAWSER_ERR_ARGUMENT, side.table->prepare_src(side.module, 1, bytes, SIZE_MAX, &fragment, &start_of));
    IS(HAWSER_ERR_TOO_LONG, side.table->prepare_src(side.module, most, bytes, 1, &fragment, &start_of));
    IS(HAWSER_ERR_TOO_LONG, side.table->prepare_src(side.module, SIZE_MAX, bytes, 1, &fragment, &start_of));

    IS(0, side.table->alloc(side.module, 1, &fragment, &start_of));
    memset(start_of, 0, 1);
    IS(HAWSER_ERR_ARGUMENT, side.table->send(side.module, side.to, fragment, TAG, 4, over, NULL));
    IS(HAWSER_ERR_ARGUMENT, side.table->send(side.module, side.to, fragment, TAG, UINT32_MAX, over, NULL));
    IS(HAWSER_ERR_ARGUMENT, side.table->send(side.module, side.to, fragment, TAG, HAWSER_AWAITED, NULL, NULL));
    /* It is still ours. */
    IS(0, side.table->send(side.module, side.to, fragment, TAG, HAWSER_AWAITED, over, NULL));
    IS(HAWSER_ERR_STALE, side.table->send(side.module, side.to, fragment, TAG, HAWSER_AWAITED, over, NULL));
    UNTIL(ended == 1 && received == 1);

    IS(HAWSER_ERR_ARGUMENT, side.table->sendi(side.module, side.to, TAG, NULL, 1, NULL, 0));
    IS(HAWSER_ERR_ARGUMENT, side.table->sendi(side.module, side.to, TAG, NULL, 0, NULL, 1));
    IS(HAWSER_ERR_TOO_LONG, side.table->sendi(side.module, side.to, TAG, bytes, most, bytes, 1));
    IS(HAWSER_ERR_ARGUMENT, side.table->sendi(side.module, side.to, TAG, bytes, SIZE_MAX, bytes, SIZE_MAX));

    IS(HAWSER_ERR_ARGUMENT, side.table->register_memory(side.module, NULL, 1, HAWSER_READ, &memory));
    IS(HAWSER_ERR_ARGUMENT, side.table->register_memory(side.module, bytes, 1, HAWSER_READ, NULL));
    IS(HAWSER_ERR_ARGUMENT, side.table->register_memory(side.module, bytes, 1, 0, &memory));
    IS(HAWSER_ERR_ARGUMENT, side.table->register_memory(side.module, bytes, 1, 4, &memory));
    IS(HAWSER_ERR_ARGUMENT, side.table->register_memory(side.module, bytes, SIZE_MAX, HAWSER_READ, &memory));
    IS(HAWSER_ERR_UNSUPPORTED, side.table->register_device(side.module, side.to, bytes, sizeof bytes, &memory));
    IS(HAWSER_ERR_ARGUMENT, side.table->register_device(side.module, side.to, NULL, 1, &memory));
    IS(0, side.table->register_memory(side.module, bytes, sizeof bytes, HAWSER_READ, &memory));
    IS(HAWSER_ERR_ARGUMENT, side.table->memory_key(side.module, memory, NULL));
    IS(0, side.table->memory_key(side.module, memory, &remote));
    IS(0, side.table->deregister_memory(side.module, memory));
    static const hawser_remote nothing;
    IS(HAWSER_ERR_ARGUMENT, side.table->get(side.module, side.to, bytes, 1, &nothing, 0, over, NULL));
    IS(HAWSER_ERR_ARGUMENT, side.table->put(side.module, side.to, bytes, 1, &nothing, 0, over, NULL));

    IS(HAWSER_ERR_ARGUMENT, side.table->counter(side.module, NULL, &value));
    IS(HAWSER_ERR_ARGUMENT, side.table->counter(side.module, "num_sends", NULL));
    IS(HAWSER_ERR_NOT_FOUND, side.table->counter(side.module, "num_nothing", &value));
    const char *sends = strcmp(side.btl->name, "usnic") == 0 ? "pml_module_sends" : "num_sends";
    IS(0, side.table->counter(side.module, sends, &value));
    CHECK(value >= 1);
    long before = two.logged;
    IS(0, side.table->dump(side.module, (hawser_endpoint){0}));
    IS(0, side.table->dump(side.module, side.to));
    CHECK(two.logged > before + 2);
    CHECK(ended == 1);
    leave();
}

static const struct one_case cases[] = {
    {"names", case_names}, {"tables", case_tables},   {"parameters", case_parameters}, {"order", case_order},
    {"host", case_host},   {"handles", case_handles}, {"values", case_values},
};

MAIN(cases)
