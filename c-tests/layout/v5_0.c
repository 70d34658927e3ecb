/* Compares include/hawser_v5_0.h with the headers of Open MPI 5.0 and of its PMIx. */

#include "hawser_v5_0.h"

#define OURS(name) hawser_v5_0_##name

#include "host.h"

#include "opal/mca/accelerator/accelerator.h"
#include "opal/mca/accelerator/base/base.h"
#include "opal/mca/btl/base/btl_base_am_rdma.h"
#include "ompi/datatype/ompi_datatype_internal.h"
#include "ompi/op/op.h"
#include "opal/mca/pmix/pmix-internal.h"
#include "opal/runtime/opal_params.h"
#include "opal/util/proc.h"
#include "pmix.h"

#include <string.h>

static void check_process_info(void)
{
    CHECK(ProcessInfo, name, opal_process_info_t, my_name);
    CHECK(ProcessInfo, node, opal_process_info_t, nodename);
    CHECK(ProcessInfo, local_peers, opal_process_info_t, num_local_peers);
    CHECK(ProcessInfo, local_rank, opal_process_info_t, my_local_rank);
    CHECK(ProcessInfo, cpuset, opal_process_info_t, cpuset);
    CHECK(ProcessInfo, locality, opal_process_info_t, locality);
    CHECK(ProcessInfo, universe_size, opal_process_info_t, univ_size);
    CHECK(ProcessInfo, bound, opal_process_info_t, proc_is_bound);
    CHECK_SIZE(ProcessInfo, opal_process_info_t);
}

static void check_pmix(void)
{
    CHECK(PmixValue, kind, pmix_value_t, type);
    CHECK(PmixValue, bytes, pmix_value_t, data.bo.bytes);
    CHECK(PmixValue, size, pmix_value_t, data.bo.size);
    CHECK_SIZE(PmixValue, pmix_value_t);

    CHECK(PmixInfo, key, pmix_info_t, key);
    CHECK(PmixInfo, flags, pmix_info_t, flags);
    CHECK(PmixInfo, value, pmix_info_t, value);
    CHECK_SIZE(PmixInfo, pmix_info_t);

    CHECK(PmixProc, namespace_, pmix_proc_t, nspace);
    CHECK(PmixProc, rank, pmix_proc_t, rank);
    CHECK_SIZE(PmixProc, pmix_proc_t);

    CHECK_CONSTANT(PMIX_SUCCESS, 0);
    CHECK_CONSTANT(PMIX_GLOBAL, 3);
    CHECK_CONSTANT(PMIX_BYTE_OBJECT, 27);
    CHECK_CONSTANT(PMIX_BOOL, 1);
    CHECK_OFFSET(pmix_value_t, data.flag, offsetof(OURS(PmixValue), bytes));
    CHECK_CONSTANT(strcmp(PMIX_IMMEDIATE, "pmix.immediate"), 0);
    CHECK_SIZE_IS(pmix_scope_t, 1);
    CHECK_SIZE_IS(pmix_status_t, 4);
    CHECK_PROTOTYPE(PMIx_Put, pmix_status_t(*)(pmix_scope_t, const char *, pmix_value_t *));
    CHECK_PROTOTYPE(PMIx_Get, pmix_status_t(*)(const pmix_proc_t *, const char *,
                                               const pmix_info_t *, size_t, pmix_value_t **));
    CHECK_PROTOTYPE(PMIx_Value_free, void (*)(pmix_value_t *, size_t));
}

