/* Intercommunicators between two parts of MPI_COMM_WORLD: messages in every mode, probes,
 * collectives, copies and merging. Meant for 4 ranks, works for any number from 2. */
#include "check.h"

enum { DATA = 30, OTHER = 31, LONGEST = 70000, MAX_RANKS = 16 };

static const size_t sizes[] = { 0, 1, 64, 300, 4096, LONGEST };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* Ranks below `cut` form the low part, in the order of their ranks; the others the high part,
 * in the opposite order. */
static int cut;
static bool low;
static int me, mine, theirs;
static MPI_Comm local, inter;

static int world_of_remote(int rank)
{
    return low ? check_size - 1 - rank : rank;
}

static int world_of_local(int rank)
{
    return low ? rank : check_size - 1 - rank;
}

static void make(int at)
{
    int flag = 0, n;
    MPI_Group world, group;
    cut = at;
    low = check_rank < cut;
    doing("Intercomm_create, low part of", cut);
    MPI(MPI_Comm_split(MPI_COMM_WORLD, low, low ? check_rank : -check_rank, &local));
    MPI(MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, low ? check_size - 1 : 0, 9, &inter));
    MPI(MPI_Comm_test_inter(inter, &flag));
    CHECK(flag);
    MPI(MPI_Comm_rank(inter, &me));
    MPI(MPI_Comm_size(inter, &mine));
    MPI(MPI_Comm_remote_size(inter, &theirs));
    CHECK_EQ(world_of_local(me), check_rank);
    CHECK_EQ(mine, low ? cut : check_size - cut);
    CHECK_EQ(theirs, check_size - mine);
    MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    MPI(MPI_Comm_remote_group(inter, &group));
    for (int i = 0; i < theirs; i++) {
        MPI(MPI_Group_translate_ranks(group, 1, &i, world, &n));
        CHECK_EQ(n, world_of_remote(i));
    }
    MPI(MPI_Group_free(&group));
    MPI(MPI_Group_free(&world));
}

static unsigned pair_seed(int from_world, int to_world, size_t n)
{
    return seed_of(from_world * MAX_RANKS + to_world, DATA, n);
}

