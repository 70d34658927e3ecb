/* A thread that samples every performance variable there is while messages flow, in a program that asks
 * MPI for one thread and MPI_T for all: no sample may disturb the messages, and no counter of the
 * component shrinks. 2 ranks.
 *
 * usage: sampler PREFIX [before|after]
 *     PREFIX    of the component's counters, such as btl_usnic_
 *     before    MPI_T is told of threads before MPI_Init; after is the default */
#include "check.h"
#include "pvar.h"

#include <pthread.h>

/* MANY bounds what is read; a host has some dozens. */
enum { MANY = 400, VALUES = 64, SAMPLES = 100, MESSAGES = 2000, LONGEST = 20000 };

static MPI_T_pvar_session session;
static int variables;
static struct {
    char name[256];
    MPI_T_pvar_handle handle;
    int values, size;
    bool is_ours;
    unsigned long long last[VALUES];
} sampled[MANY];

static atomic_bool is_over;
static atomic_int samples;

static void find(const char *prefix)
{
    int count = 0, ours = 0;
    doing("finding the variables", 0);
    MPI(MPI_T_pvar_session_create(&session));
    MPI(MPI_T_pvar_get_num(&count));
    for (int i = 0; i < count && variables < MANY; i++) {
        struct pvar what;
        int size = 0, values = 0;
        MPI_T_pvar_handle handle;
        /* Open MPI's own mtl/psm2 falls over a question when it is there and not in use. */
        if (!pvar_at(i, &what) || what.bind != MPI_T_BIND_NO_OBJECT || strncmp(what.name, "mtl_psm", 7) == 0)
            continue;
        MPI(MPI_Type_size(what.type, &size));
        if (MPI_T_pvar_handle_alloc(session, i, NULL, &handle, &values) != MPI_SUCCESS)
            continue;
        if (!what.continuous)
            MPI_T_pvar_start(session, handle);
        if (values * size > (int)sizeof sampled[0].last)
            continue;
        memcpy(sampled[variables].name, what.name, sizeof what.name);
        sampled[variables].handle = handle;
        sampled[variables].values = values;
        sampled[variables].is_ours = strncmp(what.name, prefix, strlen(prefix)) == 0 && what.type == MPI_UNSIGNED_LONG_LONG;
        ours += sampled[variables].is_ours;
        variables++;
    }
    CHECK(ours > 5);
}

static void *sample(void *unused)
{
    (void)unused;
    while (!atomic_load(&is_over)) {
        for (int i = 0; i < variables; i++) {
            unsigned long long now[VALUES] = { 0 };
            if (MPI_T_pvar_read(session, sampled[i].handle, now) != MPI_SUCCESS)
                continue;
            for (int k = 0; k < sampled[i].values && sampled[i].is_ours; k++) {
                if (now[k] < sampled[i].last[k])
                    check_report(__FILE__, __LINE__, sampled[i].name, (long long)now[k], (long long)sampled[i].last[k]);
                sampled[i].last[k] = now[k];
            }
        }
        atomic_fetch_add(&samples, 1);
    }
    return NULL;
}

/* One message each way; the first byte says whether its sender has seen enough. Gives whether both have. */
static bool turn(int round)
{
    static unsigned char out[LONGEST + 1], in[LONGEST + 1];
    static const size_t sizes[] = { 8, 8, 300, 8, LONGEST };
    size_t n = sizes[round % 5];
    int peer = 1 - check_rank;
    MPI_Request request;
    MPI_Status status;
    doing("messages", round);
    out[0] = round >= MESSAGES && atomic_load(&samples) >= SAMPLES;
    fill(out + 1, n, seed_of(check_rank, round, n));
    MPI(MPI_Irecv(in, sizeof in, MPI_BYTE, peer, 7, MPI_COMM_WORLD, &request));
    MPI(MPI_Send(out, (int)n + 1, MPI_BYTE, peer, 7, MPI_COMM_WORLD));
    MPI(MPI_Wait(&request, &status));
    CHECK_STATUS(&status, peer, 7, (int)n + 1);
    VERIFY(in + 1, n, seed_of(peer, round, n));
    return out[0] && in[0];
}

int main(int argc, char **argv)
{
    bool is_before = argc > 2 && strcmp(argv[2], "before") == 0;
    int level;
    pthread_t sampler;
    check_arm("sampler");
    if (is_before)
        MPI(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &level));
    MPI(MPI_Init(&argc, &argv));
    MPI(MPI_Comm_rank(MPI_COMM_WORLD, &check_rank));
    MPI(MPI_Comm_size(MPI_COMM_WORLD, &check_size));
    if (!CHECK_EQ(check_size, 2) || !CHECK(argc > 1))
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (!is_before)
        MPI(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &level));
    find(argv[1]);
    if (!CHECK_EQ(pthread_create(&sampler, NULL, sample, NULL), 0))
        abort();
    for (int round = 0; !turn(round); round++)
        ;
    atomic_store(&is_over, true);
    CHECK_EQ(pthread_join(sampler, NULL), 0);
    MPI(MPI_T_pvar_session_free(&session));
    MPI(MPI_T_finalize());
    return check_finish();
}
