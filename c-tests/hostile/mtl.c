/* A matching transport as pml/cm drives it. */
#include "mtl.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "btl.h"

enum { GUARD = 64, GUARD_BYTE = 0xa7 };
_Atomic unsigned long requests_ended, requests_started;
static bool closed;

const char *const *mtl_parameters(void)
{
    static char include[128], mode[64];
    static const char *parameters[] = {"mtl=hawser", include, mode, NULL};
    const char *provider = getenv("HAWSER_HOSTILE_PROVIDER"), *tags = getenv("HAWSER_HOSTILE_TAGS");

    snprintf(include, sizeof include, "opal_common_ofi_provider_include=%s", provider ? provider : "tcp");
    snprintf(mode, sizeof mode, "mtl_ofi_tag_mode=%s", tags ? tags : "1");
    return parameters;
}

void mtl_load(struct mtl *mtl, const char *name)
{
    char symbol[64];

    snprintf(symbol, sizeof symbol, "mca_mtl_%s_component", name);
    mtl->component = host_component(symbol);
    CHECK(strcmp(mtl->component->mtl_version.mca_component_name, name) == 0);
    CHECK(mtl->component->mtl_version.mca_register_component_params() == OMPI_SUCCESS);
    CHECK(mtl->component->mtl_version.mca_open_component() == OMPI_SUCCESS);
}

void mtl_init(struct mtl *mtl, bool threads)
{
    mca_base_module_t *offered = NULL;
    int priority = -1;

    CHECK(mtl->component->mtl_version.mca_query_component(&offered, &priority) == OMPI_SUCCESS, "%s",
          host_topic);
    CHECK(offered != NULL && priority > 0);
    mtl->module = version_init_mtl(mtl->component, threads);
    CHECK(mtl->module != NULL);
    closed = false;
}

static ompi_group_t *group(void)
{
    ompi_group_t *group = calloc(1, sizeof *group);

    group->grp_proc_count = RANKS;
    group->grp_my_rank = self;
    group->grp_proc_pointers = calloc(RANKS, sizeof *group->grp_proc_pointers);
    for (int rank = 0; rank < RANKS; rank++)
        group->grp_proc_pointers[rank] = host_proc[rank];
    return group;
}

ompi_communicator_t *mtl_communicator(uint32_t id)
{
    ompi_communicator_t *comm = calloc(1, sizeof *comm);

    comm->c_my_rank = self;
    comm->c_local_group = comm->c_remote_group = group();
    version_communicator(comm, id);
    return comm;
}

void mtl_free_communicator(ompi_communicator_t *comm)
{
    free(comm->c_local_group->grp_proc_pointers);
    free(comm->c_local_group);
    free(comm);
}

void mtl_meet(struct mtl *mtl)
{
    CHECK(mtl->module->mtl_add_procs(mtl->module, RANKS, host_proc) == OMPI_SUCCESS, "%s", host_topic);
    mtl->world = mtl_communicator(0);
    CHECK(mtl->module->mtl_add_comm(mtl->module, mtl->world) == OMPI_SUCCESS);
}

void mtl_begin(struct mtl *mtl, const char *name, bool threads)
{
    host_begin(mtl_parameters());
    host_set_threads(threads);
    step("opens the component");
    mtl_load(mtl, name);
    mtl_init(mtl, threads);
    fence();
    mtl_meet(mtl);
    step("has met its peer");
    fence();
}

void mtl_finalize(struct mtl *mtl)
{
    step("finalizes");
    CHECK(mtl->module->mtl_finalize(mtl->module) == OMPI_SUCCESS);
    closed = true;
    mtl->module = NULL;
    CHECK(mtl->component->mtl_version.mca_close_component() == OMPI_SUCCESS);
    mtl_free_communicator(mtl->world);
}

void mtl_end(struct mtl *mtl)
{
    CHECK(requests_ended == requests_started, "%lu of %lu", requests_ended, requests_started);
    fence();
    CHECK(mtl->module->mtl_del_comm(mtl->module, mtl->world) == OMPI_SUCCESS);
    CHECK(mtl->module->mtl_del_procs(mtl->module, RANKS, host_proc) == OMPI_SUCCESS);
    mtl_finalize(mtl);
}

/* Requests. */

static void guard_check(const struct request *request)
{
    for (size_t at = 0; at < GUARD; at++)
        CHECK(request->bytes[request->size + at] == GUARD_BYTE, "byte %zu behind a buffer of %zu", at,
              request->size);
}

static void completed(mca_mtl_request_t *head)
{
    struct request *request = (struct request *)head->ompi_req;
    struct mtl *mtl = request->mtl;

    CHECK(!closed, "a completion after finalize");
    CHECK(request->head == head);
    CHECK(request->ended == 0, "a request is completed twice");
    guard_check(request);
    requests_ended++;
    note_progress();
    void (*on_end)(struct mtl *mtl, struct request *request) = request->on_end;
    /* From here on another thread may free it, where there is nothing more to do. */
    request->ended = 1;
    if (on_end != NULL) {
        depth++;
        on_end(mtl, request);
        depth--;
    }
}

struct request *request_new(struct mtl *mtl, size_t size, bool is_receive)
{
    struct request *request = calloc(1, sizeof *request);

    request->head = malloc(sizeof *request->head + mtl->module->mtl_request_size);
    /* What was there before belongs to nobody. */
    memset(request->head, 0x5c, sizeof *request->head + mtl->module->mtl_request_size);
    request->head->ompi_req = &request->pml.req_ompi;
    request->head->completion_callback = completed;
    request->pml.req_type = is_receive ? 2 : 0;
    request->bytes = malloc(size + GUARD);
    memset(request->bytes, 0, size);
    memset(request->bytes + size, GUARD_BYTE, GUARD);
    request->size = size;
    request->mtl = mtl;
    host_contiguous(&request->convertor, request->bytes, size);
    return request;
}

void request_free(struct request *request)
{
    guard_check(request);
    free(request->head);
    free(request->bytes);
    free(request);
}

static int started(struct request *request, int result)
{
    if (result == OMPI_SUCCESS)
        return result;
    CHECK(result < 0 && request->ended == 0, "a refused request is completed");
    requests_started--;
    return result;
}

int mtl_isend(struct request *request, ompi_communicator_t *comm, int tag, uint64_t number, bool synchronous)
{
    mca_mtl_base_module_t *module = request->mtl->module;

    request->number = number;
    message_fill(request->bytes, request->size, number);
    requests_started++;
    return started(request, module->mtl_isend(module, comm, other, tag, &request->convertor,
                                              synchronous ? MCA_PML_BASE_SEND_SYNCHRONOUS
                                                          : MCA_PML_BASE_SEND_STANDARD,
                                              false, request->head));
}

int mtl_irecv(struct request *request, ompi_communicator_t *comm, int source, int tag)
{
    mca_mtl_base_module_t *module = request->mtl->module;

    requests_started++;
    return started(request,
                   module->mtl_irecv(module, comm, source, tag, &request->convertor, request->head));
}

void request_wait(struct request *request)
{
    while (request->ended == 0)
        host_progress();
    CHECK(request->ended == 1);
}

uint64_t request_check(struct request *request)
{
    const ompi_status_public_t *status = &request->pml.req_ompi.req_status;

    CHECK(request->ended == 1);
    CHECK(status->MPI_ERROR == MPI_SUCCESS && status->_cancelled == 0, "%d", status->MPI_ERROR);
    CHECK(status->MPI_SOURCE == other);
    CHECK(status->_ucount <= request->size);
    return message_check(request->bytes, status->_ucount);
}
