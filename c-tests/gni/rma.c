/* Reading and writing the memory of peers by the provider gni, one subject a run, between two processes; or within one,
 * between two endpoints and of one to itself.
 *
 *     rma SUBJECT apart|together|self offsets|addresses [auto]
 */

#include <sys/mman.h>

#include "pair.h"

static const size_t lengths[] = {0, 1, 8, 63, 192, 193, 4095, 4096, 4097, 20000, 65536, 300001, 1 << 20, 5 << 20};
enum { LENGTHS = sizeof(lengths) / sizeof(*lengths), ROOM = 6 << 20 };

static unsigned char *memory;
static struct region region;
static struct far far;

/* Every length is written and read back, in both directions. */
static void lengths_both_ways(void)
{
    static int contexts[2];
    uint64_t count = 0;
    for (int turn = 0; turn < 2 * LENGTHS; turn++) {
        size_t length = lengths[turn / 2], offset = turn & 2 ? 0 : 12345;
        struct end *from = sender(turn), *to = receiver(turn);
        unsigned char *out = some(length, turn), *in = calloc(1, length + 1);
        meet();
        if (from) {
            POST(fi_write(from->ep, out, length, NULL, from->peer, far.base + offset, far.key, &contexts[0]));
            struct fi_cq_tagged_entry entry = next(from->tx, NULL);
            HOLDS(entry.op_context == &contexts[0]);
            IS(entry.flags, FI_RMA | FI_WRITE);
        }
        meet();
        if (to) {
            HOLDS(same(memory + offset, length, turn));
            IS(memory[offset + length], 0);
        }
        meet();
        if (from) {
            POST(fi_read(from->ep, in, length, NULL, from->peer, far.base + offset, far.key, &contexts[1]));
            struct fi_cq_tagged_entry entry = next(from->tx, NULL);
            HOLDS(entry.op_context == &contexts[1]);
            IS(entry.flags, FI_RMA | FI_READ);
            HOLDS(same(in, length, turn) && in[length] == 0);
            if (from == here)
                count++;
        }
        meet();
        memset(memory, 0, length + offset);
        free(out);
        free(in);
    }
    IS(fi_cntr_read(here->reads), count);
    IS(fi_cntr_read(here->writes), count);
    IS(fi_cntr_read(here->remote_reads), count);
    IS(fi_cntr_read(here->remote_writes), count);
    HOLDS(is_empty(here->tx) && is_empty(here->rx));
}

