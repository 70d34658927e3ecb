/* Preloaded into ranks: whoever wants to be told when memory goes is told of single pages only. Whatever he keeps of more than
 * that is kept for too long, which the stand-in is to see. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

typedef void released(void *, size_t, void *, bool);

static released *listener;

static void some(void *start, size_t length, void *data, bool from_allocator)
{
    if (length <= 4096) listener(start, length, data, from_allocator);
}

int opal_mem_hooks_register_release(released *function, void *data)
{
    static int (*whole)(released *, void *);
    if (whole == NULL) *(void **)&whole = dlsym(RTLD_NEXT, "opal_mem_hooks_register_release");
    listener = function;
    return whole(some, data);
}
