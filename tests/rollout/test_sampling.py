import numpy as np
import torch

from spo_fast.rollout.sampling import counter_uniform, sample_tokens


def test_uniforms_depend_on_seed_request_and_position_alone():
    together = counter_uniform(7, np.array([3, 4, 5]), np.array([10, 10, 11]))
    for i, (request, position) in enumerate([(3, 10), (4, 10), (5, 11)]):
        alone = counter_uniform(7, np.array([request]), np.array([position]))
        assert alone[0] == together[i]
    assert len(set(together)) == 3
    assert counter_uniform(8, np.array([3]), np.array([10]))[0] != together[0]


def test_uniforms_are_uniform_over_requests_and_positions():
    for requests, positions in (
        (np.arange(20000), np.zeros(20000, int)),
        (np.zeros(20000, int), np.arange(20000)),
    ):
        u = counter_uniform(1, requests, positions)
        assert u.min() >= 0 and u.max() < 1
        counts = np.histogram(u, bins=20, range=(0, 1))[0]
        # chi-square with 19 degrees of freedom: 43.8 is its 0.999 quantile
        assert ((counts - 1000) ** 2 / 1000).sum() < 43.8
        assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.03


def test_sampled_frequencies_match_probabilities():
    logits = torch.tensor([0.0, 1.0, 2.0, -torch.inf]).repeat(20000, 1)
    tokens, logprobs = sample_tokens(logits, np.random.default_rng(0).random(20000), 0.5)
    p = torch.softmax(logits[0] / 0.5, -1)
    frequency = torch.bincount(tokens, minlength=4) / 20000
    assert torch.allclose(frequency, p, atol=0.01)
    assert frequency[3] == 0
    assert torch.allclose(logprobs, p.log()[tokens])


def test_extreme_uniforms_stay_in_the_vocabulary():
    logits = torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]])
    tokens, _ = sample_tokens(logits, np.array([np.nextafter(1, 0), 0.0]), 1.0)
    assert tokens.tolist() == [0, 1]


def test_temperature_zero_is_greedy():
    tokens, logprobs = sample_tokens(torch.tensor([[0.0, 3.0, 1.0]]), np.array([0.0]), 0)
    assert tokens.item() == 1
    assert torch.isclose(logprobs[0], torch.log_softmax(torch.tensor([0.0, 3.0, 1.0]), -1)[1])
