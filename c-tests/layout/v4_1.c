/* Compares include/hawser_v4_1.h with the headers of Open MPI 4.1. */

#include "hawser_v4_1.h"

#define OURS(name) hawser_v4_1_##name

#include "host.h"

#include "opal/datatype/opal_datatype_internal.h"
#include "opal/dss/dss_types.h"
#include "opal/mca/pmix/pmix.h"
#include "ompi/mca/osc/osc.h"
#include "ompi/mca/pml/pml.h"
#include "ompi/win/win.h"
#include "orte/util/proc_info.h"

#include <string.h>

static void check_process_info(void)
{
    CHECK(ProcessInfo, name, orte_proc_info_t, my_name);
    CHECK(ProcessInfo, processes, orte_proc_info_t, num_procs);
    CHECK(ProcessInfo, node, orte_proc_info_t, nodename);
    CHECK(ProcessInfo, local_rank, orte_proc_info_t, my_local_rank);
    CHECK(ProcessInfo, local_peers, orte_proc_info_t, num_local_peers);
    CHECK(ProcessInfo, cpuset, orte_proc_info_t, cpuset);
    CHECK_SIZE(ProcessInfo, orte_proc_info_t);
}

static void check_pmix(void)
{
    CHECK(Value, item, opal_value_t, super);
    CHECK(Value, key, opal_value_t, key);
    CHECK(Value, kind, opal_value_t, type);
    CHECK(Value, size, opal_value_t, data.bo.size);
    CHECK(Value, bytes, opal_value_t, data.bo.bytes);
    CHECK_SIZE(Value, opal_value_t);

    CHECK_FUNCTION(Pmix, put, opal_pmix_base_module_t, put,
                   int (*)(opal_pmix_scope_t, opal_value_t *));
    CHECK_FUNCTION(Pmix, get, opal_pmix_base_module_t, get,
                   int (*)(const opal_process_name_t *, const char *, opal_list_t *,
                           opal_value_t **));
    CHECK_PREFIX(Pmix, opal_pmix_base_module_t, get_nb);

    CHECK_CONSTANT(OPAL_BYTE_OBJECT, 20);
    CHECK_CONSTANT(OPAL_PMIX_GLOBAL, 3);
    CHECK_CONSTANT(OPAL_BOOL, 2);
    CHECK_OFFSET(opal_value_t, data.flag, offsetof(OURS(Value), size));
    CHECK_CONSTANT(strcmp(OPAL_PMIX_IMMEDIATE, "pmix.immediate"), 0);
    CHECK_SIZE_IS(opal_pmix_scope_t, 4);
}

