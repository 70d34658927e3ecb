// The header in C++: its functions are found, and its tables are of use.
#include <hawser/hawser.h>

#include <cstring>

int main()
{
    const hawser_btl_component *btl = hawser_btl_find("smcuda");
    const hawser_mtl_component *mtl = hawser_mtl_find("ofi");
    hawser_host host{};
    return btl != nullptr && std::strcmp(btl->name, "smcuda") == 0 && btl->open(&host) == HAWSER_ERR_ABI &&
                   btl->module->finalize(hawser_btl{0}) == HAWSER_ERR_STALE && mtl != nullptr &&
                   mtl->open(&host) == HAWSER_ERR_ABI && mtl->module->finalize(hawser_mtl{0}) == HAWSER_ERR_STALE && std::strlen(hawser_version()) > 0
               ? 0
               : 1;
}
