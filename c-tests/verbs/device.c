/* Devices. HAWSER_VERBS_DEVICES is a list of NAME=ADDRESS[+ADDRESS][/roce|/iwarp], separated by commas, with an address for
 * each port; where nothing else is said, HAWSER_VERBS_PERSONALITY (roce or iwarp) is what they are. As it is there is one,
 * `rxe1` or `siw1`, at 127.0.0.1. Limits are those of rxe and siw of Linux 6.1. */
#define _GNU_SOURCE
#include "standin.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct device *devices;
size_t device_count;
struct context *contexts;

static const struct limits rxe = {1048560, 1048576, 32, 1048576, 32767, 524287, 917503, 1048576, 128, 512, 8 << 20};
static const struct limits siw = {102400, 32768, 6, 102400, 131072, 1024000, 102400, 327680, 128, 64, UINT32_MAX};

int post_error(const struct device *device, int error) { return device->iwarp ? -error : error; }

static void port_add(struct device *device, const char *address)
{
    if (device->port_count == PORTS) violation("HAWSER_VERBS_DEVICES: a device has %d ports at most", PORTS);
    struct port *port = &device->ports[device->port_count++];
    port->device = device;
    port->number = device->port_count;
    char mapped[64];
    snprintf(mapped, sizeof mapped, "%s%s", strchr(address, ':') == NULL ? "::ffff:" : "", address);
    if (inet_pton(AF_INET6, mapped, &port->address) != 1)
        violation("HAWSER_VERBS_DEVICES: `%s` is not an address", address);
    port->mac[0] = 2;
    port->mac[1] = (uint8_t)device->iwarp;
    memcpy(port->mac + 2, port->address.s6_addr + 12, 4);
}

/* The addresses are joined by `+`. */
static void device_add(const char *name, char *addresses, bool iwarp)
{
    struct device *device = &devices[device_count];
    *device = (struct device){.iwarp = iwarp, .limits = iwarp ? &siw : &rxe};
    for (char *address; (address = strsep(&addresses, "+")) != NULL;) port_add(device, address);
    device->public.node_type = iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
    device->public.transport_type = iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
    snprintf(device->public.name, sizeof device->public.name, "%s", name);
    snprintf(device->public.dev_name, sizeof device->public.dev_name, "uverbs%zu", device_count);
    snprintf(device->public.dev_path, sizeof device->public.dev_path, "/sys/class/infiniband_verbs/uverbs%zu", device_count);
    snprintf(device->public.ibdev_path, sizeof device->public.ibdev_path, "/sys/class/infiniband/%.40s", name);
    device_count++;
}

void devices_read(void)
{
    const char *list = getenv("HAWSER_VERBS_DEVICES"), *personality = getenv("HAWSER_VERBS_PERSONALITY");
    bool iwarp = personality != NULL && strcmp(personality, "iwarp") == 0;
    if (personality != NULL && *personality != 0 && !iwarp && strcmp(personality, "roce") != 0)
        violation("HAWSER_VERBS_PERSONALITY: roce or iwarp, not `%s`", personality);
    devices = make(16 * sizeof *devices);
    if (list == NULL) {
        char address[] = "127.0.0.1";
        device_add(iwarp ? "siw1" : "rxe1", address, iwarp);
        return;
    }
    char *copy = strdup(list), *rest = copy;
    for (char *word; copy != NULL && (word = strsep(&rest, ",")) != NULL;) {
        char name[32], addresses[64], kind[16] = "";
        if (*word == 0) continue;
        int parts = sscanf(word, "%31[^=]=%63[^/]/%15s", name, addresses, kind);
        if (parts < 2 || device_count == 16 || (parts == 3 && strcmp(kind, "roce") != 0 && strcmp(kind, "iwarp") != 0))
            violation("HAWSER_VERBS_DEVICES: `%s` is not NAME=ADDRESS[+ADDRESS][/roce|/iwarp]", word);
        device_add(name, addresses, parts == 3 ? strcmp(kind, "iwarp") == 0 : iwarp);
    }
    free(copy);
}

struct in6_addr address_of(const struct sockaddr *address)
{
    struct in6_addr whole = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (address->sa_family == AF_INET6) return ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    memcpy(whole.s6_addr + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    return whole;
}

socklen_t address_size(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6) return sizeof(struct sockaddr_in6);
    return address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : 0;
}

bool is_any(const struct sockaddr *address)
{
    struct in6_addr whole = address_of(address);
    return address->sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&whole) : memcmp(whole.s6_addr + 12, "\0\0\0", 4) == 0;
}

