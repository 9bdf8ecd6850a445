"""The functional API on tensors: it picks a backend and holds no maths."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from spo_fast.kernels import fused_policy_loss, linear_token_logprob, token_logprob
from spo_fast.kernels import normalize_advantages as _normalize
from spo_fast.kernels import policy_loss as _policy
from spo_fast.kernels.normalize_advantages.reference import Measure
from spo_fast.losses.kl import KLEstimator
from spo_fast.losses.policy_gradient import PolicyLossOptions, PolicyLossOutput, RatioLevel
from spo_fast.losses.reduction import Aggregation

__all__ = [
    "PolicyLossOutput",
    "SPOLoss",
    "linear_token_logprobs",
    "normalize_advantages",
    "policy_loss",
    "token_logprobs",
]

Backend = Literal["auto", "triton", "cpu", "reference"]
_BACKENDS: tuple[Backend, ...] = get_args(Backend)


def _check_backend(backend: Backend) -> None:
    if backend not in _BACKENDS:
        raise ValueError(f"backend: expected one of {_BACKENDS}, got {backend!r}")
    if backend == "triton":
        raise NotImplementedError(
            "backend='triton': these kernels are not built yet; use backend='auto', 'cpu' or 'reference'"
        )


def _pick(
    backend: Backend, name: str, x: Tensor, cpu_dtypes: tuple[torch.dtype, ...]
) -> Literal["cpu", "reference"]:
    """The backend that ``backend`` means for ``x``; only "auto" chooses for itself."""
    _check_backend(backend)
    if backend == "reference":
        return "reference"
    if x.device.type == "cpu" and x.dtype in cpu_dtypes:
        return "cpu"
    if backend == "cpu":
        raise ValueError(
            f"{name}: expected one of {cpu_dtypes} on a CPU with backend='cpu', got {x.dtype} on {x.device}"
        )
    return "reference"


def token_logprobs(
    logits: Tensor,
    token_ids: Tensor,
    *,
    action_mask: Tensor | None = None,
    temperature: Tensor | float = 1.0,
    logit_softcap: float | None = None,
    return_entropy: bool = False,
    inplace_backward: bool = False,
    backend: Backend = "auto",
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Log-probability of one token a row, and optionally the row's entropy.

    With :math:`z = \mathrm{softcap}(\mathrm{logits}) / T`, :math:`\mathrm{softcap}(x) = c \tanh(x / c)` and
    :math:`m = \max_j z_j`,

    .. math:: \log p_a = (z_a - m) - \log \sum_j e^{z_j - m}, \qquad H = -\sum_j p_j \log p_j

    A logit of -inf has probability 0, takes no part in the entropy and gets gradient 0. NaN or +inf makes its row NaN and
    no other. A row's bits do not depend on the other rows.

    Args:
        logits: ``[..., V]``, float32, bfloat16, float16 (or float64, computed in it), any strides; differentiated.
        token_ids: ``[...]`` int64: row i scores token i, so shifting is the caller's.
        action_mask: ``[...]``, non-zero: compute this row. Elsewhere the result is 0, the gradient 0, and nothing is read:
            logits and upstream gradients may be NaN, ids -100.
        temperature: a number or ``[...]``, > 0.
        logit_softcap: c, > 0; ``None``: no cap.
        return_entropy: return H too.
        inplace_backward: write the gradient over the logits, which saves their size in memory; later use of them by
            autograd then raises.
        backend: ``"auto"`` or one by name.

    Returns:
        Log-probs, float32 ``[...]``, or (log-probs, entropies).

    Raises:
        ValueError: for wrong shapes or dtypes, or, on a CPU, an id outside [0, V) or a temperature that is not > 0 in a
            row to compute. On a GPU such an id makes its row NaN; ``SPO_FAST_CHECK=1`` raises there too, at the cost of a
            sync.
        NotImplementedError: when second derivatives are asked for.
    """
    return token_logprob.token_logprobs(
        logits,
        token_ids,
        action_mask=action_mask,
        temperature=temperature,
        logit_softcap=logit_softcap,
        return_entropy=return_entropy,
        inplace_backward=inplace_backward,
        backend=_pick(backend, "logits", logits, token_logprob.cpu.DTYPES),
    )


