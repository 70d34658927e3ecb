/* Atomics: what they do, what they may not, how many are under way at once; and a connection of a process to itself. */
#define _GNU_SOURCE
#include "ends.h"

/* A fetch-and-add of the word at the beginning of the peer's memory, or a compare-and-swap. */
static struct ibv_send_wr atomic(
    struct end *end, struct ibv_sge *sge, struct remote remote, enum ibv_wr_opcode opcode, uint64_t first, uint64_t second)
{
    struct ibv_send_wr wr = work(end, sge, opcode, 8);
    wr.wr.atomic.remote_addr = remote.address;
    wr.wr.atomic.rkey = (uint32_t)remote.key;
    wr.wr.atomic.compare_add = first;
    wr.wr.atomic.swap = second;
    return wr;
}
static volatile uint64_t *word(const struct end *end, size_t at) { return (uint64_t *)(void *)(end->memory + at); }

/* The parent's side of all of them: its word is 100, and then what it has to be. */
static void serves(void (*act)(void), struct options options, uint64_t then)
{
    struct child child = family(act);
    struct end end = accepts(child, options);
    *word(&end, 0) = 100;
    shows(&end, child.to);
    await(child.from);
    IS(*word(&end, 0), iwarp() ? 100 : then);
    tell(child.to);
    parts_then(&end);
    join(child);
}
static struct end asks(struct options options, struct remote *remote)
{
    struct end end = connects(options);
    take(from_parent, remote, sizeof *remote);
    return end;
}
static void has_asked(struct end *end)
{
    tell(to_parent);
    await(from_parent);
    parts_first(end);
}

/* --- what they do */

static void adds_and_swaps(void)
{
    struct remote remote;
    struct ibv_sge sge;
    struct end end = asks(usual, &remote);
    volatile uint64_t *old = word(&end, SIZE / 2);
    struct ibv_send_wr wr = atomic(&end, &sge, remote, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0);
    IS(posts(&end, &wr), iwarp() ? -EINVAL : 0);
    if (!iwarp()) {
        struct ibv_wc wc = completion(end.sends);
        IS(wc.status, IBV_WC_SUCCESS);
        IS(wc.opcode, IBV_WC_FETCH_ADD);
        IS(*old, 100);
    }
    wr = atomic(&end, &sge, remote, IBV_WR_ATOMIC_CMP_AND_SWP, 105, 7);
    for (int i = 0; i < 2; i++) { /* the second finds the first's */
        IS(posts(&end, &wr), iwarp() ? -EINVAL : 0);
        if (iwarp()) continue;
        IS(completion(end.sends).opcode, IBV_WC_COMP_SWAP);
        IS(*old, i == 0 ? 105 : 7);
    }
    has_asked(&end);
}
static void adding_and_swapping(void) { serves(adds_and_swaps, usual, 7); }

/* --- what is refused when it is posted */

static void posts_what_is_none(void)
{
    struct remote remote;
    struct ibv_sge sge, both[2];
    struct end end = asks(usual, &remote);
    for (int what = 0; what < 6; what++) {
        struct ibv_send_wr wr = atomic(&end, &sge, remote, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0);
        if (what == 0) wr.wr.atomic.remote_addr += 4;
        if (what == 1) sge.addr += 4;
        if (what == 2) sge.length = 4;
        if (what == 3) sge.length = 16;
        if (what == 4) wr.send_flags |= IBV_SEND_INLINE;
        if (what == 5) {
            both[0] = both[1] = (struct ibv_sge){sge.addr, 4, sge.lkey};
            wr.sg_list = both;
            wr.num_sge = 2;
        }
        IS(posts(&end, &wr), code(EINVAL));
    }
    has_asked(&end);
}
static void what_is_no_word(void) { serves(posts_what_is_none, usual, 100); }

/* --- what the peer refuses, or this end's own memory */

enum mischief { WRONG_KEY, NOT_ATOMIC, TOO_FAR, NO_PLACE };
static int mischief;

