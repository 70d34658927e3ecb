/* Preloaded, it makes libfabric's providers look poorer than they are, for programs that find
 * fi_getinfo by dlsym. Providers that truly are so poor are rare: here is none.
 *
 * NO_DIRECTED_RECV  names of providers, separated by commas, or `all`: they lack FI_DIRECTED_RECV
 *                   and completion data, hence are not among the answers to whoever asks for
 *                   either, and do not claim them to others
 * MAX_MSG_SIZE      the longest message of every provider, in bytes */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *,
                      struct fi_info **);
static void (*freeinfo)(struct fi_info *);

static bool is_undirected(const char *provider)
{
    const char *names = getenv("NO_DIRECTED_RECV");

    if (names == NULL)
        return false;
    if (strcmp(names, "all") == 0)
        return true;
    for (; *names != '\0'; names += strcspn(names, ","), names += *names == ',') {
        size_t length = strcspn(names, ",");
        if (strlen(provider) == length && strncmp(provider, names, length) == 0)
            return true;
    }
    return false;
}

static int getinfo_of_the_poor(uint32_t version, const char *node, const char *service,
                               uint64_t flags, const struct fi_info *hints, struct fi_info **list)
{
    const char *longest = getenv("MAX_MSG_SIZE");
    bool asked = hints != NULL &&
                 ((hints->caps & FI_DIRECTED_RECV) ||
                  (hints->domain_attr != NULL && hints->domain_attr->cq_data_size > 0));
    int code = getinfo(version, node, service, flags, hints, list);

    for (struct fi_info **place = list; code == 0 && *place != NULL;) {
        struct fi_info *info = *place;
        bool undirected = is_undirected(info->fabric_attr->prov_name);
        if (undirected && asked) {
            *place = info->next;
            info->next = NULL;
            freeinfo(info);
            continue;
        }
        if (undirected) {
            info->caps &= ~FI_DIRECTED_RECV;
            info->rx_attr->caps &= ~FI_DIRECTED_RECV;
            info->domain_attr->cq_data_size = 0;
        }
        if (longest != NULL)
            info->ep_attr->max_msg_size = strtoull(longest, NULL, 10);
        place = &info->next;
    }
    return code == 0 && *list == NULL ? -FI_ENODATA : code;
}

void *dlsym(void *handle, const char *name)
{
    static void *(*real)(void *, const char *);

    if (real == NULL)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (strcmp(name, "fi_getinfo") != 0)
        return real(handle, name);
    freeinfo = (void (*)(struct fi_info *))real(handle, "fi_freeinfo");
    *(void **)&getinfo = real(handle, name);
    return (void *)getinfo_of_the_poor;
}