static void send_to_all(int mode, size_t n, MPI_Comm comm)
{
    unsigned char *out = guarded_new(n);
    for (int to = 0; to < theirs; to++) {
        MPI_Request request = MPI_REQUEST_NULL;
        fill(out, n, pair_seed(check_rank, world_of_remote(to), n));
        switch (mode) {
        case 0: MPI(MPI_Send(out, (int)n, MPI_BYTE, to, DATA, comm)); break;
        case 1: MPI(MPI_Ssend(out, (int)n, MPI_BYTE, to, DATA, comm)); break;
        case 2: MPI(MPI_Isend(out, (int)n, MPI_BYTE, to, DATA, comm, &request)); break;
        default: MPI(MPI_Issend(out, (int)n, MPI_BYTE, to, DATA, comm, &request)); break;
        }
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    GUARDED_FREE(out, n);
}

enum { RECV, RECV_ANY, IPROBE, PROBE, MPROBE, IMPROBE, HOWS };

/* One message from each remote rank; which comes first is open for the wildcards. */
static void receive_from_all(int how, size_t n, MPI_Comm comm)
{
    bool seen[MAX_RANKS] = { false };
    for (int i = 0; i < theirs; i++) {
        unsigned char *in = guarded_new(n);
        int source = how == RECV ? i : MPI_ANY_SOURCE, tag = DATA, flag = 0;
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Request request;
        MPI_Status status, probed;
        switch (how) {
        case IPROBE:
            while (!flag)
                MPI(MPI_Iprobe(source, DATA, comm, &flag, &probed));
            break;
        case PROBE: MPI(MPI_Probe(source, MPI_ANY_TAG, comm, &probed)); break;
        case MPROBE: MPI(MPI_Mprobe(source, DATA, comm, &message, &probed)); break;
        case IMPROBE:
            while (!flag)
                MPI(MPI_Improbe(source, MPI_ANY_TAG, comm, &flag, &message, &probed));
            break;
        default: break;
        }
        if (how >= IPROBE) {
            source = probed.MPI_SOURCE;
            CHECK_STATUS(&probed, source, DATA, (int)n);
        }
        if (how == MPROBE) {
            MPI(MPI_Mrecv(in, (int)n, MPI_BYTE, &message, &status));
        } else if (how == IMPROBE) {
            MPI(MPI_Imrecv(in, (int)n, MPI_BYTE, &message, &request));
            MPI(MPI_Wait(&request, &status));
        } else {
            if (how == RECV_ANY)
                tag = MPI_ANY_TAG;
            MPI(MPI_Recv(in, (int)n, MPI_BYTE, source, tag, comm, &status));
        }
        CHECK(message == MPI_MESSAGE_NULL);
        CHECK_STATUS(&status, how == RECV_ANY ? status.MPI_SOURCE : source, DATA, (int)n);
        source = status.MPI_SOURCE;
        if (CHECK(source >= 0 && source < theirs) && CHECK(!seen[source])) {
            seen[source] = true;
            VERIFY(in, n, pair_seed(world_of_remote(source), check_rank, n));
        }
        GUARDED_FREE(in, n);
    }
}

static void messages(MPI_Comm comm)
{
    for (int mode = 0; mode < 4; mode++) {
        for (int how = 0; how < HOWS; how++) {
            for (int s = 0; s < SIZES; s++) {
                doing("send mode, receive mode (x10)", mode * 10 + how);
                for (int turn = 0; turn < 2; turn++) {
                    if (low == (turn == 0))
                        send_to_all(mode, sizes[s], comm);
                    else
                        receive_from_all(how, sizes[s], comm);
                }
            }
        }
    }
    MPI(MPI_Barrier(comm));
}

/* All pairs at once, in both directions, with receives from anybody. */
static void crossing(MPI_Comm comm)
{
    for (int s = 0; s < SIZES; s++) {
        size_t n = sizes[s];
        MPI_Request requests[2 * MAX_RANKS];
        MPI_Status statuses[2 * MAX_RANKS];
        unsigned char *in[MAX_RANKS], *out[MAX_RANKS];
        bool seen[MAX_RANKS] = { false };
        doing("crossing messages", (long long)n);
        for (int i = 0; i < theirs; i++) {
            in[i] = guarded_new(n);
            out[i] = guarded_new(n);
            fill(out[i], n, pair_seed(check_rank, world_of_remote(i), n));
            MPI(MPI_Irecv(in[i], (int)n, MPI_BYTE, MPI_ANY_SOURCE, s, comm, &requests[i]));
        }
        for (int i = theirs - 1; i >= 0; i--) {
            if (s % 2)
                MPI(MPI_Issend(out[i], (int)n, MPI_BYTE, i, s, comm, &requests[theirs + i]));
            else
                MPI(MPI_Isend(out[i], (int)n, MPI_BYTE, i, s, comm, &requests[theirs + i]));
        }
        MPI(MPI_Waitall(2 * theirs, requests, statuses));
        for (int i = 0; i < theirs; i++) {
            int source = statuses[i].MPI_SOURCE;
            CHECK_STATUS(&statuses[i], source, s, (int)n);
            if (CHECK(source >= 0 && source < theirs) && CHECK(!seen[source])) {
                seen[source] = true;
                VERIFY(in[i], n, pair_seed(world_of_remote(source), check_rank, n));
            }
            GUARDED_FREE(in[i], n);
            GUARDED_FREE(out[i], n);
        }
    }
}

/* The same rank number and tag mean other processes on the local and on the
 * intercommunicator. */
static void ranks_of_two_sides(void)
{
    int out[2] = { 1000 + check_rank, 2000 + check_rank }, in;
    int right = (me + 1) % mine, left = (me + mine - 1) % mine;
    MPI_Request requests[2 * MAX_RANKS];
    MPI_Status status;
    int used = 0;
    doing("same tag on both sides", 0);
    MPI(MPI_Isend(&out[0], 1, MPI_INT, right, OTHER, local, &requests[used++]));
    for (int i = 0; i < theirs; i++)
        MPI(MPI_Isend(&out[1], 1, MPI_INT, i, OTHER, inter, &requests[used++]));
    for (int i = theirs - 1; i >= 0; i--) {
        MPI(MPI_Recv(&in, 1, MPI_INT, i, MPI_ANY_TAG, inter, &status));
        CHECK_STATUS(&status, i, OTHER, sizeof in);
        CHECK_EQ(in, 2000 + world_of_remote(i));
    }
    MPI(MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, local, &status));
    CHECK_STATUS(&status, left, OTHER, sizeof in);
    CHECK_EQ(in, 1000 + world_of_local(left));
    MPI(MPI_Waitall(used, requests, MPI_STATUSES_IGNORE));
    MPI(MPI_Barrier(inter));
}

