"""Autograd helpers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _FirstOrderOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str, gradient: Tensor, *_sources: Tensor | None) -> Tensor:
        ctx.name = name
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *_grads: Tensor) -> Any:
        raise NotImplementedError(
            f"{ctx.name}: second derivatives are not implemented, and a gradient of a gradient through it was asked for "
            f"(create_graph=True); call it without create_graph, or detach the first gradient"
        )


def first_order_only(name: str, gradient: Tensor, *sources: Tensor | None) -> Tensor:
    """``gradient`` of a hand-written backward of ``sources``; differentiating it raises and names the operator.

    Without this, autograd would take the gradient for a constant and second derivatives would silently lack it.
    """
    if not torch.is_grad_enabled():
        return gradient
    result: Tensor = _FirstOrderOnly.apply(name, gradient, *sources)
    return result
