"""What candidates are put to: one problem's data on the device, shared by all of them, and what is right on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

CHECKSUM_BYTES = 1 << 24


class Checked(NamedTuple):
    """What an implementation wrote, against the reference."""

    numerics: dict[str, Any]
    """The fields of `benchmarks.records.Numerics` but for its verdict, as JSON data."""
    why_wrong: str | None
    """One sentence, where a bound is broken."""


class Subject(ABC):
    """One problem of an operation. `begin` is to be called once the data is there."""

    problem: Any
    device: torch.device
    outputs = "out and lse"
    """How a sentence calls what a call writes."""

    @abstractmethod
    def pack(self, plan: Any) -> Any:
        """What `plan` makes of the cache and the weights."""

    @abstractmethod
    def conversion(self, plan: Any, packed: Any) -> Callable[[], object] | None:
        """What of `pack` is charged to calls: to convert the cache, but no weights, which are packed once for all calls. None
        where `packed` has the cache as it was."""

    @abstractmethod
    def bind(self, plan: Any, packed: Any) -> Any:
        """The runner. It is given no outputs: torch's operators make their own, and would have to copy them."""

    @abstractmethod
    def written(self, runner: Any) -> tuple[torch.Tensor, ...]:
        """The tensors that a call writes, in one order."""

    @abstractmethod
    def check(self, chosen: Any, written: tuple[torch.Tensor, ...]) -> Checked:
        """What `chosen` wrote for the data as it is now; `written` as the method of that name gives it."""

    @abstractmethod
    def facts(self, plan: Any, packed: Any) -> dict[str, Any]:
        """{"cache_layout", "work"} of a cell."""

    @abstractmethod
    def changing(self) -> torch.Tensor:
        """The input that changes from call to call: queries, or rows."""

    @abstractmethod
    def tensors(self) -> dict[str, torch.Tensor]:
        """Every input by its name."""

    @abstractmethod
    def fresh(self) -> dict[str, torch.Tensor]:
        """As `tensors`, made anew."""

    def begin(self) -> None:
        self.negated = False
        self._checksums = self._summed()

    def negate_queries(self) -> None:
        """Change what changes, in place, exactly and reversibly; other outputs are right from then on."""
        self.changing().neg_()
        self.negated = not self.negated

    def overwritten(self) -> list[str]:
        """Names of the inputs that are no longer what they were."""
        return [name for name, found in self._summed().items() if found != self._checksums[name]]

    def restore(self) -> None:
        """Put back what `overwritten` finds changed."""
        fresh = self.fresh()
        for name, tensor in self.tensors().items():
            tensor.copy_(fresh[name])

    def _summed(self) -> dict[str, tuple[int, ...]]:
        return {name: _checksum(tensor) for name, tensor in self.tensors().items()}


def _checksum(tensor: torch.Tensor) -> tuple[int, ...]:
    """The bytes, each times its position, summed piece by piece: a copy of the tensor may not fit."""
    import torch

    flat = tensor.reshape(-1).view(torch.uint8)
    weights = torch.arange(1, min(len(flat), CHECKSUM_BYTES) + 1, device=tensor.device)
    sums = [(piece * weights[: len(piece)]).sum() for piece in flat.split(CHECKSUM_BYTES)]
    return tuple(torch.stack(sums).tolist())


def of_nvfp4(name: str, tensor: Any) -> dict[str, torch.Tensor]:
    """The parts of an NVFP4 tensor, by names."""
    import torch

    return {
        f"{name}.codes": tensor.codes,
        f"{name}.scales": tensor.scales.view(torch.uint8),
        f"{name}.global_scale": tensor.global_scale,
    }
