/* What both hosts have alike in name: their headers, the table of fields and the constants.
 * v4_1.c and v5_0.c include the generated header, define OURS and then include this. */
#ifndef HAWSER_LAYOUT_HOST_H
#define HAWSER_LAYOUT_HOST_H

#include "ompi_config.h"

#include "mpi.h"
#include "ompi/communicator/communicator.h"
#include "ompi/constants.h"
#include "ompi/group/group.h"
#include "ompi/mca/mtl/mtl.h"
#include "ompi/mca/pml/base/pml_base_request.h"
#include "ompi/mca/pml/pml_constants.h"
#include "ompi/message/message.h"
#include "ompi/proc/proc.h"
#include "ompi/request/request.h"
#include "ompi/runtime/mpiruntime.h"
#include "opal/class/opal_bitmap.h"
#include "opal/class/opal_list.h"
#include "opal/class/opal_object.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/datatype/opal_datatype.h"
#include "opal/mca/base/mca_base_pvar.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/mca/base/mca_base_var_enum.h"
#include "opal/mca/btl/btl.h"
#include "opal/mca/btl/base/base.h"
#include "opal/mca/mca.h"
#include "opal/mca/memory/base/base.h"
#include "opal/memoryhooks/memory.h"
#include "opal/memoryhooks/memory_internal.h"
#include "opal/runtime/opal_params.h"
#include "opal/runtime/opal_progress.h"
#include "opal/util/output.h"
#include "opal/util/show_help.h"

#include "check.h"

static void check_objects(void)
{
    CHECK(Object, class_, opal_object_t, obj_class);
    CHECK(Object, references, opal_object_t, obj_reference_count);
    CHECK_SIZE(Object, opal_object_t);

    CHECK(Class, name, opal_class_t, cls_name);
    CHECK(Class, parent, opal_class_t, cls_parent);
    CHECK_FUNCTION(Class, construct_own, opal_class_t, cls_construct, void (*)(opal_object_t *));
    CHECK_FUNCTION(Class, destruct_own, opal_class_t, cls_destruct, void (*)(opal_object_t *));
    CHECK(Class, initialized, opal_class_t, cls_initialized);
    CHECK(Class, construct, opal_class_t, cls_construct_array);
    CHECK(Class, destruct, opal_class_t, cls_destruct_array);
    CHECK(Class, size, opal_class_t, cls_sizeof);
    CHECK_SIZE(Class, opal_class_t);

    CHECK(ListItem, object, opal_list_item_t, super);
    CHECK(ListItem, next, opal_list_item_t, opal_list_next);
    CHECK(ListItem, previous, opal_list_item_t, opal_list_prev);
    CHECK(ListItem, free, opal_list_item_t, item_free);
    CHECK_SIZE(ListItem, opal_list_item_t);

    CHECK(List, object, opal_list_t, super);
    CHECK(List, sentinel, opal_list_t, opal_list_sentinel);
    CHECK(List, length, opal_list_t, opal_list_length);
    CHECK_SIZE(List, opal_list_t);
}

static void check_component(void)
{
    CHECK_SPAN(Component, mca_version, mca_base_component_t, mca_major_version,
               mca_release_version);
    CHECK(Component, project, mca_base_component_t, mca_project_name);
    CHECK_SPAN(Component, project_version, mca_base_component_t, mca_project_major_version,
               mca_project_release_version);
    CHECK(Component, type_name, mca_base_component_t, mca_type_name);
    CHECK_SPAN(Component, type_version, mca_base_component_t, mca_type_major_version,
               mca_type_release_version);
    CHECK(Component, name, mca_base_component_t, mca_component_name);
    CHECK_SPAN(Component, version, mca_base_component_t, mca_component_major_version,
               mca_component_release_version);
    CHECK_FUNCTION(Component, open, mca_base_component_t, mca_open_component, int (*)(void));
    CHECK_FUNCTION(Component, close, mca_base_component_t, mca_close_component, int (*)(void));
    CHECK_FUNCTION(Component, query, mca_base_component_t, mca_query_component,
                   int (*)(mca_base_module_t **, int *));
    CHECK_FUNCTION(Component, register_, mca_base_component_t, mca_register_component_params,
                   int (*)(void));
    CHECK(Component, flags, mca_base_component_t, mca_component_flags);
    CHECK_SIZE(Component, mca_base_component_t);

    CHECK(MtlComponent, base, mca_mtl_base_component_2_0_0_t, mtl_version);
    CHECK(MtlComponent, param_field, mca_mtl_base_component_2_0_0_t, mtl_data.param_field);
    CHECK_SIZE(MtlComponent, mca_mtl_base_component_2_0_0_t);
}

