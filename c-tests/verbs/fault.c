/* Faults by order: HAWSER_VERBS_FAULTS is a list of NAME:WHICH:WHAT[@RANK], separated by commas. NAME is an entry
 * point (`ibv_reg_mr`), an event of the connection manager (`ADDR_RESOLVED`), `send-completion` or
 * `receive-completion`, what is received, a `message` or `private-data`, an `overrun`, of whose completions the one with
 * that number finds no room in its queue, or a `shared-queue`, which fails when a message is to take that buffer of it;
 * WHICH a number from 1 on, one with a `+` for that time and all later ones, or `*`; WHAT for an entry point the errno, or
 * `queues`: it goes well, and all completion queues of the process's queue pairs end when it begins; for an event `lost`, `twice`, `late` (by half a second), `doubted` (half a second later the kernel has lost the way to
 * the peer) or the errno of what comes in its place, for a completion its status, for what is received the number of a
 * byte that arrives inverted, for an overrun `lost` if that completion is all that is lost, and the device tells so, and
 * anything else if it is the end of the queue; with @RANK only in that rank of a job of Open MPI. */
#define _GNU_SOURCE
#include "standin.h"

#include <stdio.h>

struct rule {
    char name[64], what[16];
    unsigned long from, to;
};
static struct rule rules[32];
static size_t rule_count;
static bool rules_read;

static void read_rules(void)
{
    rules_read = true;
    const char *list = getenv("HAWSER_VERBS_FAULTS");
    if (list == NULL) return;
    char *copy = strdup(list), *rest = copy;
    for (char *word; copy != NULL && (word = strsep(&rest, ",")) != NULL;) {
        struct rule rule = {0};
        char which[32];
        int rank = -1;
        if (*word == 0) continue;
        if (sscanf(word, "%63[^:]:%31[^:]:%15[^@]@%d", rule.name, which, rule.what, &rank) < 3 || rule_count == 32)
            violation("HAWSER_VERBS_FAULTS: `%s` is not NAME:WHICH:WHAT[@RANK]", word);
        if (rank >= 0 && rank != (int)settings.rank) continue;
        rule.from = which[0] == '*' ? 1 : strtoul(which, NULL, 10);
        rule.to = which[0] == '*' || strchr(which, '+') != NULL ? ~0UL : rule.from;
        rules[rule_count++] = rule;
    }
    free(copy);
}

const char *fault_for(struct call *call)
{
    if (!rules_read) read_rules();
    for (size_t i = 0; i < rule_count; i++)
        if (call->count >= rules[i].from && call->count <= rules[i].to && strcmp(call->name, rules[i].name) == 0)
            return rules[i].what;
    return NULL;
}
