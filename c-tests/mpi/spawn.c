/* Processes that meet after MPI_Init. Works for any number of ranks from 2.
 *
 * usage: spawn           two children are started, talked to, merged with and let go
 *        spawn ports     ranks 2k and 2k+1 meet through a port, each on its own
 *        (spawn child    is what the children run)
 *
 * With Open MPI's ob1 it takes --mca btl self,tcp: shared memory does not reach processes that
 * meet later. */
#include "check.h"

enum { CHILDREN = 2, ROUNDS = 2, DATA = 40, LONGEST = 70000, MAX_RANKS = 16 };

/* What the ids of children start at; those of the parents are their ranks. */
enum { CHILD_IDS = 100 };

static const size_t sizes[] = { 0, 1, 64, 300, 4096, LONGEST };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* An intercommunicator, my id, and the id of remote rank 0. */
struct meeting {
    MPI_Comm inter;
    int me, them, mine, theirs;
    bool first;
};

static unsigned pair_seed(int from, int to, size_t n)
{
    return seed_of(from * 1000 + to, DATA, n);
}

static void send_to_all(const struct meeting *m, int mode, size_t n)
{
    for (int to = 0; to < m->theirs; to++) {
        unsigned char *out = guarded_new(n);
        MPI_Request request = MPI_REQUEST_NULL;
        fill(out, n, pair_seed(m->me, m->them + to, n));
        switch (mode) {
        case 0: MPI(MPI_Ssend(out, (int)n, MPI_BYTE, to, DATA, m->inter)); break;
        case 1: MPI(MPI_Send(out, (int)n, MPI_BYTE, to, DATA, m->inter)); break;
        case 2: MPI(MPI_Issend(out, (int)n, MPI_BYTE, to, DATA, m->inter, &request)); break;
        default: MPI(MPI_Isend(out, (int)n, MPI_BYTE, to, DATA, m->inter, &request)); break;
        }
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        GUARDED_FREE(out, n);
    }
}

static void receive_from_all(const struct meeting *m, int how, size_t n)
{
    bool seen[MAX_RANKS] = { false };
    for (int i = 0; i < m->theirs; i++) {
        unsigned char *in = guarded_new(n);
        MPI_Message message;
        MPI_Status status;
        int source = how == 0 ? i : MPI_ANY_SOURCE, flag = 0;
        if (how == 1) {
            while (!flag)
                MPI(MPI_Iprobe(MPI_ANY_SOURCE, DATA, m->inter, &flag, &status));
            source = status.MPI_SOURCE;
            CHECK_STATUS(&status, source, DATA, (int)n);
        }
        if (how == 2) {
            MPI(MPI_Mprobe(MPI_ANY_SOURCE, DATA, m->inter, &message, &status));
            MPI(MPI_Mrecv(in, (int)n, MPI_BYTE, &message, &status));
        } else {
            MPI(MPI_Recv(in, (int)n, MPI_BYTE, source, DATA, m->inter, &status));
        }
        source = status.MPI_SOURCE;
        CHECK_STATUS(&status, how == 0 ? i : source, DATA, (int)n);
        if (CHECK(source >= 0 && source < m->theirs) && CHECK(!seen[source])) {
            seen[source] = true;
            VERIFY(in, n, pair_seed(m->them + source, m->me, n));
        }
        GUARDED_FREE(in, n);
    }
}

/* The very first messages of all pairs cross each other. */
static void crossing(const struct meeting *m)
{
    MPI_Request requests[2 * MAX_RANKS];
    MPI_Status statuses[2 * MAX_RANKS];
    int in[MAX_RANKS], out = m->me;
    doing("crossing messages", m->me);
    for (int i = 0; i < m->theirs; i++)
        MPI(MPI_Isend(&out, 1, MPI_INT, i, 7, m->inter, &requests[i]));
    for (int i = 0; i < m->theirs; i++)
        MPI(MPI_Irecv(&in[i], 1, MPI_INT, i, 7, m->inter, &requests[m->theirs + i]));
    MPI(MPI_Waitall(2 * m->theirs, requests, statuses));
    for (int i = 0; i < m->theirs; i++) {
        CHECK_STATUS(&statuses[m->theirs + i], i, 7, sizeof in[i]);
        CHECK_EQ(in[i], m->them + i);
    }
}

static int sum_of_ids(int from, int count)
{
    return count * from + count * (count - 1) / 2;
}

static void collectives(const struct meeting *m)
{
    int all[MAX_RANKS], sum = 0;
    for (int round = 0; round < 10; round++) {
        doing("Allreduce and Allgather between the sides", round);
        MPI(MPI_Allreduce(&m->me, &sum, 1, MPI_INT, MPI_SUM, m->inter));
        CHECK_EQ(sum, sum_of_ids(m->them, m->theirs));
        MPI(MPI_Allgather(&m->me, 1, MPI_INT, all, 1, MPI_INT, m->inter));
        for (int i = 0; i < m->theirs; i++)
            CHECK_EQ(all[i], m->them + i);
        MPI(MPI_Barrier(m->inter));
    }
}

