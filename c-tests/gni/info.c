/* fi_getinfo(3) of the provider gni: what hints ask for is what comes back, or nothing. */

#include "check.h"

static struct fi_info *found;

/* Asks; frees what came before. */
static int ask(uint32_t api, const char *node, const char *service, uint64_t flags, struct fi_info *hints)
{
    fi_freeinfo(found);
    found = NULL;
    return fi_getinfo(api, node, service, flags, hints, &found);
}

/* With a change of empty hints. */
#define WITH(api, ...)                                  \
    ({                                                  \
        struct fi_info *h = wish();                     \
        __VA_ARGS__;                                    \
        int code = ask(api, NULL, NULL, 0, h);          \
        fi_freeinfo(h);                                 \
        code;                                           \
    })

static void names(void)
{
    IS(WITH(API, ), 0);
    static const enum fi_ep_type types[] = {FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM};
    size_t count = 0;
    for (struct fi_info *each = found; each; each = each->next, count++) {
        HOLDS(count < 3 && strcmp(each->fabric_attr->prov_name, "gni") == 0);
        IS(each->ep_attr->type, types[count % 3]);
    }
    IS(count, 3);
    HOLDS(strcmp(found->fabric_attr->name, "gni") == 0 && strcmp(found->domain_attr->name, "gni0") == 0);
    IS(found->ep_attr->type, FI_EP_RDM);
    IS(found->ep_attr->protocol, FI_PROTO_GNI);
    IS(found->addr_format, FI_ADDR_GNI);
    IS(found->src_addrlen, 48);
    IS(found->dest_addrlen, 0);
    IS(found->mode, 0);
    HOLDS(found->src_addr && !found->dest_addr && !found->nic);
    IS(WITH(API, h->domain_attr->name = strdup("gni0")), 0);
    IS(WITH(API, h->domain_attr->name = strdup("nowhere")), -FI_ENODATA);
    IS(WITH(API, h->fabric_attr->name = strdup("nowhere")), -FI_ENODATA);
    IS(WITH(API, h->addr_format = FI_ADDR_GNI), 0);
    IS(WITH(API, h->addr_format = FI_SOCKADDR_IN), -FI_ENODATA);
    IS(WITH(API, h->addr_format = FI_ADDR_STR), 0);
    HOLDS(strncmp(found->src_addr, "gni;", 4) == 0 && found->src_addrlen == strlen(found->src_addr) + 1);
}

static void types(void)
{
    IS(WITH(API, h->ep_attr->type = FI_EP_RDM), 0);
    for (int type = FI_EP_MSG; type <= FI_EP_RDM; type++) {
        IS(WITH(API, h->ep_attr->type = (enum fi_ep_type) type), 0);
        HOLDS(found->ep_attr->type == (enum fi_ep_type) type && !found->next);
    }
    IS(WITH(API, h->ep_attr->type = FI_EP_RDM; h->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT; h->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT), 0);
    HOLDS(found->ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT && found->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT);
    IS(WITH(API, h->ep_attr->protocol = FI_PROTO_RXM), -FI_ENODATA);
    IS(WITH(API, h->ep_attr->max_msg_size = UINT32_MAX), 0);
    IS(WITH(API, h->ep_attr->max_msg_size = 1ull << 33), -FI_ENODATA);
    IS(WITH(API, h->ep_attr->tx_ctx_cnt = 2), 0);
    HOLDS(found->ep_attr->tx_ctx_cnt == 2 && found->ep_attr->rx_ctx_cnt == 1);
    IS(WITH(API, h->ep_attr->rx_ctx_cnt = found->domain_attr->max_ep_rx_ctx), 0);
    IS(WITH(API, h->ep_attr->rx_ctx_cnt = 65), -FI_ENODATA);
    IS(WITH(API, h->ep_attr->type = FI_EP_MSG; h->ep_attr->tx_ctx_cnt = 2), -FI_ENODATA);
    IS(WITH(API, h->ep_attr->type = FI_EP_MSG), 0);
    HOLDS(found->domain_attr->max_ep_tx_ctx == 1 && found->domain_attr->max_ep_rx_ctx == 1 && !(found->caps & FI_NAMED_RX_CTX));
    IS(WITH(API, h->ep_attr->type = FI_EP_MSG; h->caps = FI_MSG | FI_NAMED_RX_CTX), -FI_ENODATA);
    IS(WITH(API, h->ep_attr->max_order_raw_size = 100), 0);
    IS(found->ep_attr->max_order_raw_size, 100);
}