/* Data that the target is told of. */
static void is_told(struct end *to, uint64_t data, size_t length)
{
    fi_addr_t source;
    struct fi_cq_tagged_entry entry = next(to->rx, &source);
    HOLDS(entry.op_context == NULL);
    IS(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    IS(entry.data, data);
    IS(entry.len, length);
    IS(source, to->peer);
}

/* All calls, with pieces on both sides. */
static void calls(void)
{
    struct end *to = receiver(0), *from = sender(0);
    unsigned char *out = some(9000, 3), in[9000];
    static int context;
    struct iovec outs[] = {{out, 10}, {out + 10, 0}, {out + 10, 90}}, ins[] = {{in, 33}, {in + 33, 67}};
    struct fi_rma_iov there[] = {{far.base + 1000, 50, far.key}, {far.base + 2000, 0, far.key}, {far.base + 3000, 40, far.key}, {far.base + 5000, 10, far.key}};
    struct fi_msg_rma message = {.msg_iov = outs, .iov_count = 3, .rma_iov = there, .rma_iov_count = 4, .context = &context, .data = 77};
    if (from) {
        fi_addr_t peer = message.addr = from->peer;
        POST(fi_write(from->ep, out, 100, NULL, peer, far.base, far.key, &context));
        POST(fi_writev(from->ep, outs, NULL, 3, peer, far.base + 100, far.key, &context));
        POST(fi_writemsg(from->ep, &message, 0));
        POST(fi_writedata(from->ep, out, 100, NULL, 78, peer, far.base + 200, far.key, &context));
        POST(fi_writedata(from->ep, out, 9000, NULL, 79, peer, far.base + 10000, far.key, &context));
        for (int i = 0; i < 5; i++) {
            struct fi_cq_tagged_entry entry = next(from->tx, NULL);
            HOLDS(entry.op_context == &context && entry.flags == (FI_RMA | FI_WRITE));
        }
        POST(fi_inject_write(from->ep, out, 100, peer, far.base + 300, far.key));
        POST(fi_inject_writedata(from->ep, out, 100, 80, peer, far.base + 400, far.key));
        there[0].addr += 500, there[2].addr += 500, there[3].addr += 500;
        POST(fi_writemsg(from->ep, &message, FI_REMOTE_CQ_DATA | FI_INJECT | FI_DELIVERY_COMPLETE));
        HOLDS(next(from->tx, NULL).op_context == &context);
        IS(fi_cntr_wait(from->writes, 8, 10000), 0);
        HOLDS(is_empty(from->tx));
    }
    if (to) {
        is_told(to, 78, 100);
        is_told(to, 79, 9000);
        is_told(to, 80, 100);
        is_told(to, 77, 100);
        for (int i = 0; i < 5; i++)
            HOLDS(same(memory + 100 * i, 100, 3));
        HOLDS(same(memory + 10000, 9000, 3));
        for (int i = 0; i <= 500; i += 500) {
            HOLDS(memcmp(memory + 1000 + i, out, 50) == 0 && memory[1050 + i] == 0 && memory[2000 + i] == 0);
            HOLDS(memcmp(memory + 3000 + i, out + 50, 40) == 0 && memcmp(memory + 5000 + i, out + 90, 10) == 0);
        }
        IS(fi_cntr_read(to->remote_writes), 8);
    }
    meet();
    if (from) {
        POST(fi_readv(from->ep, ins, NULL, 2, from->peer, far.base + 100, far.key, &context));
        next(from->tx, NULL);
        HOLDS(same(in, 100, 3));
        memset(in, 0, sizeof(in));
        message.msg_iov = ins, message.iov_count = 2;
        POST(fi_readmsg(from->ep, &message, FI_COMPLETION));
        next(from->tx, NULL);
        HOLDS(same(in, 100, 3));
        struct iovec long_ins[] = {{in, 5000}, {in + 5000, 4000}};
        struct fi_rma_iov long_there[] = {{far.base + 10000, 4500, far.key}, {far.base + 14500, 4500, far.key}};
        message = (struct fi_msg_rma){.msg_iov = long_ins, .iov_count = 2, .addr = from->peer, .rma_iov = long_there, .rma_iov_count = 2};
        POST(fi_readmsg(from->ep, &message, 0));
        next(from->tx, NULL);
        HOLDS(same(in, 9000, 3));

        /* What cannot be. */
        struct fi_rma_iov many[5] = {{far.base, 20, far.key}, {far.base, 20, far.key}, {far.base, 20, far.key}, {far.base, 20, far.key}, {far.base, 20, far.key}};
        message = (struct fi_msg_rma){.msg_iov = ins, .iov_count = 2, .addr = from->peer, .rma_iov = many, .rma_iov_count = 5};
        IS(fi_writemsg(from->ep, &message, 0), -FI_EINVAL);
        message.rma_iov_count = 4;
        IS(fi_writemsg(from->ep, &message, 0), -FI_EINVAL);
        IS(fi_writemsg(from->ep, NULL, 0), -FI_EINVAL);
        message.rma_iov = there, message.rma_iov_count = 4;
        IS(fi_writemsg(from->ep, &message, FI_PEEK), -FI_EBADFLAGS);
        IS(fi_readmsg(from->ep, &message, FI_REMOTE_CQ_DATA), -FI_EBADFLAGS);
        IS(fi_inject_write(from->ep, out, 1000, from->peer, far.base, far.key), -FI_EINVAL);
        IS(fi_write(from->ep, NULL, 8, NULL, from->peer, far.base, far.key, NULL), -FI_EINVAL);
        IS(fi_write(from->ep, out, 8, NULL, 99999, far.base, far.key, NULL), -FI_EINVAL);
        HOLDS(fi_write(from->ep, out, (size_t) 1 << 33, NULL, from->peer, far.base, far.key, NULL) < 0);
    }
    meet();
    free(out);
}

/* An operation that its target does not carry out, and why. */
static void is_refused(struct end *from, int reason)
{
    struct fi_cq_err_entry failed = next_error(from->tx);
    IS(failed.err, FI_EACCES);
    IS(failed.prov_errno, reason);
    HOLDS(failed.op_context == &far && failed.flags & FI_RMA);
}

/* Keys that there are not, places outside, access that was not given; all of it changes nothing. */
static void refusals(void)
{
    struct end *to = receiver(0), *from = sender(0);
    static unsigned char bytes[100000];
    struct region only[] = {offer(memory + 50000, 100, FI_REMOTE_READ, 501), offer(memory + 51000, 100, FI_REMOTE_WRITE, 502), offer(memory + 52000, 100, ANY_ACCESS, 503)};
    struct far reads = exchange(&only[0]), writes = exchange(&only[1]), closed = exchange(&only[2]);
    if (to)
        IS(fi_close(&only[2].mr->fid), 0);
    meet();
    if (from) {
        const struct {
            struct far of;
            uint64_t offset;
            size_t length;
            int is_read, reason;
        } all[] = {{far, ROOM - 10, 11, 0, FI_EINVAL}, {far, ROOM - 10, 11, 1, FI_EINVAL}, {far, ROOM - 10, 99999, 0, FI_EINVAL}, {far, ROOM - 10, 99999, 1, FI_EINVAL},
                   {far, -8ull, 8, 0, FI_EINVAL}, {far, 1ull << 63, 8, 1, FI_EINVAL}, {reads, 0, 8, 0, FI_EACCES}, {writes, 0, 8, 1, FI_EACCES},
                   {closed, 0, 8, 0, FI_ENOKEY}, {closed, 0, 99999, 1, FI_ENOKEY}, {{0x1234567, far.base}, 0, 5000, 0, FI_ENOKEY}};
        uint64_t failed[2] = {0};
        for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
            uint64_t address = all[i].of.base + all[i].offset;
            if (all[i].is_read)
                POST(fi_read(from->ep, bytes, all[i].length, NULL, from->peer, address, all[i].of.key, &far));
            else
                POST(fi_write(from->ep, bytes, all[i].length, NULL, from->peer, address, all[i].of.key, &far));
            is_refused(from, all[i].reason);
            failed[all[i].is_read]++;
        }
        /* Where nothing is reached, nothing is refused; and the same again where it is allowed. */
        POST(fi_write(from->ep, bytes, 0, NULL, from->peer, 0, 0x1234567, &far));
        POST(fi_read(from->ep, bytes, 8, NULL, from->peer, reads.base, reads.key, &far));
        POST(fi_write(from->ep, bytes, 8, NULL, from->peer, writes.base, writes.key, &far));
        for (int i = 0; i < 3; i++)
            HOLDS(next(from->tx, NULL).op_context == &far);
        /* One that has no entry has one when it fails. */
        POST(fi_inject_write(from->ep, bytes, 8, from->peer, reads.base, reads.key));
        struct fi_cq_err_entry silent = next_error(from->tx);
        HOLDS(silent.err == FI_EACCES && silent.op_context == NULL);
        failed[0]++;
        IS(fi_cntr_readerr(from->writes), failed[0]);
        IS(fi_cntr_readerr(from->reads), failed[1]);
    }
    meet();
    if (to) {
        IS(fi_cntr_read(to->remote_writes), 2);
        IS(fi_cntr_read(to->remote_reads), 1);
    }
    for (int i = 0; i < 3; i++)
        if (!to || i < 2)
            IS(fi_close(&only[i].mr->fid), 0);
    for (size_t i = 0; i < ROOM; i++)
        NEED(memory[i] != 0);
}

