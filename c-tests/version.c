/* A program without Open MPI: links with the library and asks for its version. */
#include <hawser/hawser.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc != 2 || strcmp(hawser_version(), argv[1]) != 0 || strcmp(hawser_refusal(), "") != 0) {
        fprintf(stderr, "version %s, refusal \"%s\"\n", hawser_version(), hawser_refusal());
        return 1;
    }
    return 0;
}
