/* Tags and contexts: every tag from 0 to MPI_TAG_UB at the borders of its bits, refusal of the
 * others, wildcards that give source and tag back, many communicators with the same tags in
 * flight, and collectives under receives of anything. Works for any number of ranks from 2.
 *
 * usage: tags [communicators, default 300] */
#include "check.h"

enum { MAX_VALUES = 128, MAX_RANKS = 16, WORDS = 5 };

/* How a receive is asked for; BY_PROBE looks at anything first. */
enum way { BY_BOTH, BY_SOURCE, BY_TAG, BY_NOTHING, BY_PROBE, WAYS };

static int values[MAX_VALUES], value_count, upper_bound;
static int right, left;

static void add_value(long long value)
{
    if (value < 0 || value > upper_bound)
        return;
    if (value_count > 0 && value <= values[value_count - 1])
        return;
    if (!CHECK(value_count < MAX_VALUES))
        return;
    values[value_count++] = (int)value;
}

static void find_values(void)
{
    int *attribute = NULL, flag = 0;
    doing("MPI_TAG_UB", 0);
    MPI(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &attribute, &flag));
    if (!CHECK_EQ(flag, 1))
        MPI_Abort(MPI_COMM_WORLD, 2);
    upper_bound = *attribute;
    CHECK(upper_bound >= 32767);
    add_value(0);
    for (long long power = 1; power <= (long long)upper_bound + 1; power *= 2)
        for (int around = -1; around <= 1; around++)
            add_value(power + around);
    add_value((long long)upper_bound - 1);
    add_value(upper_bound);
    CHECK_EQ(values[value_count - 1], upper_bound);
}

/* What a message says of itself. */
static void write_message(int *words, int to, int tag, int comm_number, int serial)
{
    words[0] = check_rank;
    words[1] = to;
    words[2] = tag;
    words[3] = comm_number;
    words[4] = serial;
}

static void read_message(const int *words, int from, int tag, int comm_number, int serial)
{
    CHECK_EQ(words[0], from);
    CHECK_EQ(words[1], check_rank);
    CHECK_EQ(words[2], tag);
    CHECK_EQ(words[3], comm_number);
    CHECK_EQ(words[4], serial);
}

static int value_number(int tag)
{
    for (int v = 0; v < value_count; v++)
        if (values[v] == tag)
            return v;
    return -1;
}

/* One message, which must be one of those still `expected`, by source and number of its tag. */
static void receive_one(int source, int tag, bool probe, bool expected[][MAX_VALUES])
{
    int words[WORDS + 1] = { 0 }, v;
    MPI_Status status;
    if (probe) {
        MPI(MPI_Probe(source, tag, MPI_COMM_WORLD, &status));
        source = status.MPI_SOURCE;
        tag = status.MPI_TAG;
    }
    MPI(MPI_Recv(words, WORDS + 1, MPI_INT, source, tag, MPI_COMM_WORLD, &status));
    CHECK_STATUS(&status, source == MPI_ANY_SOURCE ? words[0] : source,
                 tag == MPI_ANY_TAG ? words[2] : tag, WORDS * (int)sizeof(int));
    read_message(words, status.MPI_SOURCE, status.MPI_TAG, 0, 0);
    v = value_number(status.MPI_TAG);
    if (!CHECK(v >= 0 && status.MPI_SOURCE >= 0 && status.MPI_SOURCE < check_size))
        return;
    CHECK_EQ(expected[status.MPI_SOURCE][v], true);
    expected[status.MPI_SOURCE][v] = false;
}

