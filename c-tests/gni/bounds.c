/* Structures of a program end where those of libfabric 1.17 do, or those of the interface version that it asks for: each
 * lies before a page that nobody may read, so that whoever reads further ends the process. */

#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

/* A copy of so many bytes that ends with a page. */
static void *at_the_end(const void *from, size_t length)
{
    size_t page = (size_t) sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || length > page || mprotect(pages + page, page, PROT_NONE))
        exit(1);
    return memcpy(pages + page - length, from, length);
}

/* Bytes in libfabric 1.17. */
enum { DOMAIN = 192, EP = 96, TX = 80, RX = 64, FABRIC = 32, INFO = 120, CQ = 40, CNTR = 24, AV = 48, EQ = 32, CQ_ERROR = 80 };

static struct fi_info *short_info(const struct fi_info *whole)
{
    struct fi_info copy = *whole;
    copy.next = NULL;
    copy.tx_attr = at_the_end(whole->tx_attr, TX);
    copy.rx_attr = at_the_end(whole->rx_attr, RX);
    copy.ep_attr = at_the_end(whole->ep_attr, EP);
    copy.domain_attr = at_the_end(whole->domain_attr, DOMAIN);
    copy.fabric_attr = at_the_end(whole->fabric_attr, FABRIC);
    return at_the_end(&copy, INFO);
}

/* The provider's own function, without what libfabric does with hints before it. */
static void hints(void)
{
    struct fi_info *whole = wish();
    whole->caps = FI_MSG;
    struct fi_info *hints = short_info(whole);
    NEED(fi_getinfo(API, NULL, NULL, 0, hints, &info));
    fi_freeinfo(whole);
    NEED(fi_fabric(at_the_end(info->fabric_attr, FABRIC), &fabric, NULL));
    NEED(fi_domain(fabric, short_info(info), &domain, NULL));
    struct fid_ep *ep;
    NEED(fi_endpoint(domain, short_info(info), &ep, NULL));
    IS(fi_close(&ep->fid), 0);
    close_domain();
}

static void attributes(void)
{
    struct fid_cq *cq;
    struct fid_cntr *counter;
    struct fid_av *av;
    struct fid_eq *eq;
    open_domain(API, wish());
    NEED(fi_cq_open(domain, at_the_end(&(struct fi_cq_attr){.size = 1, .wait_obj = FI_WAIT_UNSPEC}, CQ), &cq, NULL));
    NEED(fi_cntr_open(domain, at_the_end(&(struct fi_cntr_attr){0}, CNTR), &counter, NULL));
    NEED(fi_av_open(domain, at_the_end(&(struct fi_av_attr){0}, AV), &av, NULL));
    NEED(fi_eq_open(fabric, at_the_end(&(struct fi_eq_attr){0}, EQ), &eq, NULL));
    struct fi_cq_err_entry failed = {0};
    /* Newer headers write to the end themselves before they call. */
    IS(cq->ops->readerr(cq, at_the_end(&failed, CQ_ERROR), 0), -FI_EAGAIN);
    IS(fi_close(&cq->fid), 0);
    IS(fi_close(&counter->fid), 0);
    IS(fi_close(&av->fid), 0);
    IS(fi_close(&eq->fid), 0);
    close_domain();
}

/* The attributes of a registration have grown twice. */
static void registrations(void)
{
    static const struct {
        uint32_t api;
        size_t length;
    } all[] = {{FI_VERSION(1, 4), 48}, {FI_VERSION(1, 5), 64}, {FI_VERSION(1, 8), 64}, {FI_VERSION(1, 9), 80}, {FI_VERSION(1, 17), 80}};
    static char buffer[8];
    struct iovec piece = {buffer, sizeof(buffer)};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        struct fid_mr *mr;
        open_domain(all[i].api, wish());
        struct fi_mr_attr attr = {.mr_iov = at_the_end(&piece, sizeof(piece)), .iov_count = 1, .access = FI_REMOTE_READ};
        NEED(domain->mr->regattr(&domain->fid, at_the_end(&attr, all[i].length), 0, &mr));
        IS(fi_close(&mr->fid), 0);
        close_domain();
    }
}

/* What is said of an error has grown. */
static void errors(void)
{
    static const struct {
        uint32_t api;
        size_t length;
    } all[] = {{FI_VERSION(1, 4), 72}, {FI_VERSION(1, 5), CQ_ERROR}};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        struct fi_info *hints = wish();
        hints->caps = FI_MSG;
        open_domain(all[i].api, hints);
        struct fid_cq *cq = a_cq(0, FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE);
        struct fid_av *av = an_av(FI_AV_MAP, 0);
        struct fid_ep *ep;
        NEED(fi_endpoint(domain, info, &ep, NULL));
        NEED(fi_ep_bind(ep, &av->fid, 0));
        NEED(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
        NEED(fi_enable(ep));
        char room[8];
        NEED(fi_recv(ep, room, sizeof(room), NULL, FI_ADDR_UNSPEC, &cq));
        NEED(fi_cancel(&ep->fid, &cq));
        struct fi_cq_entry entry;
        while (fi_cq_read(cq, &entry, 1) == -FI_EAGAIN)
            ;
        struct fi_cq_err_entry nothing = {0}, *failed = at_the_end(&nothing, all[i].length);
        IS(cq->ops->readerr(cq, failed, 0), 1);
        HOLDS(failed->op_context == &cq && failed->err == FI_ECANCELED && failed->err_data == NULL);
        IS(fi_close(&ep->fid), 0);
        IS(fi_close(&av->fid), 0);
        IS(fi_close(&cq->fid), 0);
        close_domain();
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "errors") == 0)
        errors();
    if (argc > 1 && strcmp(argv[1], "hints") == 0)
        hints();
    if (argc > 1 && strcmp(argv[1], "attributes") == 0)
        attributes();
    if (argc > 1 && strcmp(argv[1], "registrations") == 0)
        registrations();
    return verdict();
}
