"""Arrays of cupy, and tensors of PyTorch where it is there, given to MPI by mpi4py as a program would: what was begun in
the default stream is not waited for before."""

import cupy
import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
after, before = (rank + 1) % size, (rank - 1) % size


def numbers(length):
    return cupy.arange(length, dtype=cupy.float32)


def exchange(length):
    own = numbers(length) + rank
    other = cupy.empty_like(own)
    comm.Sendrecv(own, dest=after, recvbuf=other, source=before)
    assert (other == numbers(length) + before).all(), ("sendrecv", length)
    total = cupy.empty_like(own)
    comm.Allreduce(own, total)
    assert (total == size * numbers(length) + size * (size - 1) / 2).all(), ("allreduce", length)
    every = cupy.empty((size, length), dtype=cupy.float32)
    comm.Allgather(other, every)
    for row in range(size):
        assert (every[row] == numbers(length) + (row - 1) % size).all(), ("allgather", length)
    comm.Bcast(own, root=0)
    assert (own == numbers(length)).all(), ("bcast", length)


def products():
    factor = cupy.random.rand(2000, 2000, dtype=cupy.float32)
    for turn in range(20):
        product = factor @ factor
        received = cupy.empty_like(product)
        comm.Sendrecv(product, dest=after, recvbuf=received, source=before)
        expected = comm.sendrecv(cupy.asnumpy(product), dest=after, source=before)
        assert numpy.array_equal(cupy.asnumpy(received), expected), ("product", turn)
        factor = product / product.max()


def tensors(torch):
    own = torch.full((1 << 20,), float(rank), device="cuda")
    other = torch.empty_like(own)
    comm.Sendrecv(own, dest=after, recvbuf=other, source=before)
    assert bool((other == before).all()), "tensor"
    total = torch.rand(1 << 22, device="cuda")
    expected = comm.allreduce(total.cpu().numpy())
    comm.Allreduce(MPI.IN_PLACE, total)
    assert numpy.allclose(total.cpu().numpy(), expected), "sum of tensors"


for allocator in (None, cupy.cuda.MemoryAsyncPool().malloc):
    if allocator is not None:
        cupy.cuda.set_allocator(allocator)
    for length in (1, 100, 5000, 1 << 20, 1 << 24):
        exchange(length)
    products()
try:
    import torch
except ImportError:
    torch = None
if torch is not None:
    tensors(torch)
comm.Barrier()
if rank == 0:
    print("PASS arrays", flush=True)