/* Everybody sends every value to everybody else before anything is received. */
static void all_values(enum way way)
{
    static int out[MAX_RANKS][MAX_VALUES][WORDS];
    static MPI_Request sent[MAX_RANKS * MAX_VALUES];
    bool expected[MAX_RANKS][MAX_VALUES] = { 0 };
    int count = 0;
    doing("every value, asked for in way", way);
    for (int v = 0; v < value_count; v++) {
        for (int r = 0; r < check_size; r++) {
            if (r == check_rank)
                continue;
            write_message(out[r][v], r, values[v], 0, 0);
            MPI(MPI_Isend(out[r][v], WORDS, MPI_INT, r, values[v], MPI_COMM_WORLD, &sent[count++]));
            expected[r][v] = true;
        }
    }
    for (int v = value_count - 1; v >= 0; v--) {
        for (int r = 0; r < check_size; r++) {
            bool any_source = way == BY_TAG || way == BY_NOTHING || way == BY_PROBE;
            bool any_tag = way == BY_SOURCE || way == BY_NOTHING || way == BY_PROBE;
            if (r != check_rank)
                receive_one(any_source ? MPI_ANY_SOURCE : r, any_tag ? MPI_ANY_TAG : values[v],
                            way == BY_PROBE, expected);
        }
    }
    MPI(MPI_Waitall(count, sent, MPI_STATUSES_IGNORE));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* A receive for one value stays empty while all the other values arrive. */
static void posted_values(void)
{
    static int in[MAX_VALUES][WORDS];
    MPI_Request posted[MAX_VALUES];
    MPI_Status status;
    doing("posted receives of every value", value_count);
    for (int v = 0; v < value_count; v++)
        MPI(MPI_Irecv(in[v], WORDS, MPI_INT, left, values[v], MPI_COMM_WORLD, &posted[v]));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int v = value_count - 1; v >= 0; v--) {
        int words[WORDS], flag = 1;
        if (v > 0)
            MPI(MPI_Test(&posted[0], &flag, MPI_STATUS_IGNORE));
        CHECK_EQ(flag, v == 0);
        write_message(words, right, values[v], 0, v);
        MPI(MPI_Send(words, WORDS, MPI_INT, right, values[v], MPI_COMM_WORLD));
        MPI(MPI_Wait(&posted[v], &status));
        CHECK_STATUS(&status, left, values[v], sizeof words);
        read_message(in[v], left, values[v], 0, v);
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
}

static int error_class(int code)
{
    int class = -1;
    MPI(MPI_Error_class(code, &class));
    return class;
}

#define REFUSED(call) CHECK_EQ(error_class(call), MPI_ERR_TAG)

static void wrong_tags(void)
{
    enum { NEGATIVES = 4 };
    int wrong[NEGATIVES + 2] = { -1, -2, -1000, INT_MIN }, count = NEGATIVES;
    int out[WORDS], in[WORDS];
    MPI_Comm comm;
    MPI_Request request;
    MPI_Status status;
    if (upper_bound < INT_MAX) {
        wrong[count++] = upper_bound + 1;
        wrong[count++] = INT_MAX;
    }
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    for (int w = 0; w < count; w++) {
        int tag = wrong[w];
        doing("tag that must be refused", tag);
        REFUSED(MPI_Send(out, 0, MPI_INT, right, tag, comm));
        REFUSED(MPI_Ssend(out, 0, MPI_INT, right, tag, comm));
        REFUSED(MPI_Isend(out, 0, MPI_INT, right, tag, comm, &request));
        REFUSED(MPI_Issend(out, 0, MPI_INT, right, tag, comm, &request));
        REFUSED(MPI_Send_init(out, 0, MPI_INT, right, tag, comm, &request));
        REFUSED(MPI_Sendrecv(out, 0, MPI_INT, right, tag, in, 0, MPI_INT, left, 0, comm, &status));
        if (tag == MPI_ANY_TAG)
            continue;
        REFUSED(MPI_Recv(in, 0, MPI_INT, left, tag, comm, &status));
        REFUSED(MPI_Irecv(in, 0, MPI_INT, left, tag, comm, &request));
        REFUSED(MPI_Recv_init(in, 0, MPI_INT, left, tag, comm, &request));
        REFUSED(MPI_Probe(left, tag, comm, &status));
        REFUSED(MPI_Sendrecv(out, 0, MPI_INT, right, 0, in, 0, MPI_INT, left, tag, comm, &status));
    }
    doing("after refused tags", 0);
    write_message(out, right, upper_bound, 1, 0);
    MPI(MPI_Sendrecv(out, WORDS, MPI_INT, right, upper_bound, in, WORDS, MPI_INT, MPI_ANY_SOURCE,
                     MPI_ANY_TAG, comm, &status));
    CHECK_STATUS(&status, left, upper_bound, sizeof in);
    read_message(in, left, upper_bound, 1, 0);
    MPI(MPI_Comm_free(&comm));
}

/* The same tags on many communicators of the same ranks, all in flight, taken in another
 * order of communicators and tags; half of the receives are posted before the sends. */
static void many_communicators(int comm_count, bool receives_first)
{
    enum { SAME = 6 };
    const int same[SAME] = { 0, 1, 127, 4096, upper_bound - 1, upper_bound };
    size_t total = (size_t)comm_count * SAME;
    MPI_Comm *comms = malloc((size_t)comm_count * sizeof *comms);
    MPI_Request *sent = malloc(total * sizeof *sent), *posted = malloc(total * sizeof *posted);
    int(*out)[WORDS] = malloc(total * sizeof *out), (*in)[WORDS] = malloc(total * sizeof *in);
    int step = 7, count = 0;
    if (comms == NULL || sent == NULL || posted == NULL || out == NULL || in == NULL)
        abort();
    while (comm_count % step == 0)
        step += 2;
    doing("duplicating communicators", comm_count);
    for (int c = 0; c < comm_count; c++)
        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comms[c]));
    doing(receives_first ? "many communicators, receives first" : "many communicators, sends first",
          comm_count);
    for (int phase = 0; phase < 2; phase++) {
        if ((phase == 0) == receives_first) {
            for (int k = 0; k < comm_count; k++) {
                int c = (int)((long long)k * step % comm_count);
                for (int t = 0; t < SAME; t++) {
                    /* Receives of anything get the messages in the order of their sends. */
                    bool any = c % 3 == 0;
                    int at = c * SAME + (any ? t : SAME - 1 - t);
                    MPI(MPI_Irecv(in[at], WORDS, MPI_INT, any ? MPI_ANY_SOURCE : left,
                                  any ? MPI_ANY_TAG : same[at % SAME], comms[c], &posted[at]));
                }
            }
        } else {
            for (int c = 0; c < comm_count; c++) {
                for (int t = 0; t < SAME; t++, count++) {
                    write_message(out[count], right, same[t], c, t);
                    MPI(MPI_Isend(out[count], WORDS, MPI_INT, right, same[t], comms[c],
                                  &sent[count]));
                }
            }
        }
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    for (int at = 0; at < (int)total; at++) {
        MPI_Status status;
        MPI(MPI_Wait(&posted[at], &status));
        CHECK_STATUS(&status, left, same[at % SAME], sizeof *in);
        read_message(in[at], left, same[at % SAME], at / SAME, at % SAME);
    }
    MPI(MPI_Waitall(count, sent, MPI_STATUSES_IGNORE));
    doing("freeing communicators", comm_count);
    for (int c = 0; c < comm_count; c++)
        MPI(MPI_Comm_free(&comms[c]));
    free(comms);
    free(sent);
    free(posted);
    free(out);
    free(in);
}

