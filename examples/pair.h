/* Two processes and what hawser needs of their caller: struct hawser_host over a pair of sockets.
 *
 * `pair_fork` makes the second process, `pair_host` fills in the table, and `pair_swap` gives each the other's
 * bytes, which is a barrier, too: what one has published before it, the other can look up behind it. */
#ifndef PAIR_H
#define PAIR_H

#include <hawser/hawser.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

/* What travels between the two: a key, and so many bytes behind it. */
struct pair_head {
    char key[56];
    uint64_t length;
};

struct pair_record {
    struct pair_head head;
    unsigned char bytes[4096];
};

struct pair {
    int rank;     /* 0: the parent; 1: the child */
    pid_t child;  /* the parent knows it */
    int wire;
    int known;    /* records of the other process */
    struct pair_record records[4];
    const char *(*parameter)(const char *name); /* NULL: defaults */
    int32_t (*progress)(void); /* not NULL: called while the other process is waited for, which may need it */
};

/* The job has a number of its own, so that several can run beside each other. */
static inline uint64_t pair_name(const struct pair *pair, int rank)
{
    uint64_t job = (uint64_t)(pair->rank == 0 ? getpid() : getppid());
    return (uint64_t)rank << 32 | job;
}

static inline int pair_write(int wire, const void *bytes, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t part = send(wire, (const char *)bytes + done, length - done, MSG_NOSIGNAL);
        if (part <= 0) return -1;
        done += (size_t)part;
    }
    return 0;
}

static inline int pair_read(struct pair *pair, void *bytes, size_t length)
{
    for (size_t done = 0; done < length;) {
        struct pollfd poll_for = {.fd = pair->wire, .events = POLLIN};
        while (pair->progress != NULL && poll(&poll_for, 1, 0) == 0) pair->progress();
        ssize_t part = read(pair->wire, (char *)bytes + done, length - done);
        if (part <= 0) return -1;
        done += (size_t)part;
    }
    return 0;
}

static inline int pair_send(int wire, const char *key, const void *bytes, size_t length)
{
    struct pair_head head = {.length = length};
    strncpy(head.key, key, sizeof head.key - 1);
    return pair_write(wire, &head, sizeof head) || pair_write(wire, bytes, length) ? -1 : 0;
}

static inline int32_t pair_publish(void *context, const char *key, const void *bytes, size_t length)
{
    struct pair *pair = context;
    if (length > sizeof pair->records[0].bytes) return HAWSER_ERR_TOO_LONG;
    return pair_send(pair->wire, key, bytes, length) ? HAWSER_ERR_HOST : HAWSER_SUCCESS;
}

static inline int32_t pair_lookup(void *context, const char *key, uint64_t name, void *buffer, size_t *length)
{
    const struct pair *pair = context;
    if (name != pair_name(pair, !pair->rank)) return HAWSER_ERR_NOT_FOUND;
    /* The last one published under a key is the one. */
    for (int at = pair->known; at-- > 0;) {
        const struct pair_record *record = &pair->records[at];
        if (strcmp(record->head.key, key) != 0) continue;
        size_t room = *length;
        *length = record->head.length;
        if (*length > room) return HAWSER_ERR_TOO_LONG;
        memcpy(buffer, record->bytes, *length);
        return HAWSER_SUCCESS;
    }
    return HAWSER_ERR_NOT_FOUND;
}

static inline const char *pair_parameter(void *context, const char *name)
{
    const struct pair *pair = context;
    return pair->parameter ? pair->parameter(name) : NULL;
}

static inline void pair_log(void *context, uint32_t level, const char *line)
{
    const struct pair *pair = context;
    fprintf(stderr, "%d: %s: %s\n", pair->rank, level == HAWSER_LOG_INFO ? "info" : "warning", line);
}

/* Makes the other process. Nothing of hawser's may be open: a child has no use for what its parent has opened. */
static inline int pair_fork(struct pair *pair)
{
    int ends[2];
    memset(pair, 0, sizeof *pair);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || (pair->child = fork()) < 0) return -1;
    pair->rank = pair->child == 0;
    pair->wire = ends[pair->rank];
    return close(ends[!pair->rank]);
}

static inline struct hawser_host pair_host(struct pair *pair)
{
    return (struct hawser_host){
        .size = sizeof(struct hawser_host),
        .abi = HAWSER_ABI,
        .name = pair_name(pair, pair->rank),
        .context = pair,
        .publish = pair_publish,
        .lookup = pair_lookup,
        .parameter = pair_parameter,
        .log = pair_log,
    };
}

/* Gives the other process so many bytes and gets as many of its. Not 0 when it has gone. */
static inline int pair_swap(struct pair *pair, const void *mine, void *theirs, size_t length)
{
    struct pair_head head;
    if (pair_send(pair->wire, "swap", mine, length) != 0) return -1;
    for (;;) {
        if (pair_read(pair, &head, sizeof head) != 0) return -1;
        if (strcmp(head.key, "swap") == 0) {
            return head.length == length ? pair_read(pair, theirs, length) : -1;
        }
        if (pair->known == 4) {
            memmove(pair->records, pair->records + 1, 3 * sizeof pair->records[0]);
            pair->known = 3;
        }
        struct pair_record *record = &pair->records[pair->known++];
        record->head = head;
        if (head.length > sizeof record->bytes || pair_read(pair, record->bytes, head.length) != 0) return -1;
    }
}

static inline int pair_barrier(struct pair *pair)
{
    char nothing = 0;
    return pair_swap(pair, &nothing, &nothing, 1);
}

#endif