/* The functions of a window that take a buffer of the caller's, by their places in the table. */
#define CHECK_PLACE(field, place) \
    _Static_assert(offsetof(ompi_osc_base_module_t, field) == (place) * sizeof(void (*)(void)), #field)

static void check_window(void)
{
    CHECK(Window, module, ompi_win_t, w_osc_module);
    CHECK_SIZE(Window, ompi_win_t);
    CHECK_PLACE(osc_win_attach, 1);
    CHECK_PLACE(osc_put, 4);
    CHECK_PLACE(osc_get, 5);
    CHECK_PLACE(osc_accumulate, 6);
    CHECK_PLACE(osc_compare_and_swap, 7);
    CHECK_PLACE(osc_fetch_and_op, 8);
    CHECK_PLACE(osc_get_accumulate, 9);
    CHECK_PLACE(osc_rput, 10);
    CHECK_PLACE(osc_rget, 11);
    CHECK_PLACE(osc_raccumulate, 12);
    CHECK_PLACE(osc_rget_accumulate, 13);
    CHECK_CONSTANT(MPI_WIN_FLAVOR_CREATE, 1);
}

static void check_elements(void)
{
    CHECK(Convertor, flags, opal_convertor_t, flags);
    CHECK(Convertor, local_size, opal_convertor_t, local_size);
    CHECK(Convertor, description, opal_convertor_t, use_desc);
    CHECK(Convertor, base, opal_convertor_t, pBaseBuf);
    CHECK(Convertor, levels, opal_convertor_t, pStack);
    CHECK(Convertor, level, opal_convertor_t, stack_pos);
    CHECK(Convertor, partial, opal_convertor_t, partial_length);
    CHECK(Convertor, converted, opal_convertor_t, bConverted);
    CHECK(Level, index, dt_stack_t, index);
    CHECK(Level, displacement, dt_stack_t, disp);
    CHECK_SIZE(Level, dt_stack_t);
    CHECK(Description, elements, dt_type_desc_t, desc);
    CHECK_SIZE(Description, dt_type_desc_t);
    CHECK(Element, kind, ddt_elem_desc_t, common.type);
    CHECK(Element, displacement, ddt_elem_desc_t, disp);
    CHECK_SIZE(Element, ddt_elem_desc_t);
    CHECK_SIZE(Element, dt_elem_desc_t);
    CHECK_CONSTANT(CONVERTOR_NO_OP, 0x00100000);
    CHECK_CONSTANT(CONVERTOR_WITH_CHECKSUM, 0x00200000);
    CHECK_CONSTANT(CONVERTOR_COMPLETED, 0x08000000);
    CHECK_PROTOTYPE(opal_convertor_set_position_nocheck, int32_t (*)(opal_convertor_t *, size_t *));
    CHECK_PROTOTYPE(opal_datatype_local_sizes, const size_t(*)[OPAL_DATATYPE_MAX_PREDEFINED]);
    CHECK_CONSTANT(OPAL_DATATYPE_MAX_PREDEFINED, 27);
}

/* The functions that send and receive, by their places in the table of a component. */
#define CHECK_MESSAGE_PLACE(field, place) \
    _Static_assert(offsetof(mca_pml_base_module_t, field) == (place) * sizeof(void (*)(void)), #field)

static void check_messages(void)
{
    CHECK_MESSAGE_PLACE(pml_irecv_init, 6);
    CHECK_MESSAGE_PLACE(pml_irecv, 7);
    CHECK_MESSAGE_PLACE(pml_recv, 8);
    CHECK_MESSAGE_PLACE(pml_isend_init, 9);
    CHECK_MESSAGE_PLACE(pml_isend, 10);
    CHECK_MESSAGE_PLACE(pml_send, 11);
    CHECK_MESSAGE_PLACE(pml_imrecv, 17);
    CHECK_MESSAGE_PLACE(pml_mrecv, 18);
    CHECK_SIZE_IS(mca_pml_base_send_mode_t, 4);
}

int main(void)
{
    CHECK_CONSTANT(OPAL_MAJOR_VERSION, 4);
    CHECK_CONSTANT(OPAL_MINOR_VERSION, 1);
    check_host();

    CHECK_FUNCTION(MtlComponent, init, mca_mtl_base_component_2_0_0_t, mtl_init,
                   mca_mtl_base_module_t *(*) (bool, bool));
    CHECK(Communicator, index, ompi_communicator_t, c_contextid);
    check_window();
    check_elements();
    check_messages();

    CHECK_CONSTANT(OPAL_CUDA_SUPPORT, 0);
    CHECK_CONSTANT(CONVERTOR_CUDA, 0x00400000);
    CHECK_CONSTANT(CONVERTOR_CUDA_ASYNC, 0x00800000);
    CHECK_CONSTANT(CONVERTOR_CUDA_UNIFIED, 0x10000000);
    CHECK_CONSTANT(CONVERTOR_SKIP_CUDA_INIT, 0x40000000);
    CHECK_PROTOTYPE(opal_pmix, opal_pmix_base_module_t *);
    CHECK_PROTOTYPE(orte_process_info, orte_proc_info_t *);
    CHECK_PROTOTYPE(opal_progress, void (*)(void));
    CHECK_PROTOTYPE(opal_get_proc_hostname, char *(*) (const opal_proc_t *));

    check_process_info();
    CHECK(BtlModule, ft_event_or_accelerator_max_send_size, mca_btl_base_module_t, btl_ft_event);
    compare_type("the receive callback",
                 __builtin_types_compatible_p(mca_btl_base_module_recv_cb_fn_t,
                                              void (*)(mca_btl_base_module_t *, mca_btl_base_tag_t,
                                                       mca_btl_base_descriptor_t *, void *)));
    check_pmix();
    return summary();
}
