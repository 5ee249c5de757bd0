"""The operations of torch where each process of a group holds some of the rows.

A function of a batch is a mean over its rows, plus what does not depend on them. So its value,
gradients and products over all rows are the means of what each process finds on its own rows,
weighted by their number; a process that holds none of a batch takes part with weight zero. All
else of a run happens on every process alike, on the same numbers.

Leaves of x that belong to rows (`Sharded`) stay with them: a gradient in such a leaf needs no sum
over processes, norms and products of it do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import optree
import torch
from torch import distributed

from untuned.ops import Ops, Scalar, Tree
from untuned.ops import torch as base
from untuned.ops.torch_processes import Processes
from untuned.util import watch


@dataclass(frozen=True, eq=False)
class Shard:
    """One side's rows: those of this process, and how many there are in all."""

    rows: Tree
    first: int  # number of this process's first row among all
    count: int  # rows of this process
    total: int
    nbytes: int  # of all rows

    @property
    def shape(self) -> tuple[int]:
        """As if it were an array of all rows."""
        return (self.total,)


class Sharded(NamedTuple):
    """A leaf of x of which each process has the entries of its own rows.

    Rows are its last axis here, so that they still are where several leaves are stacked.
    """

    part: Any


def _is_sharded(node: Any) -> bool:
    return isinstance(node, Sharded)


def _nodes(tree: Tree) -> list[Any]:
    return optree.tree_leaves(tree, is_leaf=_is_sharded)


