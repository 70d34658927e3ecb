/* Floods: thousands of messages that arrive before any receive is posted, and thousands of
 * receives posted before any message is sent. Rank 0 with every other rank, any number from 2.
 *
 * usage: flood [messages per pair, default 10000] */
#include "check.h"

enum { TAGS = 16, SMALL = 64, LONGEST = 8192, LANES = 2, MAX_RANKS = 16 };

enum direction { TO_ZERO, FROM_ZERO, BOTH_WAYS, DIRECTIONS };

/* What the receives name; the tags of the reversed ones are asked for from last to first. */
enum way { IN_ORDER, REVERSED, ANY_TAG, ANY_SOURCE, ANYTHING, PROBED, WAYS };

static const char *const way_names[WAYS] = {
    "in order", "tags reversed", "any tag", "any source", "any source and tag", "probed",
};

static int messages = 10000;
static int *tags, *sizes, *same_tag_next;
static size_t *places, out_size;
static int first_with[TAGS];

static MPI_Comm control, lanes[LANES];
static int peers[MAX_RANKS], peer_count;

/* The sending side: what lies in it depends on sender, tag, index and lane only, so that one
 * copy serves all receivers. */
static unsigned char *out[LANES];
static MPI_Request *sent;
static int sent_count;

/* The receiving side: for each source and tag, the index of the message that is due. */
static int due[LANES][MAX_RANKS][TAGS];
static int received[LANES];
static unsigned char *in;
static MPI_Request *posted;
static MPI_Status *statuses;
static int *asked_tags;
static int posted_count;

static unsigned message_seed(int source, int lane, int i)
{
    return seed_of(source, tags[i], (size_t)(lane * 10000000 + i));
}

static void *allocated(size_t count, size_t size)
{
    void *memory = malloc(count * size + 1);
    if (memory == NULL)
        abort();
    return memory;
}

static void lay_out(void)
{
    int last_with[TAGS];
    size_t n = (size_t)messages, all = n * (size_t)peer_count;
    tags = allocated(n, sizeof *tags);
    sizes = allocated(n, sizeof *sizes);
    same_tag_next = allocated(n, sizeof *same_tag_next);
    places = allocated(n, sizeof *places);
    for (int t = 0; t < TAGS; t++)
        first_with[t] = last_with[t] = messages;
    for (int i = 0; i < messages; i++) {
        unsigned mixed = (unsigned)i * 0x9E3779B1u;
        mixed ^= mixed >> 16;
        tags[i] = (int)(mixed % TAGS);
        sizes[i] = i % 50 == 7 ? LONGEST : (int)(mixed / TAGS % (SMALL + 1));
        places[i] = out_size;
        out_size += (size_t)sizes[i];
        same_tag_next[i] = messages;
        if (last_with[tags[i]] == messages)
            first_with[tags[i]] = i;
        else
            same_tag_next[last_with[tags[i]]] = i;
        last_with[tags[i]] = i;
    }
    for (int lane = 0; lane < LANES; lane++) {
        out[lane] = allocated(out_size, 1);
        for (int i = 0; i < messages; i++)
            fill(out[lane] + places[i], (size_t)sizes[i], message_seed(check_rank, lane, i));
    }
    sent = allocated(LANES * all, sizeof *sent);
    in = allocated(all, LONGEST);
    posted = allocated(all, sizeof *posted);
    statuses = allocated(all, sizeof *statuses);
    asked_tags = allocated(all, sizeof *asked_tags);
}

static bool sending(enum direction direction)
{
    return direction == BOTH_WAYS || (direction == TO_ZERO) == (check_rank != 0);
}

static bool receiving(enum direction direction)
{
    return direction == BOTH_WAYS || (direction == TO_ZERO) == (check_rank == 0);
}

static void tell_peers(void)
{
    for (int p = 0; p < peer_count; p++)
        send_token(peers[p], 0, control);
}

static void await_peers(void)
{
    for (int p = 0; p < peer_count; p++)
        await_token(peers[p], 0, control);
}