def linear_token_logprobs(
    hidden: Tensor,
    lm_head_weight: Tensor,
    token_ids: Tensor,
    *,
    bias: Tensor | None = None,
    action_mask: Tensor | None = None,
    row_index: Tensor | None = None,
    temperature: Tensor | float = 1.0,
    logit_softcap: float | None = None,
    logit_scale: float = 1.0,
    return_entropy: bool = False,
    chunk_tokens: int | None = None,
    chunk_vocab: int | None = None,
    backend: Backend = "auto",
) -> Tensor | tuple[Tensor, Tensor]:
    """Token log-probabilities under a linear head, without ever holding its ``[N, V]`` logits.

    The values of ``token_logprobs(logit_scale * (hidden @ lm_head_weight.T + bias), token_ids)``: scale, then cap, then
    temperature. Only rows of the mask are multiplied; logits exist one block of tokens at a time and are computed again
    in the backward pass.

    Args:
        hidden: ``[..., H]``; differentiated.
        lm_head_weight: ``[V, H]``, dtype of ``hidden``; differentiated.
        token_ids: ``[...]`` int64.
        bias: ``[V]``; differentiated.
        action_mask: ``[...]``, non-zero: compute this row; elsewhere 0, and nothing is read.
        row_index: int64 ``[n]``, the flat indices of those rows; without it one host sync counts them.
        temperature: a number or ``[...]``, > 0.
        logit_softcap: > 0, or ``None``.
        logit_scale: a number.
        return_entropy: return entropies too.
        chunk_tokens: tokens a block; ``None``: 64 MiB of float32 logits.
        chunk_vocab: how much of the vocabulary a block may hold in backends that tile it; the reference keeps whole rows.
            Values do not depend on it.
        backend: ``"auto"`` or one by name.

    Returns:
        Log-probs, float32 (float64 for float64 inputs) ``[...]``, or (log-probs, entropies).

    Raises:
        ValueError: as :func:`token_logprobs` does.
        NotImplementedError: when second derivatives are asked for.
    """
    _check_backend(backend)
    return linear_token_logprob.linear_token_logprobs(
        hidden,
        lm_head_weight,
        token_ids,
        bias=bias,
        action_mask=action_mask,
        row_index=row_index,
        temperature=temperature,
        logit_softcap=logit_softcap,
        logit_scale=logit_scale,
        return_entropy=return_entropy,
        chunk_tokens=chunk_tokens,
        chunk_vocab=chunk_vocab,
    )


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor | None,
    advantages: Tensor,
    action_mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    dual_clip: float | None = 2.0,
    rollout_logprobs: Tensor | None = None,
    rollout_is_cap: float | None = 2.0,
    ref_logprobs: Tensor | None = None,
    kl_coef: float = 0.0,
    kl_estimator: KLEstimator = "k3",
    kl_log_ratio_clamp: float = 10.0,
    entropy: Tensor | None = None,
    entropy_coef: float = 0.0,
    aggregation: Aggregation = "token_mean",
    normalizer: Tensor | float | None = None,
    max_length: int | None = None,
    log_ratio_clamp: float = 20.0,
    ratio_level: RatioLevel = "token",
    segment_ids: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    backend: Backend = "auto",
) -> PolicyLossOutput:
    r"""Clipped policy loss with optional importance weights, KL and entropy terms.

    With d = logprobs - old, averaged over the token's unit, and :math:`r = e^{\mathrm{clamp}(d, \pm c)}`,

    .. math:: L = \min(\max(-A r, -A\,\mathrm{clip}(r, 1 - \epsilon_-, 1 + \epsilon_+)), -c_\mathrm{dual} A \text{ if } A < 0)
              \cdot \min(e^{\mathrm{old} - \mathrm{rollout}}, \mathrm{cap})
              + \beta\,\mathrm{KL} - \eta H

    a token, aggregated over action tokens. A = 0 gives a policy term of exactly 0. Two equal infinite log-probs differ by
    0; a single one saturates at the clamp with gradient 0.

    Args:
        logprobs: ``[B, T]``, or packed ``[N]`` with ``cu_seqlens``; differentiated.
        old_logprobs: same shape; ``None``: ``logprobs.detach()``.
        advantages: shaped like ``logprobs``: one a token (this reading wins); else ``[B]`` or ``[B, 1]``: one a sequence.
        action_mask: same shape, non-zero: an action token. Nothing else is read elsewhere.
        clip_low, clip_high: the two epsilons.
        dual_clip: cap of the loss of A < 0 in units of \|A\|, > 1; ``None``: no cap.
        rollout_logprobs: same shape, recorded by the engine that generated the tokens.
        rollout_is_cap: cap of the importance weight; ``None``: no weight.
        ref_logprobs: same shape, of the reference policy.
        kl_coef, kl_estimator, kl_log_ratio_clamp: beta; "k1", "k2" or "k3"; limit of the log-ratio in it.
        entropy: same shape; differentiated if ``entropy_coef`` is not 0.
        entropy_coef: eta.
        aggregation: "token_mean", "seq_mean_token_mean", "seq_mean_token_sum" or "seq_mean_token_sum_norm".
        normalizer: number or 0-d tensor in place of this batch's count of tokens (token_mean) or of sequences: given the
            count of the whole batch, losses of micro-batches and ranks add up to its loss. Where a framework averages over
            W ranks or accumulation steps, give count / W. 0 gives loss 0.
        max_length: divides the sums of "seq_mean_token_sum_norm".
        log_ratio_clamp: c.
        ratio_level: what shares a ratio: "token", "sequence" (GSPO) or "segment" (tokens of equal ``segment_ids`` in a
            sequence).
        segment_ids: ints, same shape.
        cu_seqlens: int32 ``[B + 1]``, offsets of packed sequences.
        backend: ``"auto"`` or one by name.

    Returns:
        The loss, a scalar in float32 (float64 for float64 log-probs), 0 with its graph attached if there is no action
        token; and metrics, 0-d tensors that are means over the action tokens of this call.

    Raises:
        ValueError: naming everything that is wrong with shapes, dtypes and options.

    Source: PPO (arXiv 1707.06347), DAPO (arXiv 2503.14476), dual clip (arXiv 1912.09729), GSPO (arXiv 2507.18071);
        defaults from SPO++.
    Differs: sequence and segment ratios use the mean of unclamped log-ratios, and clipping stays per token.
    """
    options = PolicyLossOptions(
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=dual_clip,
        rollout_is_cap=rollout_is_cap,
        kl_coef=kl_coef,
        kl_estimator=kl_estimator,
        kl_log_ratio_clamp=kl_log_ratio_clamp,
        entropy_coef=entropy_coef,
        aggregation=aggregation,
        max_length=max_length,
        log_ratio_clamp=log_ratio_clamp,
        ratio_level=ratio_level,
    )
    return _policy.policy_loss(
        logprobs,
        old_logprobs,
        advantages,
        action_mask,
        options,
        rollout_logprobs=rollout_logprobs,
        ref_logprobs=ref_logprobs,
        entropy=entropy,
        normalizer=normalizer,
        segment_ids=segment_ids,
        cu_seqlens=cu_seqlens,
        backend=_pick(backend, "logprobs", logprobs, _policy.cpu.DTYPES),
    )