static void none_completed(int count, MPI_Request *requests)
{
    for (int i = 0; i < count; i++) {
        int flag = 1;
        MPI(MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE));
        CHECK_EQ(flag, 0);
    }
}

/* Messages of collectives use the ranks' communicator too, but no receive of the user's may
 * get one and no probe may see one. */
static void under_collectives(int length)
{
    enum { RECEIVES = 6, AT_ONCE = 8 };
    int in[RECEIVES][WORDS], out[WORDS], flag = 1;
    int *mine = malloc(AT_ONCE * (size_t)length * sizeof *mine);
    int *sums = malloc(AT_ONCE * (size_t)length * sizeof *sums);
    MPI_Request posted[RECEIVES], barriers[AT_ONCE], reductions[AT_ONCE];
    MPI_Status status;
    MPI_Comm comm, copy;
    if (mine == NULL || sums == NULL)
        abort();
    doing("collectives under receives of anything", length);
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int i = 0; i < RECEIVES; i++)
        MPI(MPI_Irecv(in[i], WORDS, MPI_INT, i % 2 == 0 ? MPI_ANY_SOURCE : left, MPI_ANY_TAG, comm,
                      &posted[i]));
    for (int k = 0; k < AT_ONCE; k++) {
        for (int i = 0; i < length; i++) {
            mine[k * length + i] = check_rank + k * 1000 + i;
            sums[k * length + i] = -1;
        }
        MPI(MPI_Ibarrier(comm, &barriers[k]));
        MPI(MPI_Iallreduce(mine + k * length, sums + k * length, length, MPI_INT, MPI_SUM, comm,
                           &reductions[k]));
        none_completed(RECEIVES, posted);
    }
    MPI(MPI_Waitall(AT_ONCE, barriers, MPI_STATUSES_IGNORE));
    MPI(MPI_Waitall(AT_ONCE, reductions, MPI_STATUSES_IGNORE));
    for (int i = 0; i < AT_ONCE * length; i++) {
        int each = i / length * 1000 + i % length;
        if (!CHECK_EQ(sums[i], each * check_size + check_size * (check_size - 1) / 2))
            break;
    }
    MPI(MPI_Allreduce(mine, sums, length, MPI_INT, MPI_MAX, comm));
    CHECK_EQ(sums[length - 1], check_size - 1 + length - 1);
    MPI(MPI_Bcast(mine, length, MPI_INT, check_size - 1, comm));
    CHECK_EQ(mine[length - 1], check_size - 1 + length - 1);
    MPI(MPI_Comm_dup(comm, &copy));
    MPI(MPI_Comm_free(&copy));
    none_completed(RECEIVES, posted);
    MPI(MPI_Barrier(comm));

    doing("messages for the receives of anything, among collectives", length);
    for (int i = 0; i < RECEIVES; i++) {
        int tag = values[(value_count - 1) * i / (RECEIVES - 1)];
        MPI(MPI_Ibarrier(comm, &barriers[0]));
        write_message(out, right, tag, 2, i);
        MPI(MPI_Send(out, WORDS, MPI_INT, right, tag, comm));
        MPI(MPI_Wait(&posted[i], &status));
        CHECK_STATUS(&status, left, tag, sizeof out);
        read_message(in[i], left, tag, 2, i);
        MPI(MPI_Wait(&barriers[0], MPI_STATUS_IGNORE));
    }

    doing("probing among collectives", length);
    if (check_rank == 0)
        await_token(check_size - 1, 0, MPI_COMM_WORLD);
    MPI(MPI_Ibarrier(comm, &barriers[0]));
    MPI(MPI_Iallreduce(mine, sums, length, MPI_INT, MPI_SUM, comm, &reductions[0]));
    for (int turn = 0; turn < 200; turn++) {
        MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status));
        CHECK_EQ(flag, 0);
    }
    if (check_rank == check_size - 1)
        send_token(0, 0, MPI_COMM_WORLD);
    MPI(MPI_Wait(&barriers[0], MPI_STATUS_IGNORE));
    MPI(MPI_Wait(&reductions[0], MPI_STATUS_IGNORE));
    MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status));
    CHECK_EQ(flag, 0);
    MPI(MPI_Comm_free(&comm));
    free(mine);
    free(sums);
}

int main(int argc, char **argv)
{
    int comm_count;
    check_start(&argc, &argv, "tags", MPI_THREAD_SINGLE, 2);
    comm_count = argc > 1 ? atoi(argv[1]) : 300;
    if (!CHECK(check_size <= MAX_RANKS && comm_count >= 1))
        MPI_Abort(MPI_COMM_WORLD, 2);
    right = (check_rank + 1) % check_size;
    left = (check_rank + check_size - 1) % check_size;
    find_values();
    if (check_rank == 0)
        printf("MPI_TAG_UB %d\n", upper_bound);
    for (int way = 0; way < WAYS; way++)
        all_values((enum way)way);
    posted_values();
    wrong_tags();
    many_communicators(comm_count, false);
    many_communicators(comm_count, true);
    under_collectives(1);
    under_collectives(100);
    under_collectives(40000);
    return check_finish();
}