static void start_sends(int lane_count)
{
    sent_count = 0;
    for (int i = 0; i < messages; i++)
        for (int lane = 0; lane < lane_count; lane++)
            for (int p = 0; p < peer_count; p++)
                MPI(MPI_Isend(out[lane] + places[i], sizes[i], MPI_BYTE, peers[p], tags[i],
                              lanes[lane], &sent[sent_count++]));
}

static void end_sends(void)
{
    MPI(MPI_Waitall(sent_count, sent, MPI_STATUSES_IGNORE));
}

static void expect_all(void)
{
    for (int lane = 0; lane < LANES; lane++) {
        received[lane] = 0;
        for (int p = 0; p < peer_count; p++)
            memcpy(due[lane][peers[p]], first_with, sizeof first_with);
    }
}

/* Judges one received message. Of the messages that fit a receive the earliest sent by its
 * source is the only right one. */
static void took(int lane, int asked_source, int asked_tag, MPI_Status *status,
                 const unsigned char *buffer)
{
    int source = status->MPI_SOURCE, *of_source, i;
    if (asked_source != MPI_ANY_SOURCE && !CHECK_EQ(source, asked_source))
        return;
    if (!CHECK(source >= 0 && source < check_size && source != check_rank))
        return;
    of_source = due[lane][source];
    if (asked_tag == MPI_ANY_TAG) {
        i = messages;
        for (int t = 0; t < TAGS; t++)
            i = of_source[t] < i ? of_source[t] : i;
    } else {
        i = of_source[asked_tag];
    }
    if (!CHECK(i < messages))
        return;
    CHECK_STATUS(status, source, tags[i], sizes[i]);
    VERIFY(buffer, (size_t)sizes[i], message_seed(source, lane, i));
    of_source[tags[i]] = same_tag_next[i];
    received[lane]++;
}

static void receive(int lane, int source, int tag, bool probed)
{
    static unsigned char buffer[LONGEST];
    MPI_Status status;
    if (probed) {
        MPI_Message message;
        int n = -1;
        MPI(MPI_Mprobe(source, tag, lanes[lane], &message, &status));
        MPI(MPI_Get_count(&status, MPI_BYTE, &n));
        MPI(MPI_Mrecv(buffer, n, MPI_BYTE, &message, &status));
    } else {
        MPI(MPI_Recv(buffer, LONGEST, MPI_BYTE, source, tag, lanes[lane], &status));
    }
    took(lane, source, tag, &status, buffer);
}

static void receive_all(int lane, enum way way)
{
    for (int t = TAGS - 1; t >= 0 && (way == REVERSED || way == ANY_SOURCE); t--)
        for (int i = first_with[t]; i < messages; i = same_tag_next[i])
            for (int p = 0; p < peer_count; p++)
                receive(lane, way == REVERSED ? peers[p] : MPI_ANY_SOURCE, t, false);
    for (int i = received[lane] / peer_count;
         i < messages && way != REVERSED && way != ANY_SOURCE; i++) {
        for (int p = 0; p < peer_count; p++) {
            int source = way == ANYTHING || way == PROBED ? MPI_ANY_SOURCE : peers[p];
            receive(lane, source, way == IN_ORDER ? tags[i] : MPI_ANY_TAG, way == PROBED);
        }
    }
    CHECK_EQ(received[lane], peer_count * messages);
}

static void nothing_left(void)
{
    for (int lane = 0; lane < LANES; lane++) {
        int flag = 1;
        MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, lanes[lane], &flag, MPI_STATUS_IGNORE));
        CHECK_EQ(flag, 0);
    }
    MPI(MPI_Barrier(control));
}

static void messages_first(enum direction direction, enum way way)
{
    static char what[80];
    snprintf(what, sizeof what, "messages first, received %s, direction", way_names[way]);
    doing(what, direction);
    if (sending(direction)) {
        start_sends(1);
        tell_peers();
    }
    if (receiving(direction)) {
        await_peers();
        expect_all();
        receive_all(0, way);
    }
    if (sending(direction))
        end_sends();
    nothing_left();
}

static void post(int source, int tag)
{
    MPI(MPI_Irecv(in + (size_t)posted_count * LONGEST, LONGEST, MPI_BYTE, source, tag, lanes[0],
                  &posted[posted_count]));
    asked_tags[posted_count++] = tag;
}

