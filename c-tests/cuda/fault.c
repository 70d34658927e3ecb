/* Faults by order: HAWSER_CUDA_FAULTS is a list of NAME:WHICH:ERROR[@RANK], separated by commas. NAME is an
 * entry point, with or without its suffix, or `work` for what a stream runs; WHICH a number from 1 on, one with
 * a `+` for that call and all later ones, or `*`; ERROR the driver's number; with @RANK only in that rank of a
 * job of Open MPI. */
#include "standin.h"

#include <stdio.h>

struct rule {
    char name[64];
    unsigned long from, to;
    int error;
};
static struct rule rules[32];
static size_t rule_count;
static bool rules_read;

static void read_rules(void)
{
    rules_read = true;
    const char *list = getenv("HAWSER_CUDA_FAULTS");
    if (list == NULL) return;
    char *copy = strdup(list), *rest = copy;
    for (char *word; copy != NULL && (word = strsep(&rest, ",")) != NULL;) {
        struct rule rule = {0};
        char which[32];
        int rank = -1;
        if (*word == 0) continue;
        if (sscanf(word, "%63[^:]:%31[^:]:%d@%d", rule.name, which, &rule.error, &rank) < 3 || rule_count == 32) {
            fprintf(stderr, "HAWSER_CUDA_FAULTS: `%s` is not NAME:WHICH:ERROR[@RANK]\n", word);
            abort();
        }
        if (rank >= 0 && rank != job_rank()) continue;
        rule.from = which[0] == '*' ? 1 : strtoul(which, NULL, 10);
        rule.to = which[0] == '*' || strchr(which, '+') != NULL ? ~0UL : rule.from;
        rules[rule_count++] = rule;
    }
    free(copy);
}

static bool same(const char *name, const char *wanted)
{
    size_t length = strlen(wanted);
    return strncmp(name, wanted, length) == 0 && (name[length] == 0 || (strncmp(name + length, "_v", 2) == 0 && strlen(name + length) == 3));
}

/* The error that this call shall return, which is its `count`th. */
CUresult fault_for(struct call *call)
{
    if (!rules_read) read_rules();
    for (size_t i = 0; i < rule_count; i++)
        if (call->count >= rules[i].from && call->count <= rules[i].to && same(call->name, rules[i].name)) return (CUresult)rules[i].error;
    return CUDA_SUCCESS;
}