struct port *port_at(const struct sockaddr *address)
{
    struct in6_addr wanted = address_of(address);
    for (struct device *device = devices; device < devices + device_count; device++)
        for (struct port *port = device->ports; port < device->ports + device->port_count; port++)
            if (IN6_ARE_ADDR_EQUAL(&port->address, &wanted) && !device->removed) return port;
    return NULL;
}

/* That of this number, or NULL. */
static const struct port *port_of(struct ibv_context *context, uint32_t number)
{
    const struct device *device = context_of(context)->device;
    return number < 1 || number > device->port_count ? NULL : &device->ports[number - 1];
}

/* The number of the interface that has its address, or 0. */
static unsigned port_interface(const struct port *port)
{
    struct ifaddrs *list, *item;
    unsigned found = 0;
    if (getifaddrs(&list) != 0) return 0;
    for (item = list; item != NULL && found == 0; item = item->ifa_next) {
        if (item->ifa_addr == NULL || address_size(item->ifa_addr) == 0) continue;
        struct in6_addr address = address_of(item->ifa_addr);
        if (IN6_ARE_ADDR_EQUAL(&address, &port->address)) found = if_nametoindex(item->ifa_name);
    }
    freeifaddrs(list);
    return found;
}

/* --- the list */

PUBLIC struct ibv_device **ibv_get_device_list(int *count)
{
    ENTER_NULL;
    struct ibv_device **list = make((device_count + 1) * sizeof *list);
    size_t there = 0;
    for (size_t i = 0; i < device_count; i++)
        if (!devices[i].removed) list[there++] = &devices[i].public;
    if (count != NULL) *count = (int)there;
    ledger_add(DEVICE_LISTS);
    return list;
}

PUBLIC void ibv_free_device_list(struct ibv_device **list)
{
    ENTER_PLAIN;
    free(list);
    ledger_remove(DEVICE_LISTS);
}

PUBLIC const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }

static __be64 port_guid(const struct port *port)
{
    const uint8_t *mac = port->mac;
    uint8_t guid[8] = {mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
    __be64 value;
    memcpy(&value, guid, 8);
    return value;
}

static __be64 device_guid(const struct device *device) { return port_guid(&device->ports[0]); }

PUBLIC __be64 ibv_get_device_guid(struct ibv_device *device) { return device_guid((struct device *)device); }
PUBLIC int ibv_get_device_index(struct ibv_device *device) { return (int)((struct device *)device - devices); }

/* --- contexts */

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size);

int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int req_notify_cq(struct ibv_cq *cq, int solicited_only);
int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

struct context *device_open(struct device *device)
{
    struct context *context = make(sizeof *context);
    if (bell_make(&context->async) != 0) {
        free(context);
        return refuse_null(EMFILE);
    }
    context->device = device;
    context->public.sz = sizeof context->public;
    context->public.query_port = query_port;
    context->public.context = (struct ibv_context){
        .device = &device->public,
        .cmd_fd = -1,
        .async_fd = context->async.fd,
        .num_comp_vectors = 1,
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .abi_compat = __VERBS_ABI_IS_EXTENDED,
        .ops = {.poll_cq = poll_cq,
            .req_notify_cq = req_notify_cq,
            .post_srq_recv = post_srq_recv,
            .post_send = post_send,
            .post_recv = post_recv},
    };
    context->next = contexts;
    contexts = context;
    return context;
}

PUBLIC struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    ENTER_NULL;
    if (((struct device *)device)->removed) return refuse_null(ENODEV);
    struct context *context = device_open((struct device *)device);
    if (context == NULL) return NULL;
    ledger_add(CONTEXTS);
    return &context->public.context;
}

PUBLIC int ibv_close_device(struct ibv_context *public)
{
    ENTER_CODE;
    struct context *context = context_of(public);
    if (context->of_cm) violation("ibv_close_device: this context is the connection manager's");
    if (context->users != 0 && settings.strict) violation("ibv_close_device: %u objects of it are left", context->users);
    context->closed = true;
    async_forget(context, NULL);
    close(context->async.fd);
    ledger_remove(CONTEXTS);
    return 0;
}

/* --- questions */

