/* How a process ends that has the provider gni: with all closed, or with everything open; and libfabric seen by nobody
 * else (RTLD_LOCAL), under its own name or another, or two of them.
 *
 *     ends LIBRARY closed|open|threads|helped|helper [LIBRARY]
 *
 * With `helped` and `helper` the provider makes progress by itself; all is closed, or everything is open.
 */

#include <dlfcn.h>
#include <pthread.h>

#include "check.h"

typedef int (*getinfo_t)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
typedef int (*fabric_t)(struct fi_fabric_attr *, struct fid_fabric **, void *);
typedef void (*freeinfo_t)(struct fi_info *);
typedef struct fi_info *(*dupinfo_t)(const struct fi_info *);

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        printf("%s: %s\n", name, dlerror());
        exit(1);
    }
    return found;
}

static void *sleeper(void *cq)
{
    struct fi_cq_entry entry;
    fi_cq_sread(cq, &entry, 1, NULL, -1);
    return NULL;
}

static void use(const char *path, const char *how)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        exit(1);
    }
    struct fi_info *hints = ((dupinfo_t) symbol(library, "fi_dupinfo"))(NULL);
    hints->fabric_attr->prov_name = strdup("gni");
    if (strncmp(how, "help", 4) == 0)
        hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
    NEED(((getinfo_t) symbol(library, "fi_getinfo"))(API, NULL, NULL, 0, hints, &info));
    HOLDS(strcmp(info->fabric_attr->prov_name, "gni") == 0);
    NEED(((fabric_t) symbol(library, "fi_fabric"))(info->fabric_attr, &fabric, NULL));
    NEED(fi_domain(fabric, info, &domain, NULL));
    struct fid_cq *cq = a_cq(0, FI_CQ_FORMAT_UNSPEC, FI_WAIT_FD);
    struct fid_av *av = an_av(FI_AV_TABLE, 0);
    struct fid_ep *ep;
    NEED(fi_endpoint(domain, info, &ep, NULL));
    NEED(fi_ep_bind(ep, &av->fid, 0));
    NEED(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    NEED(fi_enable(ep));
    if (strcmp(how, "threads") == 0) {
        pthread_t thread;
        NEED(pthread_create(&thread, NULL, sleeper, cq));
    }
    if (strcmp(how, "closed") == 0 || strcmp(how, "helped") == 0) {
        IS(fi_close(&ep->fid), 0);
        IS(fi_close(&av->fid), 0);
        IS(fi_close(&cq->fid), 0);
        IS(fi_close(&domain->fid), 0);
        IS(fi_close(&fabric->fid), 0);
        ((freeinfo_t) symbol(library, "fi_freeinfo"))(info);
        ((freeinfo_t) symbol(library, "fi_freeinfo"))(hints);
        dlclose(library);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    use(argv[1], argv[2]);
    if (argc > 3)
        use(argv[3], argv[2]);
    return verdict();
}
