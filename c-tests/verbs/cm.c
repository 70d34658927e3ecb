/* Ids of the connection manager: what they are before and after a connection. */
#define _GNU_SOURCE
#include "standin.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

struct id *ids;

struct id *id_make(struct channel *channel, void *context)
{
    struct id *id = make(sizeof *id);
    id->tag = (struct tag){.kind = KIND_ID, .alive = true};
    id->fd = -1;
    id->public =
        (struct rdma_cm_id){.channel = &channel->public, .context = context, .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC};
    id->next = ids;
    ids = id;
    channel->ids++;
    ledger_add(IDS);
    return id;
}

/* Sets the port; the manager opens each device once, and keeps it. */
void id_use(struct id *id, struct port *port)
{
    struct device *device = port->device;
    id->port = port;
    if (device->of_cm == NULL && (device->of_cm = device_open(device)) == NULL) violation("no descriptors");
    device->of_cm->of_cm = true;
    id->public.verbs = &device->of_cm->public.context;
    id->public.port_num = port->number;
}

void id_names(struct id *id, int fd, bool with_peer)
{
    struct rdma_addr *addr = &id->public.route.addr;
    socklen_t size = sizeof addr->src_storage;
    getsockname(fd, &addr->src_addr, &size);
    size = sizeof addr->dst_storage;
    if (with_peer) getpeername(fd, &addr->dst_addr, &size);
}

PUBLIC int standin_rdma_create_id(
    struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space space)
{
    ENTER_MINUS;
    if (channel == NULL) violation("rdma_create_id: ids without a channel are not in the stand-in");
    LIVE((struct channel *)channel, KIND_EVENT_CHANNEL, "event channel");
    if (space != RDMA_PS_TCP) return refuse(EOPNOTSUPP);
    *id = &id_make((struct channel *)channel, context)->public;
    return 0;
}

/* Ends what an id does; it is there until it is destroyed. */
void id_abandon(struct id *id)
{
    listener_drop(id);
    connection_drop(id);
    event_forget(id);
    timer_drop(id);
    if (id->fd >= 0) close(id->fd);
    id->fd = -1;
}

/* Waits until all events of it that were got are acknowledged, as the real one does. */
PUBLIC int standin_rdma_destroy_id(struct rdma_cm_id *public)
{
    ENTER_MINUS;
    struct id *id = (struct id *)public;
    uint64_t since = 0;
    LIVE(id, KIND_ID, "id");
    id_abandon(id);
    if (public->qp != NULL) ((struct qp *)public->qp)->id = NULL;
    while (id->events.reported != id->events.acknowledged) wait_for_change(&since, "the acknowledgement of an id's events");
    for (struct id **link = &ids; *link != NULL; link = &(*link)->next)
        if (*link == id) {
            *link = id->next;
            break;
        }
    ((struct channel *)public->channel)->ids--;
    BURY(id);
    ledger_remove(IDS);
    progress_wake();
    return 0;
}

/* --- addresses */

/* A socket with this address, which is the id's from now on. */
static int bind_to(struct id *id, const struct sockaddr *address)
{
    int on = 1, fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return errno;
    if (((const struct sockaddr_in *)(const void *)address)->sin_port != 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, address, address_size(address)) != 0) {
        int error = errno;
        close(fd);
        return error;
    }
    id->fd = fd;
    id_names(id, fd, false);
    return 0;
}

static int bind_id(struct id *id, const struct sockaddr *address)
{
    if (id->state != ID_IDLE) return EINVAL;
    if (address_size(address) == 0) return EAFNOSUPPORT;
    int error = bind_to(id, address);
    if (error != 0) return error;
    if (!is_any(address)) {
        struct port *port = port_at(address);
        if (port == NULL) {
            close(id->fd);
            id->fd = -1;
            return ENODEV;
        }
        id_use(id, port);
    }
    id->state = ID_BOUND;
    return 0;
}

PUBLIC int standin_rdma_bind_addr(struct rdma_cm_id *public, struct sockaddr *address)
{
    ENTER_MINUS;
    struct id *id = (struct id *)public;
    LIVE(id, KIND_ID, "id");
    int error = bind_id(id, address);
    return error != 0 ? refuse(error) : 0;
}

/* The address that the kernel would send from. */
static int source_for(const struct sockaddr_storage *peer, struct sockaddr_storage *source)
{
    socklen_t size = sizeof *source;
    struct sockaddr_storage to = *peer;
    in_port_t *port = &((struct sockaddr_in *)(void *)&to)->sin_port; /* at the same place in either family */
    int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), error = 0;
    if (fd < 0) return errno;
    if (*port == 0) *port = htons(9);
    if (connect(fd, (struct sockaddr *)&to, address_size((struct sockaddr *)&to)) != 0 ||
        getsockname(fd, (struct sockaddr *)source, &size) != 0)
        error = errno;
    close(fd);
    ((struct sockaddr_in *)(void *)source)->sin_port = 0;
    return error;
}

static int find_source(struct id *id, const struct sockaddr *from)
{
    struct sockaddr_storage storage = {.ss_family = id->public.route.addr.dst_addr.sa_family};
    struct sockaddr *source = (struct sockaddr *)&storage;
    if (id->port != NULL) return 0;
    if (from != NULL) memcpy(source, from, address_size(from));
    ((struct sockaddr_in *)(void *)source)->sin_port = 0;
    if (is_any(source)) {
        int error = source_for(&id->public.route.addr.dst_storage, &storage);
        if (error != 0) return error;
    }
    struct port *port = port_at(source);
    if (port == NULL) return ENODEV;
    if (id->fd >= 0) close(id->fd);
    id->fd = -1;
    int error = bind_to(id, source);
    if (error == 0) id->port = port;
    return error;
}

