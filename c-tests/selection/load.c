/* Loads libraries in order, the last of them hawser's, and says what hawser made of the process:
 * why it refused it, and whether its component structures are filled in. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

static const char *state_of(void *component)
{
    const ElfW(Sym) *symbol = NULL;
    Dl_info info;

    if (component == NULL || !dladdr1(component, &info, (void **)&symbol, RTLD_DL_SYMENT) ||
        symbol == NULL || symbol->st_size < 224)
        return "unknown";
    for (size_t i = 0; i < symbol->st_size; i++)
        if (((const char *)component)[i] != 0)
            return "filled";
    return "zero";
}

int main(int argc, char **argv)
{
    void *library = NULL;

    for (int i = 1; i < argc; i++) {
        library = dlopen(argv[i], RTLD_NOW | RTLD_GLOBAL);
        if (library == NULL) {
            printf("cannot load %s: %s\n", argv[i], dlerror());
            return 1;
        }
    }
    const char *(*refusal)(void) = library ? (const char *(*)(void))dlsym(library, "hawser_refusal") : NULL;
    if (refusal == NULL) {
        printf("usage: %s [LIBRARY ...] LIBHAWSER\n", argv[0]);
        return 2;
    }
    printf("refusal: %s\n", refusal());
    printf("components: ofi %s, hawser %s, usnic %s\n", state_of(dlsym(library, "mca_mtl_ofi_component")),
           state_of(dlsym(library, "mca_mtl_hawser_component")),
           state_of(dlsym(library, "mca_btl_usnic_component")));
    return 0;
}
