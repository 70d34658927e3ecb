# Sourced by the scripts beside it.

# log_header WORD…: how a log begins: versions, the machine, and when. WORD… goes before a command of the host.
log_header() {
    local model
    model=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | sed -n 1p)
    echo "# $("$@" mpirun --version | sed -n 1p), libfabric $("$@" fi_info --version | sed -n 's/^libfabric: //p')"
    echo "# $(nproc) cores${model:+ of $model}, $(uname -sr)"
    echo "# $(date -u '+%Y-%m-%d %H:%M UTC')"
}
