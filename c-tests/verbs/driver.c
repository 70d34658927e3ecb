/* What libefa of the hosts, which libfabric brings along, asks of libibverbs: the inside of it, where drivers of devices come
 * in. libefa makes itself known when it is loaded; the stand-in's devices are not its own, so that it is asked for none, and
 * whatever else it would do with one ends the process. That a device is not its own it says to the log, which nobody has
 * switched on: nothing is written (verbs_log_level of rdma-core's init.c). */
#include "standin.h"

#include <stdint.h>

PUBLIC void verbs_register_driver_34(const void *operations);
PUBLIC void verbs_register_driver_34(const void *operations) { (void)operations; }

PUBLIC void __verbs_log(const void *context, uint32_t level, const char *format, ...);
PUBLIC void __verbs_log(const void *context, uint32_t level, const char *format, ...) { (void)context, (void)level, (void)format; }

#define NEVER(name)          \
    PUBLIC void name(void);  \
    PUBLIC void name(void) { violation("%s: no driver has a device in the stand-in", #name); }

NEVER(_verbs_init_and_alloc_context)
NEVER(execute_ioctl)
NEVER(ibv_cmd_alloc_pd)
NEVER(ibv_cmd_create_ah)
NEVER(ibv_cmd_create_cq_ex)
NEVER(ibv_cmd_create_qp_ex)
NEVER(ibv_cmd_dealloc_pd)
NEVER(ibv_cmd_dereg_mr)
NEVER(ibv_cmd_destroy_ah)
NEVER(ibv_cmd_destroy_cq)
NEVER(ibv_cmd_destroy_qp)
NEVER(ibv_cmd_get_context)
NEVER(ibv_cmd_modify_qp)
NEVER(ibv_cmd_query_device_any)
NEVER(ibv_cmd_query_port)
NEVER(ibv_cmd_query_qp)
NEVER(ibv_cmd_reg_dmabuf_mr)
NEVER(ibv_cmd_reg_mr)
NEVER(verbs_set_ops)
NEVER(verbs_uninit_context)