class GroupOps(Processes):
    """`untuned.ops.torch` over the processes of a group; a name that is not here is as there."""

    def __init__(self, group: Any):
        super().__init__(group)
        self.has_sharded = False  # whether x has leaves that belong to rows

    def __getattr__(self, name: str) -> Any:
        return getattr(base, name)

    # Rows

    def shard(self, rows: Tree, count: int, /) -> Shard:
        """The rows of this process as a part of all."""
        counts = [int(number) for number in self.of_each(count)]
        size = sum(leaf.nbytes for leaf in optree.tree_leaves(rows))
        return Shard(
            rows, sum(counts[: self.rank]), count, sum(counts), int(sum(self.of_each(size)))
        )

    def take(self, tree: Tree, indices: Any, /) -> Tree:
        if not isinstance(tree, Shard):
            return base.take(tree, indices)
        places = torch.as_tensor(indices).long() - tree.first
        mine = places[(places >= 0) & (places < tree.count)]
        share = len(places) / tree.total
        rows = base.take(tree.rows, mine)
        return Shard(rows, -1, len(mine), len(places), int(share * tree.nbytes))

    def pieces(self, tree: Tree, /) -> list[tuple[int, int, np.ndarray]]:
        if not isinstance(tree, Shard):
            return base.pieces(tree)
        return [
            (number, tree.first, part + tree.first if self._numbers_rows(part) else part)
            for number, _, part in base.pieces(tree.rows)
        ]

    def _numbers_rows(self, part: np.ndarray) -> bool:
        """Whether an array counts the rows of each process, as sharded leaves of x need it.

        It is then the same data on any number of processes.
        """
        if not self.has_sharded or part.ndim != 1 or part.dtype.kind not in "iu":
            return False
        return sum(self.of_each(np.array_equal(part, np.arange(len(part))))) == self.processes

    # Leaves that belong to rows

    def mark_sharded(self, x: Tree, which: Any, /) -> Tree:
        """x with the leaves that `which` names marked: True for all, or a tree of booleans."""
        if which is True:
            which = base.tree_map(lambda _: True, x)
        mark = lambda leaf, sharded: Sharded(leaf.movedim(0, -1)) if sharded else leaf
        marked = optree.tree_map(mark, x, which)
        self.has_sharded = any(map(_is_sharded, _nodes(marked)))
        return marked

    def as_given(self, tree: Tree, /) -> Tree:
        if not self.has_sharded:
            return tree
        bare = lambda node: node.part.movedim(-1, 0) if _is_sharded(node) else node
        return optree.tree_map(bare, tree, is_leaf=_is_sharded)

    def _whole(self, node: Sharded) -> torch.Tensor:
        """The leaf with the entries of all processes."""
        part = node.part
        lengths = [int(length) for length in self.of_each(part.shape[-1])]
        mine = part.new_zeros(*part.shape[:-1], max(lengths))  # gathering needs one shape
        mine[..., : part.shape[-1]] = part
        parts = [torch.empty_like(mine) for _ in lengths]
        self.communicate(distributed.all_gather, parts, mine)
        pieces = zip(parts, lengths, strict=True)
        return torch.cat([piece[..., :length] for piece, length in pieces], -1)

    def _own(self, whole: Any, node: Sharded) -> Any:
        """This process's entries of a leaf of all."""
        length = node.part.shape[-1]
        first = sum(int(number) for number in self.of_each(length)[: self.rank])
        return whole[..., first : first + length]

    def to_host(self, tree: Tree, /) -> list[np.ndarray]:
        whole = lambda node: self._whole(node) if _is_sharded(node) else node
        return [base.to_numpy(whole(node)) for node in _nodes(tree)]

    def from_host(self, arrays: list[np.ndarray], like: Tree, /) -> Tree:
        nodes = zip(arrays, _nodes(like), strict=True)
        own = [self._own(array, node) if _is_sharded(node) else array for array, node in nodes]
        return base.from_host(own, like)

    def size(self, tree: Tree, /) -> int:
        if not self.has_sharded:
            return base.size(tree)
        nodes = _nodes(tree)
        own = sum(node.part.numel() for node in nodes if _is_sharded(node))
        return base.size([n for n in nodes if not _is_sharded(n)]) + int(sum(self.of_each(own)))

    def dot(self, a: Tree, b: Tree, /) -> Scalar:
        if not self.has_sharded:
            return base.dot(a, b)
        pairs = list(zip(_nodes(a), _nodes(b), strict=True))
        own = [(p.part, q.part) for p, q in pairs if _is_sharded(p)]
        common = [(p, q) for p, q in pairs if not _is_sharded(p)]
        total = base.dot([p for p, _ in common], [q for _, q in common])
        if own:
            total += sum(self.of_each(base.dot([p for p, _ in own], [q for _, q in own])))
        return total

    def norm(self, tree: Tree, /) -> Scalar:
        nodes = _nodes(tree) if self.has_sharded else []
        own = [node.part for node in nodes if _is_sharded(node)]
        if not own:
            return base.norm(tree)
        common = [node for node in nodes if not _is_sharded(node)]
        return math.hypot(*self.of_each(base.norm(own)), base.norm(common) if common else 0.0)

    def equal(self, a: Tree, b: Tree, /) -> Scalar:
        same = base.equal(a, b)
        return sum(self.of_each(float(same))) == self.processes if self.has_sharded else same

    def simplex(self, tree: Tree, /) -> Tree:
        def project(node: Any) -> Any:
            if not _is_sharded(node):
                return base.simplex(node)
            return Sharded(self._own(base.simplex(self._whole(node)), node))

        return optree.tree_map(project, tree, is_leaf=_is_sharded)

    # Derivatives

    def value(self, fn: Callable, x: Tree, y: Tree, /) -> Scalar:
        return self._mean(fn, lambda fn: base.value(fn, x, y), lambda: 0.0, y)

    def value_and_grads(self, fn: Callable, x: Tree, y: Tree, /) -> tuple[Scalar, Tree, Tree]:
        nothing = lambda: (0.0, base.zeros_like(x), base.zeros_like(y))
        return self._mean(fn, lambda fn: base.value_and_grads(fn, x, y), nothing, y)

    def grad_y(self, fn: Callable, x: Tree, y: Tree, /) -> Tree:
        return self._mean(fn, lambda fn: base.grad_y(fn, x, y), lambda: base.zeros_like(y), y)

    def value_and_grad_y(self, fn: Callable, x: Tree, y: Tree, /) -> tuple[Scalar, Tree]:
        nothing = lambda: (0.0, base.zeros_like(y))
        return self._mean(fn, lambda fn: base.value_and_grad_y(fn, x, y), nothing, y)

    def linearize(self, fn: Callable, x: Tree, y: Tree, /) -> tuple[Tree, Callable]:
        own, rows = self._own_function(fn)
        has_rows = rows is None or rows.count > 0
        gradient, pull = base.linearize(own, x, y) if has_rows else (base.zeros_like(y), None)
        return self._mean_of(gradient, rows, y), self._pull(pull, rows, x, y)

    def products(self, fn: Callable, x: Tree, y: Tree, /) -> Callable:
        own, rows = self._own_function(fn)
        has_rows = rows is None or rows.count > 0
        return self._pull(base.products(own, x, y) if has_rows else None, rows, x, y)

    def hessian(self, fn: Any, x: Tree, y: Tree, /) -> Any:
        none = lambda: torch.diag(0 * base.ravel(y))
        return self._mean(fn, lambda fn: base.hessian(fn, x, y), none, y)

    def hessian_price(self, fn: Any, x: Tree, y: Tree, /) -> float:
        return base.hessian_price(fn, x, y)

    def _pull(self, pull: Callable | None, rows: Shard | None, x: Tree, y: Tree) -> Callable:
        """The products of all processes, from those on this one's rows (None: it has none)."""

        def mean(v: Tree, wrt: str) -> Tree:
            if pull is not None:
                return self._mean_of(pull(v, wrt), rows, y)
            in_x, in_y = base.zeros_like(x), base.zeros_like(y)
            return self._mean_of({"x": in_x, "y": in_y, "xy": (in_x, in_y)}[wrt], rows, y)

        return mean

    def _own_function(self, fn: Any) -> tuple[Callable, Shard | None]:
        """A function on this process's rows, and these; None where it takes no data."""
        rows = getattr(fn, "rows", None)
        if not isinstance(rows, Shard):
            return fn, None
        return (lambda x, y: fn.function(self.as_given(x), y, rows.rows)), rows

    def _mean(self, fn: Any, evaluate: Callable, nothing: Callable, like: Tree) -> Any:
        """`evaluate` of the function on this process's rows, as a mean over all rows."""
        own, rows = self._own_function(fn)
        has_rows = rows is None or rows.count > 0
        return self._mean_of(evaluate(own) if has_rows else nothing(), rows, like)

    def _mean_of(self, found: Any, rows: Shard | None, like: Tree) -> Any:
        """The mean over all rows of what each process found on its own."""
        if rows is None:  # without data it is the same on every process
            return found
        leaves, structure = optree.tree_flatten(found, is_leaf=_is_sharded)
        weight, model = rows.count / rows.total, base.flatten(like)[0][0]
        scaled = [Sharded(leaf.part * weight) if _is_sharded(leaf) else leaf for leaf in leaves]
        common = [k for k, leaf in enumerate(leaves) if not _is_sharded(leaf)]
        if common:
            # One message for all of them: its latency, not its length, is what a small one costs.
            flat = [torch.as_tensor(leaves[k], dtype=model.dtype, device=model.device).reshape(-1)
                    for k in common]  # fmt: skip
            # And with it goes whether this process's time is up, so that all end at the same turn.
            present = watch.present()
            wants_stop = float(present is not None and present.wants_stop())
            message = torch.cat([*flat, torch.zeros_like(flat[0][:1])]) * weight
            message[-1] = wants_stop
            summed = self.summed(message)
            if present is not None:
                present.agree(summed[-1].item() > 0)
            parts = torch.split(summed[:-1], [part.numel() for part in flat])
            for k, part in zip(common, parts, strict=True):
                leaf = leaves[k]
                is_tensor = isinstance(leaf, torch.Tensor)
                scaled[k] = part.reshape(leaf.shape) if is_tensor else part.item()
        return optree.tree_unflatten(structure, scaled)


def over(group: Any) -> Ops:
    """The operations of torch over the processes of a group."""
    if not isinstance(group, distributed.ProcessGroup):
        raise ValueError(
            f"group is a {type(group).__name__}; expected a process group of torch.distributed, "
            "for example torch.distributed.group.WORLD after init_process_group()."
        )
    if distributed.get_rank(group) < 0:
        raise ValueError(
            "This process is not a member of the group it was given; call minimize in the "
            "processes of the group only."
        )
    return cast(Ops, GroupOps(group))
