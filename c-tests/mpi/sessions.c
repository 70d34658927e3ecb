/* Sessions and communicators made from groups, whose ids the ranks learn from each other's
 * first messages: every kind of first message, on a new communicator each. Needs MPI 4 and an
 * even number of ranks. */
#include "check.h"

/* Open MPI 5 has sessions and calls itself MPI 3.1. */
#if MPI_VERSION < 4 && !(defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)

int main(void)
{
    fprintf(stderr, "FAIL sessions: this MPI has no sessions\n");
    return 2;
}

#else

enum { DATA = 50, ANSWER = 51, READY = 52, LONGEST = 70000, MAX_RANKS = 16 };

static const size_t sizes[] = { 0, 8, 300, LONGEST };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static MPI_Group everybody;
/* Already used in both directions: what passes here touches no new communicator. */
static MPI_Comm known;
static int peer, made;
static bool even;

static MPI_Comm fresh_of(MPI_Group group, const char *purpose)
{
    char tag[64];
    MPI_Comm comm = MPI_COMM_NULL;
    snprintf(tag, sizeof tag, "hawser.%s.%d", purpose, made++);
    MPI(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm));
    return comm;
}

static MPI_Comm fresh(void)
{
    return fresh_of(everybody, "all");
}

static void start(void *buffer, size_t n, bool synchronous, int tag, MPI_Comm comm,
                  MPI_Request *request)
{
    fill(buffer, n, seed_of(check_rank, tag, n));
    if (synchronous)
        MPI(MPI_Issend(buffer, (int)n, MPI_BYTE, peer, tag, comm, request));
    else
        MPI(MPI_Isend(buffer, (int)n, MPI_BYTE, peer, tag, comm, request));
}

enum { RECV, RECV_ANY, IRECV, IPROBE, MPROBE, HOWS };

static void receive(int how, size_t n, int tag, MPI_Comm comm)
{
    unsigned char *in = guarded_new(n);
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    int flag = 0;
    switch (how) {
    case RECV: MPI(MPI_Recv(in, (int)n, MPI_BYTE, peer, tag, comm, &status)); break;
    case IRECV:
        MPI(MPI_Irecv(in, (int)n, MPI_BYTE, MPI_ANY_SOURCE, tag, comm, &request));
        MPI(MPI_Wait(&request, &status));
        break;
    case MPROBE:
        MPI(MPI_Mprobe(MPI_ANY_SOURCE, tag, comm, &message, &status));
        CHECK_STATUS(&status, peer, tag, (int)n);
        MPI(MPI_Mrecv(in, (int)n, MPI_BYTE, &message, &status));
        break;
    case IPROBE:
        while (!flag)
            MPI(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm, &flag, &status));
        CHECK_STATUS(&status, peer, tag, (int)n);
        MPI(MPI_Recv(in, (int)n, MPI_BYTE, status.MPI_SOURCE, tag, comm, &status));
        break;
    default:
        MPI(MPI_Recv(in, (int)n, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status));
        break;
    }
    CHECK_STATUS(&status, peer, tag, (int)n);
    VERIFY(in, n, seed_of(peer, tag, n));
    GUARDED_FREE(in, n);
}

static void send_as(int mode, size_t n, int tag, MPI_Comm comm)
{
    unsigned char *out = guarded_new(n);
    MPI_Request request = MPI_REQUEST_NULL;
    fill(out, n, seed_of(check_rank, tag, n));
    switch (mode) {
    case 0: MPI(MPI_Send(out, (int)n, MPI_BYTE, peer, tag, comm)); break;
    case 1: MPI(MPI_Ssend(out, (int)n, MPI_BYTE, peer, tag, comm)); break;
    case 2: start(out, n, false, tag, comm, &request); break;
    case 3: start(out, n, true, tag, comm, &request); break;
    case 4:
        MPI(MPI_Send_init(out, (int)n, MPI_BYTE, peer, tag, comm, &request));
        MPI(MPI_Start(&request));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        MPI(MPI_Request_free(&request));
        break;
    default: break;
    }
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    GUARDED_FREE(out, n);
}
enum { MODES = 5 };

