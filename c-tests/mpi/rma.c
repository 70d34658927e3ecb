/* One-sided communication on windows of both kinds: fence, post/start, locks and flushes with
 * Put, Get and the accumulating operations. Works for any number of ranks from 2.
 *
 * usage: rma [small] [allocate] [coarse]
 * "small" stops at 4 KiB, for slow providers. "allocate" leaves out MPI_Win_create, which
 * Open MPI 5.0 with pml cm refuses on one node (its own MTL included). "coarse" stops at 4 KiB
 * where bytes do not lie together: to osc/rdma each of them is a message. */
#include "check.h"

enum { SPACE = 256 << 10, EDGE = 256, WINDOW = SPACE + 2 * EDGE, TICKETS = 50 };

static const int sizes[] = { 1, 8, 64, 1000, 4096, 20000, 65536, SPACE };
static int size_count = sizeof sizes / sizeof sizes[0];

static unsigned char *memory, *scratch;
static MPI_Win win;
static int right, left, strided_most = SPACE;

/* What this rank does to its own window between epochs is done under a lock of it. */
static void own_access_begin(void)
{
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check_rank, 0, win));
}

static void own_access_end(void)
{
    MPI(MPI_Win_unlock(check_rank, win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

static void clear_window(unsigned char value)
{
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    own_access_begin();
    memset(memory, value, WINDOW);
    own_access_end();
}

/* n bytes of `seed` after the edge, and nothing else written. */
static void verify_window(int n, unsigned seed)
{
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    own_access_begin();
    VERIFY(memory + EDGE, (size_t)n, seed);
    UNTOUCHED(memory, memory + EDGE);
    UNTOUCHED(memory + EDGE + n, memory + WINDOW);
    own_access_end();
}

static void fence(int n)
{
    doing("fence, Put", n);
    clear_window(0xA5);
    fill(scratch, (size_t)n, seed_of(check_rank, 1, (size_t)n));
    MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
    MPI(MPI_Put(scratch, n, MPI_BYTE, right, EDGE, n, MPI_BYTE, win));
    MPI(MPI_Win_fence(0, win));
    VERIFY(memory + EDGE, (size_t)n, seed_of(left, 1, (size_t)n));

    doing("fence, Get", n);
    memset(scratch, 0, (size_t)n);
    MPI(MPI_Get(scratch, n, MPI_BYTE, right, EDGE, n, MPI_BYTE, win));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    VERIFY(scratch, (size_t)n, seed_of(check_rank, 1, (size_t)n));
    verify_window(n, seed_of(left, 1, (size_t)n));
}

static void post_start(int n)
{
    MPI_Group world, origin, target;
    int flag = 0;
    doing("post, start, complete, wait", n);
    clear_window(0xA5);
    MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    MPI(MPI_Group_incl(world, 1, &left, &origin));
    MPI(MPI_Group_incl(world, 1, &right, &target));
    for (int round = 0; round < 3; round++) {
        fill(scratch, (size_t)n, seed_of(check_rank, round, (size_t)n));
        MPI(MPI_Win_post(origin, 0, win));
        MPI(MPI_Win_start(target, 0, win));
        MPI(MPI_Put(scratch, n, MPI_BYTE, right, EDGE, n, MPI_BYTE, win));
        MPI(MPI_Win_complete(win));
        if (round == 1)
            while (!flag)
                MPI(MPI_Win_test(win, &flag));
        else
            MPI(MPI_Win_wait(win));
        VERIFY(memory + EDGE, (size_t)n, seed_of(left, round, (size_t)n));

        MPI(MPI_Win_post(origin, MPI_MODE_NOPUT, win));
        MPI(MPI_Win_start(target, 0, win));
        memset(scratch, 0, (size_t)n);
        MPI(MPI_Get(scratch, n, MPI_BYTE, right, EDGE, n, MPI_BYTE, win));
        MPI(MPI_Win_complete(win));
        VERIFY(scratch, (size_t)n, seed_of(check_rank, round, (size_t)n));
        MPI(MPI_Win_wait(win));
    }
    MPI(MPI_Group_free(&origin));
    MPI(MPI_Group_free(&target));
    MPI(MPI_Group_free(&world));
    verify_window(n, seed_of(left, 2, (size_t)n));
}

static void locks(int n)
{
    unsigned char *back = guarded_new((size_t)n);
    doing("lock, Put, flush, Get", n);
    clear_window(0xA5);
    fill(scratch, (size_t)n, seed_of(check_rank, 2, (size_t)n));
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, win));
    MPI(MPI_Put(scratch, n, MPI_BYTE, right, EDGE, n, MPI_BYTE, win));
    MPI(MPI_Win_flush(right, win));
    MPI(MPI_Get(back, n, MPI_BYTE, right, EDGE, n, MPI_BYTE, win));
    MPI(MPI_Win_flush_local(right, win));
    VERIFY(back, (size_t)n, seed_of(check_rank, 2, (size_t)n));
    MPI(MPI_Win_unlock(right, win));
    verify_window(n, seed_of(left, 2, (size_t)n));

    doing("shared lock, Get", n);
    memset(back, 0, (size_t)n);
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win));
    MPI(MPI_Get(back, n, MPI_BYTE, right, EDGE, n, MPI_BYTE, win));
    MPI(MPI_Win_unlock(right, win));
    VERIFY(back, (size_t)n, seed_of(check_rank, 2, (size_t)n));
    GUARDED_FREE(back, (size_t)n);
}

