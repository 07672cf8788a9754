"""Several processes that train one student: the same batch, the same loss and the same step on every rank.

Every rank plans the same global batch, runs the student on its share of it, and gets the outputs of all shares. It then
computes the loss of the whole batch, with the pairs, the budget and the normalisation that one process would have. On
each rank the gradient flows back through that rank's own share alone; summed over the ranks, and not averaged, it is
the gradient of one process.

A rank that has ended is found by the next exchange with it, which raises RankError. What the hosts tell each other
goes through gloo on every device: a host does not wait for a GPU there, and sees a closed connection at once.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from rapid_lab.errors import DataError
from rapid_lab.launch import RankError
from rapid_lab.models import Outputs
from rapid_lab.reach import said

# How long ranks wait for the first one's word: it may be training a teacher.
PATIENCE = timedelta(days=7)
# How long they wait within a training: evaluations and checkpoints are shorter by far.
STEP_PATIENCE = timedelta(minutes=10)

Made = TypeVar("Made")


class Share(NamedTuple):
    """The rows of a batch one rank runs the student on, and the position its dropout is named after."""

    rows: list[int]
    position: tuple[int, ...]


class Ranks:
    """The processes that train one student together. Alone nothing is sent, and nothing is changed by a bit."""

    def __init__(self, rank: int = 0, size: int = 1, store: Any = None) -> None:
        self.rank, self.size = rank, size
        self.store = store  # of torchrun's agent: a word left there outlives the rank that left it
        self._group: dist.ProcessGroup | None = None  # that of the steps, once there is one

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that keeps checkpoints and tells others what happens."""
        return self.rank == 0

    def begin(self, device: torch.device, identity: str) -> None:
        """Get ready to train on this kind of device; ranks that would not train the same are refused."""
        if self.size == 1:
            return
        identities = self.everyones(identity)
        others = [rank for rank, other in enumerate(identities) if other != identities[0]]
        if others:
            raise DataError(
                f"rank {others[0]} would not train what rank 0 does: data, models, code, precision and the teacher's "
                "signals must be the same on all machines; copy rank 0's cache to the others"
            )
        backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
        with answered():
            self._group = dist.new_group(backend=backend, timeout=STEP_PATIENCE)

    def share(self, rows: Sequence[int]) -> Share:
        """This rank's rows of a batch; the dropout of the first share is that of one process."""
        start, stop = self._bounds(len(rows))[self.rank]
        # A rank without a row takes the first as a guest: its output is cut off, so that its gradient is zero.
        return Share(list(rows[start:stop] or rows[:1]), (start,) if start else ())

    def gathered(self, outputs: Outputs, batch_size: int) -> Outputs:
        """The outputs of the whole batch; those of this rank's share keep their gradient."""
        if self.size == 1:
            return outputs
        sizes = [stop - start for start, stop in self._bounds(batch_size)]
        own = torch.cat((outputs.logits.float(), outputs.pooled.float()), dim=1)[: sizes[self.rank]]
        padded = own.new_zeros((max(sizes), own.shape[1]))
        padded[: len(own)] = own.detach()
        parts = [torch.empty_like(padded) for _ in sizes]
        with answered():
            dist.all_gather(parts, padded, group=self._group)
        shares = [part[:size] for part, size in zip(parts, sizes, strict=True)]
        shares[self.rank] = own
        logits, pooled = torch.cat(shares).tensor_split([outputs.logits.shape[1]], dim=1)
        return Outputs(logits, pooled)

    def sum_gradients(self, model: nn.Module) -> None:
        """Add up what the ranks have, in one message."""
        if self.size == 1:
            return
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        with answered():
            dist.all_reduce(flat, group=self._group)
        summed = flat.split([gradient.numel() for gradient in gradients])
        for gradient, values in zip(gradients, summed, strict=True):
            gradient.copy_(values.view_as(gradient))

    def largest(self, number: float) -> float:
        """The largest of the numbers that the hosts have."""
        if self.size == 1:
            return number
        box = torch.tensor(number, dtype=torch.float64)
        with answered():
            dist.all_reduce(box, op=dist.ReduceOp.MAX, group=self._group)
        return float(box)

    def everyones(self, value: Made) -> list[Made]:
        """What every rank has, by rank."""
        if self.size == 1:
            return [value]
        boxes: list[Any] = [None] * self.size
        with answered():
            dist.all_gather_object(boxes, value, group=self._group)
        return boxes

    def of_first(self, make: Callable[[], Made]) -> Made:
        """What the first rank makes, on every rank: files of its machine need not be on the others."""
        if self.size == 1:
            return make()
        box: list[Any] = [make() if self.is_first else None]
        with answered():
            dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]

    def word(self, word: object = None) -> Any:
        """The first rank's word, which the others wait for as long as it takes."""
        box = [word]
        with answered():
            dist.broadcast_object_list(box, src=0)
        return box[0]

    def _bounds(self, count: int) -> list[tuple[int, int]]:
        """Where each rank's share of so many rows begins and ends; sizes differ by one at most."""
        return [(rank * count // self.size, (rank + 1) * count // self.size) for rank in range(self.size)]


ALONE = Ranks()


def join() -> Ranks:
    """Meet the ranks that torchrun has started with this one."""
    with answered():
        shared, rank, size = next(rendezvous("env://", timeout=PATIENCE))
        store = own_part(shared, rank, size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)
    return Ranks(rank, size, store)


def own_part(store: Store, rank: int, size: int) -> Store:
    """A part of torchrun's store that the ranks of this start alone know.

    When torchrun starts ranks again it keeps the store, and in it the addresses of those that are gone. So the first
    rank names a part, answers whoever greets it with that name, and goes on when all have it.
    """
    own = uuid.uuid4().hex
    if rank > 0:
        store.set(f"greeting/{rank}", own)
        name = store.get(f"answer/{own}").decode()
        store.set(f"{name}/{rank}", "")
        return PrefixStore(name, store)
    while waiting := [other for other in range(1, size) if not store.check([f"{own}/{other}"])]:
        for other in waiting:
            if store.check([f"greeting/{other}"]):  # perhaps of one that is gone: the answer is then read by nobody
                store.set(f"answer/{store.get(f'greeting/{other}').decode()}", own)
        time.sleep(0.01)
    return PrefixStore(own, store)


def leave() -> None:
    """Part from the others after a good end; after a bad one a device may wait for a rank that is gone."""
    dist.destroy_process_group()


@contextmanager
def answered() -> Iterator[None]:
    """Tell a fault of an exchange between ranks as what it is."""
    try:
        yield
    except RuntimeError as fault:
        raise RankError(f"another rank does not answer: {said(fault)}") from fault