static void check_module(void)
{
    CHECK(MtlModule, max_contextid, mca_mtl_base_module_t, mtl_max_contextid);
    CHECK(MtlModule, max_tag, mca_mtl_base_module_t, mtl_max_tag);
    CHECK(MtlModule, request_size, mca_mtl_base_module_t, mtl_request_size);
    CHECK(MtlModule, flags, mca_mtl_base_module_t, mtl_flags);
    CHECK_FUNCTION(MtlModule, add_procs, mca_mtl_base_module_t, mtl_add_procs,
                   int (*)(mca_mtl_base_module_t *, size_t, struct ompi_proc_t **));
    CHECK_FUNCTION(MtlModule, del_procs, mca_mtl_base_module_t, mtl_del_procs,
                   int (*)(mca_mtl_base_module_t *, size_t, struct ompi_proc_t **));
    CHECK_FUNCTION(MtlModule, finalize, mca_mtl_base_module_t, mtl_finalize,
                   int (*)(mca_mtl_base_module_t *));
    CHECK_FUNCTION(MtlModule, send, mca_mtl_base_module_t, mtl_send,
                   int (*)(mca_mtl_base_module_t *, ompi_communicator_t *, int, int,
                           opal_convertor_t *, mca_pml_base_send_mode_t));
    CHECK_FUNCTION(MtlModule, isend, mca_mtl_base_module_t, mtl_isend,
                   int (*)(mca_mtl_base_module_t *, ompi_communicator_t *, int, int,
                           opal_convertor_t *, mca_pml_base_send_mode_t, bool,
                           mca_mtl_request_t *));
    CHECK_FUNCTION(MtlModule, irecv, mca_mtl_base_module_t, mtl_irecv,
                   int (*)(mca_mtl_base_module_t *, ompi_communicator_t *, int, int,
                           opal_convertor_t *, mca_mtl_request_t *));
    CHECK_FUNCTION(MtlModule, iprobe, mca_mtl_base_module_t, mtl_iprobe,
                   int (*)(mca_mtl_base_module_t *, ompi_communicator_t *, int, int, int *,
                           ompi_status_public_t *));
    CHECK_FUNCTION(MtlModule, imrecv, mca_mtl_base_module_t, mtl_imrecv,
                   int (*)(mca_mtl_base_module_t *, opal_convertor_t *, ompi_message_t **,
                           mca_mtl_request_t *));
    CHECK_FUNCTION(MtlModule, improbe, mca_mtl_base_module_t, mtl_improbe,
                   int (*)(mca_mtl_base_module_t *, ompi_communicator_t *, int, int, int *,
                           ompi_message_t **, ompi_status_public_t *));
    CHECK_FUNCTION(MtlModule, cancel, mca_mtl_base_module_t, mtl_cancel,
                   int (*)(mca_mtl_base_module_t *, mca_mtl_request_t *, int));
    CHECK_FUNCTION(MtlModule, add_comm, mca_mtl_base_module_t, mtl_add_comm,
                   int (*)(mca_mtl_base_module_t *, ompi_communicator_t *));
    CHECK_FUNCTION(MtlModule, del_comm, mca_mtl_base_module_t, mtl_del_comm,
                   int (*)(mca_mtl_base_module_t *, ompi_communicator_t *));
    CHECK_SIZE(MtlModule, mca_mtl_base_module_t);
}