static void asks_what_it_may_not(void)
{
    struct remote remote;
    struct ibv_sge sge;
    struct end end = asks(usual, &remote);
    struct ibv_mr *mr = ibv_reg_mr(end.pd, end.memory, SLOT, IBV_ACCESS_REMOTE_READ);
    struct ibv_send_wr wr = atomic(&end, &sge, remote, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0);
    if (mischief == WRONG_KEY) wr.wr.atomic.rkey ^= 0x55;
    if (mischief == TOO_FAR) wr.wr.atomic.remote_addr += SIZE;
    if (mischief == NO_PLACE) sge = (struct ibv_sge){(uintptr_t)end.memory, 8, mr->lkey};
    IS(posts(&end, &wr), iwarp() ? -EINVAL : 0);
    if (!iwarp()) IS(status_of(end.sends), mischief == NO_PLACE ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR);
    tell(to_parent);
    await(from_parent);
    OK(ibv_dereg_mr(mr));
    if (iwarp()) OK(rdma_disconnect(end.id));
    leaves(&end);
}
static void refused(int what, uint64_t then)
{
    mischief = what;
    struct child child = family(asks_what_it_may_not);
    struct end end = accepts(child, usual);
    const int all_but = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    struct ibv_mr *mr = ibv_reg_mr(end.pd, end.memory, SIZE, what == NOT_ATOMIC ? all_but : rights(usual));
    struct remote remote = {(uintptr_t)end.memory, mr->rkey};
    *word(&end, 0) = 100;
    put(child.to, &remote, sizeof remote);
    await(child.from);
    IS(*word(&end, 0), iwarp() ? 100 : then);
    tell(child.to);
    expect_disconnected(&end);
    OK(ibv_dereg_mr(mr));
    leaves(&end);
    join(child);
}
static void a_wrong_key(void) { refused(WRONG_KEY, 100); }
static void memory_without_the_right(void) { refused(NOT_ATOMIC, 100); }
static void too_far(void) { refused(TOO_FAR, 100); }
/* The peer has done it by then. */
static void no_place_for_what_was(void) { refused(NO_PLACE, 105); }

/* --- how many */

/* More than the peer serves wait by themselves, among reads, and each finds what those before it have left. */
static void adds_many(void)
{
    struct options options = usual;
    struct remote remote;
    struct ibv_sge sge;
    options.depth = 2;
    struct end end = asks(options, &remote);
    for (uint64_t i = 0; i < 16; i++) {
        struct ibv_send_wr wr = i % 4 == 3 ? work(&end, &sge, IBV_WR_RDMA_READ, 8)
                                           : atomic(&end, &sge, remote, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0);
        if (i % 4 == 3) wr.wr.rdma.remote_addr = remote.address, wr.wr.rdma.rkey = (uint32_t)remote.key;
        sge.addr += i * 8;
        if (!iwarp()) OK(posts(&end, &wr));
    }
    for (uint64_t i = 0; i < 16 && !iwarp(); i++) {
        IS(status_of(end.sends), IBV_WC_SUCCESS);
        IS(*word(&end, SIZE / 2 + i * 8), 100 + i - i / 4);
    }
    has_asked(&end);
}
static void atomics_wait_for_room(void)
{
    struct options options = usual;
    options.depth = 2;
    serves(adds_many, options, 112);
}

/* Who serves no reads serves no atomics. */
static void adds_where_none_is_served(void)
{
    struct options options = usual;
    struct remote remote;
    struct ibv_sge sge;
    options.depth = 0;
    struct end end = asks(options, &remote);
    struct ibv_send_wr wr = atomic(&end, &sge, remote, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0);
    IS(posts(&end, &wr), code(EINVAL));
    has_asked(&end);
}
static void none_is_served(void)
{
    struct options options = usual;
    options.depth = 0;
    serves(adds_where_none_is_served, options, 100);
}

/* --- a process and itself */

static void to_itself(void)
{
    int port[2];
    if (pipe(port) != 0) abort();
    struct end far = {0}, near = {0};
    struct ibv_sge sge;
    listens(&far, port[1]);
    resolves(&near, port[0]);
    builds(&near, usual);
    OK(rdma_connect(near.id, &near.param));
    far.id = event(far.channel).id;
    builds(&far, usual);
    OK(rdma_accept(far.id, &far.param));
    IS(event_kind(near.channel), RDMA_CM_EVENT_ESTABLISHED);
    IS(event_kind(far.channel), RDMA_CM_EVENT_ESTABLISHED);
    *word(&far, 0) = 100;
    struct remote remote = {(uintptr_t)far.memory, far.mr->rkey};
    struct ibv_send_wr wr = atomic(&near, &sge, remote, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0);
    IS(posts(&near, &wr), iwarp() ? -EINVAL : 0);
    if (!iwarp()) {
        IS(status_of(near.sends), IBV_WC_SUCCESS);
        IS(*word(&near, SIZE / 2), 100);
        IS(*word(&far, 0), 105);
    }
    OK(sends(&near, 8, IBV_SEND_SIGNALED));
    IS(status_of(far.receives), IBV_WC_SUCCESS);
    IS(status_of(near.sends), IBV_WC_SUCCESS);
    OK(rdma_disconnect(near.id));
    expect_disconnected(&far);
    OK(rdma_disconnect(far.id));
    expect_disconnected(&near);
    leaves(&near);
    leaves(&far);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"adding-and-swapping", adding_and_swapping},
        {"what-is-no-word", what_is_no_word},
        {"a-wrong-key", a_wrong_key},
        {"memory-without-the-right", memory_without_the_right},
        {"too-far", too_far},
        {"no-place-for-what-was", no_place_for_what_was},
        {"atomics-wait-for-room", atomics_wait_for_room},
        {"none-is-served", none_is_served},
        {"to-itself", to_itself},
    };
    RUN(tests);
}
