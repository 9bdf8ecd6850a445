"""What the collector asks of a text generator: conversations that grow turn by turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Generation:
    """A finished turn of one request.

    Attributes:
        request: the request's number.
        token_ids: the generated tokens, the stop token included when there is one.
        logprobs: their log-probabilities under the distribution they were drawn from, float32.
        stopped: False when the limit of new tokens ended the turn.
    """

    request: int
    token_ids: list[int]
    logprobs: list[float]
    stopped: bool


class Engine(Protocol):
    """Generates for many requests at once; a step yields one token to every request that waits for one."""

    @property
    def free_slots(self) -> int: ...

    @property
    def decode_steps(self) -> int:
        """Steps taken so far; the clock by which "first finished" is decided."""
        ...

    def submit(self, request: int, token_ids: list[int], max_new_tokens: int) -> None:
        """Appends tokens to a request's context (a new request takes a slot) and asks for a turn."""
        ...

    def step(self) -> list[Generation]:
        """One decode step; the turns that it finished, by request number."""
        ...

    def release(self, request: int) -> None:
        """Forgets a request and frees its slot."""
        ...