static void check_btl(void)
{
    CHECK(BtlComponent, base, mca_btl_base_component_3_0_0_t, btl_version);
    CHECK(BtlComponent, param_field, mca_btl_base_component_3_0_0_t, btl_data.param_field);
    CHECK_FUNCTION(BtlComponent, init, mca_btl_base_component_3_0_0_t, btl_init,
                   mca_btl_base_module_t **(*) (int *, bool, bool));
    CHECK_FUNCTION(BtlComponent, progress, mca_btl_base_component_3_0_0_t, btl_progress,
                   int (*)(void));
    CHECK_SIZE(BtlComponent, mca_btl_base_component_3_0_0_t);

    CHECK(BtlModule, component, mca_btl_base_module_t, btl_component);
    CHECK(BtlModule, eager_limit, mca_btl_base_module_t, btl_eager_limit);
    CHECK(BtlModule, rndv_eager_limit, mca_btl_base_module_t, btl_rndv_eager_limit);
    CHECK(BtlModule, max_send_size, mca_btl_base_module_t, btl_max_send_size);
    CHECK(BtlModule, rdma_pipeline_send_length, mca_btl_base_module_t,
          btl_rdma_pipeline_send_length);
    CHECK(BtlModule, rdma_pipeline_frag_size, mca_btl_base_module_t, btl_rdma_pipeline_frag_size);
    CHECK(BtlModule, min_rdma_pipeline_size, mca_btl_base_module_t, btl_min_rdma_pipeline_size);
    CHECK(BtlModule, exclusivity, mca_btl_base_module_t, btl_exclusivity);
    CHECK(BtlModule, latency, mca_btl_base_module_t, btl_latency);
    CHECK(BtlModule, bandwidth, mca_btl_base_module_t, btl_bandwidth);
    CHECK(BtlModule, flags, mca_btl_base_module_t, btl_flags);
    CHECK(BtlModule, atomic_flags, mca_btl_base_module_t, btl_atomic_flags);
    CHECK(BtlModule, registration_handle_size, mca_btl_base_module_t,
          btl_registration_handle_size);
    CHECK(BtlModule, get_limit, mca_btl_base_module_t, btl_get_limit);
    CHECK(BtlModule, get_alignment, mca_btl_base_module_t, btl_get_alignment);
    CHECK(BtlModule, put_limit, mca_btl_base_module_t, btl_put_limit);
    CHECK(BtlModule, put_alignment, mca_btl_base_module_t, btl_put_alignment);
    CHECK(BtlModule, get_local_registration_threshold, mca_btl_base_module_t,
          btl_get_local_registration_threshold);
    CHECK(BtlModule, put_local_registration_threshold, mca_btl_base_module_t,
          btl_put_local_registration_threshold);
    CHECK_FUNCTION(BtlModule, add_procs, mca_btl_base_module_t, btl_add_procs,
                   int (*)(mca_btl_base_module_t *, size_t, struct opal_proc_t **,
                           struct mca_btl_base_endpoint_t **, opal_bitmap_t *));
    CHECK_FUNCTION(BtlModule, del_procs, mca_btl_base_module_t, btl_del_procs,
                   int (*)(mca_btl_base_module_t *, size_t, struct opal_proc_t **,
                           struct mca_btl_base_endpoint_t **));
    CHECK(BtlModule, register_, mca_btl_base_module_t, btl_register);
    CHECK_FUNCTION(BtlModule, finalize, mca_btl_base_module_t, btl_finalize,
                   int (*)(mca_btl_base_module_t *));
    CHECK_FUNCTION(BtlModule, alloc, mca_btl_base_module_t, btl_alloc,
                   mca_btl_base_descriptor_t *(*) (mca_btl_base_module_t *,
                                                   struct mca_btl_base_endpoint_t *, uint8_t, size_t,
                                                   uint32_t));
    CHECK_FUNCTION(BtlModule, free, mca_btl_base_module_t, btl_free,
                   int (*)(mca_btl_base_module_t *, mca_btl_base_descriptor_t *));
    CHECK_FUNCTION(BtlModule, prepare_src, mca_btl_base_module_t, btl_prepare_src,
                   mca_btl_base_descriptor_t *(*) (mca_btl_base_module_t *,
                                                   struct mca_btl_base_endpoint_t *, opal_convertor_t *,
                                                   uint8_t, size_t, size_t *, uint32_t));
    CHECK_FUNCTION(BtlModule, send, mca_btl_base_module_t, btl_send,
                   int (*)(mca_btl_base_module_t *, struct mca_btl_base_endpoint_t *,
                           mca_btl_base_descriptor_t *, mca_btl_base_tag_t));
    CHECK_FUNCTION(BtlModule, sendi, mca_btl_base_module_t, btl_sendi,
                   int (*)(mca_btl_base_module_t *, struct mca_btl_base_endpoint_t *, opal_convertor_t *,
                           void *, size_t, size_t, uint8_t, uint32_t, mca_btl_base_tag_t,
                           mca_btl_base_descriptor_t **));
    CHECK_FUNCTION(BtlModule, put, mca_btl_base_module_t, btl_put,
                   int (*)(mca_btl_base_module_t *, struct mca_btl_base_endpoint_t *, void *, uint64_t,
                           struct mca_btl_base_registration_handle_t *,
                           struct mca_btl_base_registration_handle_t *, size_t, int, int,
                           mca_btl_base_rdma_completion_fn_t, void *, void *));
    CHECK_FUNCTION(BtlModule, get, mca_btl_base_module_t, btl_get,
                   int (*)(mca_btl_base_module_t *, struct mca_btl_base_endpoint_t *, void *, uint64_t,
                           struct mca_btl_base_registration_handle_t *,
                           struct mca_btl_base_registration_handle_t *, size_t, int, int,
                           mca_btl_base_rdma_completion_fn_t, void *, void *));
    CHECK_FUNCTION(BtlModule, dump, mca_btl_base_module_t, btl_dump,
                   void (*)(mca_btl_base_module_t *, struct mca_btl_base_endpoint_t *, int));
    CHECK_FUNCTION(BtlModule, atomic_op, mca_btl_base_module_t, btl_atomic_op,
                   int (*)(mca_btl_base_module_t *, struct mca_btl_base_endpoint_t *, uint64_t,
                           struct mca_btl_base_registration_handle_t *, mca_btl_base_atomic_op_t, uint64_t, int, int,
                           mca_btl_base_rdma_completion_fn_t, void *, void *));
    CHECK_FUNCTION(BtlModule, atomic_fop, mca_btl_base_module_t, btl_atomic_fop,
                   int (*)(mca_btl_base_module_t *, struct mca_btl_base_endpoint_t *, void *, uint64_t,
                           struct mca_btl_base_registration_handle_t *,
                           struct mca_btl_base_registration_handle_t *, mca_btl_base_atomic_op_t, uint64_t, int, int,
                           mca_btl_base_rdma_completion_fn_t, void *, void *));
    CHECK_FUNCTION(BtlModule, atomic_cswap, mca_btl_base_module_t, btl_atomic_cswap,
                   int (*)(mca_btl_base_module_t *, struct mca_btl_base_endpoint_t *, void *, uint64_t,
                           struct mca_btl_base_registration_handle_t *,
                           struct mca_btl_base_registration_handle_t *, uint64_t, uint64_t, int, int,
                           mca_btl_base_rdma_completion_fn_t, void *, void *));
    CHECK_FUNCTION(BtlModule, register_mem, mca_btl_base_module_t, btl_register_mem,
                   struct mca_btl_base_registration_handle_t *(*) (mca_btl_base_module_t *,
                                                            struct mca_btl_base_endpoint_t *, void *,
                                                            size_t, uint32_t));
    CHECK_FUNCTION(BtlModule, deregister_mem, mca_btl_base_module_t, btl_deregister_mem,
                   int (*)(mca_btl_base_module_t *, struct mca_btl_base_registration_handle_t *));
    CHECK(BtlModule, mpool, mca_btl_base_module_t, btl_mpool);
    CHECK_FUNCTION(BtlModule, register_error, mca_btl_base_module_t, btl_register_error,
                   int (*)(mca_btl_base_module_t *, mca_btl_base_module_error_cb_fn_t));
    compare_type("mca_btl_base_module_error_cb_fn_t",
                 __builtin_types_compatible_p(mca_btl_base_module_error_cb_fn_t,
                                              void (*)(mca_btl_base_module_t *, int32_t,
                                                       struct opal_proc_t *, char *)));
    CHECK_FUNCTION(BtlModule, flush, mca_btl_base_module_t, btl_flush,
                   int (*)(mca_btl_base_module_t *, struct mca_btl_base_endpoint_t *));
    CHECK(BtlModule, reserved, mca_btl_base_module_t, padding);
    CHECK_SIZE(BtlModule, mca_btl_base_module_t);

    CHECK(Segment, start, mca_btl_base_segment_t, seg_addr.pval);
    CHECK(Segment, len, mca_btl_base_segment_t, seg_len);
    CHECK_SIZE(Segment, mca_btl_base_segment_t);
    CHECK(Descriptor, segments, mca_btl_base_descriptor_t, des_segments);
    CHECK(Descriptor, segment_count, mca_btl_base_descriptor_t, des_segment_count);
    CHECK_FUNCTION(Descriptor, sent, mca_btl_base_descriptor_t, des_cbfunc,
                   void (*)(mca_btl_base_module_t *, struct mca_btl_base_endpoint_t *,
                            mca_btl_base_descriptor_t *, int));
    CHECK(Descriptor, callback_data, mca_btl_base_descriptor_t, des_cbdata);
    CHECK(Descriptor, context, mca_btl_base_descriptor_t, des_context);
    CHECK(Descriptor, flags, mca_btl_base_descriptor_t, des_flags);
    CHECK(Descriptor, order, mca_btl_base_descriptor_t, order);
    CHECK_SIZE(Descriptor, mca_btl_base_descriptor_t);
    CHECK(ActiveMessage, callback, mca_btl_active_message_callback_t, cbfunc);
    CHECK(ActiveMessage, callback_data, mca_btl_active_message_callback_t, cbdata);
    CHECK_SIZE(ActiveMessage, mca_btl_active_message_callback_t);
    CHECK(BtlSelected, item, mca_btl_base_selected_module_t, super);
    CHECK(BtlSelected, component, mca_btl_base_selected_module_t, btl_component);
    CHECK(BtlSelected, module, mca_btl_base_selected_module_t, btl_module);
    CHECK_SIZE(BtlSelected, mca_btl_base_selected_module_t);
    compare_type("mca_btl_base_active_message_trigger",
                 __builtin_types_compatible_p(__typeof__(mca_btl_base_active_message_trigger),
                                              mca_btl_active_message_callback_t[255]));

    CHECK(BtlConvertor, flags, opal_convertor_t, flags);
    CHECK(BtlConvertor, local_size, opal_convertor_t, local_size);
    CHECK(BtlConvertor, datatype, opal_convertor_t, pDesc);
    CHECK(BtlConvertor, count, opal_convertor_t, count);
    CHECK(BtlConvertor, base, opal_convertor_t, pBaseBuf);
    CHECK(BtlConvertor, converted, opal_convertor_t, bConverted);
    CHECK(BtlPvar, context, mca_base_pvar_t, ctx);
    CHECK(BtlProc, jobid, opal_proc_t, proc_name.jobid);
    CHECK(BtlProc, vpid, opal_proc_t, proc_name.vpid);
    CHECK_PREFIX(BtlConvertor, opal_convertor_t, checksum);
    CHECK_PREFIX(BtlPvar, mca_base_pvar_t, bound_handles);
    CHECK_PREFIX(BtlProc, opal_proc_t, proc_arch);
    compare_type("a handle of 40 bytes fits", MCA_BTL_REG_HANDLE_MAX_SIZE >= 40);

    CHECK_CONSTANT(MCA_BTL_DES_FLAGS_PRIORITY, 0x1);
    CHECK_CONSTANT(MCA_BTL_DES_FLAGS_BTL_OWNERSHIP, 0x2);
    CHECK_CONSTANT(MCA_BTL_DES_SEND_ALWAYS_CALLBACK, 0x4);
    CHECK_CONSTANT(MCA_BTL_FLAGS_SEND, 0x1);
    CHECK_CONSTANT(MCA_BTL_FLAGS_PUT, 0x2);
    CHECK_CONSTANT(MCA_BTL_FLAGS_GET, 0x4);
    CHECK_CONSTANT(MCA_BTL_FLAGS_SEND_INPLACE, 0x8);
    CHECK_CONSTANT(MCA_BTL_REG_FLAG_REMOTE_READ, 0x2);
    CHECK_CONSTANT(MCA_BTL_REG_FLAG_REMOTE_WRITE, 0x4);
    CHECK_CONSTANT(MCA_BTL_REG_FLAG_REMOTE_ATOMIC, 0x8);
    CHECK_CONSTANT(MCA_BTL_FLAGS_ATOMIC_OPS, 0x8000);
    CHECK_CONSTANT(MCA_BTL_FLAGS_ATOMIC_FOPS, 0x10000);
    CHECK_CONSTANT(MCA_BTL_ATOMIC_ADD, 0x1);
    CHECK_CONSTANT(MCA_BTL_ATOMIC_FLAG_32BIT, 0x1);
    CHECK_CONSTANT(MCA_BTL_ATOMIC_SUPPORTS_ADD, 0x1);
    CHECK_CONSTANT(MCA_BTL_ATOMIC_SUPPORTS_CSWAP, 0x10000000);
    CHECK_CONSTANT(MCA_BTL_ATOMIC_SUPPORTS_GLOB, 0x20000000);
    compare_type("an atomic operation is an int", sizeof(mca_btl_base_atomic_op_t) == sizeof(int));
    CHECK_CONSTANT(MCA_BTL_ERROR_FLAGS_FATAL, 0x1);
    CHECK_CONSTANT(OPAL_ERR_NOT_SUPPORTED, -8);
    CHECK_CONSTANT(OPAL_ERR_UNREACH, -12);
    CHECK_CONSTANT(OPAL_ERR_OUT_OF_RESOURCE, -2);
    CHECK_CONSTANT(CONVERTOR_HOMOGENEOUS, 0x00080000);

    CHECK_PROTOTYPE(opal_bitmap_set_bit, int (*)(opal_bitmap_t *, int));
    CHECK_PROTOTYPE(opal_proc_local_get, opal_proc_t *(*) (void));
    CHECK_PROTOTYPE(opal_proc_for_name, opal_proc_t *(**)(opal_process_name_t));
    CHECK_PROTOTYPE(mca_btl_base_flag_enum, mca_base_var_enum_flag_t **);
}

