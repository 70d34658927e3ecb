/* What the programs share: checks that are counted, and the objects that everything else needs. */
#ifndef HAWSER_GNI_CHECK_H
#define HAWSER_GNI_CHECK_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define API FI_VERSION(1, 9)

/* Registration in one word, as before version 1.5; their names are deprecated in newer headers. */
enum { MR_BASIC = 1, MR_SCALABLE = 2 };

static int checks, wrong;

/* The other process is on another node, where HAWSER_GNI_OTHER is a descriptor of that one's network namespace. */
static inline void go_away(void)
{
    const char *other = getenv("HAWSER_GNI_OTHER");
    if (other && syscall(SYS_setns, atoi(other), 0) != 0) {
        perror("setns");
        exit(1);
    }
}

/* Both are numbers. */
#define IS(found, expected)                                                                      \
    do {                                                                                         \
        long long is_found = (long long) (found), is_expected = (long long) (expected);          \
        checks++;                                                                                \
        if (is_found != is_expected) {                                                           \
            wrong++;                                                                             \
            printf("%s:%d: %s is %lld, expected %lld (%s)\n", __FILE__, __LINE__, #found, is_found, is_expected, #expected); \
        }                                                                                        \
    } while (0)

#define HOLDS(condition)                                                                         \
    do {                                                                                         \
        checks++;                                                                                \
        if (!(condition)) {                                                                      \
            wrong++;                                                                             \
            printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                 \
        }                                                                                        \
    } while (0)

/* What nothing can go on without. */
#define NEED(code)                                                                               \
    do {                                                                                         \
        long long need = (long long) (code);                                                     \
        checks++;                                                                                \
        if (need != 0) {                                                                         \
            printf("%s:%d: %s is %lld\n", __FILE__, __LINE__, #code, need);                      \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

struct one_case {
    const char *name;
    void (*run)(void);
};

/* Runs the one of this name, which there must be. */
#define RUN(all, name) run_case(all, sizeof(all) / sizeof(*(all)), name)
static inline void run_case(const struct one_case *all, size_t count, const char *name)
{
    int is_known = 0;
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, all[i].name) == 0) {
            all[i].run();
            is_known = 1;
        }
    HOLDS(is_known);
}

static inline int verdict(void)
{
    if (wrong == 0 && checks > 0)
        printf("PASS\n");
    return wrong != 0 || checks == 0;
}

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;

/* Empty hints for this provider. */
static inline struct fi_info *wish(void)
{
    struct fi_info *hints = fi_allocinfo();
    if (!hints)
        exit(1);
    hints->fabric_attr->prov_name = strdup("gni");
    return hints;
}

static inline void open_domain(uint32_t api, struct fi_info *hints)
{
    NEED(fi_getinfo(api, NULL, NULL, 0, hints, &info));
    NEED(fi_fabric(info->fabric_attr, &fabric, NULL));
    NEED(fi_domain(fabric, info, &domain, NULL));
    fi_freeinfo(hints);
}

static inline void close_domain(void)
{
    IS(fi_close(&domain->fid), 0);
    IS(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
}

static inline struct fid_cq *a_cq(size_t size, enum fi_cq_format format, enum fi_wait_obj wait)
{
    struct fi_cq_attr attr = {.size = size, .format = format, .wait_obj = wait};
    struct fid_cq *cq = NULL;
    NEED(fi_cq_open(domain, &attr, &cq, NULL));
    return cq;
}

static inline struct fid_av *an_av(enum fi_av_type type, uint64_t flags)
{
    struct fi_av_attr attr = {.type = type, .flags = flags};
    struct fid_av *av = NULL;
    NEED(fi_av_open(domain, &attr, &av, NULL));
    return av;
}

static inline struct fid_eq *an_eq(size_t size, uint64_t flags, enum fi_wait_obj wait)
{
    struct fi_eq_attr attr = {.size = size, .flags = flags, .wait_obj = wait};
    struct fid_eq *eq = NULL;
    NEED(fi_eq_open(fabric, &attr, &eq, NULL));
    return eq;
}

#endif
