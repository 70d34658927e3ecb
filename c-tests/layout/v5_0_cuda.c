/* Compares the module table of a build of Open MPI 5.0 with CUDA: the headers' #if branches, switched
 * after the host's own configuration has been read. */
#include "ompi_config.h"

#undef OPAL_CUDA_SUPPORT
#define OPAL_CUDA_SUPPORT 1
#undef OPAL_CUDA_GDR_SUPPORT
#define OPAL_CUDA_GDR_SUPPORT 1

#include "opal/mca/btl/btl.h"

#include "hawser_v5_0.h"

#define OURS(name) hawser_v5_0_##name

#include "check.h"

int main(void)
{
    CHECK(BtlModuleGdr, accelerator_eager_limit, mca_btl_base_module_t, btl_accelerator_eager_limit);
    CHECK(BtlModuleGdr, accelerator_rdma_limit, mca_btl_base_module_t, btl_accelerator_rdma_limit);
    CHECK(BtlModuleGdr, accelerator_max_send_size, mca_btl_base_module_t,
          btl_accelerator_max_send_size);
    CHECK_FUNCTION(BtlModuleGdr, flush, mca_btl_base_module_t, btl_flush,
                   int (*)(struct mca_btl_base_module_t *, struct mca_btl_base_endpoint_t *));
    CHECK_SIZE(BtlModuleGdr, mca_btl_base_module_t);
    /* Up to there it is the usual table. */
    CHECK(BtlModule, component, mca_btl_base_module_t, btl_component);
    CHECK(BtlModule, eager_limit, mca_btl_base_module_t, btl_eager_limit);
    CHECK(BtlModule, flags, mca_btl_base_module_t, btl_flags);
    CHECK(BtlModule, add_procs, mca_btl_base_module_t, btl_add_procs);
    CHECK(BtlModule, send, mca_btl_base_module_t, btl_send);
    CHECK(BtlModule, put, mca_btl_base_module_t, btl_put);
    CHECK(BtlModule, register_mem, mca_btl_base_module_t, btl_register_mem);
    CHECK(BtlModule, register_error, mca_btl_base_module_t, btl_register_error);
    return summary();
}
