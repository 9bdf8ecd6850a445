"""The compiled token_logprobs: sizes, errors against float64, independence of rows, what else torch does to an operator."""

from __future__ import annotations

import itertools
import math
import os
import socket
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from spo_fast import _core, token_logprobs
from tests.kernels.conftest import CPU_PATHS
from tests.tolerances import FLOAT32

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
VOCABULARIES = [1, 5, 1023, 1024, 1025, 50257, 151936, 248320]
NAN, INF = math.nan, math.inf


def scores(logits: Tensor, ids: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    result = token_logprobs(logits, ids, return_entropy=True, backend="cpu", **options)
    assert isinstance(result, tuple)
    return result


def plain(logits: Tensor, ids: Tensor, temperature: float, softcap: float | None) -> tuple[Tensor, Tensor]:
    """log_softmax and gather in the dtype of ``logits``."""
    z = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    log_p = torch.log_softmax(z / temperature, -1)
    return log_p.gather(-1, ids.unsqueeze(-1)).squeeze(-1), -(log_p.exp() * log_p).sum(-1)


def with_gradient(function: Any, logits: Tensor, upstream: Tensor) -> list[Tensor]:
    x = logits.detach().clone().requires_grad_()
    out = function(x)
    torch.autograd.backward(out, [g.to(o.dtype) for g, o in zip(upstream, out, strict=True)])
    assert x.grad is not None
    return [*(o.detach() for o in out), x.grad]


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_error_is_that_of_torch_or_less(cpu_path: str, dtype: torch.dtype, vocabulary: int) -> None:
    """Against float64 of the same values: at most twice what torch errs in the same dtype, plus the tolerance."""
    generator = torch.Generator().manual_seed(vocabulary)
    logits = (3 * torch.randn(3, vocabulary, generator=generator)).to(dtype)
    ids = torch.randint(vocabulary, (3,), generator=generator)
    upstream = torch.randn(2, 3, generator=generator)
    for temperature, softcap in ((1.0, None), (0.7, 20.0)):
        options: dict[str, Any] = {"temperature": temperature, "logit_softcap": softcap}
        exact = with_gradient(lambda x: plain(x, ids, temperature, softcap), logits.double(), upstream)  # noqa: B023
        same = with_gradient(lambda x: plain(x, ids, temperature, softcap), logits, upstream)  # noqa: B023
        got = with_gradient(lambda x: scores(x, ids, **options), logits, upstream)  # noqa: B023
        for mine, theirs, want in zip(got, same, exact, strict=True):
            assert (mine - want).abs().max() <= 2 * (theirs - want).abs().max() + FLOAT32


@pytest.mark.parametrize("dtype", DTYPES)
def test_paths_agree(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits, ids = (3 * torch.randn(5, 2049)).to(dtype), torch.randint(2049, (5,))
    upstream = torch.randn(2, 5)
    results = []
    for path in CPU_PATHS:
        _core.choose_cpu_path(path)
        results.append(with_gradient(lambda x: scores(x, ids, temperature=1.3), logits, upstream))
    _core.choose_cpu_path("")
    for a, b in zip(results[0], results[-1], strict=True):
        torch.testing.assert_close(a, b, atol=FLOAT32, rtol=2 * torch.finfo(a.dtype).eps)


def test_paths_are_chosen_by_name() -> None:
    with pytest.raises(ValueError, match=r"name: expected .*'portable' or '', got 'sse9'"):
        _core.choose_cpu_path("sse9")
    assert _core.cpu_path() in CPU_PATHS


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 10**6))
def test_rows_are_independent_bit_for_bit(data: st.DataObject, dtype: torch.dtype, seed: int) -> None:
    """Any selection, order, layout, mask and number of threads: the same bits; masked content is irrelevant."""
    torch.manual_seed(seed)
    n, vocabulary = data.draw(st.integers(1, 6)), data.draw(st.sampled_from([1, 7, 33, 1024, 1031, 20000]))
    logits, ids = (4 * torch.randn(n, vocabulary)).to(dtype), torch.randint(vocabulary, (n,))
    upstream, heat = torch.randn(2, n), torch.rand(n) + 0.5
    options = {"logit_softcap": data.draw(st.sampled_from([None, 5.0]))}
    whole = with_gradient(lambda x: scores(x, ids, temperature=heat, **options), logits, upstream)

    order = torch.tensor(data.draw(st.permutations(range(n))))
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    poison = data.draw(st.sampled_from([NAN, INF, -INF, 1e30]))
    x, i, t, g = logits[order], ids[order], heat[order], upstream[:, order]
    x[~mask], i[~mask], t[~mask], g[:, ~mask] = poison, -100, poison, poison
    layout = data.draw(st.sampled_from(["plain", "transposed", "every other"]))
    if layout == "transposed":
        x = x.T.contiguous().T
    elif layout == "every other":
        x = x.repeat_interleave(2, dim=-1)[:, ::2]
    before = torch.get_num_threads()
    torch.set_num_threads(data.draw(st.sampled_from([1, 2, 3])))
    try:
        x = x.detach().requires_grad_()
        out = scores(x, i, action_mask=mask, temperature=t, **options)
        (gradient,) = torch.autograd.grad(out, x, list(g))
    finally:
        torch.set_num_threads(before)
    for got, all_rows in zip((*out, gradient), whole, strict=True):
        assert torch.equal(got[mask], all_rows[order][mask])
        assert (got[~mask] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "special", [[-INF], [0.0, -INF], [-INF, -INF, 2.0], [NAN, -INF], [INF, 0.0], [-INF] * 40]
)
def test_special_rows(cpu_path: str, dtype: torch.dtype, special: list[float]) -> None:
    """Infinities and NaN among ordinary rows, with every upstream gradient: the reference says what is right."""
    width = 40
    rows = torch.randn(3, width)
    rows[1] = torch.tensor((special * width)[:width])
    for token in (0, 1, 39):
        ids, results = torch.tensor([3, token, 5]), []
        for backend in ("cpu", "reference"):
            x = rows.to(dtype).requires_grad_()
            out = token_logprobs(x, ids, return_entropy=True, backend=backend)  # type: ignore[arg-type]
            torch.autograd.backward(out, [torch.tensor([0.3, -0.7, 1.0]), torch.tensor([1.0, 0.2, -0.4])])
            results.append((*out, x.grad))
        for got, want in zip(*results, strict=True):
            assert got is not None and want is not None
            valid = ~want.isnan()
            torch.testing.assert_close(
                got[valid], want[valid], atol=FLOAT32, rtol=2 * torch.finfo(got.dtype).eps
            )
            assert got[~valid].isnan().all()