/* Everything after the meeting. The failures of either side count on both. */
static void talk(struct meeting *m)
{
    MPI_Comm all;
    int rank, size, in = -1, sum = 0, local, failures = 0;
    unsigned char *out = guarded_new(LONGEST), *back = guarded_new(LONGEST);
    MPI_Status status;
    MPI(MPI_Comm_remote_size(m->inter, &m->theirs));
    MPI(MPI_Comm_size(m->inter, &m->mine));
    MPI(MPI_Comm_rank(m->inter, &local));
    crossing(m);
    for (int mode = 0; mode < 4; mode++) {
        for (int how = 0; how < 3; how++) {
            for (int s = 0; s < SIZES; s++) {
                doing("send mode, receive mode (x10)", mode * 10 + how);
                for (int turn = 0; turn < 2; turn++) {
                    if (m->first == (turn == 0))
                        send_to_all(m, mode, sizes[s]);
                    else
                        receive_from_all(m, how, sizes[s]);
                }
            }
        }
    }
    collectives(m);

    doing("Intercomm_merge", m->me);
    MPI(MPI_Intercomm_merge(m->inter, !m->first, &all));
    MPI(MPI_Comm_rank(all, &rank));
    MPI(MPI_Comm_size(all, &size));
    CHECK_EQ(size, m->mine + m->theirs);
    CHECK_EQ(rank, m->first ? local : m->theirs + local);
    for (int s = 0; s < SIZES; s++) {
        int right = (rank + 1) % size, left = (rank + size - 1) % size;
        doing("ring of all", (long long)sizes[s]);
        fill(out, sizes[s], pair_seed(rank, right, sizes[s]));
        MPI(MPI_Sendrecv(out, (int)sizes[s], MPI_BYTE, right, s, back, LONGEST, MPI_BYTE,
                         MPI_ANY_SOURCE, s, all, &status));
        CHECK_STATUS(&status, left, s, (int)sizes[s]);
        VERIFY(back, sizes[s], pair_seed(left, rank, sizes[s]));
    }
    MPI(MPI_Exscan(&rank, &in, 1, MPI_INT, MPI_SUM, all));
    if (rank > 0)
        CHECK_EQ(in, rank * (rank - 1) / 2);
    MPI(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all));
    CHECK_EQ(sum, sum_of_ids(0, size));
    GUARDED_FREE(out, LONGEST);
    GUARDED_FREE(back, LONGEST);

    local = atomic_load(&check_failures);
    MPI(MPI_Allreduce(&local, &failures, 1, MPI_INT, MPI_SUM, all));
    CHECK_EQ(failures, local);
    MPI(MPI_Comm_free(&all));
    doing("Comm_disconnect", m->me);
    MPI(MPI_Comm_disconnect(&m->inter));
    CHECK(m->inter == MPI_COMM_NULL);
}

static void with_children(void)
{
    char program[PATH_MAX], *arguments[] = { "child", NULL };
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (!CHECK(length > 0))
        return;
    program[length] = '\0';
    for (int round = 0; round < ROUNDS; round++) {
        struct meeting m = { .me = check_rank, .them = CHILD_IDS, .first = true };
        int codes[CHILDREN] = { -1, -1 };
        doing("Comm_spawn", round);
        MPI(MPI_Comm_spawn(program, arguments, CHILDREN, MPI_INFO_NULL, round % check_size,
                           MPI_COMM_WORLD, &m.inter, codes));
        for (int i = 0; i < CHILDREN; i++)
            CHECK_EQ(codes[i], MPI_SUCCESS);
        talk(&m);
        doing("messages after the children left", round);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
}

static int child(MPI_Comm parent)
{
    struct meeting m = { .inter = parent, .me = CHILD_IDS + check_rank };
    CHECK_EQ(check_size, CHILDREN);
    talk(&m);
    doing("MPI_Finalize of a child", check_rank);
    MPI_Finalize();
    return atomic_load(&check_failures) != 0;
}

/* The even rank opens a port and accepts, the odd one connects; then the other way round. */
static void through_ports(void)
{
    int peer = check_rank ^ 1;
    for (int round = 0; round < ROUNDS; round++) {
        struct meeting m = { .me = check_rank, .them = peer, .first = check_rank % 2 == round % 2 };
        char port[MPI_MAX_PORT_NAME] = "";
        if (m.first) {
            doing("Open_port and Comm_accept", round);
            MPI(MPI_Open_port(MPI_INFO_NULL, port));
            MPI(MPI_Send(port, MPI_MAX_PORT_NAME, MPI_CHAR, peer, DATA, MPI_COMM_WORLD));
            MPI(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &m.inter));
        } else {
            doing("Comm_connect", round);
            MPI(MPI_Recv(port, MPI_MAX_PORT_NAME, MPI_CHAR, peer, DATA, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE));
            MPI(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &m.inter));
        }
        talk(&m);
        if (m.first)
            MPI(MPI_Close_port(port));
        doing("messages after the meeting", round);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    bool ports = argc > 1 && strcmp(argv[1], "ports") == 0;
    check_start(&argc, &argv, "spawn", MPI_THREAD_SINGLE, 2);
    if (!CHECK(check_size <= MAX_RANKS - CHILDREN) || !CHECK(!ports || check_size % 2 == 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI(MPI_Comm_get_parent(&parent));
    if (parent != MPI_COMM_NULL)
        return child(parent);
    if (ports)
        through_ports();
    else
        with_children();
    return check_finish();
}