static void check_operations(void)
{
    CHECK_CONSTANT(OMPI_OP_BASE_TYPE_MAX, 43);
    CHECK_CONSTANT(OMPI_DATATYPE_MAX_PREDEFINED, 52);
    CHECK_CONSTANT(OMPI_DATATYPE_MPI_MAX_PREDEFINED, 53);
    CHECK(OpModule, object, ompi_op_base_module_t, super);
    CHECK_FUNCTION(OpModule, enable, ompi_op_base_module_t, opm_enable,
                   int (*)(ompi_op_base_module_t *, ompi_op_t *));
    CHECK(OpModule, op, ompi_op_base_module_t, opm_op);
    CHECK(OpModule, fns, ompi_op_base_module_t, opm_fns);
    CHECK(OpModule, fns3, ompi_op_base_module_t, opm_3buff_fns);
    compare_type("a function of an operation",
                 __builtin_types_compatible_p(ompi_op_base_handler_fn_t,
                                              void (*)(const void *, void *, int *, ompi_datatype_t **,
                                                       ompi_op_base_module_t *)));
    compare_type("a function of an operation, with three buffers",
                 __builtin_types_compatible_p(ompi_op_base_3buff_handler_fn_t,
                                              void (*)(const void *, const void *, void *, int *,
                                                       ompi_datatype_t **, ompi_op_base_module_t *)));
    CHECK_SIZE(OpModule, ompi_op_base_module_t);
    CHECK(Op, fns, ompi_op_t, o_func.intrinsic.fns);
    CHECK(Op, modules, ompi_op_t, o_func.intrinsic.modules);
    CHECK(Op, fns3, ompi_op_t, o_3buff_intrinsic.fns);
    CHECK(Op, modules3, ompi_op_t, o_3buff_intrinsic.modules);
    CHECK_SIZE(Op, ompi_op_t);
    CHECK(OpComponent, base, ompi_op_base_component_t, opc_version);
    CHECK_FUNCTION(OpComponent, init, ompi_op_base_component_t, opc_init_query, int (*)(bool, bool));
    CHECK_FUNCTION(OpComponent, query, ompi_op_base_component_t, opc_op_query,
                   ompi_op_base_module_t *(*) (ompi_op_t *, int *));
    CHECK_SIZE(OpComponent, ompi_op_base_component_t);
    CHECK_PROTOTYPE(ompi_op_base_module_t_class, opal_class_t *);
    CHECK_PROTOTYPE(ompi_op_ddt_map, int (*)[OMPI_DATATYPE_MAX_PREDEFINED]);
    CHECK_PROTOTYPE(ompi_datatype_basicDatatypes,
                    const ompi_datatype_t *(*)[OMPI_DATATYPE_MPI_MAX_PREDEFINED]);
    CHECK_CONSTANT(MCA_ACCELERATOR_TRANSFER_UNSPEC, 0);
}

