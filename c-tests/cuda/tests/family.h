/* Several processes of one test: an owner, who is the parent, and its children. They begin before anybody
 * knows the driver, and speak over pipes. */
#ifndef HAWSER_CUDA_FAMILY_H
#define HAWSER_CUDA_FAMILY_H

#include "check.h"

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
/* One says that it is so far; the other waits for that. */
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

#endif