/* What is posted later is done later, whatever its length. */
static void order(void)
{
    enum { N = 400, LONG = 30000 };
    struct end *to = receiver(0), *from = sender(0);
    unsigned char *out[3] = {some(LONG, 1), some(LONG, 2), some(LONG, 3)}, *in = calloc(1, LONG), *late = calloc(1, LONG);
    for (int i = 0; from && i < N; i++) {
        size_t length = i % 3 ? 8 : i % 2 ? 3000 : LONG;
        /* Over and over; then what is there is read before it is written again, and after. */
        POST(fi_write(from->ep, out[0], length, NULL, from->peer, far.base, far.key, out[0]));
        POST(fi_write(from->ep, out[1], length, NULL, from->peer, far.base, far.key, out[0]));
        POST(fi_read(from->ep, in, length, NULL, from->peer, far.base, far.key, out[0]));
        POST(fi_write(from->ep, out[2], length, NULL, from->peer, far.base, far.key, out[0]));
        POST(fi_read(from->ep, late, length, NULL, from->peer, far.base, far.key, out[0]));
        for (int j = 0; j < 5; j++)
            HOLDS(next(from->tx, NULL).op_context == out[0]);
        HOLDS(same(in, length, 2) && same(late, length, 3));
    }
    /* More than any ring holds, none of which is waited for. */
    static uint64_t numbers[N * 10];
    int ended = 0;
    for (int i = 0; from && i < N * 10; i++) {
        numbers[i] = i + 1;
        POST(fi_write(from->ep, &numbers[i], 8, NULL, from->peer, far.base + 64 + i % 10 * 8, far.key, NULL));
        ended += !is_empty(from->tx);
    }
    while (from && ended < N * 10)
        ended += !is_empty(from->tx);
    meet();
    if (to)
        for (int i = 0; i < 10; i++)
            IS(((uint64_t *) memory)[8 + i], N * 10 - 10 + i + 1);
    for (int i = 0; i < 3; i++)
        free(out[i]);
    free(in);
    free(late);
}

