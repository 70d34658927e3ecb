/* A panic in a function of the library's own C interface: it is a code, the module answers another one from then on, what
 * it owes is told when it ends, and it can be opened again as far as it gets.
 *
 *     poisoned COMPONENT ENTRY PROVIDER
 *
 * ENTRY is the function that panics whenever it is called; `nothing`: none does. PROVIDER is libfabric's. Ends with `PASS`. */
#include <hawser/hawser.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IS(code, call)                                                                              \
    do {                                                                                            \
        int32_t is_code = (call);                                                                   \
        if (is_code != (code)) {                                                                    \
            fprintf(stderr, "%s:%d: %s is %d, not %s\n", __FILE__, __LINE__, #call, is_code, #code); \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)

static const char *entry;
static long told;
static int32_t status_told;

/* What a function returns: what it should, or that it has panicked. */
static int32_t expect(const char *name, int32_t otherwise)
{
    return strcmp(entry, name) == 0 ? HAWSER_ERR_INTERNAL : otherwise;
}

static int32_t publish(void *context, const char *key, const void *bytes, size_t length)
{
    (void)context, (void)key, (void)bytes, (void)length;
    return HAWSER_SUCCESS;
}

static int32_t lookup(void *context, const char *key, uint64_t name, void *buffer, size_t *length)
{
    (void)context, (void)key, (void)name, (void)buffer, (void)length;
    return HAWSER_ERR_NOT_FOUND;
}

static const char *parameter(void *context, const char *name)
{
    /* What has an address of the loopback interface is used where that is named. */
    if (strcmp(name, "btl_verbs_ipaddr_include") == 0) return "127.0.0.0/8";
    return strcmp(name, "mtl_ofi_provider_include") == 0 ? context : NULL;
}

static struct hawser_host host = {
    .size = sizeof host, .abi = HAWSER_ABI, .name = 7, .publish = publish, .lookup = lookup, .parameter = parameter,
};

static void matched(void *context, hawser_mtl module, hawser_request request, int32_t status, const hawser_envelope *envelope)
{
    (void)context, (void)module, (void)request, (void)envelope;
    told++;
    status_told = status;
}

enum { MATCHING = 12, BYTES = 20 };
static const char *const matching[MATCHING] = {"limits", "add_peers", "del_peers", "peer_name", "send",   "isend",
                                               "irecv",  "iprobe",    "improbe",   "imrecv",    "cancel", "counter"};
static const char *const bytes[BYTES] = {"limits",          "add_peers",      "del_peers", "peer_name",         "register_receive",
                                         "register_error",  "alloc",          "prepare_src", "free",            "send",
                                         "sendi",           "put",            "get",       "register_memory",   "register_device",
                                         "memory_key",      "deregister_memory", "flush",  "dump",              "counter"};

/* Calls the function of this number with what is none, or little. */
static int32_t match(const hawser_mtl_module *table, hawser_mtl module, int number)
{
    hawser_mtl_limits limits = {.size = sizeof limits};
    hawser_endpoint none = {0};
    hawser_request request;
    hawser_envelope envelope = {.size = sizeof envelope};
    hawser_message message = {0};
    uint64_t value;
    switch (number) {
    case 0: return table->limits(module, &limits);
    case 1: return table->add_peers(module, 0, NULL, NULL);
    case 2: return table->del_peers(module, 0, NULL);
    case 3: return table->peer_name(module, none, &value);
    case 4: return table->send(module, none, 1, 1, NULL, 0, 0);
    case 5: return table->isend(module, none, 1, 1, NULL, 0, 0, matched, NULL, &request);
    case 6: return table->irecv(module, none, 1, 1, NULL, 0, matched, NULL, &request);
    case 7: return table->iprobe(module, none, 1, 1, &envelope);
    case 8: return table->improbe(module, none, 1, 1, &envelope, &message);
    case 9: return table->imrecv(module, message, NULL, 0, matched, NULL, &request);
    case 10: return table->cancel(module, (hawser_request){0});
    default: return table->counter(module, "probes", &value);
    }
}

static int32_t carry(const hawser_btl_module *table, hawser_btl module, int number)
{
    hawser_btl_limits limits = {.size = sizeof limits};
    hawser_endpoint none = {0};
    hawser_fragment fragment = {0};
    hawser_memory memory = {0};
    static hawser_remote remote;
    void *start;
    uint64_t value;
    switch (number) {
    case 0: return table->limits(module, &limits);
    case 1: return table->add_peers(module, 0, NULL, NULL);
    case 2: return table->del_peers(module, 0, NULL);
    case 3: return table->peer_name(module, none, &value);
    case 4: return table->register_receive(module, 7, NULL, NULL);
    case 5: return table->register_error(module, NULL, NULL);
    case 6: return table->alloc(module, 8, &fragment, &start);
    case 7: return table->prepare_src(module, 8, NULL, 0, &fragment, &start);
    case 8: return table->free(module, fragment);
    case 9: return table->send(module, none, fragment, 7, 0, NULL, NULL);
    case 10: return table->sendi(module, none, 7, NULL, 0, NULL, 0);
    case 11: return table->put(module, none, NULL, 0, &remote, 0, NULL, NULL);
    case 12: return table->get(module, none, NULL, 0, &remote, 0, NULL, NULL);
    case 13: return table->register_memory(module, &value, sizeof value, HAWSER_READ, &memory);
    case 14: return table->register_device(module, none, &value, sizeof value, &memory);
    case 15: return table->memory_key(module, memory, &remote);
    case 16: return table->deregister_memory(module, memory);
    case 17: return table->flush(module, none, 0);
    case 18: return table->dump(module, none);
    default: return table->counter(module, "nothing", &value);
    }
}

/* Of both kinds of component: as far as `init`. Whether there is a module. */
static int begins(int32_t (*open)(const hawser_host *host), int32_t (*registers)(void))
{
    IS(expect("open", HAWSER_SUCCESS), open(&host));
    if (strcmp(entry, "open") == 0) return 0;
    IS(expect("register_parameters", HAWSER_SUCCESS), registers());
    return 1;
}

/* The function that panics, once, and then all: POISONED. `progress` is one, too, of so many modules. */
#define POISONS(names, count, call, progress, modules)                               \
    do {                                                                             \
        int poisoned = strcmp(entry, "progress") == 0;                               \
        for (size_t at = 0; poisoned && at < (modules); at++) IS(HAWSER_ERR_INTERNAL, progress()); \
        for (int at = 0; at < (count); at++) {                                       \
            if (strcmp(entry, (names)[at]) != 0) continue;                           \
            IS(HAWSER_ERR_INTERNAL, call(table, module, at));                        \
            poisoned = 1;                                                            \
        }                                                                            \
        for (int at = 0; poisoned && at < (count); at++) IS(HAWSER_ERR_POISONED, call(table, module, at)); \
        if (poisoned) IS(HAWSER_ERR_POISONED, progress());                           \
    } while (0)

static void run_matching(const hawser_mtl_component *mtl)
{
    const hawser_mtl_module *table = mtl->module;
    hawser_mtl module = {0};
    hawser_request request;
    long owed = 0;
    if (!begins(mtl->open, mtl->register_parameters)) return;
    int broken = strcmp(entry, "register_parameters") == 0;
    IS(broken ? HAWSER_ERR_POISONED : expect("init", HAWSER_SUCCESS), mtl->init(&module));
    if (broken || strcmp(entry, "init") == 0) {
        IS(HAWSER_ERR_POISONED, mtl->progress());
        IS(HAWSER_ERR_STALE, match(table, module, 0));
        IS(HAWSER_SUCCESS, mtl->close());
        return;
    }
    if (strcmp(entry, "irecv") != 0) {
        IS(HAWSER_SUCCESS, table->irecv(module, (hawser_endpoint){0}, 1, 1, NULL, 0, matched, NULL, &request));
        owed++;
    }
    POISONS(matching, MATCHING, match, mtl->progress, 1);
    IS(expect("close", HAWSER_SUCCESS), strcmp(entry, "close") == 0 ? mtl->close() : HAWSER_SUCCESS);
    IS(expect("finalize", HAWSER_SUCCESS), table->finalize(module));
    IS(HAWSER_ERR_STALE, table->finalize(module));
    if (told != owed || (owed != 0 && status_told != HAWSER_ERR_CLOSED)) {
        fprintf(stderr, "%ld callbacks of %ld, with %d\n", told, owed, status_told);
        exit(1);
    }
    IS(expect("close", HAWSER_SUCCESS), mtl->close());
}

static void run_bytes(const hawser_btl_component *btl)
{
    const hawser_btl_module *table = btl->module;
    hawser_btl module = {0};
    size_t count;
    if (!begins(btl->open, btl->register_parameters)) return;
    int broken = strcmp(entry, "register_parameters") == 0;
    IS(broken ? HAWSER_ERR_POISONED : expect("init", HAWSER_SUCCESS), btl->init(&count));
    if (broken || strcmp(entry, "init") == 0) {
        IS(HAWSER_ERR_POISONED, btl->progress());
        IS(HAWSER_ERR_STALE, carry(table, module, 0));
        IS(HAWSER_SUCCESS, btl->close());
        return;
    }
    IS(expect("module_at", HAWSER_SUCCESS), btl->module_at(0, &module));
    if (strcmp(entry, "module_at") != 0) {
        POISONS(bytes, BYTES, carry, btl->progress, count);
        for (size_t at = 0; at < count; at++) {
            IS(HAWSER_SUCCESS, btl->module_at(at, &module));
            IS(expect("finalize", HAWSER_SUCCESS), table->finalize(module));
            IS(HAWSER_ERR_STALE, table->finalize(module));
        }
    }
    IS(expect("close", HAWSER_SUCCESS), btl->close());
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    entry = argv[2];
    host.context = argv[3];
    const hawser_mtl_component *mtl = hawser_mtl_find(argv[1]);
    const hawser_btl_component *btl = hawser_btl_find(argv[1]);
    if (mtl == NULL && btl == NULL) return 2;
    /* Two lives, where nothing ends for good. */
    for (int life = 0; life < 2; life++) {
        told = 0;
        if (mtl != NULL) run_matching(mtl);
        else run_bytes(btl);
        if (strcmp(entry, "open") == 0 || strcmp(entry, "close") == 0) break;
    }
    puts("PASS");
    return 0;
}