static void capabilities(void)
{
    static const uint64_t good[] = {FI_MSG, FI_TAGGED, FI_RMA, FI_ATOMIC, FI_RMA | FI_READ, FI_ATOMIC | FI_REMOTE_WRITE, FI_RMA | FI_RMA_EVENT, FI_FENCE,
                                    FI_DIRECTED_RECV, FI_NAMED_RX_CTX, FI_MULTI_RECV, FI_SOURCE, FI_TRIGGER, FI_SHARED_AV, FI_LOCAL_COMM, FI_REMOTE_COMM};
    static const uint64_t bad[] = {FI_MULTICAST, FI_COLLECTIVE, FI_HMEM, FI_SOURCE_ERR};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        IS(WITH(API, h->caps = good[i]), 0);
        HOLDS(found && (found->caps & good[i]) == good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        IS(WITH(API, h->caps = bad[i]), -FI_ENODATA);
    IS(WITH(API, h->caps = FI_MSG | FI_SEND), 0);
    IS(found->caps & (FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV | FI_SOURCE | FI_DIRECTED_RECV), 0);
    IS(found->tx_attr->caps & ~(found->caps), 0);
    IS(found->rx_attr->caps & ~(found->caps), 0);
    const uint64_t ways = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    IS(WITH(API, h->caps = FI_RMA), 0);
    IS(found->caps & (FI_RMA | FI_ATOMIC | FI_MSG | FI_SEND | FI_RECV | ways), FI_RMA | ways);
    IS(WITH(API, h->caps = FI_ATOMIC | FI_WRITE), 0);
    IS(found->caps & (FI_RMA | FI_ATOMIC | ways), FI_ATOMIC | FI_WRITE);
    IS(found->tx_attr->caps & ~(FI_ATOMIC | FI_WRITE | FI_FENCE | FI_TRIGGER), 0);
    IS(WITH(API, h->caps = FI_RMA; h->tx_attr->rma_iov_limit = 2), 0);
    IS(found->tx_attr->rma_iov_limit, 2);
    IS(WITH(API, h->tx_attr->rma_iov_limit = 100), -FI_ENODATA);
    IS(WITH(API, h->caps = FI_TAGGED), 0);
    HOLDS((found->caps & (FI_SEND | FI_RECV)) == (FI_SEND | FI_RECV));
    /* What was found is what may be asked for again. */
    struct fi_info *again = fi_dupinfo(found);
    IS(ask(API, NULL, NULL, 0, again), 0);
    fi_freeinfo(again);
}

static void attributes(void)
{
    for (int level = 1; level <= 5; level++) {
        IS(WITH(API, h->domain_attr->threading = (enum fi_threading) level), 0);
        IS(found->domain_attr->threading, level);
    }
    IS(WITH(API, h->domain_attr->data_progress = FI_PROGRESS_AUTO), 0);
    IS(found->domain_attr->data_progress, FI_PROGRESS_AUTO);
    IS(found->domain_attr->control_progress, FI_PROGRESS_AUTO);
    IS(WITH(API, h->domain_attr->control_progress = FI_PROGRESS_AUTO), 0);
    IS(found->domain_attr->data_progress, FI_PROGRESS_MANUAL);
    IS(found->domain_attr->control_progress, FI_PROGRESS_AUTO);
    IS(WITH(API, h->domain_attr->data_progress = h->domain_attr->control_progress = FI_PROGRESS_MANUAL), 0);
    IS(found->domain_attr->control_progress, FI_PROGRESS_MANUAL);
    IS(found->domain_attr->data_progress, FI_PROGRESS_MANUAL);
    IS(WITH(API, ), 0);
    IS(found->domain_attr->data_progress, FI_PROGRESS_MANUAL);
    IS(found->domain_attr->control_progress, FI_PROGRESS_AUTO);
    for (int type = 0; type <= 2; type++) {
        IS(WITH(API, h->domain_attr->av_type = (enum fi_av_type) type), 0);
        IS(found->domain_attr->av_type, type);
    }
    IS(WITH(API, h->domain_attr->resource_mgmt = FI_RM_ENABLED), 0);
    IS(WITH(API, h->domain_attr->cq_data_size = 8), 0);
    IS(WITH(API, h->domain_attr->cq_data_size = 9), -FI_ENODATA);
    IS(WITH(API, h->domain_attr->max_ep_tx_ctx = 64), 0);
    IS(WITH(API, h->domain_attr->max_ep_tx_ctx = 65), -FI_ENODATA);
    IS(WITH(API, h->domain_attr->max_ep_rx_ctx = 65), -FI_ENODATA);
    IS(WITH(API, h->domain_attr->max_ep_srx_ctx = 1), 0);
    IS(WITH(API, h->domain_attr->max_ep_srx_ctx = 1 << 20), -FI_ENODATA);
    IS(WITH(API, h->domain_attr->caps = FI_LOCAL_COMM | FI_REMOTE_COMM), 0);
    IS(WITH(API, h->domain_attr->caps = FI_SHARED_AV), 0);
    HOLDS(found->domain_attr->caps & FI_SHARED_AV);
    IS(WITH(API, h->domain_attr->caps = FI_RMA_PMEM), -FI_ENODATA);
    IS(WITH(API, h->tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_ATOMIC_RAW), 0);
    HOLDS((found->tx_attr->msg_order & (FI_ORDER_SAS | FI_ORDER_ATOMIC_RAW)) == (FI_ORDER_SAS | FI_ORDER_ATOMIC_RAW));
    IS(WITH(API, h->rx_attr->msg_order = 1 << 16), -FI_ENODATA);
    IS(WITH(API, h->tx_attr->inject_size = 64; h->tx_attr->size = 100; h->rx_attr->size = 3), 0);
    IS(found->tx_attr->inject_size, 64);
    IS(found->tx_attr->size, 100);
    IS(found->rx_attr->size, 3);
    IS(WITH(API, h->tx_attr->inject_size = 1 << 20), -FI_ENODATA);
    IS(WITH(API, h->rx_attr->iov_limit = 1000), -FI_ENODATA);
    IS(WITH(API, h->tx_attr->op_flags = FI_DELIVERY_COMPLETE | FI_COMPLETION), 0);
    IS(found->tx_attr->op_flags, FI_DELIVERY_COMPLETE | FI_COMPLETION);
    IS(WITH(API, h->tx_attr->op_flags = FI_COMMIT_COMPLETE), -FI_ENODATA);
}

/* What the user could do with is not needed: fi_mr(3). */
static void registration(void)
{
    static const int bits[] = {0, FI_MR_VIRT_ADDR, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY};
    for (size_t i = 0; i < sizeof(bits) / sizeof(*bits); i++) {
        IS(WITH(API, h->domain_attr->mr_mode = bits[i] | FI_MR_LOCAL | FI_MR_RAW | FI_MR_ENDPOINT), 0);
        IS(found->domain_attr->mr_mode, 0);
    }
    IS(WITH(API, h->domain_attr->mr_mode = MR_BASIC), 0);
    IS(found->domain_attr->mr_mode, MR_BASIC);
    IS(WITH(API, h->domain_attr->mr_mode = MR_BASIC | FI_MR_PROV_KEY), -FI_ENODATA);
    IS(WITH(FI_VERSION(1, 0), h->domain_attr->mr_mode = MR_SCALABLE), 0);
    IS(found->domain_attr->mr_mode, MR_SCALABLE);
    IS(WITH(FI_VERSION(1, 0), ), 0);
    HOLDS(found->domain_attr->mr_mode == MR_BASIC || found->domain_attr->mr_mode == MR_SCALABLE);
}

static void addresses(void)
{
    struct fi_info *h = wish();
    IS(ask(API, "127.0.0.1", "9228", 0, h), 0);
    IS(found->dest_addrlen, 48);
    struct fi_info *target = fi_dupinfo(found);
    /* The one who is asked for, and the one who asks for it, make the same name. */
    IS(ask(API, NULL, "9228", FI_SOURCE, h), 0);
    HOLDS(memcmp(found->src_addr, target->dest_addr, 48) == 0);
    IS(ask(API, "localhost", "9228", FI_SOURCE, h), 0);
    HOLDS(memcmp(found->src_addr, target->dest_addr, 48) == 0);
    IS(ask(API, "127.0.0.1", "9228", FI_SOURCE | FI_NUMERICHOST, h), 0);
    fi_freeinfo(target);
    IS(ask(API, "192.0.2.7", "9228", 0, h), 0);
    IS(ask(API, "192.0.2.7", "9228", FI_SOURCE, h), -FI_ENODATA);
    IS(ask(API, "no-such-node.invalid", "9228", FI_NUMERICHOST, h), -FI_ENODATA);
    IS(ask(API, "g00n13s", "9228", 0, h), -FI_ENODATA);
    IS(ask(API, "127.0.0.1", "no such service", 0, h), -FI_ENODATA);
    IS(ask(API, "127.0.0.1", NULL, 0, h), 0);
    /* Flags that libfabric keeps for itself say nothing. */
    IS(ask(API, NULL, NULL, 1ull << 58, h), 0);
    IS(ask(API, NULL, NULL, FI_PROV_ATTR_ONLY, NULL), 0);
    /* Addresses in the hints come back. */
    uint8_t name[48] = {192, 2, 0, 192, 7, 0, 0, 0, 2, 7};
    h->addr_format = FI_ADDR_GNI;
    h->dest_addr = malloc(48);
    memcpy(h->dest_addr, name, 48);
    h->dest_addrlen = 48;
    IS(ask(API, NULL, NULL, 0, h), 0);
    HOLDS(found && found->dest_addrlen == 48 && memcmp(found->dest_addr, name, 48) == 0);
    h->dest_addrlen = 47;
    IS(ask(API, NULL, NULL, 0, h), -FI_ENODATA);
    fi_freeinfo(h);
    h = wish();
    h->addr_format = FI_ADDR_STR;
    h->dest_addr = strdup("gni;192.0.2.7;9228");
    h->dest_addrlen = strlen(h->dest_addr) + 1;
    IS(ask(API, NULL, NULL, 0, h), 0);
    HOLDS(found && strncmp(found->dest_addr, "gni;192.0.2.7;0x", 16) == 0);
    fi_freeinfo(h);
}

/* Nobody stands on it: neither a layer that is asked for nor one that is not. */
static void layers(void)
{
    static const char *const others[] = {"gni;ofi_rxm", "gni;ofi_rxd", "gni;ofi_mrail", "ofi_rxm;gni"};
    IS(ask(API, NULL, NULL, 0, NULL), 0);
    int seen = 0;
    for (struct fi_info *each = found; each; each = each->next) {
        HOLDS(!strstr(each->fabric_attr->prov_name, "gni;") && !strstr(each->fabric_attr->prov_name, ";gni"));
        seen += strcmp(each->fabric_attr->prov_name, "gni") == 0;
    }
    /* One of each type of endpoint. */
    IS(seen, 3);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        struct fi_info *h = wish();
        free(h->fabric_attr->prov_name);
        h->fabric_attr->prov_name = strdup(others[i]);
        h->mode = ~0ull;
        IS(ask(API, NULL, NULL, 0, h), -FI_ENODATA);
        fi_freeinfo(h);
    }
    for (int type = FI_EP_MSG; type <= FI_EP_RDM; type++) {
        struct fi_info *h = fi_allocinfo();
        h->ep_attr->type = (enum fi_ep_type) type;
        h->mode = ~0ull;
        if (ask(API, NULL, NULL, 0, h) == 0)
            for (struct fi_info *each = found; each; each = each->next)
                HOLDS(!strstr(each->fabric_attr->prov_name, "gni;"));
        fi_freeinfo(h);
    }
}

int main(int argc, char **argv)
{
    static const struct one_case all[] = {
        {"names", names}, {"types", types}, {"capabilities", capabilities}, {"attributes", attributes},
        {"registration", registration}, {"addresses", addresses}, {"layers", layers},
    };
    RUN(all, argc > 1 ? argv[1] : "");
    fi_freeinfo(found);
    return verdict();
}