/* Nothing of `comm` has been seen by the receiver before its first message. */
static void first_messages(void)
{
    for (int mode = 0; mode < MODES; mode++) {
        for (int s = 0; s < SIZES; s++) {
            MPI_Comm comm = fresh();
            int how = (mode + s) % HOWS;
            doing("first message, mode, receive mode (x10)", mode * 10 + how);
            if (even) {
                send_as(mode, sizes[s], DATA, comm);
                receive(how, sizes[s], ANSWER, comm);
            } else {
                receive(how, sizes[s], DATA, comm);
                send_as(mode, sizes[s], ANSWER, comm);
            }
            MPI(MPI_Comm_free(&comm));
        }
    }
}

/* Both sides send before either has received anything. */
static void crossing(void)
{
    for (int s = 0; s < SIZES; s++) {
        for (int synchronous = 0; synchronous < 2; synchronous++) {
            enum { EACH = 3 };
            MPI_Comm comm = fresh();
            MPI_Request requests[EACH];
            unsigned char *out[EACH];
            doing("first messages crossing", (long long)sizes[s]);
            for (int i = 0; i < EACH; i++) {
                out[i] = guarded_new(sizes[s]);
                start(out[i], sizes[s], synchronous, DATA + i, comm, &requests[i]);
            }
            for (int i = 0; i < EACH; i++)
                receive((i + s) % HOWS == RECV_ANY ? RECV : (i + s) % HOWS, sizes[s],
                        DATA + EACH - 1 - i, comm);
            MPI(MPI_Waitall(EACH, requests, MPI_STATUSES_IGNORE));
            for (int i = 0; i < EACH; i++)
                GUARDED_FREE(out[i], sizes[s]);
            MPI(MPI_Comm_free(&comm));
        }
    }
}

/* Sent while the receiver has touched nothing of the communicator; and a synchronous send
 * does not complete in that time. */
static void before_anything_posted(void)
{
    for (int s = 0; s < SIZES; s++) {
        MPI_Comm comm = fresh();
        doing("sent before anything is posted", (long long)sizes[s]);
        if (even) {
            unsigned char *out = guarded_new(sizes[s]), *other = guarded_new(sizes[s]);
            MPI_Request requests[2];
            int flag = 0;
            start(out, sizes[s], false, DATA, comm, &requests[0]);
            start(other, sizes[s], true, ANSWER, comm, &requests[1]);
            for (int i = 0; i < 200 && !flag; i++)
                MPI(MPI_Test(&requests[1], &flag, MPI_STATUS_IGNORE));
            CHECK_EQ(flag, 0);
            send_token(peer, READY, known);
            MPI(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
            GUARDED_FREE(out, sizes[s]);
            GUARDED_FREE(other, sizes[s]);
        } else {
            await_token(peer, READY, known);
            receive(s % 2 ? RECV : MPROBE, sizes[s], DATA, comm);
            receive(s % 2 ? IPROBE : RECV_ANY, sizes[s], ANSWER, comm);
        }
        MPI(MPI_Comm_free(&comm));
    }
}

/* A side that sends first and then only receives; a side that never sends at all; and a side
 * whose receives were posted before the first message came. */
static void one_way(void)
{
    enum { MESSAGES = 40 };
    MPI_Comm comm = fresh();
    MPI_Request requests[MESSAGES];
    MPI_Status status;
    unsigned char *in[MESSAGES];
    doing("sends first, then only receives", 0);
    if (even)
        send_as(0, 300, DATA, comm);
    else
        receive(RECV, 300, DATA, comm);
    for (int i = 0; i < MESSAGES; i++) {
        if (even)
            receive(i % HOWS, sizes[i % SIZES], ANSWER, comm);
        else
            send_as(i % MODES, sizes[i % SIZES], ANSWER, comm);
    }
    MPI(MPI_Comm_free(&comm));

    doing("never sends", 0);
    comm = fresh();
    for (int i = 0; i < MESSAGES; i++) {
        if (even)
            send_as(i % 4 == 3 ? 0 : i % 3, sizes[i % SIZES], DATA, comm);
        else
            receive(i % HOWS, sizes[i % SIZES], DATA, comm);
    }
    MPI(MPI_Comm_free(&comm));

    doing("all receives posted before", 0);
    comm = fresh();
    for (int i = 0; i < MESSAGES && !even; i++) {
        in[i] = guarded_new(300);
        MPI(MPI_Irecv(in[i], 300, MPI_BYTE, i % 2 ? peer : MPI_ANY_SOURCE, DATA, comm,
                      &requests[i]));
    }
    if (even) {
        await_token(peer, READY, known);
        for (int i = 0; i < MESSAGES; i++)
            send_as(i % MODES, 300, DATA, comm);
    } else {
        send_token(peer, READY, known);
        for (int i = MESSAGES - 1; i >= 0; i--) {
            MPI(MPI_Wait(&requests[i], &status));
            CHECK_STATUS(&status, peer, DATA, 300);
            VERIFY(in[i], 300, seed_of(peer, DATA, 300));
            GUARDED_FREE(in[i], 300);
        }
    }
    MPI(MPI_Comm_free(&comm));
}

/* Three new communicators, the same tag on all, used in another order by each side. */
static void several_at_once(void)
{
    enum { COUNT = 3 };
    MPI_Comm comms[COUNT];
    MPI_Request requests[COUNT];
    MPI_Status status;
    int out[COUNT], in;
    for (int round = 0; round < COUNT; round++) {
        doing("three communicators in different order", round);
        for (int i = 0; i < COUNT; i++)
            comms[i] = fresh();
        for (int turn = 0; turn < 2; turn++) {
            for (int i = 0; i < COUNT; i++) {
                int k = even ? i : (COUNT - 1 - i + round) % COUNT;
                out[k] = (check_rank * 10 + k) * 10 + turn;
                MPI(MPI_Isend(&out[k], 1, MPI_INT, peer, DATA, comms[k], &requests[k]));
            }
            for (int i = 0; i < COUNT; i++) {
                int k = even ? (i + round) % COUNT : i;
                MPI(MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[k], &status));
                CHECK_STATUS(&status, peer, DATA, sizeof in);
                CHECK_EQ(in, (peer * 10 + k) * 10 + turn);
            }
            MPI(MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE));
        }
        for (int i = 0; i < COUNT; i++)
            MPI(MPI_Comm_free(&comms[(i + round) % COUNT]));
    }
}