/* What has a fence waits for all before, also for messages that nobody has received yet; what is behind it, too. */
static void fences(void)
{
    struct end *to = receiver(0), *from = sender(0);
    unsigned char *out = some(100000, 5), *in = calloc(1, 100000);
    struct iovec piece = {out, 100};
    struct fi_rma_iov there = {far.base, 100, far.key};
    struct fi_msg_rma message = {.msg_iov = &piece, .iov_count = 1, .rma_iov = &there, .rma_iov_count = 1, .context = &there};
    if (from) {
        message.addr = from->peer;
        POST(fi_tsend(from->ep, out, 100000, NULL, from->peer, 1, out));
        POST(fi_writemsg(from->ep, &message, FI_FENCE));
        POST(fi_tsend(from->ep, out, 8, NULL, from->peer, 2, out));
        struct fi_msg_tagged fenced = {.msg_iov = &piece, .iov_count = 1, .addr = from->peer, .tag = 3, .context = out};
        POST(fi_tsendmsg(from->ep, &fenced, FI_FENCE));
        POST(fi_write(from->ep, out, 100, NULL, from->peer, far.base + 200, far.key, &there));
        fenced.tag = 4;
        POST(fi_tsendmsg(from->ep, &fenced, FI_FENCE | FI_DELIVERY_COMPLETE));
        fenced.tag = 5;
        POST(fi_tsendmsg(from->ep, &fenced, FI_FENCE));
    }
    if (to) {
        POST(fi_trecv(to->ep, in, 100000, NULL, FI_ADDR_UNSPEC, 2, 0, &in[2]));
        for (int i = 0; i < 3000; i++) {
            stir();
            HOLDS(memory[1] == 0 && memory[201] == 0 && is_empty(to->rx));
        }
        POST(fi_trecv(to->ep, in, 100000, NULL, FI_ADDR_UNSPEC, 1, 0, &in[1]));
        struct fi_cq_tagged_entry entry = next(to->rx, NULL);
        HOLDS(entry.tag == 1 && entry.len == 100000);
        HOLDS(next(to->rx, NULL).tag == 2 && same(memory, 100, 5));
        for (int tag = 3; tag <= 5; tag++) {
            POST(fi_trecv(to->ep, in, 100000, NULL, FI_ADDR_UNSPEC, tag, 0, &in[1]));
            HOLDS(next(to->rx, NULL).tag == (uint64_t) tag);
            if (tag == 4)
                HOLDS(same(memory + 200, 100, 5));
        }
    }
    if (from) {
        HOLDS(next(from->tx, NULL).op_context == out);
        int writes = 0;
        for (int i = 0; i < 6; i++)
            writes += next(from->tx, NULL).op_context == &there;
        IS(writes, 2);
        HOLDS(is_empty(from->tx));
    }
    meet();
    free(out);
    free(in);
}

