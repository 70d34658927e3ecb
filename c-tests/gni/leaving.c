/* An endpoint is closed while a peer copies from or to memory that it was told of: when that is over the memory is the program's
 * again, which writes something else there.
 *
 *     leaving get|put|send [auto]
 *
 * With `auto` the provider makes progress by itself, too.
 */

#include <sys/mman.h>

#include "pair.h"

enum { LENGTH = 256 << 20, BEFORE = 0x11, SENT = 0x5a, AFTER = 0x77, KEY = 3 };

static volatile unsigned char *theirs;
static unsigned char *mine;

/* How many bytes are not one of those two. */
static size_t others(volatile const unsigned char *bytes, int one, int two)
{
    size_t count = 0;
    for (size_t at = 0; at < LENGTH; at++)
        count += bytes[at] != one && bytes[at] != two;
    return count;
}

/* It leaves as soon as the other has begun to copy. */
static void leave(char what)
{
    volatile unsigned char *reached = what == 'g' ? mine : theirs;
    if (what == 'g')
        NEED(fi_read(here->ep, mine, LENGTH, NULL, here->peer, 0, KEY, NULL));
    else if (what == 'p')
        NEED(fi_write(here->ep, mine, LENGTH, NULL, here->peer, 0, KEY, NULL));
    else
        NEED(fi_send(here->ep, mine, LENGTH, NULL, here->peer, NULL));
    int before = what == 'g' ? SENT : BEFORE;
    while (reached[0] == before)
        stir();
    IS(fi_close(&here->ep->fid), 0);
    memset(mine, AFTER, LENGTH);
    meet();
    /* The other has done all that it is going to do. */
    meet();
    IS(others(mine, AFTER, AFTER), 0);
}

static void stay(char what)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry failed = {0};
    ssize_t count = 0;
    if (what == 's')
        NEED(fi_recv(here->ep, (void *) theirs, LENGTH, NULL, FI_ADDR_UNSPEC, NULL));
    while (what == 's' && (count = fi_cq_read(here->rx, &entry, 1)) == -FI_EAGAIN)
        ;
    if (count == -FI_EAVAIL) {
        IS(fi_cq_readerr(here->rx, &failed, 0), 1);
        IS(failed.err, FI_ECONNRESET);
    } else if (what == 's') {
        IS(count, 1);
        IS(others(theirs, SENT, SENT), 0);
    }
    meet();
    for (int look = 0; look < 1000; look++)
        stir();
    meet();
    IS(others(theirs, BEFORE, SENT), 0);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    char what = argv[1][0];
    setbuf(stdout, NULL);
    progress = argc > 2 ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
    caps = FI_MSG | FI_TAGGED | FI_RMA;
    theirs = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    HOLDS(theirs != MAP_FAILED);
    memset((void *) theirs, BEFORE, LENGTH);
    begin("apart");
    struct fid_mr *mr;
    NEED(fi_mr_reg(domain, (void *) theirs, LENGTH, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL));
    mine = malloc(LENGTH);
    memset(mine, SENT, LENGTH);
    char word[8];
    NEED(fi_recv(here->ep, word, sizeof(word), NULL, FI_ADDR_UNSPEC, NULL));
    POST(fi_send(here->ep, word, 0, NULL, here->peer, NULL));
    next(here->rx, NULL);
    next(here->tx, NULL);
    meet();
    if (is_child) {
        leave(what);
    } else {
        stay(what);
        IS(fi_close(&here->ep->fid), 0);
    }
    /* Of what was under way with the endpoint nothing more is said. */
    struct fid *rest[] = {&mr->fid, &here->av->fid, &here->tx->fid, &here->rx->fid, &here->sent->fid, &here->received->fid,
                          &here->reads->fid, &here->writes->fid, &here->remote_reads->fid, &here->remote_writes->fid};
    for (size_t i = 0; i < sizeof(rest) / sizeof(*rest); i++)
        IS(fi_close(rest[i]), 0);
    free(mine);
    close_domain();
    if (is_child)
        return wrong != 0;
    int status;
    NEED(waitpid(child, &status, 0) != child);
    IS(status, 0);
    return verdict();
}