static void check_requests(void)
{
    CHECK(Status, source, ompi_status_public_t, MPI_SOURCE);
    CHECK(Status, tag, ompi_status_public_t, MPI_TAG);
    CHECK(Status, error, ompi_status_public_t, MPI_ERROR);
    CHECK(Status, cancelled, ompi_status_public_t, _cancelled);
    CHECK(Status, count, ompi_status_public_t, _ucount);
    CHECK_SIZE(Status, ompi_status_public_t);

    CHECK(Request, status, ompi_request_t, req_status);
    CHECK(Request, complete, ompi_request_t, req_complete);
    CHECK(Request, state, ompi_request_t, req_state);
    CHECK_SIZE(Request, ompi_request_t);

    /* mca_pml_cm_request_t is in no installed header. The source of both hosts says, in both
     * structures, that its fields up to the convertor have to match mca_pml_base_request_t, which
     * is installed; req_pml_type stands where that has req_type. The values of the type are the
     * order of an enumeration in ompi/mca/pml/cm/pml_cm_request.h, alike in 4.1.4 and 5.0.7:
     * SEND_HEAVY 0, SEND_THIN 1, RECV_HEAVY 2, RECV_THIN 3. They cannot be checked here. */
    CHECK(CmRequest, request, mca_pml_base_request_t, req_ompi);
    CHECK(CmRequest, kind, mca_pml_base_request_t, req_type);
    CHECK_PREFIX(CmRequest, mca_pml_base_request_t, req_comm);

    CHECK(MtlRequest, request, mca_mtl_request_t, ompi_req);
    CHECK_FUNCTION(MtlRequest, complete, mca_mtl_request_t, completion_callback,
                   void (*)(mca_mtl_request_t *));
    CHECK_SIZE(MtlRequest, mca_mtl_request_t);

    CHECK(Message, fortran, ompi_message_t, m_f_to_c_index);
    CHECK(Message, comm, ompi_message_t, comm);
    CHECK(Message, request, ompi_message_t, req_ptr);
    CHECK(Message, peer, ompi_message_t, peer);
    CHECK(Message, count, ompi_message_t, count);
    CHECK_SIZE(Message, ompi_message_t);
}

