/* For a host that loads no components, because it was built without dlopen: the usnic BTL takes the place of
 * the host's BTL for libfabric. The library of hawser, which this one needs, is initialized first. */
#include <string.h>

extern unsigned char mca_btl_usnic_component[512];
unsigned char mca_btl_ofi_component[512];

__attribute__((constructor)) static void take_its_place(void)
{
    memcpy(mca_btl_ofi_component, mca_btl_usnic_component, sizeof mca_btl_ofi_component);
}