static void complete(MPI_Request *request)
{
    MPI(MPI_Wait(request, MPI_STATUS_IGNORE));
}

static void rooted(size_t n, bool low_root, int root)
{
    bool root_side = low == low_root;
    int as_root = !root_side ? root : me == root ? MPI_ROOT : MPI_PROC_NULL, one = 1, sum = 0;
    int root_world = root_side ? world_of_local(root) : world_of_remote(root);
    size_t all = n * (size_t)theirs;
    unsigned char *big = guarded_new(all), *small = guarded_new(n);
    MPI_Request request;

    doing("Bcast", (long long)n);
    fill(small, n, pair_seed(as_root == MPI_ROOT ? check_rank : 15, 15, n));
    MPI(MPI_Bcast(small, (int)n, MPI_BYTE, as_root, inter));
    VERIFY(small, n, pair_seed(root_side && me != root ? 15 : root_world, 15, n));
    fill(small, n, pair_seed(as_root == MPI_ROOT ? check_rank : 14, 14, n));
    MPI(MPI_Ibcast(small, (int)n, MPI_BYTE, as_root, inter, &request));
    complete(&request);
    VERIFY(small, n, pair_seed(root_side && me != root ? 14 : root_world, 14, n));

    doing("Gather", (long long)n);
    fill(small, n, pair_seed(check_rank, 13, n));
    MPI(MPI_Gather(small, (int)n, MPI_BYTE, big, (int)n, MPI_BYTE, as_root, inter));
    if (as_root == MPI_ROOT)
        for (int i = 0; i < theirs; i++)
            VERIFY(big + n * (size_t)i, n, pair_seed(world_of_remote(i), 13, n));

    doing("Scatter", (long long)n);
    for (int i = 0; i < theirs; i++)
        fill(big + n * (size_t)i, n, pair_seed(check_rank, world_of_remote(i), n));
    MPI(MPI_Scatter(big, (int)n, MPI_BYTE, small, (int)n, MPI_BYTE, as_root, inter));
    if (!root_side)
        VERIFY(small, n, pair_seed(root_world, check_rank, n));

    doing("Reduce", 0);
    MPI(MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, as_root, inter));
    CHECK_EQ(sum, as_root == MPI_ROOT ? theirs : 0);
    GUARDED_FREE(big, all);
    GUARDED_FREE(small, n);
}