class SPOLoss(nn.Module):
    """:func:`policy_loss` with its options held, on log-probs, logits or hidden states.

    Args:
        inplace_backward: with logits, write their gradient over them; see :func:`token_logprobs`. In the single pass that
            happens with the loss already.
        backend: ``"auto"`` or one by name.
        options: every option of :func:`policy_loss` that is not data: clip_low, clip_high, dual_clip, rollout_is_cap,
            kl_coef, kl_estimator, kl_log_ratio_clamp, entropy_coef, aggregation, max_length, log_ratio_clamp, ratio_level.

    Raises:
        TypeError: for an unknown option.
        ValueError: naming every option out of its range.
    """

    def __init__(self, *, inplace_backward: bool = False, backend: Backend = "auto", **options: Any) -> None:
        super().__init__()
        _check_backend(backend)
        self.options = PolicyLossOptions(**options)
        self.inplace_backward = inplace_backward
        self.backend: Backend = backend

    def forward(
        self,
        logprobs: Tensor | None = None,
        *,
        advantages: Tensor,
        action_mask: Tensor,
        old_logprobs: Tensor | None = None,
        token_ids: Tensor | None = None,
        logits: Tensor | None = None,
        hidden: Tensor | None = None,
        lm_head_weight: Tensor | None = None,
        bias: Tensor | None = None,
        temperature: Tensor | float = 1.0,
        logit_softcap: float | None = None,
        logit_scale: float = 1.0,
        rollout_logprobs: Tensor | None = None,
        ref_logprobs: Tensor | None = None,
        entropy: Tensor | None = None,
        segment_ids: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        normalizer: Tensor | float | None = None,
    ) -> PolicyLossOutput:
        """The loss of exactly one of ``logprobs``, ``logits`` (with ``token_ids``) and ``hidden`` (also ``lm_head_weight``).

        Entropy is computed from logits or hidden states when ``entropy_coef`` is not 0 and none is given. Float32 and
        bfloat16 logits on a CPU, with ratios of tokens, take a single pass that computes their gradient with the loss
        (with ``inplace_backward`` over the logits, at once); it can be propagated once. The other
        arguments are those of :func:`policy_loss`, :func:`token_logprobs` and :func:`linear_token_logprobs`.
        """
        self._check_source(logprobs, logits, hidden, token_ids, lm_head_weight)
        if (
            logits is not None
            and self.backend in ("auto", "cpu")
            and fused_policy_loss.fits(logits, self.options, entropy)
        ):
            return fused_policy_loss.fused_policy_loss(
                logits,
                token_ids,  # type: ignore[arg-type]
                advantages,
                action_mask,
                self.options,
                temperature=temperature,
                logit_softcap=logit_softcap,
                inplace=self.inplace_backward,
                old_logprobs=old_logprobs,
                rollout_logprobs=rollout_logprobs,
                ref_logprobs=ref_logprobs,
                segment_ids=segment_ids,
                cu_seqlens=cu_seqlens,
                normalizer=normalizer,
            )
        if logprobs is None:
            assert token_ids is not None
            with_entropy = self.options.entropy_coef != 0 and entropy is None
            shared: dict[str, Any] = {
                "action_mask": action_mask,
                "temperature": temperature,
                "logit_softcap": logit_softcap,
                "return_entropy": with_entropy,
                "backend": self.backend,
            }
            if logits is not None:
                result = token_logprobs(logits, token_ids, inplace_backward=self.inplace_backward, **shared)
            else:
                assert hidden is not None and lm_head_weight is not None
                result = linear_token_logprobs(
                    hidden, lm_head_weight, token_ids, bias=bias, logit_scale=logit_scale, **shared
                )
            if isinstance(result, tuple):
                logprobs, entropy = result
            else:
                logprobs = result
        return policy_loss(
            logprobs,
            old_logprobs,
            advantages,
            action_mask,
            rollout_logprobs=rollout_logprobs,
            ref_logprobs=ref_logprobs,
            entropy=entropy,
            normalizer=normalizer,
            segment_ids=segment_ids,
            cu_seqlens=cu_seqlens,
            backend=self.backend,
            **asdict(self.options),
        )

    @staticmethod
    def _check_source(
        logprobs: Tensor | None,
        logits: Tensor | None,
        hidden: Tensor | None,
        token_ids: Tensor | None,
        lm_head_weight: Tensor | None,
    ) -> None:
        given = [
            name
            for name, x in (("logprobs", logprobs), ("logits", logits), ("hidden", hidden))
            if x is not None
        ]
        faults = (
            []
            if len(given) == 1
            else [f"expected exactly one of logprobs, logits and hidden, got {given or 'none'}"]
        )
        if logprobs is None and token_ids is None:
            faults.append("token_ids: expected a tensor with logits or hidden, got None")
        if hidden is not None and lm_head_weight is None:
            faults.append("lm_head_weight: expected a tensor with hidden, got None")
        if faults:
            raise ValueError("; ".join(faults))

    def extra_repr(self) -> str:
        defaults = asdict(PolicyLossOptions())
        return ", ".join(f"{name}={x!r}" for name, x in asdict(self.options).items() if x != defaults[name])


