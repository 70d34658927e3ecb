/* Which shared object serves the OFI MTL in this process: hawser's library, the stock component,
 * or, where the host has no component file for it, libmpi itself. */

#ifndef BENCH_SERVED_BY_H
#define BENCH_SERVED_BY_H

#include <stdio.h>
#include <string.h>

static void copy_path(char *to, size_t size, const char *path)
{
    snprintf(to, size, "%s", path);
    to[strcspn(to, "\n")] = '\0';
}

/* Writes the path to `path`, from the files mapped into this process. */
static void served_by(char *path, size_t size)
{
    char line[4352], libmpi[4096] = "unknown";
    FILE *maps = fopen("/proc/self/maps", "r");

    path[0] = '\0';
    while (maps && fgets(line, sizeof line, maps)) {
        const char *file = strchr(line, '/');
        if (!file)
            continue;
        if (strstr(file, "/libhawser.so") || strstr(file, "/mca_mtl_ofi.so") ||
            strstr(file, "/mca_mtl_hawser.so"))
            copy_path(path, size, file);
        else if (strstr(file, "/libmpi.so"))
            copy_path(libmpi, sizeof libmpi, file);
    }
    if (maps)
        fclose(maps);
    if (!path[0])
        copy_path(path, size, libmpi);
}

#endif
