/* Messages of 0 bytes, of every power of two with one byte less and one more, and at the borders of
 * usual packets, between the two ranks of each pair: there and back, then several under way in both
 * directions at once. All payloads are verified.
 *
 * usage: sizes [longest in bytes, default 64 MiB] */
#include "check.h"

enum { THERE = 40, BACK, BOTH, PAIR = 2, UNDER_WAY = 16, AT_ONCE = 4 << 20 };

static const size_t borders[] = {
    /* Payloads of UDP and of TCP in frames of 1500 and 9000 bytes, over IPv4 and IPv6. */
    1440, 1448, 1452, 1460, 1472, 8940, 8948, 8952, 8960, 8972,
    /* The longest datagram, and limits of BTLs. */
    65507, 25 * 1024, 150 * 1024,
};

static size_t longest = 64u << 20, space;
static int peer;
static unsigned serial;
static unsigned char *out, *in;

static uint64_t seed_from(int source, unsigned number)
{
    return (uint64_t)source * 1000000007u + number;
}

static void check_one(const unsigned char *at, size_t n, size_t room, uint64_t seed)
{
    VERIFY_WORDS(at, n, seed);
    UNTOUCHED(at + n, at + room);
}

/* The even rank's message goes to the odd one, and another of the same length comes back. */
static void there_and_back(size_t size)
{
    int n = (int)size;
    unsigned number = ++serial;
    MPI_Status status;
    doing("there and back", n);
    fill_words(out, size, seed_from(check_rank, number));
    memset(in, 0xA5, size + CHECK_GUARD);
    if (check_rank % PAIR == 0)
        MPI(MPI_Send(out, n, MPI_BYTE, peer, THERE, MPI_COMM_WORLD));
    MPI(MPI_Recv(in, n, MPI_BYTE, peer, check_rank % PAIR == 0 ? BACK : THERE, MPI_COMM_WORLD, &status));
    CHECK_STATUS(&status, peer, check_rank % PAIR == 0 ? BACK : THERE, n);
    check_one(in, size, size + CHECK_GUARD, seed_from(peer, number));
    if (check_rank % PAIR == 1)
        MPI(MPI_Send(out, n, MPI_BYTE, peer, BACK, MPI_COMM_WORLD));
}

/* Several at once, both ways; every other round the receives come after the sends. */
static void several_under_way(size_t size, bool late)
{
    size_t room = size + CHECK_GUARD;
    int n = (int)size, count = UNDER_WAY;
    MPI_Request requests[2 * UNDER_WAY];
    MPI_Status statuses[2 * UNDER_WAY];
    while (count > 2 && (size_t)count * size > AT_ONCE)
        count /= 2;
    if ((size_t)count * room > space)
        count = 1;
    doing(late ? "several under way, received late" : "several under way", n);
    memset(in, 0xA5, (size_t)count * room);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < count; i++) {
            size_t at = (size_t)i * room;
            if ((turn == 0) == late) {
                fill_words(out + at, size, seed_from(check_rank, serial + (unsigned)i));
                MPI(MPI_Isend(out + at, n, MPI_BYTE, peer, BOTH + i, MPI_COMM_WORLD, &requests[i]));
            } else {
                MPI(MPI_Irecv(in + at, n, MPI_BYTE, peer, BOTH + i, MPI_COMM_WORLD,
                              &requests[count + i]));
            }
        }
    }
    MPI(MPI_Waitall(2 * count, requests, statuses));
    for (int i = 0; i < count; i++) {
        size_t at = (size_t)i * room;
        CHECK_STATUS(&statuses[count + i], peer, BOTH + i, n);
        check_one(in + at, size, room, seed_from(peer, serial + (unsigned)i));
    }
    serial += (unsigned)count;
}

static void all_of(size_t size)
{
    if (size > longest)
        return;
    there_and_back(size);
    several_under_way(size, false);
    if (size <= AT_ONCE)
        several_under_way(size, true);
}

int main(int argc, char **argv)
{
    check_start(&argc, &argv, "sizes", MPI_THREAD_SINGLE, PAIR);
    if (argc > 1)
        longest = strtoul(argv[1], NULL, 0);
    if (!CHECK(check_size % PAIR == 0) || !CHECK(longest <= INT_MAX - CHECK_GUARD))
        MPI_Abort(MPI_COMM_WORLD, 2);
    peer = check_rank ^ 1;
    space = (longest > AT_ONCE ? longest : AT_ONCE) + UNDER_WAY * CHECK_GUARD;
    out = malloc(space);
    in = malloc(space);
    if (out == NULL || in == NULL)
        abort();
    all_of(0);
    for (size_t power = 2; power <= longest; power *= 2) {
        all_of(power - 1);
        all_of(power);
        all_of(power + 1);
    }
    for (size_t i = 0; i < sizeof borders / sizeof borders[0]; i++) {
        all_of(borders[i] - 1);
        all_of(borders[i]);
        all_of(borders[i] + 1);
    }
    free(out);
    free(in);
    return check_finish();
}
