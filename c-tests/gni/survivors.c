/* Three processes, of which one is killed while it has something under way with both others: they hear of it, and go on with
 * each other, before, meanwhile and afterwards.
 *
 *     survivors talk [auto]
 *
 * With `auto` the provider makes progress by itself, too.
 */

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* The first process has forked the others, and outlives them. */
enum { FIRST, SECOND, KILLED, ALL };
enum { LONG = 300001, ROUNDS = 20, LAST_ROUND = 2 * ROUNDS, NEVER = 1 << 20, FROM_KILLED, TO_KILLED, LATE };

/* An operation: it is its own context. */
struct operation {
    int is_done, error;
};

static int self, wires[ALL] = {-1, -1, -1};
static pid_t children[ALL];
static struct fid_ep *ep;
static struct fid_cq *cq;
static struct fid_av *av;
static fi_addr_t peers[ALL];
static struct operation from_killed, to_killed;
static unsigned char out[LONG], in[LONG], unread[LONG];

/* Reads one entry, if there is one. */
static void look(void)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry failed = {0};
    ssize_t count = fi_cq_read(cq, &entry, 1);
    if (count == 1) {
        ((struct operation *) entry.op_context)->is_done = 1;
    } else if (count == -FI_EAVAIL) {
        IS(fi_cq_readerr(cq, &failed, 0), 1);
        ((struct operation *) failed.op_context)->error = failed.err;
    } else {
        IS(count, -FI_EAGAIN);
    }
}

/* Until the call is not refused for want of room. */
#define POST(call)                              \
    do {                                        \
        ssize_t posted;                         \
        while ((posted = (call)) == -FI_EAGAIN) \
            look();                             \
        IS(posted, 0);                          \
    } while (0)

static void wait_for(struct operation *operation)
{
    while (!operation->is_done && operation->error == 0)
        look();
}

static void fill(size_t length, int seed)
{
    for (size_t at = 0; at < length; at++)
        out[at] = (unsigned char) (seed + at * 7 + at / 251);
}

/* A message each way with another process, short and long in turn. */
static void exchange(int other, int round)
{
    size_t length = round % 2 ? LONG : 8;
    uint64_t tag = (uint64_t) round;
    struct operation send = {0}, receive = {0};
    fill(length, round + self);
    memset(in, 0, length);
    POST(fi_trecv(ep, in, length, NULL, peers[other], tag, 0, &receive));
    POST(fi_tsend(ep, out, length, NULL, peers[other], tag, &send));
    wait_for(&send);
    wait_for(&receive);
    IS(send.error, 0);
    IS(receive.error, 0);
    fill(length, round + other);
    IS(memcmp(in, out, length), 0);
}

/* A word with another process beside the provider. Meanwhile there is progress. */
static void meet(int other)
{
    char word = 'x';
    NEED(write(wires[other], &word, 1) != 1);
    while (recv(wires[other], &word, 1, MSG_DONTWAIT) != 1)
        look();
}

static void fork_others(void)
{
    for (int other = SECOND; other < ALL; other++) {
        int pair[2];
        NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        children[other] = fork();
        NEED(children[other] < 0);
        if (children[other] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            self = other;
            wires[FIRST] = pair[0];
            close(pair[1]);
            return;
        }
        close(pair[0]);
        wires[other] = pair[1];
    }
}

static void begin(int is_auto)
{
    char names[ALL][48];
    size_t length = sizeof(names[0]);
    fork_others();
    struct fi_info *hints = wish();
    hints->caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    if (is_auto)
        hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
    open_domain(API, hints);
    cq = a_cq(0, FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
    struct fi_av_attr attr = {.type = FI_AV_TABLE};
    NEED(fi_av_open(domain, &attr, &av, NULL));
    NEED(fi_endpoint(domain, info, &ep, NULL));
    NEED(fi_ep_bind(ep, &av->fid, 0));
    NEED(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    NEED(fi_enable(ep));
    NEED(fi_getname(&ep->fid, names[self], &length));
    if (self == FIRST) {
        for (int other = SECOND; other < ALL; other++)
            NEED(recv(wires[other], names[other], length, MSG_WAITALL) != (ssize_t) length);
        for (int other = SECOND; other < ALL; other++)
            NEED(write(wires[other], names, sizeof(names)) != sizeof(names));
    } else {
        NEED(write(wires[FIRST], names[self], length) != (ssize_t) length);
        NEED(recv(wires[FIRST], names, sizeof(names), MSG_WAITALL) != sizeof(names));
    }
    IS(fi_av_insert(av, names, ALL, peers, 0, NULL), ALL);
}

/* Until it is killed: what it has sent is announced, and never asked for. */
static void be_killed(void)
{
    struct operation sends[ALL] = {{0}};
    for (int other = FIRST; other < KILLED; other++)
        POST(fi_tsend(ep, out, LONG, NULL, peers[other], NEVER, &sends[other]));
    meet(FIRST);
    for (;;)
        look();
}

static void talk(void)
{
    struct operation late = {0};
    for (int round = 0; round < 4; round++)
        for (int other = FIRST; other < ALL; other++)
            if (other != self)
                exchange(other, round);
    if (self == KILLED)
        be_killed();
    POST(fi_trecv(ep, unread, LONG, NULL, peers[KILLED], FROM_KILLED, 0, &from_killed));
    POST(fi_tsend(ep, unread, LONG, NULL, peers[KILLED], TO_KILLED, &to_killed));
    int other = self == FIRST ? SECOND : FIRST;
    meet(other);
    if (self == FIRST) {
        int status;
        meet(KILLED);
        IS(kill(children[KILLED], SIGKILL), 0);
        NEED(waitpid(children[KILLED], &status, 0) != children[KILLED]);
        HOLDS(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    for (int round = 4; round < ROUNDS; round++)
        exchange(other, round);
    wait_for(&from_killed);
    wait_for(&to_killed);
    HOLDS(from_killed.error != 0 && to_killed.error != 0);
    if (fi_tsend(ep, unread, 8, NULL, peers[KILLED], LATE, &late) == 0) {
        wait_for(&late);
        HOLDS(late.error != 0);
    }
    for (int round = ROUNDS; round < LAST_ROUND; round++)
        exchange(other, round);
    meet(other);
}

static int end(void)
{
    IS(fi_close(&ep->fid), 0);
    IS(fi_close(&av->fid), 0);
    IS(fi_close(&cq->fid), 0);
    close_domain();
    if (self != FIRST)
        return wrong != 0;
    int status;
    NEED(waitpid(children[SECOND], &status, 0) != children[SECOND]);
    IS(status, 0);
    return verdict();
}

int main(int argc, char **argv)
{
    static const struct one_case all[] = {{"talk", talk}};
    if (argc < 2)
        return 2;
    setbuf(stdout, NULL);
    begin(argc > 2 && strcmp(argv[2], "auto") == 0);
    RUN(all, argv[1]);
    return end();
}