/* Counters of regions, of what is written there and of what is read. */
static void events(void)
{
    struct end *to = receiver(0), *from = sender(0);
    struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fid_cntr *written, *reached;
    struct region counted[2] = {{NULL, memory, 100}, {NULL, memory + 100, 100}};
    uint64_t word = 5;
    NEED(fi_cntr_open(domain, &attr, &written, NULL));
    NEED(fi_cntr_open(domain, &attr, &reached, NULL));
    for (int i = 0; i < 2; i++)
        NEED(fi_mr_reg(domain, counted[i].bytes, 100, ANY_ACCESS, 0, 601 + i, FI_RMA_EVENT, &counted[i].mr, NULL));
    IS(fi_mr_bind(counted[0].mr, &written->fid, FI_REMOTE_WRITE), 0);
    IS(fi_mr_bind(counted[0].mr, &written->fid, FI_REMOTE_WRITE), -FI_EINVAL);
    IS(fi_mr_bind(counted[1].mr, &reached->fid, FI_REMOTE_WRITE | FI_REMOTE_READ), 0);
    IS(fi_close(&written->fid), -FI_EBUSY);
    struct far one = exchange(&counted[0]), two = exchange(&counted[1]);
    if (from) {
        for (int i = 0; i < 3; i++) {
            POST(fi_inject_write(from->ep, &word, 8, from->peer, one.base, one.key));
            POST(fi_inject_write(from->ep, &word, 8, from->peer, two.base, two.key));
        }
        for (int i = 0; i < 2; i++) {
            POST(fi_read(from->ep, &word, 8, NULL, from->peer, one.base, one.key, NULL));
            POST(fi_read(from->ep, &word, 8, NULL, from->peer, two.base, two.key, NULL));
        }
        POST(fi_write(from->ep, &word, 8, NULL, from->peer, far.base, far.key, NULL));
        for (int i = 0; i < 5; i++)
            next(from->tx, NULL);
    }
    if (to) {
        IS(fi_cntr_wait(written, 3, 10000), 0);
        IS(fi_cntr_wait(reached, 5, 10000), 0);
    }
    meet();
    IS(fi_cntr_read(written), to ? 3 : 0);
    IS(fi_cntr_read(reached), to ? 5 : 0);
    if (to) {
        IS(fi_cntr_read(to->remote_writes), 7);
        IS(fi_cntr_read(to->remote_reads), 4);
    }
    for (int i = 0; i < 2; i++)
        IS(fi_close(&counted[i].mr->fid), 0);
    IS(fi_close(&written->fid), 0);
    IS(fi_close(&reached->fid), 0);
}

/* Memory is gone as soon as its region is closed, whatever is under way there. */
static void closing(void)
{
    enum { LONG = 1 << 20, N = 64 };
    struct end *to = receiver(0), *from = sender(0);
    unsigned char *out = some(LONG, 1);
    for (int turn = 0; turn < 6; turn++) {
        unsigned char *pages = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        NEED(pages == MAP_FAILED);
        struct region brief = offer(pages, LONG, ANY_ACCESS, 700 + turn);
        struct far there = exchange(&brief);
        size_t length = turn & 1 ? LONG : 1000;
        int posted = 0, failed = 0;
        meet();
        if (from)
            for (; posted < N; posted++) {
                if (turn & 2)
                    POST(fi_write(from->ep, out, length, NULL, from->peer, there.base, there.key, NULL));
                else
                    POST(fi_read(from->ep, out, length, NULL, from->peer, there.base, there.key, NULL));
                /* In one process nobody else closes it. */
                if (to && posted == N / 2)
                    IS(fi_close(&brief.mr->fid), 0);
            }
        else {
            for (int i = 0; i < turn; i++)
                stir();
            IS(fi_close(&brief.mr->fid), 0);
        }
        if (!from || to)
            NEED(munmap(pages, LONG));
        for (int i = 0; i < posted; i++) {
            struct fi_cq_tagged_entry entry;
            ssize_t read;
            while ((read = fi_cq_read(from->tx, &entry, 1)) == -FI_EAGAIN)
                ;
            if (read == -FI_EAVAIL) {
                IS(next_error(from->tx).prov_errno, FI_ENOKEY);
                failed++;
            } else {
                /* None ends well behind one that does not. */
                IS(failed, 0);
            }
        }
        meet();
        if (from && !to) {
            IS(fi_close(&brief.mr->fid), 0);
            NEED(munmap(pages, LONG));
        }
    }
    free(out);
}

