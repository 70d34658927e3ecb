/* What only Open MPI 4.1 has: its runtime, its modex, its receive callback. */
#include "host.h"

#include <stdlib.h>
#include <string.h>

#include "opal/dss/dss_types.h"
#include "opal/mca/pmix/pmix.h"
#include "opal/runtime/opal.h"
#include "opal/runtime/opal_progress.h"
#include "ompi/runtime/mpiruntime.h"
#include "orte/util/proc_info.h"

const char opal_version_string[] = "4.1.4";
const int32_t version_loss = MCA_BTL_ERROR_FLAGS_FATAL;
orte_proc_info_t orte_process_info;
opal_process_info_t opal_process_info;
bool ompi_mpi_thread_multiple;
bool opal_uses_threads;

void opal_progress(void) { host_progress(); }

char *opal_get_proc_hostname(const opal_proc_t *proc)
{
    CHECK(proc != NULL);
    return (char *)(uintptr_t)"node";
}

void host_set_threads(bool several) { ompi_mpi_thread_multiple = opal_uses_threads = several; }

/* What destroys a value of the modex. */
static void destroy(opal_object_t *object)
{
    opal_value_t *value = (opal_value_t *)object;

    free(value->data.bo.bytes);
    host_values--;
}

static opal_destruct_t destructors[] = {destroy, NULL};
static opal_construct_t constructors[] = {NULL};
opal_class_t opal_value_t_class = {
    .cls_name = "opal_value_t",
    .cls_initialized = 1,
    .cls_construct_array = constructors,
    .cls_destruct_array = destructors,
    .cls_sizeof = sizeof(opal_value_t),
};

static int put(opal_pmix_scope_t scope, opal_value_t *value)
{
    CHECK(scope == OPAL_PMIX_GLOBAL && value->type == OPAL_BYTE_OBJECT);
    publish(value->key, value->data.bo.bytes, (size_t)value->data.bo.size);
    return OPAL_SUCCESS;
}

static int get(const opal_process_name_t *proc, const char *key, opal_list_t *directives,
               opal_value_t **found)
{
    const void *bytes;
    size_t size;
    opal_value_t *value;

    if (directives != NULL) {
        opal_value_t *directive = (opal_value_t *)opal_list_get_first(directives);
        CHECK(opal_list_get_size(directives) == 1 && opal_list_get_last(directives) == &directive->super);
        CHECK(opal_list_get_next(&directive->super) == opal_list_get_end(directives));
        CHECK(strcmp(directive->key, OPAL_PMIX_IMMEDIATE) == 0 && directive->type == OPAL_BOOL && directive->data.flag);
    }
    if (host_modex == GIVES_NOTHING)
        return OPAL_SUCCESS;
    if (host_modex == KNOWS_NOBODY || proc->jobid != job || !look_up(proc->vpid, key, &bytes, &size))
        return OPAL_ERR_NOT_FOUND;
    value = calloc(1, sizeof *value);
    value->super.super.obj_class = &opal_value_t_class;
    value->super.super.obj_reference_count = 1;
    value->type = OPAL_BYTE_OBJECT;
    value->data.bo.size = (int32_t)size;
    value->data.bo.bytes = malloc(size);
    memcpy(value->data.bo.bytes, bytes, size);
    host_values++;
    *found = value;
    return OPAL_SUCCESS;
}

opal_pmix_base_module_t opal_pmix = {.put = put, .get = get};

void version_begin(void)
{
    orte_process_info.my_name.jobid = job;
    orte_process_info.my_name.vpid = (uint32_t)self;
    orte_process_info.num_procs = RANKS;
    orte_process_info.nodename = (char *)(uintptr_t)"node";
    orte_process_info.my_local_rank = (uint16_t)self;
    orte_process_info.num_local_peers = RANKS - 1;
    opal_process_info.nodename = (char *)(uintptr_t)"node";
    opal_process_info.my_local_rank = self;
    opal_process_info.num_local_peers = RANKS - 1;
}

void version_communicator(ompi_communicator_t *comm, uint32_t id) { comm->c_contextid = id; }

static struct listener {
    host_received_t received;
    void *data;
} listeners[256];

static void receive(mca_btl_base_module_t *module, mca_btl_base_tag_t tag,
                    mca_btl_base_descriptor_t *descriptor, void *data)
{
    struct listener *listener = data;

    CHECK(listener == &listeners[tag]);
    CHECK(descriptor->des_segment_count == 1);
    listener->received(module, tag, descriptor->des_segments->seg_addr.pval, descriptor->des_segments->seg_len,
                       listener->data);
}

void version_listen(uint8_t tag, host_received_t received, void *data)
{
    listeners[tag] = (struct listener){received, data};
    mca_btl_base_active_message_trigger[tag].cbdata = &listeners[tag];
    mca_btl_base_active_message_trigger[tag].cbfunc = receive;
}

mca_mtl_base_module_t *version_init_mtl(mca_mtl_base_component_t *component, bool threads)
{
    return component->mtl_init(false, threads);
}
