/* The counters of the usnic BTL through MPI_T: all of the original's names are there, with their
 * class, type and binding, one value per module, and they count what happens.
 *
 * usage: usnic_pvars [SECONDS [INTERFACE …]]
 *     SECONDS     how long to exchange messages; 0: a few
 *     INTERFACE   the modules' names, in order */
#include "check.h"
#include "pvar.h"

enum { MODULES = 16, MESSAGES = 200, LONG = 100000 };

static MPI_T_pvar_session session;

struct variable {
    const char *name;
    int class;
    MPI_T_pvar_handle handle;
    int count;
    unsigned long long before[MODULES], after[MODULES];
};

static struct variable variables[] = {
    { .name = "max_sent_window_size", .class = MPI_T_PVAR_CLASS_HIGHWATERMARK },
    { .name = "max_rcvd_window_size", .class = MPI_T_PVAR_CLASS_HIGHWATERMARK },
    { .name = "num_total_sends" },      { .name = "num_resends" },
    { .name = "num_timeout_retrans" },  { .name = "num_fast_retrans" },
    { .name = "num_chunk_sends" },      { .name = "num_frag_sends" },
    { .name = "num_ack_sends" },        { .name = "num_total_recvs" },
    { .name = "num_unk_recvs" },        { .name = "num_dup_recvs" },
    { .name = "num_oow_low_recvs" },    { .name = "num_oow_high_recvs" },
    { .name = "num_frag_recvs" },       { .name = "num_chunk_recvs" },
    { .name = "num_badfrag_recvs" },    { .name = "num_ack_recvs" },
    { .name = "num_old_dup_acks" },     { .name = "num_dup_acks" },
    { .name = "num_recv_reposts" },     { .name = "num_crc_errors" },
    { .name = "pml_module_sends" },     { .name = "pml_send_callbacks" },
};
enum { VARIABLES = sizeof variables / sizeof *variables };