/* With ANY_TAG, the receives of any tag come before and after those with a tag: the first ones
 * take whatever comes first, the last ones what finds no receive with its tag any more. */
static void post_all(enum way way)
{
    posted_count = 0;
    for (int i = 0; i < messages; i++) {
        int back = messages - 1 - i;
        for (int p = 0; p < peer_count; p++) {
            switch (way) {
            case ANY_TAG:
                if (i < messages / 10)
                    post(peers[p], MPI_ANY_TAG);
                break;
            case IN_ORDER: post(peers[p], tags[i]); break;
            case REVERSED: post(peers[p], tags[back]); break;
            case ANY_SOURCE: post(MPI_ANY_SOURCE, tags[back]); break;
            default: post(MPI_ANY_SOURCE, MPI_ANY_TAG); break;
            }
        }
    }
    if (way != ANY_TAG)
        return;
    for (int wanted = 0; wanted < 2; wanted++)
        for (int i = messages - 1; i >= messages / 10; i--)
            for (int p = 0; p < peer_count; p++)
                if ((i % 10 == 3) == (wanted == 1))
                    post(peers[p], wanted == 1 ? MPI_ANY_TAG : tags[i]);
}

/* Looks at the posted receives in the order in which they were posted. */
static void end_posted(bool any_source)
{
    MPI(MPI_Waitall(posted_count, posted, statuses));
    for (int k = 0; k < posted_count; k++) {
        int source = any_source ? MPI_ANY_SOURCE : peers[k % peer_count];
        took(0, source, asked_tags[k], &statuses[k], in + (size_t)k * LONGEST);
    }
}

static void receives_first(enum direction direction, enum way way)
{
    static char what[80];
    snprintf(what, sizeof what, "receives first, posted %s, direction", way_names[way]);
    doing(what, direction);
    if (receiving(direction)) {
        expect_all();
        post_all(way);
        tell_peers();
    }
    if (sending(direction)) {
        await_peers();
        start_sends(1);
    }
    if (receiving(direction)) {
        end_posted(way == ANY_SOURCE || way == ANYTHING);
        CHECK_EQ(received[0], peer_count * messages);
    }
    if (sending(direction))
        end_sends();
    nothing_left();
}

/* Every message twice, on communicators of the same ranks: receives of anything on one may
 * not take what belongs to the other. Only a tenth is posted, as providers search their lists. */
static void two_communicators(enum direction direction, bool some_posted)
{
    doing(some_posted ? "two communicators, some posted" : "two communicators", direction);
    if (receiving(direction)) {
        expect_all();
        posted_count = 0;
        for (int i = 0; i < messages / 10 * peer_count && some_posted; i++)
            post(MPI_ANY_SOURCE, MPI_ANY_TAG);
        tell_peers();
    }
    if (sending(direction)) {
        await_peers();
        start_sends(LANES);
        tell_peers();
    }
    if (receiving(direction)) {
        await_peers();
        receive_all(1, ANYTHING);
        end_posted(true);
        receive_all(0, ANYTHING);
    }
    if (sending(direction))
        end_sends();
    nothing_left();
}

int main(int argc, char **argv)
{
    check_start(&argc, &argv, "flood", MPI_THREAD_SINGLE, 2);
    if (argc > 1)
        messages = atoi(argv[1]);
    if (!CHECK(messages >= 1 && check_size <= MAX_RANKS))
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (check_rank != 0)
        peers[peer_count++] = 0;
    for (int r = 1; check_rank == 0 && r < check_size; r++)
        peers[peer_count++] = r;
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &control));
    for (int lane = 0; lane < LANES; lane++)
        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &lanes[lane]));
    lay_out();
    for (int d = 0; d < DIRECTIONS; d++) {
        for (int way = 0; way < WAYS; way++)
            messages_first((enum direction)d, (enum way)way);
        for (int way = 0; way < PROBED; way++)
            receives_first((enum direction)d, (enum way)way);
        two_communicators((enum direction)d, false);
        two_communicators((enum direction)d, true);
    }
    for (int lane = 0; lane < LANES; lane++)
        MPI(MPI_Comm_free(&lanes[lane]));
    MPI(MPI_Comm_free(&control));
    return check_finish();
}