def normalize_advantages(
    advantages: Any,
    *,
    lengths: Any = None,
    action_mask: Any = None,
    cu_seqlens: Any = None,
    measure: Measure = "action_token",
    center: bool = True,
    scale: bool = True,
    groups: Any = None,
    eps: float = 1e-8,
    process_group: Any | None = None,
) -> Any:
    r"""Centre and scale advantages under the measure that the loss averages with.

    .. math:: \tilde A = \frac{A - \mu}{\sigma + \epsilon}, \qquad \mu = \frac{\sum_i L_i A_i}{\sum_i L_i}, \qquad
              \sigma^2 = \frac{\sum_i L_i (A_i - \mu)^2}{\sum_i L_i - 1}

    A set of one value, or of a single unit of measure, is never scaled: it gives exactly 0 with ``center`` and stays as
    it is without.

    Args:
        advantages: one a segment, ``[S]``; or, with ``action_mask``, one a token, ``[B, T]`` or packed ``[N]``. A torch
            tensor, or anything numpy takes.
        lengths: action tokens of each segment, ``[S]``; ``None``: all 1. A segment of 0 gives 0 and does not count.
        action_mask: non-zero: an action token; elsewhere the result is 0 and nothing is read.
        cu_seqlens: int32 ``[B + 1]``, offsets of packed sequences.
        measure: "action_token": L_i as above (with tokens: each is a unit with its own value); "trajectory": every segment
            with tokens counts once (with tokens: by its mean, and the statistics are applied to each token).
        center: subtract the mean.
        scale: divide by the deviation.
        groups: one a segment (a row or packed sequence, with tokens): statistics by group. Tensors: ints in [0, S), or
            global ids with a process group; numpy: anything hashable.
        eps: added to the deviation.
        process_group: take the statistics over all processes of this torch.distributed group.

    Returns:
        Shaped like ``advantages`` and of its kind: its dtype if floating (float32 for half), else float32 in torch and
        float64 in numpy. Statistics are float64; the result carries no gradient.

    Raises:
        ValueError: for wrong shapes, options or values.

    Source: SPO++, action-token-measure normalisation.
    """
    return _normalize.normalize_advantages(
        advantages,
        lengths=lengths,
        action_mask=action_mask,
        cu_seqlens=cu_seqlens,
        measure=measure,
        center=center,
        scale=scale,
        groups=groups,
        eps=eps,
        process_group=process_group,
    )