def test_infinite_upstream_leaves_impossible_tokens_alone(cpu_path: str) -> None:
    logits = torch.tensor([[0.0, -INF, 1.0]], requires_grad=True)
    token_logprobs(logits, torch.tensor([0]), backend="cpu").backward(torch.tensor([INF]))  # type: ignore[union-attr]
    assert logits.grad is not None and logits.grad[0, 1] == 0


@pytest.mark.parametrize("temperature", [1e-40, 1e-12, 1e12, 1e37])
def test_extreme_temperatures(cpu_path: str, temperature: float) -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, -INF, -2.0]])
    out = scores(logits, torch.tensor([1]), temperature=temperature)
    want = math.log(2) if temperature < 1 else math.log(4)
    assert out[0].item() == pytest.approx(-want, abs=1e-6) and out[1].item() == pytest.approx(want, abs=1e-6)


def test_a_later_larger_maximum_rescales_what_was_summed(cpu_path: str) -> None:
    logits = torch.linspace(-90, 90, 5000).view(1, -1)
    ids = torch.tensor([4999])
    for x in (logits, logits.flip(-1)):
        out, want = scores(x, ids), plain(x.double(), ids, 1.0, None)
        for got, exact in zip(out, want, strict=True):
            torch.testing.assert_close(got.double(), exact, atol=1e-5, rtol=FLOAT32)


