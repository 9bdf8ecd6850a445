"""Updates: exact under any split into micro-batches, blind to padding, and in the right direction."""

import dataclasses

import numpy as np
import pytest
import torch
import transformers

from spo_fast.rollout.collector import Request, Trajectory
from spo_fast.train.config import OptimisationConfig, TrainConfig
from spo_fast.train.learner import Learner, learning_rate, microbatches

SMALL = dict(vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=16)  # fmt: skip


def make_model(kind="Qwen3", **options):
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**SMALL, **options})
    return getattr(transformers, f"{kind}ForCausalLM")(config)


def make_trajectories(n=7, seed=0):
    rng = np.random.default_rng(seed)
    out = []
    for i in range(n):
        length = int(rng.integers(4, 30))
        mask = (rng.random(length) < 0.4).astype(int)
        mask[0], mask[-1] = 0, 1
        logprobs = -rng.random(length) * 3 * mask
        out.append(
            Trajectory(
                Request(i, str(i)), "", rng.integers(0, 40, length).tolist(), mask.tolist(), logprobs.tolist()
            )
        )
    return out


def learner(model, **options):
    settings = {"optimizer_steps": 1, "max_grad_norm": 1e9, **options}
    return Learner(model, TrainConfig(optimisation=OptimisationConfig(**settings)))


def gradients(model, trajectories, advantages, **options):
    made = learner(model, learning_rate=1e-9, **options)
    made.update(trajectories, advantages, np.random.default_rng(0))
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("tokens", [1, 50, 64, 10_000])
def test_any_split_into_microbatches_gives_the_same_gradient(tokens):
    trajectories, advantages = make_trajectories(), np.linspace(-1, 1, 7)
    whole = gradients(make_model(), trajectories, advantages, tokens_per_microbatch=10_000)
    parts = gradients(make_model(), trajectories, advantages, tokens_per_microbatch=tokens)
    assert torch.allclose(whole, parts, atol=1e-6 * float(whole.abs().max() + 1))
    assert whole.abs().max() > 0


def test_the_gradient_is_the_formula():
    """Against the token-mean policy gradient written out: weight min(exp(lp - rollout), 2), ratio 1."""
    trajectories, advantages = make_trajectories(), np.linspace(-1, 1, 7)
    model = make_model()
    got = gradients(model, trajectories, advantages)
    model.zero_grad()
    total, count = 0.0, sum(t.action_tokens for t in trajectories)
    for t, advantage in zip(trajectories, advantages, strict=True):
        ids = torch.tensor([t.token_ids])
        scores = torch.log_softmax(model(ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[:, 0]
        mask, recorded = torch.tensor(t.action_mask[1:]), torch.tensor(t.logprobs[1:])
        weight = (scores.detach() - recorded).exp().clamp(max=2.0)
        total = total - (advantage * weight * scores * mask).sum() / count
    total.backward()
    want = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert torch.allclose(got, want, atol=1e-5 * float(want.abs().max()))


@pytest.mark.parametrize("kind", ["Qwen3", "Gemma2", "Cohere", "Granite"])
def test_logprobs_are_those_of_the_model(kind):
    """Heads with softcap or scale included; each by the model's own logits."""
    options = {"Granite": {"logits_scaling": 3.0}, "Cohere": {"logit_scale": 0.25}}.get(kind, {})
    model = make_model(kind, **options).eval()
    trajectories = make_trajectories()
    for t, got in zip(
        trajectories, learner(model, tokens_per_microbatch=60).logprobs(trajectories), strict=True
    ):
        ids = torch.tensor([t.token_ids])
        with torch.no_grad():
            scores = torch.log_softmax(model(ids).logits[0, :-1].float(), -1).gather(1, ids[0, 1:, None])[
                :, 0
            ]
        want = scores[torch.tensor(t.action_mask[1:], dtype=torch.bool)]
        assert np.allclose(got, want.numpy(), atol=1e-4)


def test_good_actions_become_likelier():
    model = make_model()
    trajectories = make_trajectories()
    made = learner(model, learning_rate=1e-3, optimizer_steps=2)
    before = [x.mean() for x in made.logprobs(trajectories)]
    advantages = np.array([1, -1, 1, -1, 1, -1, 1.0])
    for _ in range(3):
        metrics = made.update(trajectories, advantages, np.random.default_rng(0))
    after = [x.mean() for x in made.logprobs(trajectories)]
    assert np.corrcoef(np.array(after) - np.array(before), advantages)[0, 1] > 0.7
    assert {"loss", "grad_norm", "clip_fraction", "dual_clip_fraction", "approx_kl", "ess"} <= metrics.keys()


def test_metrics_do_not_depend_on_the_split():
    trajectories, advantages = make_trajectories(), np.linspace(-1, 1, 7)
    results = [
        learner(make_model(), tokens_per_microbatch=tokens).update(
            trajectories, advantages, np.random.default_rng(0)
        )
        for tokens in (1, 10_000)
    ]
    assert results[0].keys() == results[1].keys()
    for name in ("loss", "ratio_mean", "rollout_is_mean", "grad_norm"):
        assert results[0][name] == pytest.approx(results[1][name], rel=1e-4, abs=1e-6)


def test_microbatches_cover_everything_once_within_the_budget():
    lengths = np.random.default_rng(0).integers(1, 100, 50).tolist()
    groups = list(microbatches(lengths, range(50), 200))
    assert sorted(i for g in groups for i in g) == list(range(50))
    assert all(len(g) * max(lengths[i] for i in g) <= 200 for g in groups)
    assert list(microbatches([500, 3], range(2), 200)) == [[0], [1]], "an oversized one goes alone"


def test_clipping_and_cap_come_from_the_config():
    config = TrainConfig()
    config = dataclasses.replace(config, objective=dataclasses.replace(config.objective, rollout_is_cap=0.0))
    trajectories = make_trajectories()
    metrics = Learner(make_model(), config).update(trajectories, np.ones(7), np.random.default_rng(0))
    assert metrics["rollout_is_mean"] == pytest.approx(1.0)


def test_learning_rate_rises_then_stays_or_falls():
    settings = OptimisationConfig(updates=10, warmup_updates=2, learning_rate=1.0)
    assert [learning_rate(settings, i) for i in range(10)] == [0.5, *[1.0] * 9]
    falling = [learning_rate(dataclasses.replace(settings, schedule="linear"), i) for i in range(10)]
    assert falling == pytest.approx([0.5, 1.0, *(0.1 + 0.9 * k / 8 for k in range(7, -1, -1))])
    assert learning_rate(
        OptimisationConfig(updates=1, learning_rate=1.0, schedule="linear"), 0
    ) == pytest.approx(0.1)


def test_the_average_of_the_weights_is_taken_at_the_end():
    config = TrainConfig(optimisation=OptimisationConfig(weight_average=0.75, learning_rate=0.01))
    model = make_model()
    learner = Learner(model, config)
    seen = []
    for _ in range(3):
        learner.update(make_trajectories(), np.linspace(-1, 1, 7), np.random.default_rng(0))
        seen.append({name: value.clone() for name, value in model.state_dict().items()})
    learner.take_average()
    for name, value in model.state_dict().items():
        expected = 0.75 * (0.75 * seen[0][name] + 0.25 * seen[1][name]) + 0.25 * seen[2][name]
        torch.testing.assert_close(value, expected)
    assert any((model.state_dict()[name] != last).any() for name, last in seen[2].items())
