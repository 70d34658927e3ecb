/* All to all, round after round: every rank sends every rank a message of a length drawn for the
 * three, point to point, and then one of the round's own length by MPI_Alltoall and MPI_Alltoallv.
 * All payloads are verified. Any number of ranks from 2; meant for 4 to 8.
 *
 * usage: alltoall [rounds, default 20] [longest in bytes, default 1 MiB] [PREFIX]
 *                                        with PREFIX it also says what the counters of these names have
 *                                        counted, from before the first message on
 *        alltoall PATH [longest]         rounds until there is a file of that name; then it also says
 *                                        what the usnic BTL has counted meanwhile */
#include "counters.h"

enum { TAG = 50, TAG_TOKEN, TAG_NONE };

static const size_t lengths[] = {
    0, 1, 7, 64, 255, 256, 257, 1000, 1447, 1448, 1449, 1471, 1472, 1473, 4096, 8971, 8972, 8973,
    25600, 32768, 65507, 65536, 131071, 153600, 262144, 524289, 1 << 20,
};
enum { LENGTHS = sizeof lengths / sizeof lengths[0] };

static size_t longest = 1 << 20;
static int round_number;
static unsigned char *out, *in;
static size_t *out_places, *in_places;
static MPI_Request *requests;
static MPI_Status *statuses;

static uint64_t seed_between(int source, int target, int kind)
{
    return (((uint64_t)round_number * 4 + (uint64_t)kind) * 64 + (uint64_t)source) * 64 + (uint64_t)target;
}

static size_t length_between(int source, int target)
{
    uint64_t drawn = word_of(seed_between(source, target, 0), 1) >> 32;
    size_t length = lengths[drawn % LENGTHS];
    return length < longest ? length : longest;
}

/* The places of messages of these lengths, one after the other with a guard zone behind each. */
static size_t place(size_t *places, bool sent, size_t fixed)
{
    size_t at = 0;
    for (int i = 0; i < check_size; i++) {
        places[i] = at;
        at += (fixed != SIZE_MAX ? fixed : sent ? length_between(check_rank, i) : length_between(i, check_rank)) + CHECK_GUARD;
    }
    return at;
}

static void verify_all(size_t fixed, int kind)
{
    for (int i = 0; i < check_size; i++) {
        size_t n = fixed != SIZE_MAX ? fixed : length_between(i, check_rank);
        unsigned char *at = in + in_places[i];
        VERIFY_WORDS(at, n, seed_between(i, check_rank, kind));
        UNTOUCHED(at + n, at + n + CHECK_GUARD);
    }
}

static void point_to_point(void)
{
    doing("point to point, round", round_number);
    place(out_places, true, SIZE_MAX);
    memset(in, 0xA5, place(in_places, false, SIZE_MAX));
    for (int i = 0; i < check_size; i++) {
        /* Not all begin with the same peer. */
        int from = (check_rank + check_size - i) % check_size, to = (check_rank + i) % check_size;
        size_t n = length_between(check_rank, to);
        fill_words(out + out_places[to], n, seed_between(check_rank, to, 1));
        MPI(MPI_Irecv(in + in_places[from], (int)length_between(from, check_rank), MPI_BYTE, from, TAG,
                      MPI_COMM_WORLD, &requests[from]));
        MPI(MPI_Isend(out + out_places[to], (int)n, MPI_BYTE, to, TAG, MPI_COMM_WORLD,
                      &requests[check_size + to]));
    }
    MPI(MPI_Waitall(2 * check_size, requests, statuses));
    for (int i = 0; i < check_size; i++)
        CHECK_STATUS(&statuses[i], i, TAG, (int)length_between(i, check_rank));
    verify_all(SIZE_MAX, 1);
}

/* MPI_Alltoall lays messages end to end, so the guards are inside what is exchanged: the sender's
 * go along. */
static void collective(void)
{
    size_t n = lengths[word_of((uint64_t)round_number, 7) % LENGTHS], stride;
    n = n < longest ? n : longest;
    stride = n + CHECK_GUARD;
    doing("MPI_Alltoall, round", round_number);
    memset(out, 0xA5, place(out_places, true, n));
    memset(in, 0, place(in_places, false, n));
    for (int i = 0; i < check_size; i++)
        fill_words(out + out_places[i], n, seed_between(check_rank, i, 2));
    MPI(MPI_Alltoall(out, (int)stride, MPI_BYTE, in, (int)stride, MPI_BYTE, MPI_COMM_WORLD));
    verify_all(n, 2);
}

