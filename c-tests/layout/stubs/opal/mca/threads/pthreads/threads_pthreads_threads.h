/* Stands in for a header that Debian 13 does not install: the host's threads.h declares
 * opal_thread_yield as a static inline function, which needs a body. */
#ifndef HAWSER_STUB_THREADS_PTHREADS_THREADS_H
#define HAWSER_STUB_THREADS_PTHREADS_THREADS_H

#include <pthread.h>
#include <sched.h>

static inline void opal_thread_yield(void)
{
    sched_yield();
}

#endif
