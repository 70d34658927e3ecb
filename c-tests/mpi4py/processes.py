"""Processes that a Python rank makes: run to their end, left running, forked, spawned. Messages before and
after each are right, and MPI_Finalize waits for none of them.

    processes.py FOLDER

No time limit: a child that is left running lives until FOLDER/word, a FIFO, is closed by its last writer.
c-tests/mpi4py.sh holds it open until mpirun has ended, makes FOLDER/over, and closes it; a child that then
sees FOLDER/over writes FOLDER/RANK.NAME. If MPI_Finalize waited for one, all would wait for ever.

Rank 0 says `begin NAME` and `ok NAME` for each, and `over` behind MPI_Finalize.
"""

import multiprocessing
import os
import subprocess
import sys
import traceback


def wait_for_the_end(folder, mark):
    """What a child does that is left running."""
    with open(os.path.join(folder, "word"), "rb") as word:
        word.read()
    if os.path.exists(os.path.join(folder, "over")):
        open(os.path.join(folder, mark), "w").close()


def answer(pipe, number):
    """What a child of multiprocessing does: it waits for a word behind MPI_Finalize."""
    pipe.send(number + 1)
    pipe.recv()
    pipe.send(number + 2)


def square(number):
    return number * number


def main(folder):
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    rank, peer = world.rank, world.rank ^ 1
    serial = 0

    def messages():
        nonlocal serial
        for size in (1, 1000, 100000):
            serial += 1
            out, into = bytes([rank + serial & 255]) * size, bytearray(size)
            world.Sendrecv(out, peer, serial, into, peer, serial)
            assert into == bytes([peer + serial & 255]) * size, f"{size} bytes of message {serial}"
        assert world.sendrecv({"from": rank, "serial": serial}, peer, 1, None, peer, 1) == {"from": peer, "serial": serial}

    def say(what):
        if rank == 0:
            print(what, flush=True)

    def case(name):
        def take(body):
            say(f"begin {name}")
            messages()
            body()
            messages()
            world.Barrier()
            say(f"ok {name}")

        return take

    def mark(name):
        return f"{rank}.{name}"

    # Left running: not with the rank's own output, whose end mpirun waits for.
    sleeper = 'read -r _ <"$0/word"; [ ! -e "$0/over" ] || : >"$0/$1"'
    left = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    later = []

    @case("subprocess.run")
    def _():
        for number in range(5):
            said = subprocess.run(["echo", str(number)], capture_output=True, check=True).stdout
            assert said == b"%d\n" % number, said
        assert subprocess.run(["false"]).returncode == 1

    @case("subprocess.Popen, left running")
    def _():
        later.append(subprocess.Popen(["sh", "-c", sleeper, folder, mark("popen")], **left))

    @case("subprocess.Popen, left running with every descriptor")
    def _():
        later.append(subprocess.Popen(["sh", "-c", sleeper, folder, mark("popen-all")], close_fds=False, **left))

    @case("os.fork and os._exit")
    def _():
        for code in range(5):
            child = os.fork()
            if child == 0:
                os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code

    @case("os.fork, left running")
    def _():
        if os.fork() == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            for output in range(3):
                os.dup2(nothing, output)
            try:
                wait_for_the_end(folder, mark("fork"))
            finally:
                os._exit(0)

    @case("os.system")
    def _():
        assert os.system("exit 0") == 0
        assert os.waitstatus_to_exitcode(os.system("exit 3")) == 3

    @case("os.system, left running")
    def _():
        os.environ.update(MARK_FOLDER=folder, MARK=mark("system"))
        command = sleeper.replace("$0", "$MARK_FOLDER").replace("$1", "$MARK")
        assert os.system(f"{{ {command}; }} </dev/null >/dev/null 2>&1 &") == 0

    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)

        @case(f"multiprocessing.Pool, {method}")
        def _():
            with context.Pool(2) as pool:
                assert pool.map(square, range(20)) == [number * number for number in range(20)]

        @case(f"multiprocessing.Process, {method}, left running")
        def _():
            own, its = context.Pipe()
            process = context.Process(target=answer, args=(its, rank))
            process.start()
            assert own.recv() == rank + 1
            later.append((process, own))

    say("begin MPI_Finalize")
    MPI.Finalize()
    for process in later:
        if isinstance(process, subprocess.Popen):
            assert process.poll() is None, f"{process.args} has ended before MPI_Finalize"
            process.returncode = 0  # nobody waits for it here
        else:
            process[1].send("go on")
            assert process[1].recv() == rank + 2
            process[0].join()
            assert process[0].exitcode == 0
    say("over")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # without MPI_Finalize, which would wait for the other rank
