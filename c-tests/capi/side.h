/* One of two processes over a byte transport. */
#ifndef SIDE_H
#define SIDE_H

#include "two.h"

enum { MODULES = 32 };

static struct {
    const hawser_btl_component *btl;
    const hawser_btl_module *table;
    hawser_btl modules[MODULES];
    size_t count;
    /* Where messages to the other process go. */
    hawser_btl module;
    hawser_endpoint to;
    hawser_btl_limits limits;
} side;

/* Both processes are on this node. */
static const char *parameter(const char *name)
{
    if (strcmp(name, "btl_verbs_ipaddr_include") == 0) return "127.0.0.0/8";
    if (strcmp(name, "btl_verbs_receive_queues") == 0) return getenv("QUEUES");
    return strcmp(name, "btl_usnic_if_include") == 0 ? "lo" : NULL;
}

/* Makes the other process. */
static void begin(const char *transport)
{
    fork_two(parameter);
    side.btl = hawser_btl_find(transport);
    CHECK(side.btl != NULL && side.btl->abi == HAWSER_ABI && side.btl->size >= sizeof *side.btl);
    side.table = side.btl->module;
    CHECK(side.table->abi == HAWSER_ABI && side.table->size >= sizeof *side.table);
    two.progress = side.btl->progress;
}

/* Opens the component, without the other process. */
static void start(void)
{
    IS(0, side.btl->open(&two.host));
    IS(0, side.btl->register_parameters());
    IS(0, side.btl->init(&side.count));
    CHECK(side.count >= 1 && side.count <= MODULES);
    for (size_t at = 0; at < side.count; at++) IS(0, side.btl->module_at(at, &side.modules[at]));
    side.module = side.modules[0];
    side.limits.size = sizeof side.limits;
    IS(0, side.table->limits(side.module, &side.limits));
}

/* Meets the other process, through the first module, which both have. */
static void join(void)
{
    meet();
    hawser_peer peer = {.name = pair_name(&two.pair, !me), .node = "here"};
    IS(0, side.table->add_peers(side.module, 1, &peer, &side.to));
    CHECK(side.to.id != 0);
    two.pair.progress = side.btl->progress;
    meet();
}

/* Both leave. */
static void leave(void)
{
    meet();
    two.pair.progress = NULL;
    IS(0, side.btl->close());
}

#endif