static void check_accelerator(void)
{
    static const mca_base_component_t version = {OPAL_ACCELERATOR_BASE_VERSION_1_0_0};

    CHECK_FUNCTION(Accelerator, check_addr, opal_accelerator_base_module_t, check_addr,
                   int (*)(const void *, int *, uint64_t *));
    CHECK_FUNCTION(Accelerator, create_stream, opal_accelerator_base_module_t, create_stream,
                   int (*)(int, opal_accelerator_stream_t **));
    CHECK_FUNCTION(Accelerator, create_event, opal_accelerator_base_module_t, create_event,
                   int (*)(int, opal_accelerator_event_t **));
    CHECK_FUNCTION(Accelerator, record_event, opal_accelerator_base_module_t, record_event,
                   int (*)(int, opal_accelerator_event_t *, opal_accelerator_stream_t *));
    CHECK_FUNCTION(Accelerator, query_event, opal_accelerator_base_module_t, query_event,
                   int (*)(int, opal_accelerator_event_t *));
    CHECK_FUNCTION(Accelerator, mem_copy_async, opal_accelerator_base_module_t, mem_copy_async,
                   int (*)(int, int, void *, const void *, size_t, opal_accelerator_stream_t *,
                           opal_accelerator_transfer_type_t));
    CHECK_FUNCTION(Accelerator, mem_copy, opal_accelerator_base_module_t, mem_copy,
                   int (*)(int, int, void *, const void *, size_t, opal_accelerator_transfer_type_t));
    CHECK_FUNCTION(Accelerator, mem_move, opal_accelerator_base_module_t, mem_move,
                   int (*)(int, int, void *, const void *, size_t, opal_accelerator_transfer_type_t));
    CHECK_FUNCTION(Accelerator, mem_alloc, opal_accelerator_base_module_t, mem_alloc,
                   int (*)(int, void **, size_t));
    CHECK_FUNCTION(Accelerator, mem_release, opal_accelerator_base_module_t, mem_release,
                   int (*)(int, void *));
    CHECK_FUNCTION(Accelerator, get_address_range, opal_accelerator_base_module_t,
                   get_address_range, int (*)(int, const void *, void **, size_t *));
    CHECK_FUNCTION(Accelerator, host_register, opal_accelerator_base_module_t, host_register,
                   int (*)(int, void *, size_t));
    CHECK_FUNCTION(Accelerator, host_unregister, opal_accelerator_base_module_t, host_unregister,
                   int (*)(int, void *));
    CHECK_FUNCTION(Accelerator, get_device, opal_accelerator_base_module_t, get_device,
                   int (*)(int *));
    CHECK_FUNCTION(Accelerator, get_device_pci_attr, opal_accelerator_base_module_t,
                   get_device_pci_attr, int (*)(int, opal_accelerator_pci_attr_t *));
    CHECK_FUNCTION(Accelerator, device_can_access_peer, opal_accelerator_base_module_t,
                   device_can_access_peer, int (*)(int *, int, int));
    CHECK_FUNCTION(Accelerator, get_buffer_id, opal_accelerator_base_module_t, get_buffer_id,
                   int (*)(int, const void *, opal_accelerator_buffer_id_t *));
    CHECK_SIZE(Accelerator, opal_accelerator_base_module_t);
    CHECK_SIZE_IS(opal_accelerator_transfer_type_t, 4);
    CHECK_SIZE_IS(opal_accelerator_buffer_id_t, 8);

    CHECK(AcceleratorObject, object, opal_accelerator_stream_t, super);
    CHECK(AcceleratorObject, inside, opal_accelerator_stream_t, stream);
    CHECK_SIZE(AcceleratorObject, opal_accelerator_stream_t);
    CHECK(AcceleratorObject, object, opal_accelerator_event_t, super);
    CHECK(AcceleratorObject, inside, opal_accelerator_event_t, event);
    CHECK_SIZE(AcceleratorObject, opal_accelerator_event_t);
    CHECK(PciAttributes, domain, opal_accelerator_pci_attr_t, domain_id);
    CHECK(PciAttributes, bus, opal_accelerator_pci_attr_t, bus_id);
    CHECK(PciAttributes, device, opal_accelerator_pci_attr_t, device_id);
    CHECK(PciAttributes, function, opal_accelerator_pci_attr_t, function_id);
    CHECK_SIZE(PciAttributes, opal_accelerator_pci_attr_t);

    CHECK(AcceleratorComponent, base, opal_accelerator_base_component_t, base_version);
    CHECK(AcceleratorComponent, param_field, opal_accelerator_base_component_t,
          base_data.param_field);
    CHECK_FUNCTION(AcceleratorComponent, init, opal_accelerator_base_component_t, accelerator_init,
                   opal_accelerator_base_module_t *(*) (void));
    CHECK_FUNCTION(AcceleratorComponent, finalize, opal_accelerator_base_component_t,
                   accelerator_finalize, void (*)(opal_accelerator_base_module_t *));
    CHECK_SIZE(AcceleratorComponent, opal_accelerator_base_component_t);

    CHECK_CONSTANT(MCA_ACCELERATOR_NO_DEVICE_ID, -1);
    CHECK_CONSTANT(MCA_ACCELERATOR_FLAGS_UNIFIED_MEMORY, 1);
    CHECK_CONSTANT(OPAL_SUCCESS, 0);
    CHECK_CONSTANT(OPAL_ERROR, -1);
    CHECK_CONSTANT(OPAL_ERR_RESOURCE_BUSY, -4);
    CHECK_CONSTANT(OPAL_ERR_BAD_PARAM, -5);
    CHECK_CONSTANT(OPAL_ERR_NOT_AVAILABLE, -16);
    compare_type("version 1.0.0 of the interface",
                 0 == strcmp(version.mca_type_name, "accelerator")
                     && version.mca_type_major_version == 1 && version.mca_type_minor_version == 0
                     && version.mca_type_release_version == 0
                     && 0 == strcmp(version.mca_project_name, "opal"));

    CHECK_PROTOTYPE(opal_accelerator, opal_accelerator_base_module_t *);
    CHECK_PROTOTYPE(opal_accelerator_stream_t_class, opal_class_t *);
    CHECK_PROTOTYPE(opal_accelerator_event_t_class, opal_class_t *);
}

static void check_one_sided(void)
{
    CHECK(AmRdma, object, mca_btl_base_am_rdma_module_t, super);
    CHECK(AmRdma, transport, mca_btl_base_am_rdma_module_t, btl);
    CHECK(AmRdma, puts, mca_btl_base_am_rdma_module_t, use_rdma_put);
    CHECK(AmRdma, gets, mca_btl_base_am_rdma_module_t, use_rdma_get);
    CHECK(AmRdma, put, mca_btl_base_am_rdma_module_t, am_btl_put);
    CHECK(AmRdma, get, mca_btl_base_am_rdma_module_t, am_btl_get);
    CHECK_SIZE(AmRdma, mca_btl_base_am_rdma_module_t);
    CHECK_CONSTANT(MCA_BTL_FLAGS_RDMA_REMOTE_COMPLETION, 0x800000);
    CHECK_CONSTANT(MCA_BTL_FLAGS_ACCELERATOR_PUT, 0x0400);
    CHECK_CONSTANT(MCA_BTL_FLAGS_ACCELERATOR_GET, 0x0800);
    CHECK_CONSTANT(MCA_BTL_TAG_BTL_BASE, 0x10);
    CHECK_CONSTANT(MCA_BTL_ATOMIC_ADD, 0x01);
    CHECK_CONSTANT(MCA_BTL_ATOMIC_AND, 0x11);
    CHECK_CONSTANT(MCA_BTL_ATOMIC_OR, 0x12);
    CHECK_CONSTANT(MCA_BTL_ATOMIC_XOR, 0x14);
    CHECK_CONSTANT(MCA_BTL_ATOMIC_SWAP, 0x1a);
    CHECK_CONSTANT(MCA_BTL_ATOMIC_MIN, 0x20);
    CHECK_CONSTANT(MCA_BTL_ATOMIC_MAX, 0x21);
    CHECK_PROTOTYPE(opal_btl_base_am_rdma_create, int (*)(mca_btl_base_module_t *, uint32_t, bool,
                                                          mca_btl_base_am_rdma_module_t **));
}

