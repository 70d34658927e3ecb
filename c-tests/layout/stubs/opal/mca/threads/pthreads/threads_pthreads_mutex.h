/* Stands in for a header that Debian 13 does not install: the types that the host's mutex and
 * condition headers need, over POSIX threads as in the host's own build. The functions are only
 * declared; the layout checks call none of them. */
#ifndef HAWSER_STUB_THREADS_PTHREADS_MUTEX_H
#define HAWSER_STUB_THREADS_PTHREADS_MUTEX_H

#include <pthread.h>
#include <stdbool.h>

typedef pthread_mutex_t opal_thread_internal_mutex_t;
typedef pthread_cond_t opal_thread_internal_cond_t;

int opal_thread_internal_mutex_init(opal_thread_internal_mutex_t *mutex, bool recursive);
int opal_thread_internal_mutex_trylock(opal_thread_internal_mutex_t *mutex);
void opal_thread_internal_mutex_lock(opal_thread_internal_mutex_t *mutex);
void opal_thread_internal_mutex_unlock(opal_thread_internal_mutex_t *mutex);
void opal_thread_internal_mutex_destroy(opal_thread_internal_mutex_t *mutex);
int opal_thread_internal_cond_init(opal_thread_internal_cond_t *cond);
void opal_thread_internal_cond_wait(opal_thread_internal_cond_t *cond,
                                    opal_thread_internal_mutex_t *mutex);
void opal_thread_internal_cond_signal(opal_thread_internal_cond_t *cond);
void opal_thread_internal_cond_destroy(opal_thread_internal_cond_t *cond);

#endif
