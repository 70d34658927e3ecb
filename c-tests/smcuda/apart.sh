#!/bin/sh
# Runs a program, in rank 1 in a PID namespace of its own: it sees the others in /proc, and they do not see it.
[ "${OMPI_COMM_WORLD_RANK:-}" != 1 ] || exec unshare --pid --fork "$@"
exec "$@"