/* All memory is one region: places are addresses. */
static void everything(void)
{
    struct end *to = receiver(0), *from = sender(0);
    struct region all = {NULL, memory, ROOM};
    NEED(fi_mr_reg(domain, NULL, UINTPTR_MAX, ANY_ACCESS, 0, 901, 0, &all.mr, NULL));
    struct region known = all;
    struct far there = exchange(&known);
    uint64_t where = (uintptr_t) memory, word = 4711, back = 0;
    if (wire[0] >= 0) {
        NEED(write(wire[0], &where, 8) != 8);
        NEED(recv(wire[0], &where, 8, MSG_WAITALL) != 8);
    }
    if (from) {
        POST(fi_write(from->ep, &word, 8, NULL, from->peer, where + 24, there.key, NULL));
        POST(fi_read(from->ep, &back, 8, NULL, from->peer, where + 24, there.key, NULL));
        next(from->tx, NULL);
        next(from->tx, NULL);
        IS(back, 4711);
    }
    meet();
    if (to)
        IS(((uint64_t *) memory)[3], 4711);
    IS(fi_close(&all.mr->fid), 0);
}

/* Only what asks for it has an entry; all is counted. */
static void selection(void)
{
    struct end *to = receiver(0), *from = sender(0);
    uint64_t word = 9;
    struct iovec piece = {&word, 8};
    struct fi_rma_iov there = {far.base, 8, far.key};
    struct fi_msg_rma message = {.msg_iov = &piece, .iov_count = 1, .rma_iov = &there, .rma_iov_count = 1, .context = &piece, .data = 3};
    if (from) {
        message.addr = from->peer;
        POST(fi_write(from->ep, &word, 8, NULL, from->peer, far.base, far.key, &word));
        POST(fi_writemsg(from->ep, &message, 0));
        POST(fi_writemsg(from->ep, &message, FI_COMPLETION | FI_REMOTE_CQ_DATA));
        POST(fi_read(from->ep, &word, 8, NULL, from->peer, far.base, far.key, &word));
        HOLDS(next(from->tx, NULL).op_context == &piece);
        IS(fi_cntr_wait(from->writes, 3, 10000), 0);
        IS(fi_cntr_wait(from->reads, 1, 10000), 0);
        HOLDS(is_empty(from->tx));
        IS(word, 9);
    }
    /* Who has asked for data has it. */
    if (to) {
        is_told(to, 3, 8);
        HOLDS(is_empty(to->rx));
    }
    meet();
}

/* Endpoints that may only do some of it: the parent begins, the child is read. */
static void rights(void)
{
    uint64_t word = 1;
    IS(info->caps & (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE), is_child ? FI_READ | FI_REMOTE_READ : FI_READ | FI_WRITE);
    if (is_child) {
        IS(fi_write(here->ep, &word, 8, NULL, here->peer, far.base, far.key, NULL), -FI_EOPNOTSUPP);
        IS(fi_inject_write(here->ep, &word, 8, here->peer, far.base, far.key), -FI_EOPNOTSUPP);
        POST(fi_read(here->ep, &word, 8, NULL, here->peer, far.base, far.key, &far));
        is_refused(here, FI_EACCES);
        uint64_t operation = 0;
        IS(fi_atomic(here->ep, &operation, 1, NULL, here->peer, far.base, far.key, FI_UINT64, FI_SUM, NULL), -FI_ENOSYS);
    } else {
        POST(fi_write(here->ep, &word, 8, NULL, here->peer, far.base, far.key, &far));
        is_refused(here, FI_EACCES);
        POST(fi_read(here->ep, &word, 8, NULL, here->peer, far.base, far.key, &far));
        HOLDS(next(here->tx, NULL).op_context == &far && word == 0);
    }
    meet();
}

