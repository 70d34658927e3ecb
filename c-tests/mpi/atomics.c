/* Words of all ranks that all ranks change at once, the rank's own among them, under passive target: Fetch_and_op,
 * Compare_and_swap and Accumulate, on windows of both kinds, and of words that are not where devices have them. Ends with the counters of btl/verbs.
 *
 * usage: atomics [ROUNDS] */
#include "check.h"
#include "counters.h"

enum { TICKETS, SUM, LOCK, GUARDED, WORDS };

static int rounds = 50;
static int64_t *words;
static MPI_Win win;

static int64_t fetch(int target, int word, int64_t add)
{
    int64_t was = -1;
    MPI(MPI_Fetch_and_op(&add, &was, MPI_INT64_T, target, word, MPI_SUM, win));
    MPI(MPI_Win_flush(target, win));
    return was;
}

static int64_t swap(int target, int word, int64_t compare, int64_t value)
{
    int64_t was = -1;
    MPI(MPI_Compare_and_swap(&value, &compare, &was, MPI_INT64_T, target, word, win));
    MPI(MPI_Win_flush(target, win));
    return was;
}

/* No two draw the same ticket: each rank marks those that it has drawn. */
static void draw_tickets(int target)
{
    int all = rounds * check_size;
    int *drawn = calloc((size_t)all, sizeof *drawn);
    int64_t last = -1;
    for (int i = 0; i < rounds; i++) {
        int64_t ticket = fetch(target, TICKETS, 1);
        if (!CHECK(ticket > last && ticket < all)) break;
        drawn[ticket] = 1;
        last = ticket;
    }
    MPI(MPI_Allreduce(MPI_IN_PLACE, drawn, all, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < all; i++) CHECK_EQ(drawn[i], 1);
    free(drawn);
}

/* What one rank at a time does, behind a lock of compare-and-swap, is never half done. */
static void guard(int target)
{
    for (int i = 0; i < rounds / 10 + 1; i++) {
        while (swap(target, LOCK, 0, check_rank + 1) != 0) {}
        int64_t was = fetch(target, GUARDED, 0), is;
        is = was + 1;
        MPI(MPI_Put(&is, 1, MPI_INT64_T, target, GUARDED, 1, MPI_INT64_T, win));
        MPI(MPI_Win_flush(target, win));
        CHECK_EQ(swap(target, LOCK, check_rank + 1, 0), check_rank + 1);
    }
}

static void everything(const char *kind)
{
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check_rank, 0, win));
    memset(words, 0, WORDS * sizeof *words);
    MPI(MPI_Win_unlock(check_rank, win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock_all(0, win));
    for (int target = 0; target < check_size; target++) {
        doing(kind, target);
        draw_tickets(target);
        guard(target);
        for (int64_t i = 1; i <= rounds; i++) MPI(MPI_Accumulate(&i, 1, MPI_INT64_T, target, SUM, 1, MPI_INT64_T, MPI_SUM, win));
        MPI(MPI_Win_flush(target, win));
    }
    MPI(MPI_Win_unlock_all(win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check_rank, 0, win));
    CHECK_EQ(words[TICKETS], (int64_t)rounds * check_size);
    CHECK_EQ(words[SUM], (int64_t)rounds * (rounds + 1) / 2 * check_size);
    CHECK_EQ(words[LOCK], 0);
    CHECK_EQ(words[GUARDED], (int64_t)(rounds / 10 + 1) * check_size);
    MPI(MPI_Win_unlock(check_rank, win));
    MPI(MPI_Win_free(&win));
}

/* A word where no device changes one: in the middle between two of 64 bits, as in a packed structure. */
static void between_words(void)
{
    char *bytes = calloc(3, 8);
    int64_t was, sum;
    int times = rounds / 10 + 1;
    MPI(MPI_Win_create(bytes, 24, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI(MPI_Win_lock_all(0, win));
    for (int target = 0; target < check_size; target++) {
        doing("between words", target);
        for (int64_t i = 1; i <= times; i++) {
            MPI(MPI_Fetch_and_op(&i, &was, MPI_INT64_T, target, 4, MPI_SUM, win));
            MPI(MPI_Accumulate(&i, 1, MPI_INT64_T, target, 12, 1, MPI_INT64_T, MPI_SUM, win));
            MPI(MPI_Win_flush(target, win));
        }
    }
    MPI(MPI_Win_unlock_all(win));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check_rank, 0, win));
    for (int at = 4; at <= 12; at += 8) {
        memcpy(&sum, bytes + at, sizeof sum);
        CHECK_EQ(sum, (int64_t)times * (times + 1) / 2 * check_size);
    }
    MPI(MPI_Win_unlock(check_rank, win));
    MPI(MPI_Win_free(&win));
    free(bytes);
}

int main(int argc, char **argv)
{
    check_start(&argc, &argv, "atomics", MPI_THREAD_SINGLE, 1);
    if (argc > 1) rounds = atoi(argv[1]);
    counters_begin("btl_verbs_");
    int64_t *own = calloc(WORDS, sizeof *own);
    words = own;
    MPI(MPI_Win_create(words, WORDS * sizeof *words, sizeof *words, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    everything("Win_create");
    MPI(MPI_Win_allocate(WORDS * sizeof *words, sizeof *words, MPI_INFO_NULL, MPI_COMM_WORLD, &words, &win));
    everything("Win_allocate");
    between_words();
    free(own);
    counters_print();
    return check_finish();
}
