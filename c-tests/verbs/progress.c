/* The thread that moves everything: it reads and writes the connections, and lets time pass. It begins with the first
 * call and goes on until the process ends, whether the program calls anything or not. */
#define _GNU_SOURCE
#include "standin.h"

#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int epoll = -1, alarm_fd = -1;
static bool started, sleeping;
static pthread_t thread;
static struct timer { uint64_t due; void (*act)(void *); void *object; } *timers;
static size_t timer_count, timer_room;

int progress_poll(void) { return epoll; }

bool progress_started(void) { return started; }

bool progress_inside(void) { return started && pthread_equal(pthread_self(), thread); }

void progress_wake(void)
{
    uint64_t one = 1;
    if (!sleeping) return;
    sleeping = false;
    if (write(alarm_fd, &one, sizeof one) != sizeof one) violation("cannot wake the thread");
}

/* --- timers */

void timer_set(uint64_t due, void (*act)(void *), void *object)
{
    if (timer_count == timer_room) {
        timer_room = timer_room * 2 + 16;
        timers = realloc(timers, timer_room * sizeof *timers);
        if (timers == NULL) violation("no memory");
    }
    timers[timer_count++] = (struct timer){due, act, object};
    progress_wake();
}

void timer_drop(const void *object)
{
    size_t kept = 0;
    for (size_t i = 0; i < timer_count; i++)
        if (timers[i].object != object) timers[kept++] = timers[i];
    timer_count = kept;
}

/* Those that are due, the earliest first; when the next one is. */
static uint64_t run_timers(void)
{
    for (;;) {
        size_t first = 0;
        if (timer_count == 0) return UINT64_MAX;
        for (size_t i = 1; i < timer_count; i++)
            if (timers[i].due < timers[first].due) first = i;
        struct timer timer = timers[first];
        if (timer.due > now()) return timer.due;
        /* The order of equal ones stays. */
        memmove(timers + first, timers + first + 1, (--timer_count - first) * sizeof *timers);
        timer.act(timer.object);
    }
}

/* --- the thread */

/* Sends what may be sent now; when there is something to look at again. */
static uint64_t run_queues(void)
{
    uint64_t time = now(), next = UINT64_MAX;
    wire_reap();
    for (struct wire *wire = wires; wire != NULL; wire = wire->next) wire_ready(wire, 0);
    for (struct qp *qp = qps; qp != NULL; qp = qp->following) {
        requester_tick(qp, time);
        if (qp->rnr_until > time && qp->rnr_until < next) next = qp->rnr_until;
        if (qp->next != qp->posted && qp->cap.max_send_wr != 0) {
            uint64_t due = qp->sends[qp->next % qp->cap.max_send_wr].due;
            if (due > time && due < next) next = due;
        }
        if (qp_outstanding(qp) && time + 20 * MILLISECOND < next) next = time + 20 * MILLISECOND;
    }
    return next;
}

static void *run(void *unused)
{
    bool control = settings.control != NULL;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct epoll_event events[64];
        if (control) control_tick();
        uint64_t next = run_timers(), other = run_queues(), time = now();
        if (other < next) next = other;
        if (control && time + 10 * MILLISECOND < next) next = time + 10 * MILLISECOND;
        int timeout = next == UINT64_MAX ? -1 : next <= time ? 0 : (int)((next - time + MILLISECOND - 1) / MILLISECOND);
        sleeping = true;
        pthread_mutex_unlock(&lock);
        int count = epoll_wait(epoll, events, 64, timeout);
        pthread_mutex_lock(&lock);
        sleeping = false;
        for (int i = 0; i < count; i++) {
            uint64_t unused_count;
            if (events[i].data.ptr == NULL) {
                if (read(alarm_fd, &unused_count, sizeof unused_count) < 0) continue;
            } else {
                wire_ready(events[i].data.ptr, events[i].events);
            }
        }
    }
    return unused;
}

void progress_start(void)
{
    if (started) return;
    sigset_t all, before;
    struct epoll_event event = {.events = EPOLLIN};
    epoll = epoll_create1(EPOLL_CLOEXEC);
    alarm_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (epoll < 0 || alarm_fd < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, alarm_fd, &event) != 0) violation("no descriptors");
    settings_read();
    devices_read();
    if (settings.control != NULL) control_tick(); /* what is so from the beginning */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    if (pthread_create(&thread, NULL, run, NULL) != 0) violation("no thread");
    pthread_setname_np(thread, "verbs-standin");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    started = true;
}