int main(void)
{
    CHECK_CONSTANT(OPAL_MAJOR_VERSION, 5);
    CHECK_CONSTANT(OPAL_MINOR_VERSION, 0);
    check_host();

    CHECK_FUNCTION(MtlComponent, init, mca_mtl_base_component_2_0_0_t, mtl_init,
                   mca_mtl_base_module_t *(*) (bool, bool, bool *));
    CHECK(MtlComponent, accelerator_support, mca_mtl_base_component_2_0_0_t, accelerator_support);
    CHECK(Communicator, cid_base, ompi_communicator_t, c_contextid.cid_base);
    CHECK(Communicator, cid_sub, ompi_communicator_t, c_contextid.cid_sub.u64);
    CHECK(Communicator, index, ompi_communicator_t, c_index);
    CHECK(Communicator, mtl, ompi_communicator_t, c_mtl_comm);

    CHECK_CONSTANT(OMPI_COMM_GLOBAL_INDEX, 0x10000);
    CHECK_CONSTANT(MCA_MTL_BASE_FLAG_ACCELERATOR_INIT_DISABLE, 0x2);
    CHECK_CONSTANT(MCA_MTL_BASE_FLAG_SUPPORTS_EXT_CID, 0x4);
    CHECK_CONSTANT(CONVERTOR_ACCELERATOR, 0x00400000);
    CHECK_CONSTANT(CONVERTOR_ACCELERATOR_ASYNC, 0x00800000);
    CHECK_CONSTANT(CONVERTOR_ACCELERATOR_UNIFIED, 0x10000000);
    CHECK_CONSTANT(CONVERTOR_SKIP_ACCELERATOR_INIT, 0x40000000);
    CHECK(ReceiveDescriptor, endpoint, mca_btl_base_receive_descriptor_t, endpoint);
    CHECK(ReceiveDescriptor, segments, mca_btl_base_receive_descriptor_t, des_segments);
    CHECK(ReceiveDescriptor, segment_count, mca_btl_base_receive_descriptor_t, des_segment_count);
    CHECK(ReceiveDescriptor, tag, mca_btl_base_receive_descriptor_t, tag);
    CHECK(ReceiveDescriptor, callback_data, mca_btl_base_receive_descriptor_t, cbdata);
    CHECK_SIZE(ReceiveDescriptor, mca_btl_base_receive_descriptor_t);
    CHECK_PROTOTYPE(opal_pmix_convert_jobid, int (*)(char *, opal_jobid_t));
    CHECK_SIZE_IS(opal_jobid_t, 4);
    CHECK_PROTOTYPE(opal_process_info, opal_process_info_t *);
    CHECK_PROTOTYPE(opal_built_with_cuda_support, bool *);
    CHECK_SIZE_IS(bool, 1);
    CHECK_PROTOTYPE(opal_progress, int (*)(void));
    CHECK_PROTOTYPE(opal_get_proc_hostname, char *(**)(const opal_proc_t *));
    CHECK_PROTOTYPE(opal_accelerator_base_selected_component.base_version, mca_base_component_t *);
    CHECK_CONSTANT(offsetof(opal_accelerator_base_component_t, base_version), 0);

    check_process_info();
    check_accelerator();
    check_one_sided();
    CHECK(BtlModule, ft_event_or_accelerator_max_send_size, mca_btl_base_module_t,
          btl_accelerator_max_send_size);
    compare_type("the receive callback",
                 __builtin_types_compatible_p(mca_btl_base_module_recv_cb_fn_t,
                                              void (*)(mca_btl_base_module_t *,
                                                       const mca_btl_base_receive_descriptor_t *)));
    check_operations();
    check_pmix();
    return summary();
}