static void unrooted(size_t n)
{
    size_t all = n * (size_t)theirs;
    unsigned char *out = guarded_new(all), *in = guarded_new(all), *small = guarded_new(n);
    int value = check_rank + 1, want = 0, sum = 0;
    int counts[MAX_RANKS], parts[MAX_RANKS];
    MPI_Request request;
    for (int i = 0; i < theirs; i++) {
        fill(out + n * (size_t)i, n, pair_seed(check_rank, world_of_remote(i), n));
        want += world_of_remote(i) + 1;
    }
    fill(small, n, pair_seed(check_rank, 12, n));
    for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
        doing("Barrier, Allreduce, Allgather, Alltoall", (long long)n);
        memset(in, 0, all);
        if (nonblocking) {
            MPI(MPI_Ibarrier(inter, &request));
            complete(&request);
            MPI(MPI_Iallreduce(&value, &sum, 1, MPI_INT, MPI_SUM, inter, &request));
            complete(&request);
            MPI(MPI_Iallgather(small, (int)n, MPI_BYTE, in, (int)n, MPI_BYTE, inter, &request));
            complete(&request);
        } else {
            MPI(MPI_Barrier(inter));
            MPI(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, inter));
            MPI(MPI_Allgather(small, (int)n, MPI_BYTE, in, (int)n, MPI_BYTE, inter));
        }
        CHECK_EQ(sum, want);
        for (int i = 0; i < theirs; i++)
            VERIFY(in + n * (size_t)i, n, pair_seed(world_of_remote(i), 12, n));
        memset(in, 0, all);
        if (nonblocking) {
            MPI(MPI_Ialltoall(out, (int)n, MPI_BYTE, in, (int)n, MPI_BYTE, inter, &request));
            complete(&request);
        } else {
            MPI(MPI_Alltoall(out, (int)n, MPI_BYTE, in, (int)n, MPI_BYTE, inter));
        }
        for (int i = 0; i < theirs; i++)
            VERIFY(in + n * (size_t)i, n, pair_seed(world_of_remote(i), check_rank, n));
    }

    doing("Reduce_scatter", 0);
    int total = mine * theirs, *values = malloc((size_t)total * sizeof *values);
    for (int i = 0; i < mine; i++)
        counts[i] = theirs;
    for (int i = 0; i < total; i++)
        values[i] = i + check_rank;
    MPI(MPI_Reduce_scatter(values, parts, counts, MPI_INT, MPI_SUM, inter));
    for (int i = 0; i < theirs; i++)
        CHECK_EQ(parts[i], want - theirs + theirs * (me * theirs + i));
    free(values);
    GUARDED_FREE(out, all);
    GUARDED_FREE(in, all);
    GUARDED_FREE(small, n);
}

static void merged(bool low_first)
{
    MPI_Comm all;
    int rank, size, right, left, in = -1, sum = 0, flag = 1;
    int place = low == low_first ? me : theirs + me;
    MPI_Status status;
    doing("Intercomm_merge", low_first);
    MPI(MPI_Intercomm_merge(inter, low != low_first, &all));
    MPI(MPI_Comm_test_inter(all, &flag));
    CHECK(!flag);
    MPI(MPI_Comm_rank(all, &rank));
    MPI(MPI_Comm_size(all, &size));
    CHECK_EQ(rank, place);
    CHECK_EQ(size, check_size);
    right = (rank + 1) % size;
    left = (rank + size - 1) % size;
    MPI(MPI_Sendrecv(&rank, 1, MPI_INT, right, 3, &in, 1, MPI_INT, MPI_ANY_SOURCE, 3, all,
                     &status));
    CHECK_STATUS(&status, left, 3, sizeof in);
    CHECK_EQ(in, left);
    MPI(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all));
    CHECK_EQ(sum, size * (size - 1) / 2);
    MPI(MPI_Comm_free(&all));
}

int main(int argc, char **argv)
{
    check_start(&argc, &argv, "intercomm", MPI_THREAD_SINGLE, 2);
    if (!CHECK(check_size < MAX_RANKS - 4))
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int at = 1; at <= check_size / 2; at += at < check_size / 2 ? check_size / 2 - at : 1) {
        MPI_Comm copy;
        make(at);
        messages(inter);
        crossing(inter);
        ranks_of_two_sides();
        for (int s = 0; s < SIZES; s++) {
            unrooted(sizes[s]);
            for (int root = 0; root < at; root++)
                rooted(sizes[s], true, root);
            for (int root = 0; root < check_size - at; root++)
                rooted(sizes[s], false, root);
        }
        doing("dup of an intercommunicator", at);
        MPI(MPI_Comm_dup(inter, &copy));
        crossing(copy);
        MPI(MPI_Comm_free(&copy));
        merged(true);
        merged(false);
        MPI(MPI_Comm_free(&inter));
        MPI(MPI_Comm_free(&local));
    }
    return check_finish();
}
