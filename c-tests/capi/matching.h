/* One of two processes over a matching transport, with the provider that the command line names. */
#ifndef MATCHING_H
#define MATCHING_H

#include "two.h"

enum { CONTEXT = 5, TAG = 7 };

static struct {
    const hawser_mtl_component *mtl;
    const hawser_mtl_module *table;
    hawser_mtl module;
    /* The other process. */
    hawser_endpoint to;
    hawser_mtl_limits limits;
    const char *provider;
    /* What else is set. */
    const char *name, *value;
} match;

/* Any process. */
static const hawser_endpoint anybody;

static const char *parameter(const char *name)
{
    if (match.name != NULL && strcmp(name, match.name) == 0) return match.value;
    return strcmp(name, "mtl_ofi_provider_include") == 0 ? match.provider : NULL;
}

/* Makes the other process. */
static void begin(const char *provider)
{
    fork_two(parameter);
    match.provider = provider;
    match.mtl = hawser_mtl_find("ofi");
    CHECK(match.mtl != NULL && match.mtl->abi == HAWSER_ABI && match.mtl->size >= sizeof *match.mtl);
    match.table = match.mtl->module;
    CHECK(match.table->abi == HAWSER_ABI && match.table->size >= sizeof *match.table);
    two.progress = match.mtl->progress;
}

/* Opens the component, without the other process. */
static void start(void)
{
    IS(0, match.mtl->open(&two.host));
    IS(0, match.mtl->register_parameters());
    IS(0, match.mtl->init(&match.module));
    match.limits.size = sizeof match.limits;
    IS(0, match.table->limits(match.module, &match.limits));
}

/* Meets the other process. */
static void join(void)
{
    meet();
    hawser_peer peer = {.name = pair_name(&two.pair, !me), .node = "here"};
    IS(0, match.table->add_peers(match.module, 1, &peer, &match.to));
    CHECK(match.to.id != 0);
    two.pair.progress = match.mtl->progress;
    meet();
}

/* Both leave. */
static void leave(void)
{
    meet();
    two.pair.progress = NULL;
    IS(0, match.mtl->close());
}

/* What a callback has said. */
struct ended {
    long count;
    int32_t status;
    hawser_request request;
    hawser_envelope envelope;
};

static void over(void *context, hawser_mtl module, hawser_request request, int32_t status, const hawser_envelope *envelope)
{
    struct ended *ended = context;
    CHECK(module.id == match.module.id && request.id != 0);
    ended->count++;
    ended->status = status;
    ended->request = request;
    if (envelope == NULL) return;
    CHECK(envelope->size == sizeof *envelope);
    ended->envelope = *envelope;
}

/* A receive, and its handle. */
static inline hawser_request receive(hawser_endpoint from, uint32_t context, int32_t tag, void *data, size_t length, struct ended *ended)
{
    hawser_request request = {0};
    memset(ended, 0, sizeof *ended);
    IS(0, match.table->irecv(match.module, from, context, tag, data, length, over, ended, &request));
    CHECK(request.id != 0);
    return request;
}

/* A send that is over, or owes a callback, as soon as there is room for it. */
static inline void send_to(hawser_endpoint to, uint32_t context, int32_t tag, const void *data, size_t length, uint32_t flags, struct ended *ended)
{
    hawser_request request = {1};
    int32_t code;
    memset(ended, 0, sizeof *ended);
    while ((code = match.table->isend(match.module, to, context, tag, data, length, flags, over, ended, &request)) == HAWSER_ERR_AGAIN) {
        CHECK(match.mtl->progress() >= 0);
    }
    CHECK(code == HAWSER_SUCCESS || code == HAWSER_DONE);
    CHECK((code == HAWSER_DONE) == (request.id == 0));
    ended->count += code == HAWSER_DONE;
}

/* A receive has ended so. */
#define RECEIVED(ended, code, of_tag, of_length)                                                            \
    do {                                                                                                    \
        UNTIL((ended).count == 1);                                                                          \
        IS(code, (ended).status);                                                                           \
        CHECK((ended).envelope.tag == (of_tag) && (ended).envelope.length == (of_length));                  \
        CHECK((ended).envelope.rank == !me && (ended).envelope.source.id == match.to.id);                   \
    } while (0)

/* A send has ended well. */
#define SENT(ended)            \
    do {                       \
        UNTIL((ended).count == 1); \
        IS(0, (ended).status); \
    } while (0)

#endif
