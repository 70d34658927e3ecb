/* The ledger: what was made and what is left when the process ends, and how often each entry was called.
 * Written to HAWSER_CUDA_LEDGER.PID where that variable is set; c-tests/cuda/ledger.sh judges the files. */
#include "standin.h"

#include <stdio.h>
#include <unistd.h>

static const char *const names[THINGS] = {
    [CONTEXTS] = "contexts",
    [PRIMARY_CONTEXTS] = "primary-contexts",
    [STREAMS] = "streams",
    [EVENTS] = "events",
    [EVENTS_OPENED] = "events-opened",
    [DEVICE_MEMORY] = "device-memory",
    [MANAGED_MEMORY] = "managed-memory",
    [HOST_MEMORY] = "host-memory",
    [REGISTRATIONS] = "registrations",
    [MEMORY_OPENED] = "memory-opened",
    [PHYSICAL_MEMORY] = "physical-memory",
    [RESERVATIONS] = "reservations",
    [MAPPINGS] = "mappings",
    [POOLS] = "pools",
    [POOL_MEMORY] = "pool-memory",
};
static struct { unsigned long made, left, most; } things[THINGS];
static struct call *calls;

void ledger_add(enum thing thing)
{
    things[thing].made++;
    if (++things[thing].left > things[thing].most) things[thing].most = things[thing].left;
}

void ledger_remove(enum thing thing)
{
    if (things[thing].left-- == 0) abort();
}

void ledger_call(struct call *call)
{
    if (!call->listed) {
        call->listed = true;
        call->next = calls;
        calls = call;
    }
    call->count++;
}

void ledger_write(void)
{
    const char *prefix = getenv("HAWSER_CUDA_LEDGER");
    if (prefix == NULL) return;
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", prefix, (int)getpid());
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        fprintf(stderr, "HAWSER_CUDA_LEDGER: cannot write %s\n", path);
        return;
    }
    for (int i = 0; i < THINGS; i++)
        fprintf(file, "thing %s made %lu most %lu left %lu\n", names[i], things[i].made, things[i].most, things[i].left);
    for (struct call *call = calls; call != NULL; call = call->next) fprintf(file, "call %s %lu\n", call->name, call->count);
    fprintf(file, "end\n");
    fclose(file);
}