@pytest.mark.parametrize("needed", list(itertools.product([False, True], repeat=2)))
def test_each_subset_of_upstream_gradients(cpu_path: str, needed: tuple[bool, bool]) -> None:
    torch.manual_seed(0)
    logits, ids = torch.randn(3, 50), torch.tensor([0, 7, 49])
    gradients = []
    for function in (lambda x: scores(x, ids), lambda x: plain(x, ids, 1.0, None)):
        x = logits.clone().requires_grad_()
        wanted = [o.sum() for o, need in zip(function(x), needed, strict=True) if need]
        gradients.append(torch.autograd.grad(sum(wanted), x)[0] if wanted else None)
    if gradients[0] is not None:
        torch.testing.assert_close(gradients[0], gradients[1], atol=FLOAT32, rtol=FLOAT32)


def test_nothing_is_kept_for_logits_without_gradient() -> None:
    out = scores(torch.randn(3, 5), torch.tensor([0, 1, 2]))
    assert out[0].grad_fn is None and out[1].grad_fn is None


def test_operators_pass_torchs_own_checks() -> None:
    from torch.library import opcheck

    ids, mask, heat = torch.tensor([0, 3, 2, 4]), torch.tensor([1, 0, 1, 1]), torch.rand(4) + 0.5
    for dtype in (torch.float32, torch.bfloat16):
        rows = (torch.randn(4, 5).to(dtype), ids, mask, heat, 1.0, 2.0)
        opcheck(torch.ops.spo_fast.token_logprob, (*rows, True))
        stats = torch.ops.spo_fast.token_logprob(*rows, True)[2]
        for operator in (
            torch.ops.spo_fast.token_logprob_backward,
            torch.ops.spo_fast.token_logprob_backward_,
        ):
            opcheck(operator, (*rows, stats, torch.randn(4), None))


def test_under_compile() -> None:
    ids, mask = torch.tensor([0, 3, 2]), torch.tensor([1, 0, 1])

    def loss(x: Tensor) -> Tensor:
        logprobs, entropy = scores(x, ids, action_mask=mask, temperature=0.8)
        return (logprobs + 0.1 * entropy).sum()

    x = torch.randn(3, 5, requires_grad=True)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    (got,), (want,) = torch.autograd.grad(compiled(x), x), torch.autograd.grad(loss(x), x)
    assert torch.equal(got, want)


def test_under_autocast_and_checkpointing() -> None:
    hidden, weight = torch.randn(4, 8, requires_grad=True), torch.randn(30, 8, requires_grad=True)
    ids = torch.tensor([0, 9, 29, 3])

    def loss(h: Tensor, w: Tensor) -> Tensor:
        return scores(h @ w.T, ids)[0].sum()

    for dtype in (torch.float32, torch.bfloat16):
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            want = torch.autograd.grad(loss(hidden, weight), (hidden, weight))
            for reentrant in (True, False):
                saved = checkpoint(loss, hidden, weight, use_reentrant=reentrant)
                got = [x.grad for x in (hidden, weight)] if reentrant else None
                if reentrant:
                    hidden.grad = weight.grad = None
                    saved.backward()
                    got = [x.grad for x in (hidden, weight)]
                else:
                    got = list(torch.autograd.grad(saved, (hidden, weight)))
                for a, b in zip(got, want, strict=True):
                    assert a is not None and torch.equal(a, b)


def _rank(rank: int, port: int, queue: Any) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    try:
        torch.manual_seed(0)
        head = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 9, bias=False))
        hidden, ids = torch.randn(4, 4), torch.tensor([0, 8, 3, 5])
        mine = slice(2 * rank, 2 * rank + 2)
        (scores(head(hidden[mine]), ids[mine])[0].sum() / 2).backward()
        queue.put(head.module.weight.grad.tolist())
        whole = torch.nn.Linear(4, 9, bias=False)
        whole.load_state_dict(head.module.state_dict())
        (scores(whole(hidden), ids)[0].sum() / 4).backward()
        queue.put(whole.weight.grad.tolist())  # type: ignore[union-attr]
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
def test_under_distributed_data_parallel() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=_rank, args=(rank, port, queue), daemon=True) for rank in range(2)]
    for process in processes:
        process.start()
    gradients = [torch.tensor(queue.get(timeout=400)) for _ in range(4)]
    for process in processes:
        process.join(timeout=60)
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], atol=FLOAT32, rtol=0)