static void check_data(void)
{
    CHECK(Datatype, flags, opal_datatype_t, flags);
    CHECK(Datatype, size, opal_datatype_t, size);
    CHECK(Datatype, true_lb, opal_datatype_t, true_lb);
    CHECK(Datatype, true_ub, opal_datatype_t, true_ub);
    CHECK(Datatype, lb, opal_datatype_t, lb);
    CHECK(Datatype, ub, opal_datatype_t, ub);
    CHECK_SIZE(Datatype, opal_datatype_t);

    CHECK(ConvertorHead, flags, opal_convertor_t, flags);
    CHECK(ConvertorHead, local_size, opal_convertor_t, local_size);
    CHECK(ConvertorHead, remote_size, opal_convertor_t, remote_size);
    CHECK(ConvertorHead, datatype, opal_convertor_t, pDesc);
    CHECK(ConvertorHead, count, opal_convertor_t, count);
    CHECK(ConvertorHead, base, opal_convertor_t, pBaseBuf);
    CHECK(ConvertorHead, converted, opal_convertor_t, bConverted);
    CHECK_PREFIX(ConvertorHead, opal_convertor_t, checksum);
    CHECK_SIZE(Convertor, opal_convertor_t);
}

static void check_processes(void)
{
    CHECK(Communicator, rank, ompi_communicator_t, c_my_rank);
    CHECK(Communicator, flags, ompi_communicator_t, c_flags);
    CHECK(Communicator, local_group, ompi_communicator_t, c_local_group);
    CHECK(Communicator, remote_group, ompi_communicator_t, c_remote_group);
    CHECK_SIZE(Communicator, ompi_communicator_t);

    CHECK(GroupHead, size, ompi_group_t, grp_proc_count);
    CHECK(GroupHead, rank, ompi_group_t, grp_my_rank);
    CHECK(GroupHead, procs, ompi_group_t, grp_proc_pointers);
    CHECK_PREFIX(GroupHead, ompi_group_t, grp_flags);
    CHECK_SIZE(Group, ompi_group_t);

    CHECK(ProcessName, jobid, opal_process_name_t, jobid);
    CHECK(ProcessName, vpid, opal_process_name_t, vpid);
    CHECK_SIZE(ProcessName, opal_process_name_t);

    CHECK(Proc, name, ompi_proc_t, super.proc_name);
    CHECK(Proc, locality, ompi_proc_t, super.proc_flags);
    CHECK(Proc, endpoint, ompi_proc_t, proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL]);
    CHECK_SIZE(Proc, ompi_proc_t);
}

