/* Event channels. An event's private data are there until it is acknowledged, and then they are rubbish. */
#include "standin.h"

#include <unistd.h>

static struct event *delayed; /* not in their channels yet */

PUBLIC struct rdma_event_channel *standin_rdma_create_event_channel(void)
{
    ENTER_NULL;
    struct channel *channel = make(sizeof *channel);
    if (bell_make(&channel->bell) != 0) return refuse_null(EMFILE);
    channel->tag = (struct tag){.kind = KIND_EVENT_CHANNEL, .alive = true};
    channel->public.fd = channel->bell.fd;
    ledger_add(EVENT_CHANNELS);
    return &channel->public;
}

PUBLIC void standin_rdma_destroy_event_channel(struct rdma_event_channel *public)
{
    ENTER_PLAIN;
    struct channel *channel = (struct channel *)public;
    LIVE(channel, KIND_EVENT_CHANNEL, "event channel");
    if (channel->ids != 0 && settings.strict) violation("rdma_destroy_event_channel: %u ids are left on it", channel->ids);
    for (struct id *id = ids; id != NULL; id = id->next)
        if (id->public.channel == public) id_abandon(id);
    close(channel->bell.fd);
    BURY(channel);
    ledger_remove(EVENT_CHANNELS);
}

/* --- posting */

static const char *const names[] = {"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST",
    "CONNECT_RESPONSE", "CONNECT_ERROR", "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL",
    "MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT"};

static void deliver(struct event *event)
{
    struct channel *channel = event->channel;
    event->next = NULL;
    if (channel->first == NULL) channel->first = event;
    else channel->last->next = event;
    channel->last = event;
    bell_set(&channel->bell, true);
}

static void deliver_late(void *object)
{
    struct event *event = object;
    for (struct event **link = &delayed; *link != NULL; link = &(*link)->next)
        if (*link == event) {
            *link = event->next;
            break;
        }
    deliver(event);
}

/* What comes in the place of an event that fails by order. */
static enum rdma_cm_event_type failure_of(enum rdma_cm_event_type type, int error)
{
    switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED: return RDMA_CM_EVENT_ADDR_ERROR;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: return RDMA_CM_EVENT_ROUTE_ERROR;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
    case RDMA_CM_EVENT_ESTABLISHED: return error == ETIMEDOUT ? RDMA_CM_EVENT_UNREACHABLE : RDMA_CM_EVENT_CONNECT_ERROR;
    default: return type;
    }
}

/* One byte of private data, if that is ordered. */
static void garble(struct event *event, size_t length)
{
    static struct call faults = {.name = "private-data"};
    ledger_call(&faults);
    const char *fault = fault_for(&faults);
    if (fault != NULL && strtoul(fault, NULL, 10) < length) event->data[strtoul(fault, NULL, 10)] ^= 0xFF;
}

static struct event *event_make(struct id *id, enum rdma_cm_event_type type, int status, const struct event_data *data)
{
    struct event *event = make(sizeof *event);
    event->tag = (struct tag){.kind = KIND_EVENT, .alive = true};
    event->channel = (struct channel *)id->public.channel;
    event->id = id;
    event->public = (struct rdma_cm_event){.id = &id->public, .event = type, .status = status};
    if (data != NULL) {
        struct rdma_conn_param *param = &event->public.param.conn;
        if (data->request != NULL) {
            event->public.id = &data->request->public;
            event->public.listen_id = &id->public;
        }
        *param = data->param;
        memcpy(event->data, data->data == NULL ? "" : data->data, data->length);
        if (data->length != 0) garble(event, data->length);
        param->private_data_len = (uint8_t)(data->filled > data->length ? data->filled : data->length);
        param->private_data = param->private_data_len != 0 ? event->data : NULL;
    }
    return event;
}

/* Makes an event come later, in so many nanoseconds. */
static void delay_event(struct event *event, uint64_t delay)
{
    event->next = delayed;
    delayed = event;
    timer_set(now() + delay, deliver_late, event);
}

void event_post(struct id *id, enum rdma_cm_event_type type, int status, const struct event_data *data)
{
    static struct call calls[16];
    /* The answer to a connect is what the program sees as ESTABLISHED. */
    int named = type == RDMA_CM_EVENT_CONNECT_RESPONSE ? RDMA_CM_EVENT_ESTABLISHED : type;
    struct call *call = &calls[named];
    call->name = names[named];
    ledger_call(call);
    const char *fault = fault_for(call);
    uint64_t delay = settings.cm_delay * MILLISECOND;
    int times = 1;
    if (fault != NULL && strcmp(fault, "lost") == 0) return;
    if (fault != NULL && strcmp(fault, "twice") == 0) times = 2;
    else if (fault != NULL && strcmp(fault, "late") == 0) delay += 500 * MILLISECOND;
    else if (fault != NULL && strcmp(fault, "doubted") == 0)
        delay_event(event_make(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL), delay + 500 * MILLISECOND);
    else if (fault != NULL) {
        status = -atoi(fault);
        enum rdma_cm_event_type instead = failure_of(type, -status);
        if (instead != type && (named == RDMA_CM_EVENT_ESTABLISHED)) connection_drop(id);
        type = instead;
    }
    for (; times != 0; times--) {
        struct event *event = event_make(id, type, status, data);
        if (delay == 0) deliver(event);
        else delay_event(event, delay);
    }
}

