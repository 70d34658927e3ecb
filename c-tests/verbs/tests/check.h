/* What the tests of the stand-in share: a program runs the case that it is told, and says what is wrong. */
#ifndef HAWSER_VERBS_CHECK_H
#define HAWSER_VERBS_CHECK_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;

static inline void expect(const char *file, int line, const char *text, long long got, long long wanted)
{
    if (got == wanted) return;
    failures++;
    fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", file, line, text, got, wanted);
}

/* A value is this one; a call does it, or returns -1 and this errno. */
#define IS(got, wanted) expect(__FILE__, __LINE__, #got, (long long)(got), (long long)(wanted))
#define OK(call) IS(call, 0)
#define FAILS(call, error)             \
    do {                               \
        errno = 0;                     \
        IS((call), -1);                \
        IS(errno, error);              \
    } while (0)
#define NONE(call, error)              \
    do {                               \
        errno = 0;                     \
        IS((call) == NULL, true);      \
        IS(errno, error);              \
    } while (0)

struct test {
    const char *name;
    void (*run)(void);
};

static inline int run(const struct test *tests, size_t count, int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < count; i++) {
        if (strcmp(tests[i].name, argv[1]) != 0) continue;
        tests[i].run();
        return failures > 0;
    }
    for (size_t i = 0; argc <= 1 && i < count; i++) puts(tests[i].name);
    return argc > 1;
}
#define RUN(tests) return run(tests, sizeof(tests) / sizeof *(tests), argc, argv)

static inline bool iwarp(void)
{
    const char *personality = getenv("HAWSER_VERBS_PERSONALITY");
    return personality != NULL && strcmp(personality, "iwarp") == 0;
}

/* Codes of posts have the device's sign. */
static inline int code(int error) { return iwarp() ? -error : error; }

static inline void fill(unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(i * 7 + seed + (i >> 8));
}

static inline size_t wrong(const unsigned char *bytes, size_t size, unsigned seed)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++) count += bytes[i] != (unsigned char)(i * 7 + seed + (i >> 8));
    return count;
}

/* --- two processes, which begin before either knows the library, and speak over pipes */

struct child {
    pid_t pid;
    int to, from; /* as the parent sees them */
};
static int to_parent = -1, from_parent = -1;

static inline void put(int fd, const void *bytes, size_t size)
{
    if (write(fd, bytes, size) != (ssize_t)size) abort();
}
static inline void take(int fd, void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t more = read(fd, (char *)bytes + done, size - done);
        if (more <= 0) {
            fprintf(stderr, "the other process is gone\n");
            exit(9);
        }
        done += (size_t)more;
    }
}
static inline void tell(int fd) { put(fd, "!", 1); }
static inline void await(int fd)
{
    char byte;
    take(fd, &byte, 1);
}

/* A child that runs `act` and then ends, with the failures that it has seen. */
static inline struct child family(void (*act)(void))
{
    int down[2], up[2];
    if (pipe(down) != 0 || pipe(up) != 0) abort();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(down[1]);
        close(up[0]);
        from_parent = down[0];
        to_parent = up[1];
        act();
        exit(failures > 0);
    }
    close(down[0]);
    close(up[1]);
    return (struct child){pid, down[1], up[0]};
}

static inline void join(struct child child)
{
    int status = -1;
    waitpid(child.pid, &status, 0);
    IS(status, 0);
    close(child.to);
    close(child.from);
}

/* The signal that ends a child which does this; it begins before the parent knows the library. */
static inline int signal_of(void (*act)(void))
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        unsetenv("HAWSER_VERBS_LEDGER");
        act();
        _exit(0);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

#endif