PUBLIC int standin_rdma_resolve_addr(struct rdma_cm_id *public, struct sockaddr *from, struct sockaddr *to, int timeout)
{
    ENTER_MINUS;
    struct id *id = (struct id *)public;
    LIVE(id, KIND_ID, "id");
    if (id->state != ID_IDLE && id->state != ID_BOUND) return refuse(EINVAL);
    if (address_size(to) == 0 || (from != NULL && from->sa_family != to->sa_family)) return refuse(EAFNOSUPPORT);
    if (timeout <= 0) return refuse(EINVAL);
    memcpy(&public->route.addr.dst_storage, to, address_size(to));
    int error = find_source(id, from);
    id->state = ID_ADDRESS_QUERY;
    event_post(id, error == 0 ? RDMA_CM_EVENT_ADDR_RESOLVED : RDMA_CM_EVENT_ADDR_ERROR, -error, NULL);
    return 0;
}

PUBLIC int standin_rdma_resolve_route(struct rdma_cm_id *public, int timeout)
{
    ENTER_MINUS;
    struct id *id = (struct id *)public;
    LIVE(id, KIND_ID, "id");
    if (id->state != ID_ADDRESS || timeout <= 0) return refuse(EINVAL);
    id->state = ID_ROUTE_QUERY;
    event_post(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL);
    return 0;
}

/* An id is where its events say that it is once the program has them. */
void id_told(struct id *id, struct rdma_cm_event *event)
{
    switch (event->event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (id->state != ID_ADDRESS_QUERY) break;
        id->state = ID_ADDRESS;
        id_use(id, id->port);
        break;
    case RDMA_CM_EVENT_ADDR_ERROR:
        if (id->state == ID_ADDRESS_QUERY) id->state = id->public.verbs != NULL ? ID_BOUND : ID_IDLE;
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        if (id->state == ID_ROUTE_QUERY) id->state = ID_ROUTE;
        break;
    case RDMA_CM_EVENT_ROUTE_ERROR:
        if (id->state == ID_ROUTE_QUERY) id->state = ID_ADDRESS;
        break;
    case RDMA_CM_EVENT_REJECTED: /* the library does this */
        if (id->public.qp != NULL) qp_error((struct qp *)id->public.qp);
        break;
    default: break;
    }
}

PUBLIC __be16 standin_rdma_get_src_port(struct rdma_cm_id *id) { return id->route.addr.src_sin.sin_port; }
PUBLIC __be16 standin_rdma_get_dst_port(struct rdma_cm_id *id) { return id->route.addr.dst_sin.sin_port; }

PUBLIC int standin_rdma_set_option(struct rdma_cm_id *public, int level, int name, void *value, size_t size)
{
    ENTER_MINUS;
    struct id *id = (struct id *)public;
    LIVE(id, KIND_ID, "id");
    if (level != RDMA_OPTION_ID) return refuse(ENOSYS);
    switch (name) {
    case RDMA_OPTION_ID_ACK_TIMEOUT:
        if (size != 1 || *(uint8_t *)value > 31) return refuse(EINVAL);
        id->ack_timeout = *(uint8_t *)value;
        id->has_ack_timeout = true;
        return 0;
    case RDMA_OPTION_ID_TOS: return size == 1 ? 0 : refuse(EINVAL);
    case RDMA_OPTION_ID_REUSEADDR:
    case RDMA_OPTION_ID_AFONLY: return size == sizeof(int) ? 0 : refuse(EINVAL);
    default: return refuse(ENOSYS);
    }
}

/* --- devices */

PUBLIC struct ibv_context **standin_rdma_get_devices(int *count)
{
    ENTER_NULL;
    struct ibv_context **list = make((device_count + 1) * sizeof *list);
    struct id unused = {0};
    int there = 0;
    for (size_t i = 0; i < device_count; i++) {
        if (devices[i].removed) continue;
        id_use(&unused, &devices[i].ports[0]);
        list[there++] = unused.public.verbs;
    }
    if (count != NULL) *count = there;
    ledger_add(DEVICE_LISTS);
    return list;
}

PUBLIC void standin_rdma_free_devices(struct ibv_context **list)
{
    ENTER_PLAIN;
    free(list);
    ledger_remove(DEVICE_LISTS);
}

void cm_removed(const struct device *device)
{
    for (struct id *id = ids; id != NULL; id = id->next)
        if (id->port != NULL && id->port->device == device) event_post(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL);
}

/* --- what rdma-core's own examples need beside */

PUBLIC int standin_rdma_getaddrinfo(
    const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **answer)
{
    struct addrinfo wish = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    bool passive = hints != NULL && (hints->ai_flags & RAI_PASSIVE) != 0;
    if (passive) wish.ai_flags = AI_PASSIVE;
    int error = getaddrinfo(node, service, &wish, &found);
    if (error != 0) return error;
    struct rdma_addrinfo *made = make(sizeof *made);
    struct sockaddr *address = make(sizeof(struct sockaddr_storage));
    memcpy(address, found->ai_addr, found->ai_addrlen);
    *made = (struct rdma_addrinfo){.ai_flags = hints != NULL ? hints->ai_flags : 0,
        .ai_family = AF_INET,
        .ai_qp_type = IBV_QPT_RC,
        .ai_port_space = RDMA_PS_TCP};
    if (passive) {
        made->ai_src_addr = address;
        made->ai_src_len = found->ai_addrlen;
    } else {
        made->ai_dst_addr = address;
        made->ai_dst_len = found->ai_addrlen;
    }
    freeaddrinfo(found);
    *answer = made;
    return 0;
}

PUBLIC void standin_rdma_freeaddrinfo(struct rdma_addrinfo *info)
{
    free(info->ai_src_addr);
    free(info->ai_dst_addr);
    free(info);
}
