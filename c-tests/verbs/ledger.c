/* The ledger: what was made and what is left when the process ends, how often each entry was called and each event
 * came, and what happened on the wires. Written to HAWSER_VERBS_LEDGER.PID where that variable is set;
 * `verbs_ledger` of c-tests/verbs/build.sh judges the files. */
#include "standin.h"

#include <stdio.h>
#include <unistd.h>

static const char *const names[THINGS] = {
    [DEVICE_LISTS] = "device-lists",
    [CONTEXTS] = "contexts",
    [PDS] = "protection-domains",
    [MRS] = "memory-regions",
    [CQS] = "completion-queues",
    [SRQS] = "shared-receive-queues",
    [QPS] = "queue-pairs",
    [COMPLETION_CHANNELS] = "completion-channels",
    [EVENT_CHANNELS] = "event-channels",
    [IDS] = "ids",
    [CM_EVENTS] = "events-not-acknowledged",
    [ASYNC_EVENTS] = "asynchronous-events-not-acknowledged",
    [COMPLETION_EVENTS] = "completion-events-not-acknowledged",
};
static const char *const tally_names[TALLIES] = {
    [RNR_NAKS] = "receiver-not-ready",
    [RESENT] = "sent-again",
    [DROPPED] = "dropped",
    [NAKS] = "refused-requests",
    [TERMINATED] = "terminated",
    [CQ_OVERRUNS] = "completion-queue-overruns",
    [SPOKE_FIRST] = "responder-spoke-first",
    [FLUSHED] = "flushed",
    [PATIENT] = "with-the-managers-time",
    [SLOW] = "with-the-managers-receiver-timer",
    [UNTOLD] = "sent-out-of-memory-untold",
};
static struct { unsigned long made, left, most; } things[THINGS];
static unsigned long tallies[TALLIES];
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

void ledger_tally(enum tally tally) { tallies[tally]++; }

void ledger_write(void)
{
    const char *prefix = getenv("HAWSER_VERBS_LEDGER");
    /* A process that has only loaded the library has no ledger. */
    if (prefix == NULL || calls == NULL) return;
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", prefix, (int)getpid());
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        fprintf(stderr, "HAWSER_VERBS_LEDGER: cannot write %s\n", path);
        return;
    }
    for (int i = 0; i < THINGS; i++)
        fprintf(file, "thing %s made %lu most %lu left %lu\n", names[i], things[i].made, things[i].most, things[i].left);
    for (int i = 0; i < TALLIES; i++) fprintf(file, "tally %s %lu\n", tally_names[i], tallies[i]);
    for (struct call *call = calls; call != NULL; call = call->next) fprintf(file, "call %s %lu\n", call->name, call->count);
    fprintf(file, "end\n");
    fclose(file);
}