/* Groups of pairs, of everybody in the opposite order, and of one. */
static void subsets(void)
{
    int ranks[MAX_RANKS], rank, size, in = -1, sum = 0, pair[2] = { check_rank & ~1, check_rank | 1 };
    int right = (check_rank + 1) % check_size, left = (check_rank + check_size - 1) % check_size;
    MPI_Group group;
    MPI_Comm comm, copy;
    MPI_Status status;
    for (int i = 0; i < check_size; i++)
        ranks[i] = check_size - 1 - i;

    doing("everybody, in the opposite order", 0);
    MPI(MPI_Group_incl(everybody, check_size, ranks, &group));
    comm = fresh_of(group, "opposite");
    MPI(MPI_Comm_rank(comm, &rank));
    CHECK_EQ(rank, check_size - 1 - check_rank);
    MPI(MPI_Sendrecv(&check_rank, 1, MPI_INT, check_size - 1 - right, 3, &in, 1, MPI_INT,
                     MPI_ANY_SOURCE, 3, comm, &status));
    CHECK_STATUS(&status, check_size - 1 - left, 3, sizeof in);
    CHECK_EQ(in, left);

    doing("dup and split of it", 0);
    MPI(MPI_Comm_dup(comm, &copy));
    MPI(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, copy));
    CHECK_EQ(sum, check_size * (check_size - 1) / 2);
    MPI(MPI_Comm_free(&copy));
    MPI(MPI_Comm_split(comm, 0, check_rank, &copy));
    MPI(MPI_Comm_rank(copy, &rank));
    CHECK_EQ(rank, check_rank);
    if (even)
        send_as(1, 300, DATA, copy);
    else
        receive(MPROBE, 300, DATA, copy);
    MPI(MPI_Comm_free(&copy));
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Group_free(&group));

    doing("pairs", check_rank / 2);
    MPI(MPI_Group_incl(everybody, 2, pair, &group));
    for (int i = 0; i < 3; i++) {
        comm = fresh_of(group, check_rank / 2 % 2 ? "odd-pair" : "even-pair");
        MPI(MPI_Comm_rank(comm, &rank));
        MPI(MPI_Comm_size(comm, &size));
        CHECK_EQ(rank, check_rank % 2);
        CHECK_EQ(size, 2);
        MPI(MPI_Sendrecv(&check_rank, 1, MPI_INT, 1 - rank, i, &in, 1, MPI_INT, MPI_ANY_SOURCE,
                         MPI_ANY_TAG, comm, &status));
        CHECK_STATUS(&status, 1 - rank, i, sizeof in);
        CHECK_EQ(in, peer);
        MPI(MPI_Comm_free(&comm));
    }
    MPI(MPI_Group_free(&group));

    doing("only the even ranks", 0);
    if (even) {
        for (int i = 0; i < check_size / 2; i++)
            ranks[i] = 2 * i;
        MPI(MPI_Group_incl(everybody, check_size / 2, ranks, &group));
        comm = fresh_of(group, "even");
        MPI(MPI_Allreduce(&check_rank, &sum, 1, MPI_INT, MPI_SUM, comm));
        CHECK_EQ(sum, check_size / 2 * (check_size / 2 - 1));
        MPI(MPI_Comm_free(&comm));
        MPI(MPI_Group_free(&group));
    } else {
        made++;
    }
}

