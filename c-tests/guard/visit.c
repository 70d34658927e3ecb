/* Makes the host call every entry of a transport: point to point in all forms, long messages, one-sided
 * transfers, a communicator that comes and goes, performance variables, and the debuggers' dump; what the
 * host itself calls in no such job, atomic operations among it, is called here through the transport's table.
 * Needs two ranks. Ends with `PASS visit`, if it gets so far. */
#include "ompi_config.h"

#include "mpi.h"
#include "ompi/communicator/communicator.h"
#include "ompi/mca/bml/bml.h"
#include "ompi/mca/pml/pml.h"
#include "ompi/proc/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONG = 4 << 20, STRIDED = 100000 };

static int rank, other;
static char *out, *in;

/* The transports that there are rows of. */
static const char *const transports[] = {"usnic", "smcuda", "verbs", "openib"};
enum { TRANSPORTS = sizeof transports / sizeof *transports };

/* Whether a performance variable is of one of them. */
static int is_theirs(const char *name)
{
    char prefix[32];

    for (int i = 0; i < TRANSPORTS; i++) {
        int length = snprintf(prefix, sizeof prefix, "btl_%s_", transports[i]);
        if (strncmp(name, prefix, (size_t)length) == 0)
            return 1;
    }
    return 0;
}

static int is_one(const char *component)
{
    for (int i = 0; i < TRANSPORTS; i++)
        if (strcmp(component, transports[i]) == 0)
            return 1;
    return 0;
}