static void check_constants(void)
{
    /* How the host was built: each of these changes a layout. */
    CHECK_CONSTANT(OPAL_ENABLE_DEBUG, 0);
    CHECK_CONSTANT(OPAL_ENABLE_HETEROGENEOUS_SUPPORT, 0);
    CHECK_CONSTANT(OMPI_GROUP_SPARSE, 0);
    CHECK_CONSTANT(OMPI_PROC_ENDPOINT_TAG_MTL, 1);
    CHECK_CONSTANT(MCA_BASE_VERSION_MAJOR, 2);
    CHECK_CONSTANT(MCA_BASE_VERSION_MINOR, 1);

    CHECK_CONSTANT(CONVERTOR_SEND_CONVERSION, 0x00010000);
    CHECK_CONSTANT(CONVERTOR_RECV, 0x00020000);
    CHECK_CONSTANT(CONVERTOR_SEND, 0x00040000);
    CHECK_CONSTANT(CONVERTOR_HOMOGENEOUS, 0x00080000);
    CHECK_CONSTANT(CONVERTOR_NO_OP, 0x00100000);
    CHECK_CONSTANT(CONVERTOR_WITH_CHECKSUM, 0x00200000);
    CHECK_CONSTANT(CONVERTOR_COMPLETED, 0x08000000);
    CHECK_CONSTANT(CONVERTOR_HAS_REMOTE_SIZE, 0x20000000);

    CHECK_CONSTANT(OPAL_DATATYPE_FLAG_PREDEFINED, 0x0002);
    CHECK_CONSTANT(OPAL_DATATYPE_FLAG_COMMITTED, 0x0004);
    CHECK_CONSTANT(OPAL_DATATYPE_FLAG_OVERLAP, 0x0008);
    CHECK_CONSTANT(OPAL_DATATYPE_FLAG_CONTIGUOUS, 0x0010);
    CHECK_CONSTANT(OPAL_DATATYPE_FLAG_NO_GAPS, 0x0020);

    CHECK_CONSTANT(MCA_MTL_BASE_FLAG_REQUIRE_WORLD, 0x1);

    CHECK_CONSTANT(MCA_PML_BASE_SEND_SYNCHRONOUS, 0);
    CHECK_CONSTANT(MCA_PML_BASE_SEND_COMPLETE, 1);
    CHECK_CONSTANT(MCA_PML_BASE_SEND_BUFFERED, 2);
    CHECK_CONSTANT(MCA_PML_BASE_SEND_READY, 3);
    CHECK_CONSTANT(MCA_PML_BASE_SEND_STANDARD, 4);
    CHECK_SIZE_IS(mca_pml_base_send_mode_t, 4);

    CHECK_CONSTANT(OMPI_REQUEST_INVALID, 0);
    CHECK_CONSTANT(OMPI_REQUEST_INACTIVE, 1);
    CHECK_CONSTANT(OMPI_REQUEST_ACTIVE, 2);
    CHECK_CONSTANT(OMPI_REQUEST_CANCELLED, 3);
    CHECK_CONSTANT((size_t) REQUEST_PENDING, 0);
    CHECK_CONSTANT((size_t) REQUEST_COMPLETED, 1);

    CHECK_CONSTANT(OMPI_SUCCESS, 0);
    CHECK_CONSTANT(OMPI_ERROR, -1);
    CHECK_CONSTANT(OMPI_ERR_OUT_OF_RESOURCE, -2);
    CHECK_CONSTANT(OMPI_ERR_TEMP_OUT_OF_RESOURCE, -3);
    CHECK_CONSTANT(OMPI_ERR_BAD_PARAM, -5);
    CHECK_CONSTANT(OMPI_ERR_NOT_SUPPORTED, -8);
    CHECK_CONSTANT(OMPI_ERR_UNREACH, -12);
    CHECK_CONSTANT(OMPI_ERR_NOT_FOUND, -13);
    CHECK_CONSTANT(OMPI_ERR_NOT_AVAILABLE, -16);
    CHECK_CONSTANT(MPI_SUCCESS, 0);
    CHECK_CONSTANT(MPI_ERR_TRUNCATE, 15);
    CHECK_CONSTANT(MPI_ERR_OTHER, 16);
    CHECK_CONSTANT(MPI_ERR_INTERN, 17);
    CHECK_CONSTANT(MPI_ANY_SOURCE, -1);
    CHECK_CONSTANT(MPI_ANY_TAG, -1);
    CHECK_CONSTANT(MPI_THREAD_MULTIPLE, 3);

    CHECK_CONSTANT(OMPI_COMM_INTER, 0x1);

    CHECK_CONSTANT(MCA_BASE_VAR_SOURCE_DEFAULT, 0);
    CHECK_CONSTANT(MCA_BASE_VAR_TYPE_INT, 0);
    CHECK_CONSTANT(MCA_BASE_VAR_TYPE_UNSIGNED_INT, 1);
    CHECK_CONSTANT(MCA_BASE_VAR_TYPE_UNSIGNED_LONG, 2);
    CHECK_CONSTANT(MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, 3);
    CHECK_CONSTANT(MCA_BASE_VAR_TYPE_SIZE_T, 4);
    CHECK_CONSTANT(MCA_BASE_VAR_TYPE_STRING, 5);
    CHECK_CONSTANT(MCA_BASE_VAR_TYPE_BOOL, 7);
    CHECK_CONSTANT(MCA_BASE_VAR_SCOPE_CONSTANT, 0);
    CHECK_CONSTANT(MCA_BASE_VAR_SCOPE_READONLY, 1);
    CHECK_CONSTANT(MCA_BASE_VAR_SCOPE_LOCAL, 2);
    CHECK_CONSTANT(OPAL_INFO_LVL_1, 0);
    CHECK_CONSTANT(OPAL_INFO_LVL_3, 2);
    CHECK_CONSTANT(OPAL_INFO_LVL_9, 8);
    CHECK_CONSTANT(MCA_BASE_VAR_FLAG_INTERNAL, 0x0001);
    CHECK_CONSTANT(MCA_BASE_VAR_FLAG_DEFAULT_ONLY, 0x0002);
    CHECK_CONSTANT(MCA_BASE_VAR_FLAG_SETTABLE, 0x0004);
    CHECK_CONSTANT(MCA_BASE_VAR_SYN_FLAG_DEPRECATED, 0x0001);
    CHECK_CONSTANT(MCA_BASE_PVAR_CLASS_HIGHWATERMARK, 4);
    CHECK_CONSTANT(MCA_BASE_PVAR_CLASS_COUNTER, 6);
    CHECK_CONSTANT(MCA_BASE_PVAR_CLASS_AGGREGATE, 7);
    CHECK_CONSTANT(MCA_BASE_PVAR_FLAG_READONLY, 0x080);
    CHECK_CONSTANT(MCA_BASE_PVAR_FLAG_CONTINUOUS, 0x100);
    CHECK_CONSTANT(MCA_BASE_VAR_BIND_NO_OBJECT, 0);
    CHECK_OFFSET(mca_base_var_enum_value_t, value, 0);
    CHECK_OFFSET(mca_base_var_enum_value_t, string, 8);
    CHECK_SIZE_IS(mca_base_var_enum_value_t, 16);
}