PUBLIC int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    ENTER_CODE;
    const struct device *device = context_of(context)->device;
    const struct limits *limits = device->limits;
    *attr = (struct ibv_device_attr){
        .fw_ver = "0",
        .node_guid = device_guid(device),
        .sys_image_guid = device_guid(device),
        .max_mr_size = UINT64_MAX,
        .page_size_cap = 0xfffff000,
        .max_qp = limits->max_qp,
        .max_qp_wr = limits->max_qp_wr,
        .max_sge = limits->max_sge,
        .max_sge_rd = limits->max_sge,
        .max_cq = limits->max_cq,
        .max_cqe = limits->max_cqe,
        .max_mr = limits->max_mr,
        .max_pd = limits->max_mr,
        .max_qp_rd_atom = limits->rd_atom,
        .max_res_rd_atom = limits->rd_atom * 1000,
        .max_qp_init_rd_atom = limits->rd_atom,
        .atomic_cap = device->iwarp ? IBV_ATOMIC_NONE : IBV_ATOMIC_HCA,
        .max_srq = limits->max_srq,
        .max_srq_wr = limits->max_srq_wr,
        .max_srq_sge = limits->max_sge - !device->iwarp,
        .max_ah = 32767,
        .max_pkeys = 1,
        .phys_port_cnt = device->port_count,
    };
    return 0;
}

/* The oldest form of the structure ends before `link_layer` is of use; the symbol fills what it had and the pad. */
static void fill_port(const struct port *port, struct ibv_port_attr *attr)
{
    *attr = (struct ibv_port_attr){
        .state = port->says_down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE,
        .max_mtu = IBV_MTU_4096,
        .active_mtu = IBV_MTU_1024,
        .gid_tbl_len = port->device->iwarp ? 1 : 1024,
        .port_cap_flags = IBV_PORT_CM_SUP,
        .max_msg_sz = port->device->limits->message,
        .pkey_tbl_len = 1,
        .max_vl_num = 1,
        .active_width = 1,
        .active_speed = 1,
        .phys_state = port->says_down ? 3 : 5,
        .link_layer = IBV_LINK_LAYER_ETHERNET,
    };
}

static int query_port(struct ibv_context *context, uint8_t number, struct ibv_port_attr *attr, size_t size)
{
    static struct call call_ = {.name = "ibv_query_port"};
    struct ibv_port_attr whole;
    int fault = enter(&call_);
    const struct port *port = port_of(context, number);
    if (fault == 0 && port == NULL) fault = EINVAL;
    if (fault == 0) {
        fill_port(port, &whole);
        memset(attr, 0, size);
        memcpy(attr, &whole, size < sizeof whole ? size : sizeof whole);
    }
    leave(NULL);
    return fault;
}

#undef ibv_query_port
PUBLIC int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    return query_port(context, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* iWARP has its hardware address for a GID; RoCE a local one, and that of its address. */
static int gid_of(const struct port *port, uint32_t index, union ibv_gid *gid)
{
    bool iwarp = port->device->iwarp;
    memset(gid, 0, sizeof *gid);
    if (iwarp && index == 0) {
        memcpy(gid->raw, port->mac, 6);
    } else if (!iwarp && index == 0) {
        gid->raw[0] = 0xfe, gid->raw[1] = 0x80;
        __be64 guid = port_guid(port);
        memcpy(gid->raw + 8, &guid, 8);
        gid->raw[8] ^= 2;
    } else if (!iwarp && index == 1) {
        memcpy(gid->raw, &port->address, 16);
    } else {
        return ENODATA;
    }
    return 0;
}

PUBLIC int ibv_query_gid(struct ibv_context *context, uint8_t number, int index, union ibv_gid *gid)
{
    ENTER_MINUS;
    const struct port *port = port_of(context, number);
    if (port == NULL || index < 0 || index >= (port->device->iwarp ? 1 : 1024)) return refuse(EINVAL);
    gid_of(port, (uint32_t)index, gid); /* a place without one has zeros */
    return 0;
}

PUBLIC int _ibv_query_gid_ex(
    struct ibv_context *context, uint32_t number, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
    ENTER_CODE;
    const struct port *port = port_of(context, number);
    if (port == NULL || flags != 0 || size < sizeof *entry) return EINVAL;
    struct ibv_gid_entry whole = {.gid_index = index,
        .port_num = number,
        .gid_type = port->device->iwarp ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2};
    int error = gid_of(port, index, &whole.gid);
    if (error != 0) return error;
    whole.ndev_ifindex = port_interface(port);
    *entry = whole;
    return 0;
}

PUBLIC ssize_t _ibv_query_gid_table(
    struct ibv_context *context, struct ibv_gid_entry *entries, size_t most, uint32_t flags, size_t size)
{
    ssize_t count = 0;
    for (uint32_t number = 1; number <= PORTS; number++)
        for (uint32_t index = 0; index < 2 && (size_t)count < most; index++)
            if (_ibv_query_gid_ex(context, number, index, &entries[count], flags, size) == 0) count++;
    return count;
}

/* What ibv_devinfo asks for beside. */
PUBLIC int ibv_query_gid_type(struct ibv_context *context, uint8_t number, unsigned index, unsigned *type)
{
    union ibv_gid gid;
    ENTER_MINUS;
    const struct port *port = port_of(context, number);
    if (port == NULL || gid_of(port, index, &gid) != 0) return refuse(EINVAL);
    *type = 1;
    return 0;
}

PUBLIC int ibv_query_pkey(struct ibv_context *context, uint8_t number, int index, __be16 *pkey)
{
    ENTER_MINUS;
    if (port_of(context, number) == NULL || index != 0 || context_of(context)->device->removed) return refuse(EINVAL);
    *pkey = htons(0xffff);
    return 0;
}

PUBLIC int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t size)
{
    (void)folder, (void)file, (void)text, (void)size;
    return refuse(ENOENT);
}