static void point_to_point(void)
{
    MPI_Request requests[4];
    MPI_Message message;
    MPI_Status status;
    MPI_Datatype strided;
    int flag = 0;

    MPI_Sendrecv(out, 8, MPI_CHAR, other, 1, in, 8, MPI_CHAR, other, 1, MPI_COMM_WORLD, &status);
    /* Both orders, so that each rank sends blocking. */
    if (rank == 0) {
        MPI_Send(out, 8, MPI_CHAR, other, 2, MPI_COMM_WORLD);
        MPI_Recv(in, 8, MPI_CHAR, other, 2, MPI_COMM_WORLD, &status);
    } else {
        MPI_Recv(in, 8, MPI_CHAR, other, 2, MPI_COMM_WORLD, &status);
        MPI_Send(out, 8, MPI_CHAR, other, 2, MPI_COMM_WORLD);
    }
    MPI_Isend(out, 8, MPI_CHAR, other, 3, MPI_COMM_WORLD, &requests[0]);
    while (!flag)
        MPI_Iprobe(other, 3, MPI_COMM_WORLD, &flag, &status);
    for (flag = 0; !flag;)
        MPI_Improbe(other, 3, MPI_COMM_WORLD, &flag, &message, &status);
    MPI_Imrecv(in, 8, MPI_CHAR, &message, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Irecv(in, 8, MPI_CHAR, other, 4, MPI_COMM_WORLD, &requests[0]);
    MPI_Cancel(&requests[0]);
    MPI_Wait(&requests[0], &status);

    MPI_Type_vector(STRIDED, 4, 8, MPI_CHAR, &strided);
    MPI_Type_commit(&strided);
    MPI_Irecv(in, LONG, MPI_CHAR, other, 5, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(in + LONG, 1, strided, other, 6, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(out, LONG, MPI_CHAR, other, 5, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(out, 1, strided, other, 6, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    MPI_Type_free(&strided);
}

static void one_sided(void)
{
    MPI_Comm copy;
    MPI_Win window;
    void *memory;

    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Win_allocate(4096, 1, MPI_INFO_NULL, copy, &memory, &window);
    MPI_Win_lock_all(0, window);
    MPI_Put(out, 4096, MPI_CHAR, other, 0, 4096, MPI_CHAR, window);
    MPI_Win_flush(other, window);
    MPI_Get(in, 4096, MPI_CHAR, other, 0, 4096, MPI_CHAR, window);
    MPI_Win_flush(other, window);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Comm_free(&copy);
}

static void variables(void)
{
    MPI_T_pvar_session session;
    int provided, count;

    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_get_num(&count);
    for (int i = 0; i < count; i++) {
        char name[256], text[1024];
        int name_size = sizeof name, text_size = sizeof text, verbosity, class, bind, readonly;
        int continuous, atomic, values;
        MPI_Datatype type;
        MPI_T_enum names;
        MPI_T_pvar_handle handle;
        unsigned long long value[64];

        if (MPI_T_pvar_get_info(i, name, &name_size, &verbosity, &class, &type, &names, text,
                                &text_size, &bind, &readonly, &continuous, &atomic) != MPI_SUCCESS ||
            !is_theirs(name) || bind != MPI_T_BIND_NO_OBJECT ||
            MPI_T_pvar_handle_alloc(session, i, NULL, &handle, &values) != MPI_SUCCESS)
            continue;
        if (values <= 64)
            MPI_T_pvar_read(session, handle, value);
        MPI_T_pvar_handle_free(session, &handle);
    }
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
}

static int done;

static void count(mca_btl_base_module_t *module, struct mca_btl_base_endpoint_t *endpoint, void *local,
                  mca_btl_base_registration_handle_t *handle, void *context, void *data, int status)
{
    (void)module, (void)endpoint, (void)local, (void)handle, (void)context, (void)data;
    done += status == OPAL_SUCCESS;
}

/* One by one on a word of the other rank's, which it leaves alone. */
static void atomics(mca_btl_base_module_t *module, struct mca_btl_base_endpoint_t *endpoint)
{
    static int64_t word, result;
    mca_btl_base_registration_handle_t *handle;
    void *remote = calloc(1, module->btl_registration_handle_size);
    uint64_t own = (uint64_t)(uintptr_t)&word, address;
    int begun;

    handle = module->btl_register_mem(module, MCA_BTL_ENDPOINT_ANY, &word, sizeof word, MCA_BTL_REG_FLAG_ACCESS_ANY);
    MPI_Sendrecv(&own, sizeof own, MPI_BYTE, other, 7, &address, sizeof address, MPI_BYTE, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(handle, module->btl_registration_handle_size, MPI_BYTE, other, 8, remote, module->btl_registration_handle_size,
                 MPI_BYTE, other, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 3; i++) {
        mca_btl_base_registration_handle_t *local =
            module->btl_register_mem(module, endpoint, &result, sizeof result, MCA_BTL_REG_FLAG_LOCAL_WRITE);
        switch (i) {
        case 0:
            begun = module->btl_atomic_op(module, endpoint, address, remote, MCA_BTL_ATOMIC_ADD, 1, 0, MCA_BTL_NO_ORDER,
                                          count, NULL, NULL);
            break;
        case 1:
            begun = module->btl_atomic_fop(module, endpoint, &result, address, local, remote, MCA_BTL_ATOMIC_ADD, 1, 0,
                                           MCA_BTL_NO_ORDER, count, NULL, NULL);
            break;
        default:
            begun = module->btl_atomic_cswap(module, endpoint, &result, address, local, remote, 2, 3, 0, MCA_BTL_NO_ORDER,
                                             count, NULL, NULL);
        }
        if (begun != OPAL_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, 1);
        while (done == i)
            opal_progress();
        module->btl_deregister_mem(module, local);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (word != 3)
        MPI_Abort(MPI_COMM_WORLD, 1);
    module->btl_deregister_mem(module, handle);
    free(remote);
}

/* What the PML calls in no such job: it gives its descriptors away with the send, and waits for its PUTs and
 * GETs by their callbacks. Other users of a byte transport do call it. */
static void transport(void)
{
    ompi_proc_t *proc = ompi_comm_peer_lookup(MPI_COMM_WORLD, other);
    mca_bml_base_endpoint_t *peer = proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_BML];
    mca_btl_base_descriptor_t *descriptor;
    mca_btl_base_module_t *module;
    mca_bml_base_btl_t *way;

    if (peer == NULL)
        return;
    way = mca_bml_base_btl_array_get_index(&peer->btl_send, 0);
    module = way->btl;
    if (!is_one(module->btl_component->btl_version.mca_component_name))
        return;
    descriptor = module->btl_alloc(module, way->btl_endpoint, MCA_BTL_NO_ORDER, 64, 0);
    if (descriptor == NULL || module->btl_free(module, descriptor) != OPAL_SUCCESS ||
        module->btl_flush(module, way->btl_endpoint) != OPAL_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    if (module->btl_atomic_op != NULL)
        atomics(module, way->btl_endpoint);
}

int main(int argc, char **argv)
{
    alarm(60);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = 1 - rank;
    out = calloc(1, 2 * LONG);
    in = calloc(1, 2 * LONG);
    point_to_point();
    one_sided();
    transport();
    variables();
    mca_pml.pml_dump(MPI_COMM_WORLD, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0)
        puts("PASS visit");
    return 0;
}