static void check_prototypes(void)
{
    CHECK_PROTOTYPE(mca_base_var_register,
                    int (*)(const char *, const char *, const char *, const char *, const char *,
                            mca_base_var_type_t, mca_base_var_enum_t *, int, mca_base_var_flag_t,
                            mca_base_var_info_lvl_t, mca_base_var_scope_t, void *));
    CHECK_PROTOTYPE(mca_base_var_find,
                    int (*)(const char *, const char *, const char *, const char *));
    CHECK_PROTOTYPE(mca_base_var_get_value,
                    int (*)(int, const void *, mca_base_var_source_t *, const char **));
    CHECK_PROTOTYPE(mca_base_var_register_synonym,
                    int (*)(int, const char *, const char *, const char *, const char *,
                            mca_base_var_syn_flag_t));
    CHECK_PROTOTYPE(mca_base_var_enum_create,
                    int (*)(const char *, const mca_base_var_enum_value_t *, mca_base_var_enum_t **));
    CHECK_PROTOTYPE(mca_base_pvar_register,
                    int (*)(const char *, const char *, const char *, const char *, const char *,
                            mca_base_var_info_lvl_t, int, mca_base_var_type_t,
                            mca_base_var_enum_t *, int, mca_base_pvar_flag_t,
                            mca_base_get_value_fn_t, mca_base_set_value_fn_t,
                            mca_base_notify_fn_t, void *));
    CHECK_PROTOTYPE(opal_show_help_add_dir, int (*)(const char *));
    CHECK_PROTOTYPE(mca_btl_base_active_message_trigger,
                    mca_btl_active_message_callback_t(*)[MCA_BTL_TAG_MAX]);
    CHECK_PROTOTYPE(mca_btl_base_modules_initialized, opal_list_t *);
    CHECK_PROTOTYPE(ompi_mpi_thread_multiple, bool *);
    CHECK_PROTOTYPE(ompi_message_null, ompi_predefined_message_t *);
    CHECK_PROTOTYPE(opal_version_string, const char(*)[]);
    CHECK_SIZE_IS(mca_base_var_type_t, 4);
    CHECK_SIZE_IS(mca_base_var_flag_t, 4);
    CHECK_SIZE_IS(mca_base_var_info_lvl_t, 4);
    CHECK_SIZE_IS(mca_base_var_scope_t, 4);
    CHECK_SIZE_IS(mca_base_var_source_t, 4);
    CHECK_SIZE_IS(mca_base_var_syn_flag_t, 4);
    CHECK_SIZE_IS(mca_base_pvar_flag_t, 4);
    CHECK_SIZE_IS(opal_process_name_t, 8);
    CHECK_PROTOTYPE(opal_progress_register, int (*)(int (*)(void)));
    CHECK_PROTOTYPE(opal_mem_hooks_support_level, int (*)(void));
    CHECK_PROTOTYPE(opal_mem_hooks_register_release, int (*)(opal_mem_hooks_callback_fn_t *, void *));
    CHECK_PROTOTYPE(opal_mem_hooks_unregister_release, int (*)(opal_mem_hooks_callback_fn_t *));
    CHECK_CONSTANT(OPAL_MEMORY_FREE_SUPPORT | OPAL_MEMORY_MUNMAP_SUPPORT, 0x1 | 0x2);
    CHECK_PROTOTYPE(opal_leave_pinned, int *);
    CHECK_PROTOTYPE(opal_leave_pinned_pipeline, bool *);
    CHECK_PROTOTYPE(opal_memory_base_framework, mca_base_framework_t *);
    CHECK_PROTOTYPE(mca_base_framework_open, int (*)(mca_base_framework_t *, mca_base_open_flag_t));
    CHECK_PROTOTYPE(mca_base_framework_close, int (*)(mca_base_framework_t *));
    CHECK_SIZE_IS(mca_base_open_flag_t, 4);
    CHECK_PROTOTYPE(opal_progress_unregister, int (*)(int (*)(void)));
    CHECK_PROTOTYPE(opal_convertor_pack,
                    int32_t (*)(opal_convertor_t *, struct iovec *, uint32_t *, size_t *));
    CHECK_PROTOTYPE(opal_convertor_unpack,
                    int32_t (*)(opal_convertor_t *, struct iovec *, uint32_t *, size_t *));
    CHECK_PROTOTYPE(ompi_proc_for_name, opal_proc_t *(*) (opal_process_name_t));
    CHECK_PROTOTYPE(ompi_proc_find, ompi_proc_t *(*) (const ompi_process_name_t *));
    CHECK_PROTOTYPE(ompi_proc_world_size, int (*)(void));
    CHECK_PROTOTYPE(opal_output, void (*)(int, const char *, ...));
    /* A variable that holds the function, so a pointer to a pointer. */
    CHECK_PROTOTYPE(opal_show_help, int (**)(const char *, const char *, int, ...));
    CHECK_PROTOTYPE(opal_show_help_string, char *(*)(const char *, const char *, int, ...));
    CHECK_PROTOTYPE(opal_class_initialize, void (*)(opal_class_t *));
}

/* Everything above. */
static void check_host(void)
{
    check_objects();
    check_component();
    check_module();
    check_btl();
    check_requests();
    check_data();
    check_processes();
    check_constants();
    check_prototypes();
}

#endif