static void collectives(void)
{
    enum { VALUES = 5000 };
    static int out[VALUES * MAX_RANKS], in[VALUES * MAX_RANKS];
    for (int which = 0; which < 5; which++) {
        MPI_Comm comm = fresh();
        MPI_Request request;
        doing("first use is a collective", which);
        for (int i = 0; i < VALUES * check_size; i++) {
            out[i] = check_rank * 1000000 + i;
            in[i] = -1;
        }
        switch (which) {
        case 0: MPI(MPI_Barrier(comm)); break;
        case 1:
            if (check_rank == check_size - 1)
                memcpy(in, out, sizeof *in * VALUES);
            MPI(MPI_Bcast(in, VALUES, MPI_INT, check_size - 1, comm));
            for (int i = 0; i < VALUES; i++)
                if (!CHECK_EQ(in[i], (check_size - 1) * 1000000 + i))
                    break;
            break;
        case 2:
            MPI(MPI_Alltoall(out, VALUES, MPI_INT, in, VALUES, MPI_INT, comm));
            for (int i = 0; i < VALUES * check_size; i++)
                if (!CHECK_EQ(in[i], i / VALUES * 1000000 + check_rank * VALUES + i % VALUES))
                    break;
            break;
        case 3:
            MPI(MPI_Allreduce(out, in, VALUES, MPI_INT, MPI_MAX, comm));
            for (int i = 0; i < VALUES; i++)
                if (!CHECK_EQ(in[i], (check_size - 1) * 1000000 + i))
                    break;
            break;
        default:
            MPI(MPI_Iallgather(out, VALUES, MPI_INT, in, VALUES, MPI_INT, comm, &request));
            MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
            for (int i = 0; i < VALUES * check_size; i++)
                if (!CHECK_EQ(in[i], i / VALUES * 1000000 + i % VALUES))
                    break;
            break;
        }
        MPI(MPI_Comm_free(&comm));
    }
}

/* Gives the failures of all ranks. */
static int session(int round)
{
    MPI_Session handle;
    int mine, total = -1;
    doing("Session_init", round);
    MPI(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &handle));
    MPI(MPI_Group_from_session_pset(handle, "mpi://WORLD", &everybody));
    MPI(MPI_Group_rank(everybody, &check_rank));
    MPI(MPI_Group_size(everybody, &check_size));
    if (!CHECK(check_size % 2 == 0 && check_size <= MAX_RANKS))
        exit(2);
    peer = check_rank ^ 1;
    even = check_rank % 2 == 0;
    doing("Comm_create_from_group", round);
    known = fresh();
    MPI(MPI_Barrier(known));
    if (even)
        send_token(peer, READY, known);
    else
        await_token(peer, READY, known);
    first_messages();
    crossing();
    before_anything_posted();
    one_way();
    several_at_once();
    subsets();
    collectives();
    doing("adding up failures", round);
    mine = atomic_load(&check_failures);
    MPI(MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, known));
    MPI(MPI_Comm_free(&known));
    MPI(MPI_Group_free(&everybody));
    doing("Session_finalize", round);
    MPI(MPI_Session_finalize(&handle));
    return total;
}

int main(void)
{
    int total = 0;
    check_arm("sessions");
    for (int round = 0; round < 2; round++)
        total = session(round);
    return check_print_verdict(total);
}

#endif
