/* Preloaded into ranks of killed.c ("marked"): kills the sender of a marked message while the host reads it, in its callback, and
 * then makes progress there until the host ends the process, because the sender is lost. The bytes must be there all the time, and
 * stay as they are: the queue pair that they came by goes meanwhile. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

extern void opal_progress(void);

/* As killed.c sends it: a word, and the number of its process. */
struct marked {
    char word[8];
    int64_t pid;
    unsigned char rest[16];
};

int opal_convertor_unpack(void *convertor, struct iovec *pieces, uint32_t *count, size_t *size)
{
    static int (*whole)(void *, struct iovec *, uint32_t *, size_t *);
    const struct marked *message = *count > 0 ? pieces[0].iov_base : NULL;
    struct marked copy;
    if (whole == NULL) *(void **)&whole = dlsym(RTLD_NEXT, "opal_convertor_unpack");
    if (message == NULL || pieces[0].iov_len != sizeof copy || memcmp(message->word, "KILL ME", 8) != 0)
        return whole(convertor, pieces, count, size);
    memcpy(&copy, message, sizeof copy);
    fprintf(stderr, "reading: the sender is killed\n");
    kill((pid_t)copy.pid, SIGKILL);
    for (;;) {
        opal_progress();
        if (memcmp(message, &copy, sizeof copy) != 0) {
            fprintf(stderr, "reading: what is read has changed\n");
            _exit(1);
        }
    }
}
