/* Asynchronous events of a device's context. */
#include "standin.h"

struct async_event { struct ibv_async_event public; struct async_event *next; };

/* Those of the element that the event is about; a port and a device count none. */
static struct counts *event_counts(const struct ibv_async_event *event)
{
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR: return &((struct cq *)event->element.cq)->async;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: return &((struct srq *)event->element.srq)->async;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_QP_LAST_WQE_REACHED: return &((struct qp *)event->element.qp)->async;
    default: return NULL;
    }
}

static void post(struct context *context, const struct ibv_async_event *public)
{
    struct async_event *event = make(sizeof *event);
    event->public = *public;
    if (context->events == NULL) context->events = event;
    else context->last->next = event;
    context->last = event;
    bell_set(&context->async, true);
}

void async_post(struct context *context, enum ibv_event_type type, void *element)
{
    post(context, &(struct ibv_async_event){.event_type = type, .element.cq = element});
}

void async_post_port(struct context *context, enum ibv_event_type type, uint8_t number)
{
    post(context, &(struct ibv_async_event){.event_type = type, .element.port_num = number});
}

/* Those of an element, or all, that nobody has got: nobody will. */
void async_forget(struct context *context, const void *element)
{
    struct async_event **link = &context->events, *last = NULL;
    while (*link != NULL) {
        struct async_event *event = *link;
        if (element == NULL || event->public.element.cq == element) {
            *link = event->next;
            free(event);
        } else {
            last = event;
            link = &event->next;
        }
    }
    context->last = last;
    if (context->events == NULL) bell_set(&context->async, false);
}

PUBLIC int ibv_get_async_event(struct ibv_context *public, struct ibv_async_event *event)
{
    ENTER_MINUS;
    struct context *context = context_of(public);
    while (context->events == NULL) {
        int error = bell_wait(&context->async);
        if (error != 0) return refuse(error);
    }
    struct async_event *first = context->events;
    *event = first->public;
    context->events = first->next;
    if (context->events == NULL) bell_set(&context->async, false);
    struct counts *counts = event_counts(event);
    if (counts != NULL) counts->reported++;
    ledger_add(ASYNC_EVENTS);
    free(first);
    return 0;
}

PUBLIC void ibv_ack_async_event(struct ibv_async_event *event)
{
    ENTER_PLAIN;
    struct counts *counts = event_counts(event);
    if (counts != NULL && counts->acknowledged++ == counts->reported) violation("ibv_ack_async_event: more than were got");
    ledger_remove(ASYNC_EVENTS);
    pthread_cond_broadcast(&changed);
}

PUBLIC const char *ibv_event_type_str(enum ibv_event_type type)
{
    switch (type) {
    case IBV_EVENT_CQ_ERR: return "CQ error";
    case IBV_EVENT_QP_FATAL: return "local work queue catastrophic error";
    case IBV_EVENT_QP_REQ_ERR: return "invalid request local work queue error";
    case IBV_EVENT_QP_ACCESS_ERR: return "local access violation work queue error";
    case IBV_EVENT_COMM_EST: return "communication established";
    case IBV_EVENT_SRQ_ERR: return "SRQ catastrophic error";
    case IBV_EVENT_SRQ_LIMIT_REACHED: return "SRQ limit reached";
    case IBV_EVENT_QP_LAST_WQE_REACHED: return "last WQE reached";
    case IBV_EVENT_DEVICE_FATAL: return "local catastrophic error";
    case IBV_EVENT_PORT_ACTIVE: return "port active";
    case IBV_EVENT_PORT_ERR: return "port error";
    default: return "unknown";
    }
}

/* --- for programs that have queues end, and wait until that has been heard */

/* Those of a device, or without a name of all: completion queues, or shared receive queues. */
PUBLIC void standin_end_queues(const char *name, int shared);
PUBLIC void standin_end_queues(const char *name, int shared)
{
    pthread_mutex_lock(&lock);
    for (struct device *device = devices; device < devices + device_count; device++) {
        if (name != NULL && strcmp(device->public.name, name) != 0) continue;
        if (shared) srq_end_all(device);
        else cq_end_all(device);
    }
    pthread_mutex_unlock(&lock);
}

/* How many contexts have asynchronous events that nobody has got. */
PUBLIC int standin_untold(void);
PUBLIC int standin_untold(void)
{
    int count = 0;
    pthread_mutex_lock(&lock);
    for (const struct context *context = contexts; context != NULL; context = context->next)
        count += !context->closed && context->events != NULL;
    pthread_mutex_unlock(&lock);
    return count;
}