/* A target that calls nothing, whose thread does what it is asked for. */
static void computes(void)
{
    char said;
    unsigned char *out = some(101000, 9), *in = calloc(1, 100000);
    if (!is_child) {
        static const size_t longs[] = {8, 3000, 100000};
        for (int i = 0; i < 300; i++) {
            size_t length = longs[i % 3];
            POST(fi_write(here->ep, out + i, length - i % 8, NULL, here->peer, far.base, far.key, out));
            POST(fi_read(here->ep, in, length - i % 8, NULL, here->peer, far.base, far.key, out));
            next(here->tx, NULL);
            next(here->tx, NULL);
            HOLDS(memcmp(in, out + i, length - i % 8) == 0);
        }
        NEED(write(wire[0], "x", 1) != 1);
    } else {
        /* Until it hears that all is done. */
        NEED(recv(wire[0], &said, 1, MSG_WAITALL) != 1);
    }
    free(out);
    free(in);
}

/* A peer that is killed: what it has not answered ends in error, and nothing hangs. */
static void death(void)
{
    enum { N = 10 };
    static unsigned char bytes[100000];
    POST(fi_write(here->ep, bytes, 8, NULL, here->peer, far.base, far.key, NULL));
    next(here->tx, NULL);
    meet();
    if (is_child) {
        char said;
        NEED(recv(wire[0], &said, 1, MSG_WAITALL) != 1);
        raise(SIGKILL);
    }
    int posted = 0;
    for (int i = 0; i < N; i++) {
        posted += fi_read(here->ep, bytes, sizeof(bytes), NULL, here->peer, far.base, far.key, bytes) == 0;
        posted += fi_write(here->ep, bytes, i * 1000, NULL, here->peer, far.base, far.key, bytes) == 0;
        posted += fi_inject_write(here->ep, bytes, 8, here->peer, far.base, far.key) == 0;
    }
    IS(posted, 3 * N);
    NEED(write(wire[0], "x", 1) != 1);
    int status;
    NEED(waitpid(child, &status, 0) != child);
    HOLDS(WIFSIGNALED(status));
    child = 0;
    for (int i = 0; i < posted; i++)
        HOLDS(next_error(here->tx).err != 0);
    IS(fi_cntr_readerr(here->reads) + fi_cntr_readerr(here->writes), 3 * N);
    close(wire[0]);
    wire[0] = -1;
}

int main(int argc, char **argv)
{
    static const struct one_case all[] = {
        {"lengths", lengths_both_ways}, {"calls", calls}, {"refusals", refusals}, {"order", order},
        {"fences", fences}, {"events", events}, {"closing", closing}, {"everything", everything},
        {"selection", selection}, {"rights", rights}, {"computes", computes}, {"death", death},
    };
    if (argc < 4)
        return 2;
    setbuf(stdout, NULL);
    caps = FI_MSG | FI_TAGGED | FI_SOURCE | FI_RMA | FI_RMA_EVENT | FI_FENCE;
    mr_mode = strcmp(argv[3], "addresses") == 0 ? BY_ADDRESS : 0;
    if (argc > 4)
        progress = FI_PROGRESS_AUTO;
    if (strcmp(argv[1], "selection") == 0)
        selective = FI_SELECTIVE_COMPLETION;
    if (strcmp(argv[1], "rights") == 0) {
        caps = FI_MSG | FI_RMA | FI_READ | FI_WRITE;
        childs_caps = FI_MSG | FI_RMA | FI_READ | FI_REMOTE_READ;
    }
    begin(argv[2]);
    memory = calloc(1, ROOM + 1);
    region = offer(memory, ROOM, ANY_ACCESS, 42);
    far = exchange(&region);
    RUN(all, argv[1]);
    meet();
    IS(fi_close(&region.mr->fid), 0);
    int status = end();
    free(memory);
    return status;
}
