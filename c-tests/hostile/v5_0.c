/* What only Open MPI 5.0 has: PMIx, accelerators, its receive callback. */
#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ompi/datatype/ompi_datatype_internal.h"
#include "ompi/op/op.h"
#include "ompi/runtime/mpiruntime.h"
#include "opal/mca/accelerator/accelerator.h"
#include "opal/mca/accelerator/base/base.h"
#include "opal/mca/pmix/pmix-internal.h"
#include "opal/runtime/opal.h"
#include "opal/runtime/opal_progress.h"
#include "opal/util/proc.h"
#include "pmix.h"

const char opal_version_string[] = "5.0.7";
const int32_t version_loss = 0;
opal_process_info_t opal_process_info;
bool ompi_mpi_thread_multiple;
bool opal_uses_threads;
opal_accelerator_base_module_t opal_accelerator;
opal_accelerator_base_component_t opal_accelerator_base_selected_component = {
    .base_version = {.mca_component_name = "null"},
};

/* What components for devices look up. There is no device: nothing of it is used. */
opal_class_t opal_accelerator_stream_t_class = {.cls_sizeof = sizeof(opal_accelerator_stream_t)};
opal_class_t opal_accelerator_event_t_class = {.cls_sizeof = sizeof(opal_accelerator_event_t)};
opal_class_t ompi_op_base_module_t_class = {.cls_sizeof = sizeof(ompi_op_base_module_t)};
int ompi_op_ddt_map[OMPI_DATATYPE_MAX_PREDEFINED];
const ompi_datatype_t *ompi_datatype_basicDatatypes[OMPI_DATATYPE_MPI_MAX_PREDEFINED];

void opal_class_initialize(opal_class_t *class)
{
    fprintf(stderr, "an object of %zu bytes without a device\n", class->cls_sizeof);
    abort();
}

int opal_progress(void)
{
    host_progress();
    return 0;
}

static char *name_of_host(const opal_proc_t *proc)
{
    CHECK(proc != NULL);
    return strdup("node");
}

char *(*opal_get_proc_hostname)(const opal_proc_t *proc) = name_of_host;

void host_set_threads(bool several) { ompi_mpi_thread_multiple = opal_uses_threads = several; }

pmix_status_t PMIx_Put(pmix_scope_t scope, const char key[], pmix_value_t *value)
{
    CHECK(scope == PMIX_GLOBAL && value->type == PMIX_BYTE_OBJECT);
    publish(key, value->data.bo.bytes, value->data.bo.size);
    return PMIX_SUCCESS;
}

int opal_pmix_convert_jobid(pmix_nspace_t nspace, opal_jobid_t jobid)
{
    snprintf(nspace, PMIX_MAX_NSLEN, "job-%u", jobid);
    return host_modex == KNOWS_NOBODY ? OPAL_ERR_NOT_FOUND : OPAL_SUCCESS;
}

pmix_status_t PMIx_Get(const pmix_proc_t *proc, const char key[], const pmix_info_t info[], size_t count,
                       pmix_value_t **found)
{
    const void *bytes;
    size_t size;
    pmix_value_t *value;
    char own[PMIX_MAX_NSLEN + 1] = "";

    CHECK(count == 0 || (count == 1 && strcmp(info->key, PMIX_IMMEDIATE) == 0));
    CHECK(count == 0 || (info->value.type == PMIX_BOOL && info->value.data.flag));
    if (host_modex == GIVES_NOTHING)
        return PMIX_SUCCESS;
    opal_pmix_convert_jobid(own, job);
    if (strcmp(own, proc->nspace) != 0 || !look_up(proc->rank, key, &bytes, &size))
        return PMIX_ERR_NOT_FOUND;
    value = calloc(1, sizeof *value);
    value->type = PMIX_BYTE_OBJECT;
    value->data.bo.size = size;
    value->data.bo.bytes = malloc(size);
    memcpy(value->data.bo.bytes, bytes, size);
    host_values++;
    *found = value;
    return PMIX_SUCCESS;
}

void PMIx_Value_free(pmix_value_t *value, size_t count)
{
    CHECK(count == 1);
    free(value->data.bo.bytes);
    free(value);
    host_values--;
}

void version_begin(void)
{
    opal_process_info.my_name.jobid = job;
    opal_process_info.my_name.vpid = (uint32_t)self;
    opal_process_info.num_procs = opal_process_info.univ_size = RANKS;
    opal_process_info.nodename = (char *)(uintptr_t)"node";
    opal_process_info.my_local_rank = (uint16_t)self;
    opal_process_info.num_local_peers = RANKS - 1;
}

void version_communicator(ompi_communicator_t *comm, uint32_t id)
{
    comm->c_index = id;
    comm->c_contextid.cid_sub.u64 = id;
    comm->c_flags |= OMPI_COMM_GLOBAL_INDEX;
}

static struct listener {
    host_received_t received;
    void *data;
} listeners[256];

static void receive(mca_btl_base_module_t *module, const mca_btl_base_receive_descriptor_t *descriptor)
{
    struct listener *listener = descriptor->cbdata;

    CHECK(listener == &listeners[descriptor->tag]);
    CHECK(descriptor->des_segment_count == 1 && descriptor->endpoint != NULL);
    listener->received(module, descriptor->tag, descriptor->des_segments->seg_addr.pval,
                       descriptor->des_segments->seg_len, listener->data);
}

void version_listen(uint8_t tag, host_received_t received, void *data)
{
    listeners[tag] = (struct listener){received, data};
    mca_btl_base_active_message_trigger[tag].cbdata = &listeners[tag];
    mca_btl_base_active_message_trigger[tag].cbfunc = receive;
}

mca_mtl_base_module_t *version_init_mtl(mca_mtl_base_component_t *component, bool threads)
{
    bool device = false;

    return component->mtl_init(false, threads, &device);
}