/* Nobody will get these: the id ends. A request's own id ends with it. */
static void discard(struct event *event)
{
    timer_drop(event);
    if (event->public.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        struct id *request = (struct id *)event->public.id;
        if (request->tag.alive) {
            connection_drop(request);
            event_forget(request);
            for (struct id **link = &ids; *link != NULL; link = &(*link)->next)
                if (*link == request) {
                    *link = request->next;
                    break;
                }
            ((struct channel *)request->public.channel)->ids--;
            BURY(request);
            ledger_remove(IDS);
        }
    }
    BURY(event);
}

void event_forget(struct id *id)
{
    struct channel *channel = (struct channel *)id->public.channel;
    struct event *mine = NULL, *last = NULL;
    for (struct event **link = &delayed; *link != NULL;) {
        struct event *event = *link;
        if (event->id == id) {
            *link = event->next;
            event->next = mine;
            mine = event;
        } else {
            link = &event->next;
        }
    }
    for (struct event **link = &channel->first; *link != NULL;) {
        struct event *event = *link;
        if (event->id == id) {
            *link = event->next;
            event->next = mine;
            mine = event;
        } else {
            last = event;
            link = &event->next;
        }
    }
    channel->last = last;
    if (channel->first == NULL) bell_set(&channel->bell, false);
    while (mine != NULL) {
        struct event *event = mine;
        mine = event->next;
        discard(event);
    }
}

/* --- getting */

PUBLIC int standin_rdma_get_cm_event(struct rdma_event_channel *public, struct rdma_cm_event **got)
{
    ENTER_MINUS;
    struct channel *channel = (struct channel *)public;
    /* rdma-core's rping ends its channel while a thread of its own comes back here: the descriptor is not there any more. */
    if (!settings.strict && channel->tag.kind == KIND_EVENT_CHANNEL && !channel->tag.alive) return refuse(EBADF);
    LIVE(channel, KIND_EVENT_CHANNEL, "event channel");
    while (channel->first == NULL) {
        int error = bell_wait(&channel->bell);
        if (error != 0) return refuse(error);
        if (!settings.strict && !channel->tag.alive) return refuse(EBADF);
        LIVE(channel, KIND_EVENT_CHANNEL, "event channel");
    }
    struct event *event = channel->first;
    channel->first = event->next;
    if (channel->first == NULL) bell_set(&channel->bell, false);
    event->id->events.reported++;
    ledger_add(CM_EVENTS);
    if (event->public.event == RDMA_CM_EVENT_CONNECT_RESPONSE) cm_answered(event->id, &event->public);
    id_told(event->id, &event->public);
    *got = &event->public;
    return 0;
}

PUBLIC int standin_rdma_ack_cm_event(struct rdma_cm_event *public)
{
    ENTER_MINUS;
    struct event *event = (struct event *)public;
    LIVE(event, KIND_EVENT, "event");
    event->id->events.acknowledged++;
    ledger_remove(CM_EVENTS);
    BURY(event);
    memset(event->data, 0xdb, sizeof event->data);
    memset(&event->public, 0xdb, sizeof event->public);
    pthread_cond_broadcast(&changed);
    return 0;
}

PUBLIC int standin_rdma_migrate_id(struct rdma_cm_id *public, struct rdma_event_channel *to)
{
    ENTER_MINUS;
    struct id *id = (struct id *)public;
    struct channel *from = (struct channel *)public->channel;
    uint64_t since = 0;
    LIVE(id, KIND_ID, "id");
    LIVE((struct channel *)to, KIND_EVENT_CHANNEL, "event channel");
    while (id->events.reported != id->events.acknowledged) wait_for_change(&since, "the acknowledgement of an id's events");
    for (struct event *event = delayed; event != NULL; event = event->next)
        if (event->id == id) event->channel = (struct channel *)to;
    struct event *waiting = from->first;
    from->first = from->last = NULL;
    bell_set(&from->bell, false);
    while (waiting != NULL) {
        struct event *event = waiting;
        waiting = event->next;
        if (event->id == id) event->channel = (struct channel *)to;
        deliver(event);
    }
    from->ids--;
    ((struct channel *)to)->ids++;
    public->channel = to;
    return 0;
}

PUBLIC const char *standin_rdma_event_str(enum rdma_cm_event_type type)
{
    static const char *const texts[] = {"RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ADDR_ERROR",
        "RDMA_CM_EVENT_ROUTE_RESOLVED", "RDMA_CM_EVENT_ROUTE_ERROR", "RDMA_CM_EVENT_CONNECT_REQUEST",
        "RDMA_CM_EVENT_CONNECT_RESPONSE", "RDMA_CM_EVENT_CONNECT_ERROR", "RDMA_CM_EVENT_UNREACHABLE",
        "RDMA_CM_EVENT_REJECTED", "RDMA_CM_EVENT_ESTABLISHED", "RDMA_CM_EVENT_DISCONNECTED", "RDMA_CM_EVENT_DEVICE_REMOVAL",
        "RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE",
        "RDMA_CM_EVENT_TIMEWAIT_EXIT"};
    return (size_t)type < sizeof texts / sizeof *texts ? texts[type] : "UNKNOWN EVENT";
}