static void collective_of_many_lengths(void)
{
    int *counts = malloc(4 * (size_t)check_size * sizeof *counts);
    int *from = counts + check_size, *in_counts = from + check_size, *to = in_counts + check_size;
    if (counts == NULL)
        abort();
    doing("MPI_Alltoallv, round", round_number);
    place(out_places, true, SIZE_MAX);
    memset(in, 0xA5, place(in_places, false, SIZE_MAX));
    for (int i = 0; i < check_size; i++) {
        counts[i] = (int)length_between(check_rank, i);
        from[i] = (int)out_places[i];
        in_counts[i] = (int)length_between(i, check_rank);
        to[i] = (int)in_places[i];
        fill_words(out + out_places[i], (size_t)counts[i], seed_between(check_rank, i, 3));
    }
    MPI(MPI_Alltoallv(out, counts, from, MPI_BYTE, in, in_counts, to, MPI_BYTE, MPI_COMM_WORLD));
    verify_all(SIZE_MAX, 3);
    free(counts);
}

/* What rank 0 sees holds for all. */
static bool wanted(int rounds, const char *path)
{
    int go_on = path != NULL ? access(path, F_OK) != 0 : round_number < rounds;
    doing("MPI_Bcast, round", round_number);
    MPI(MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD));
    return go_on;
}

/* What a transport puts off is done when it has been asked for a while. */
static void linger(void)
{
    int flag;
    for (int i = 0; i < 1000; i++)
        MPI(MPI_Iprobe(MPI_ANY_SOURCE, TAG_NONE, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
}

/* Begins or ends the counting so that of two ranks each counts as received what the other counts as
 * sent: rank 0 first, with nothing under way, then rank 1, and nobody goes on before. The token to
 * rank 1 counts as sent when the counting begins, and as received when it ends. */
static void in_turn(void (*act)(void))
{
    char token = 0;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    linger();
    if (check_rank == 1) {
        MPI(MPI_Recv(&token, 1, MPI_BYTE, 0, TAG_TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        linger();
    }
    act();
    if (check_rank < 2)
        MPI(MPI_Send(&token, 1, MPI_BYTE, 1 - check_rank, TAG_TOKEN, MPI_COMM_WORLD));
    if (check_rank == 0)
        MPI(MPI_Recv(&token, 1, MPI_BYTE, 1, TAG_TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

static void begin_counting(void) { counters_begin("btl_usnic_"); }

int main(int argc, char **argv)
{
    const char *path = argc > 1 && strchr(argv[1], '/') != NULL ? argv[1] : NULL;
    const char *prefix = argc > 3 ? argv[3] : NULL;
    int rounds = 20;
    size_t room;
    check_start(&argc, &argv, "alltoall", MPI_THREAD_SINGLE, 2);
    if (argc > 1 && path == NULL)
        rounds = atoi(argv[1]);
    if (argc > 2)
        longest = strtoul(argv[2], NULL, 0);
    if (!CHECK(check_size <= 64) || !CHECK(rounds > 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    room = (size_t)check_size * (longest + CHECK_GUARD);
    out = malloc(room);
    in = malloc(room);
    out_places = calloc(2 * (size_t)check_size, sizeof *out_places);
    requests = malloc(2 * (size_t)check_size * sizeof *requests);
    statuses = malloc(2 * (size_t)check_size * sizeof *statuses);
    if (out == NULL || in == NULL || out_places == NULL || requests == NULL || statuses == NULL)
        abort();
    in_places = out_places + check_size;
    if (prefix != NULL)
        counters_begin(prefix);
    else if (path != NULL)
        in_turn(begin_counting);
    for (; wanted(rounds, path); round_number++) {
        point_to_point();
        collective();
        collective_of_many_lengths();
    }
    if (prefix != NULL)
        counters_print();
    else if (path != NULL)
        in_turn(counters_print);
    free(out);
    free(in);
    free(out_places);
    free(requests);
    free(statuses);
    return check_finish();
}