/* Open MPI's openib looks whether class/infiniband is there. */
PUBLIC const char *ibv_get_sysfs_path(void)
{
    const char *path = getenv("HAWSER_VERBS_SYSFS");
    return path != NULL ? path : "/sys";
}

/* Of datagrams, which are not here; Open MPI's openib names them. */
PUBLIC struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    (void)pd, (void)attr;
    return refuse_null(EOPNOTSUPP);
}

PUBLIC int ibv_destroy_ah(struct ibv_ah *ah)
{
    (void)ah;
    return EINVAL;
}

PUBLIC enum ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }

PUBLIC int ibv_fork_init(void) { ENTER_CODE; return 0; }

/* --- what happens to devices while they are used: files in HAWSER_VERBS_CONTROL, by name of the device, with `.2` behind it
 * for its second port. link-down.NAME: nothing goes in or out of the port. port-down.NAME: it is down as well, and says so.
 * removed.NAME: the device goes. failed.NAME: it says that it does not work any more, and nothing goes in or out.
 * queues-failed.NAME, shared-failed.NAME: its completion queues end, or its shared receive queues, as far as queue pairs have
 * them, and it says so; the device works. */

static bool ordered(const char *what, const struct port *port)
{
    char path[4096], behind[8] = "";
    struct stat unused;
    if (port->number > 1) snprintf(behind, sizeof behind, ".%d", port->number);
    snprintf(path, sizeof path, "%s/%s.%s%s", settings.control, what, port->device->public.name, behind);
    return stat(path, &unused) == 0;
}

/* Nothing goes in or out of a port that is down, or of a device that has gone or failed. */
static void set_down(struct port *port, bool down)
{
    if (down == port->down) return;
    port->down = down;
    for (struct wire *wire = wires; wire != NULL; wire = wire->next)
        if (wire->port == port) wire_watch(wire);
}

/* What is the whole device's names its first port. */
static void tell_all(const struct port *port, enum ibv_event_type type)
{
    for (struct context *context = contexts; context != NULL; context = context->next)
        if (context->device == port->device && !context->closed) async_post_port(context, type, port->number);
}

static void control_port(struct port *port)
{
    bool says_down = ordered("port-down", port);
    set_down(port, port->device->removed || port->device->failed || says_down || ordered("link-down", port));
    if (port->device->removed || says_down == port->says_down) return;
    port->says_down = says_down;
    tell_all(port, says_down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
}

/* It does not work any more, and says so. */
static void stop(struct device *device)
{
    for (int i = 0; i < device->port_count; i++) set_down(&device->ports[i], true);
    tell_all(&device->ports[0], IBV_EVENT_DEVICE_FATAL);
}

static void control_queues(struct device *device)
{
    if (!device->queues_failed && ordered("queues-failed", &device->ports[0])) {
        device->queues_failed = true;
        cq_end_all(device);
    }
    if (!device->shared_failed && ordered("shared-failed", &device->ports[0])) {
        device->shared_failed = true;
        srq_end_all(device);
    }
}

static void control_device(struct device *device)
{
    for (int i = 0; i < device->port_count; i++) control_port(&device->ports[i]);
    control_queues(device);
    if (!device->removed && !device->failed && ordered("failed", &device->ports[0])) {
        device->failed = true;
        stop(device);
    }
    if (!device->removed && ordered("removed", &device->ports[0])) {
        device->removed = true;
        stop(device);
        cm_removed(device);
        for (struct qp *qp = qps; qp != NULL; qp = qp->following)
            if (qp->device == device) qp_error(qp);
    }
}

void control_tick(void)
{
    for (struct device *device = devices; device < devices + device_count; device++) control_device(device);
}