/* Requests, and one part of the window for each rank. */
static void lock_all(int n)
{
    int part = n / check_size;
    unsigned char *out = guarded_new((size_t)part), *in = guarded_new((size_t)part);
    MPI_Request request;
    doing("lock_all, Rput, Rget", n);
    clear_window(0xA5);
    MPI(MPI_Win_lock_all(0, win));
    for (int to = 0; to < check_size; to++) {
        MPI_Aint place = EDGE + check_rank * part;
        fill(out, (size_t)part, seed_of(check_rank, to, (size_t)part));
        memset(in, 0, (size_t)part);
        MPI(MPI_Rput(out, part, MPI_BYTE, to, place, part, MPI_BYTE, win, &request));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        MPI(MPI_Win_flush(to, win));
        MPI(MPI_Rget(in, part, MPI_BYTE, to, place, part, MPI_BYTE, win, &request));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        VERIFY(in, (size_t)part, seed_of(check_rank, to, (size_t)part));
    }
    MPI(MPI_Win_flush_all(win));
    MPI(MPI_Win_unlock_all(win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    own_access_begin();
    for (int from = 0; from < check_size; from++)
        VERIFY(memory + EDGE + from * part, (size_t)part,
               seed_of(from, check_rank, (size_t)part));
    UNTOUCHED(memory + EDGE + check_size * part, memory + WINDOW);
    own_access_end();
    GUARDED_FREE(out, (size_t)part);
    GUARDED_FREE(in, (size_t)part);
}

/* All ranks add to all windows at once. */
static void accumulate(int n)
{
    int count = n / (int)sizeof(int), ranks = check_size * (check_size + 1) / 2;
    int *values = (int *)(void *)scratch, *own = (int *)(void *)(memory + EDGE);
    doing("Accumulate", n);
    clear_window(0);
    for (int i = 0; i < count; i++)
        values[i] = (check_rank + 1) * (i % 1000 + 1);
    for (int shared = 0; shared < 2; shared++) {
        if (shared)
            MPI(MPI_Win_lock_all(0, win));
        else
            MPI(MPI_Win_fence(0, win));
        for (int to = 0; to < check_size; to++)
            MPI(MPI_Accumulate(values, count, MPI_INT, to, EDGE, count, MPI_INT, MPI_SUM, win));
        if (shared)
            MPI(MPI_Win_unlock_all(win));
        else
            MPI(MPI_Win_fence(0, win));
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        own_access_begin();
        for (int i = 0; i < count; i++)
            if (!CHECK_EQ(own[i], (shared + 1) * ranks * (i % 1000 + 1)))
                break;
        own_access_end();
    }

    doing("Accumulate with MAX and REPLACE", n);
    MPI(MPI_Win_fence(0, win));
    for (int i = 0; i < count; i++)
        values[i] = 1 << 20 | check_rank << 10 | i % 1000;
    MPI(MPI_Accumulate(values, count, MPI_INT, 0, EDGE, count, MPI_INT, MPI_MAX, win));
    MPI(MPI_Win_fence(0, win));
    if (check_rank == check_size - 1)
        MPI(MPI_Accumulate(values, count, MPI_INT, 1, EDGE, count, MPI_INT, MPI_REPLACE, win));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    own_access_begin();
    for (int i = 0; i < count && check_rank < 2; i++)
        if (!CHECK_EQ(own[i], 1 << 20 | (check_size - 1) << 10 | i % 1000))
            break;
    own_access_end();
}

/* Each rank fetches the old content and adds its own: with exclusive locks the results form
 * a chain that ends in the full sum. */
static void get_accumulate(int n)
{
    int count = n / (int)sizeof(int), total = check_size * (check_size + 1) / 2;
    int *values = (int *)(void *)scratch, *own = (int *)(void *)(memory + EDGE);
    int *old = (int *)(void *)guarded_new((size_t)count * sizeof *old);
    doing("Get_accumulate", n);
    clear_window(0);
    for (int i = 0; i < count; i++)
        values[i] = check_rank + 1;
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
    MPI(MPI_Get_accumulate(values, count, MPI_INT, old, count, MPI_INT, 0, EDGE, count, MPI_INT,
                           MPI_SUM, win));
    MPI(MPI_Win_unlock(0, win));
    for (int i = 0; i < count; i++)
        if (!CHECK_EQ(old[i], old[0]) || !CHECK(old[i] >= 0 && old[i] <= total - check_rank - 1))
            break;
    MPI(MPI_Barrier(MPI_COMM_WORLD));

    doing("Get_accumulate with NO_OP", n);
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    MPI(MPI_Get_accumulate(NULL, 0, MPI_INT, old, count, MPI_INT, 0, EDGE, count, MPI_INT,
                           MPI_NO_OP, win));
    MPI(MPI_Win_unlock(0, win));
    for (int i = 0; i < count; i++)
        if (!CHECK_EQ(old[i], total))
            break;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    own_access_begin();
    for (int i = 0; i < count; i++)
        if (!CHECK_EQ(own[i], check_rank == 0 ? total : 0))
            break;
    own_access_end();
    GUARDED_FREE((unsigned char *)old, (size_t)count * sizeof *old);
}

enum counter { FETCH_AND_OP, GET_ACCUMULATE, COMPARE_AND_SWAP, COUNTERS };

/* Compare_and_swap on an int: Open MPI 4.1's osc/rdma over shared memory crashes on 8 bytes. */
static long long take_ticket(enum counter how)
{
    long long one = 1, got = -1;
    int seen = 0, was = -1, next;
    switch (how) {
    case FETCH_AND_OP:
        MPI(MPI_Fetch_and_op(&one, &got, MPI_LONG_LONG, 0, EDGE, MPI_SUM, win));
        break;
    case GET_ACCUMULATE:
        MPI(MPI_Get_accumulate(&one, 1, MPI_LONG_LONG, &got, 1, MPI_LONG_LONG, 0, EDGE, 1,
                               MPI_LONG_LONG, MPI_SUM, win));
        break;
    default:
        for (;;) {
            next = seen + 1;
            MPI(MPI_Compare_and_swap(&next, &seen, &was, MPI_INT, 0, EDGE, win));
            MPI(MPI_Win_flush(0, win));
            if (was == seen)
                return was;
            seen = was;
        }
    }
    MPI(MPI_Win_flush(0, win));
    return got;
}

/* The ranks draw tickets from one counter: every number is given out exactly once. */
static void tickets(enum counter how)
{
    int total = TICKETS * check_size;
    long long mine[TICKETS] = { 0 }, last = -1;
    long long *all = malloc((size_t)total * sizeof *all);
    bool *seen = calloc((size_t)total, sizeof *seen);
    doing("tickets", how);
    clear_window(0);
    MPI(MPI_Win_lock_all(0, win));
    for (int i = 0; i < TICKETS; i++) {
        mine[i] = take_ticket(how);
        CHECK(mine[i] > last);
        last = mine[i];
    }
    MPI(MPI_Win_unlock_all(win));
    doing("gathering tickets", how);
    MPI(MPI_Allgather(mine, TICKETS, MPI_LONG_LONG, all, TICKETS, MPI_LONG_LONG,
                      MPI_COMM_WORLD));
    for (int i = 0; i < total; i++) {
        long long ticket = all[i];
        if (CHECK(ticket >= 0 && ticket < total)) {
            CHECK(!seen[ticket]);
            seen[ticket] = true;
        }
    }
    free(all);
    free(seen);
}

/* Every second byte of the target, from and into plain bytes. */
static void strided(int n)
{
    MPI_Datatype second;
    int count = n / 2;
    doing("strided Put and Get", n);
    if (count == 0 || n > strided_most)
        return;
    clear_window(0xA5);
    MPI(MPI_Type_vector(count, 1, 2, MPI_BYTE, &second));
    MPI(MPI_Type_commit(&second));
    fill(scratch, (size_t)count, seed_of(check_rank, 4, (size_t)n));
    MPI(MPI_Win_fence(0, win));
    MPI(MPI_Put(scratch, count, MPI_BYTE, right, EDGE, 1, second, win));
    MPI(MPI_Win_fence(0, win));
    memset(scratch, 0, (size_t)count);
    MPI(MPI_Get(scratch, count, MPI_BYTE, right, EDGE, 1, second, win));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    VERIFY(scratch, (size_t)count, seed_of(check_rank, 4, (size_t)n));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    own_access_begin();
    for (int i = 0; i < count; i++)
        if (!CHECK_EQ(memory[EDGE + 2 * i], pattern(seed_of(left, 4, (size_t)n), (size_t)i)) ||
            !CHECK_EQ(memory[EDGE + 2 * i + 1], 0xA5))
            break;
    own_access_end();
    MPI(MPI_Type_free(&second));
}

static void everything(void)
{
    for (int s = 0; s < size_count; s++) {
        fence(sizes[s]);
        post_start(sizes[s]);
        locks(sizes[s]);
        lock_all(sizes[s]);
        accumulate(sizes[s]);
        get_accumulate(sizes[s]);
        strided(sizes[s]);
    }
    for (int how = 0; how < COUNTERS; how++)
        tickets((enum counter)how);
}

int main(int argc, char **argv)
{
    check_start(&argc, &argv, "rma", MPI_THREAD_SINGLE, 2);
    bool create = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "small") == 0)
            size_count -= 3;
        if (strcmp(argv[i], "coarse") == 0)
            strided_most = 4096;
        create = create && strcmp(argv[i], "allocate") != 0;
    }
    right = (check_rank + 1) % check_size;
    left = (check_rank + check_size - 1) % check_size;
    scratch = guarded_new(SPACE);

    doing("Win_allocate", 0);
    MPI(MPI_Win_allocate(WINDOW, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    everything();
    doing("Win_free", 0);
    MPI(MPI_Win_free(&win));

    if (create) {
        unsigned char *own = guarded_new(WINDOW);
        doing("Win_create", 0);
        memory = own;
        MPI(MPI_Win_create(memory, WINDOW, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
        everything();
        doing("Win_free", 1);
        MPI(MPI_Win_free(&win));
        GUARDED_FREE(own, WINDOW);
    }
    GUARDED_FREE(scratch, SPACE);
    return check_finish();
}