/* Finds a variable and checks what is said of it. */
static int find(const char *short_name, int class, MPI_Datatype type, MPI_T_enum *names)
{
    char wanted[128];
    struct pvar what;
    snprintf(wanted, sizeof wanted, "btl_usnic_%s", short_name);
    doing(short_name, 0);
    int index = pvar_named(wanted, &what);
    if (!CHECK(index >= 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    CHECK_EQ(what.class, class);
    CHECK(what.type == type);
    CHECK_EQ(what.bind, MPI_T_BIND_NO_OBJECT);
    CHECK_EQ(what.readonly, 1);
    CHECK_EQ(what.continuous, 1);
    CHECK(strlen(what.text) > 10);
    *names = what.names;
    return index;
}

static int check_devices(int expected, char **interfaces)
{
    MPI_T_pvar_handle handle;
    MPI_T_enum names = MPI_T_ENUM_NULL;
    int count = 0, items = 0, values[MODULES];
    char name[128];
    int name_size = sizeof name;
    int index = find("devices", MPI_T_PVAR_CLASS_STATE, MPI_INT, &names);
    MPI(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count));
    if (!CHECK(count >= 1 && count <= MODULES) || !CHECK(names != MPI_T_ENUM_NULL))
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI(MPI_T_enum_get_info(names, &items, name, &name_size));
    CHECK_EQ(items, count);
    MPI(MPI_T_pvar_read(session, handle, values));
    if (expected > 0)
        CHECK_EQ(count, expected);
    for (int i = 0; i < count; i++) {
        int value = -1;
        name_size = sizeof name;
        MPI(MPI_T_enum_get_item(names, i, &value, name, &name_size));
        CHECK_EQ(value, i);
        CHECK_EQ(values[i], i);
        CHECK(strlen(name) > 0);
        if (i < expected)
            CHECK_EQ(strcmp(name, interfaces[i]), 0);
    }
    MPI(MPI_T_pvar_handle_free(session, &handle));
    return count;
}

static unsigned long long growth(const char *name)
{
    unsigned long long sum = 0;
    for (int i = 0; i < VARIABLES; i++)
        for (int m = 0; strcmp(variables[i].name, name) == 0 && m < variables[i].count; m++) {
            CHECK(variables[i].after[m] >= variables[i].before[m]);
            sum += variables[i].after[m] - variables[i].before[m];
        }
    return sum;
}

/* Each sends to the next and receives from the one before. */
static void exchange(char *out, char *in, int size)
{
    int next = (check_rank + 1) % check_size, before = (check_rank + check_size - 1) % check_size;
    MPI(MPI_Sendrecv(out, size, MPI_CHAR, next, 1, in, size, MPI_CHAR, before, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE));
    CHECK(memcmp(in, out, (size_t)size) == 0);
}

int main(int argc, char **argv)
{
    static char out[LONG], in[LONG];
    int level = 0;
    check_start(&argc, &argv, "usnic_pvars", MPI_THREAD_SINGLE, 2);
    double seconds = argc > 1 ? atof(argv[1]) : 0;
    memset(out, 'x', sizeof out);
    MPI(MPI_T_init_thread(MPI_THREAD_SINGLE, &level));
    MPI(MPI_T_pvar_session_create(&session));
    int modules = check_devices(argc > 2 ? argc - 2 : 0, argv + 2);

    for (int i = 0; i < VARIABLES; i++) {
        struct variable *it = &variables[i];
        MPI_T_enum none;
        int class = it->class ? it->class : MPI_T_PVAR_CLASS_COUNTER;
        int index = find(it->name, class, MPI_UNSIGNED_LONG_LONG, &none);
        MPI(MPI_T_pvar_handle_alloc(session, index, NULL, &it->handle, &it->count));
        if (!CHECK_EQ(it->count, modules))
            MPI_Abort(MPI_COMM_WORLD, 2);
        MPI(MPI_T_pvar_read(session, it->handle, it->before));
    }

    doing("the counted traffic", 0);
    double begin = MPI_Wtime();
    for (int i = 0; i < MESSAGES; i++)
        exchange(out, in, 100);
    /* Longer than a packet, not too long to be sent at once: of a cable, and of the loopback. */
    exchange(out, in, LONG / 5);
    exchange(out, in, LONG);
    /* All leave after the same round. */
    for (int more = seconds > 0; more;) {
        exchange(out, in, 100);
        more = MPI_Wtime() - begin < seconds;
        MPI(MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD));
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));

    for (int i = 0; i < VARIABLES; i++)
        MPI(MPI_T_pvar_read(session, variables[i].handle, variables[i].after));
    static const struct { const char *name; unsigned long long least; } moved[] = {
        { "num_total_sends", MESSAGES }, { "num_frag_sends", MESSAGES },
        { "num_total_recvs", MESSAGES }, { "num_frag_recvs", MESSAGES },
        { "pml_module_sends", MESSAGES }, { "pml_send_callbacks", MESSAGES },
        { "num_chunk_sends", 2 },     { "num_chunk_recvs", 2 },
    };
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) {
        doing(moved[i].name, (long long)growth(moved[i].name));
        CHECK(growth(moved[i].name) >= moved[i].least);
    }
    doing("what should not happen", 0);
    CHECK_EQ(growth("num_badfrag_recvs"), 0);
    CHECK_EQ(growth("num_crc_errors"), 0);
    unsigned long long window = 0;
    for (int m = 0; m < modules; m++)
        window += variables[0].after[m];
    CHECK(window >= 1);
    CHECK(growth("num_total_sends") >= growth("num_frag_sends") + growth("num_chunk_sends"));

    for (int i = 0; i < VARIABLES; i++)
        MPI(MPI_T_pvar_handle_free(session, &variables[i].handle));
    MPI(MPI_T_pvar_session_free(&session));
    MPI(MPI_T_finalize());
    return check_finish();
}
