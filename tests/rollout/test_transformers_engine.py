"""The engine against a plain forward without any cache, on several architectures."""

import numpy as np
import pytest
import torch
import transformers

from spo_fast.rollout.transformers_engine import TransformersEngine

SMALL = dict(
    vocab_size=50,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    max_position_embeddings=256,
)
MODELS = {
    "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SMALL)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=2, n_positions=256)
    ),
    "gemma2": lambda: transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**SMALL, sliding_window=8)),
    "mistral": lambda: transformers.MistralForCausalLM(
        transformers.MistralConfig(**SMALL, sliding_window=15)
    ),
    "lfm2": lambda: transformers.Lfm2ForCausalLM(
        transformers.Lfm2Config(**SMALL, layer_types=["conv", "full_attention"])
    ),
}


@pytest.fixture(params=list(MODELS))
def model(request):
    torch.manual_seed(0)
    model = MODELS[request.param]().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3)  # far from uniform, so that a wrong context shows in the log-probs
    model.name = request.param
    return model


def play(engine, conversations):
    """Runs scripted conversations: a prompt, then chunks of new tokens after each generated turn."""
    histories = {r: list(chunks[0]) for r, chunks in conversations.items()}
    logprobs = {r: [] for r in conversations}
    masks = {r: [0] * len(chunks[0]) for r, chunks in conversations.items()}
    waiting = list(conversations)
    turn = dict.fromkeys(conversations, 1)
    running = 0
    while waiting or running:
        while waiting and engine.free_slots:
            r = waiting.pop(0)
            engine.submit(r, list(conversations[r][0]), 4)
            running += 1
        for g in engine.step():
            r = g.request
            histories[r] += g.token_ids
            masks[r] += [1] * len(g.token_ids)
            logprobs[r] += g.logprobs
            if turn[r] == len(conversations[r]):
                engine.release(r)
                running -= 1
                continue
            chunk = list(conversations[r][turn[r]])
            turn[r] += 1
            histories[r] += chunk
            masks[r] += [0] * len(chunk)
            engine.submit(r, chunk, 4)
    return histories, masks, logprobs


def conversations(seed, n=5):
    rng = np.random.default_rng(seed)
    return {
        r: [rng.integers(2, 50, size=rng.integers(1, 14)) for _ in range(rng.integers(1, 5))]
        for r in range(n)
    }


def test_recorded_logprobs_are_those_of_a_plain_forward(model):
    engine = TransformersEngine(model, stop_ids=frozenset([1]), slots=3, temperature=0.7, seed=5)
    assert engine.cached is (model.name != "lfm2")
    histories, masks, logprobs = play(engine, conversations(0))
    for r, history in histories.items():
        with torch.no_grad():
            scores = torch.log_softmax(model(torch.tensor([history])).logits[0].float() / 0.7, -1)
        want = [scores[t - 1, history[t]].item() for t in range(len(history)) if masks[r][t]]
        assert np.allclose(want, logprobs[r], atol=2e-4)


def test_tokens_do_not_depend_on_company(model):
    """A request draws the same tokens alone, and with others in other slots."""
    script = conversations(1)
    together, _, _ = play(TransformersEngine(model, stop_ids=frozenset([1]), slots=3, seed=9), script)
    for r in script:
        alone, _, _ = play(
            TransformersEngine(model, stop_ids=frozenset([1]), slots=1, seed=9), {r: script[r]}
        )
        assert alone[r] == together[r]


def test_stop_and_budget():
    model = MODELS["qwen3"]().eval()
    engine = TransformersEngine(model, stop_ids=frozenset(range(50)), slots=1)
    engine.submit(0, [3, 4], 4)
    (generation,) = engine.step()
    assert generation.stopped and len(generation.token_ids) == len(generation.logprobs) == 1
    engine = TransformersEngine(model, stop_ids=frozenset(), slots=1)
    engine.submit(0, [3, 4], 2)
    assert engine.step() == []
    (generation,) = engine.step()
    assert not generation.stopped and len(generation.token_ids) == 2
    assert engine.decode_steps == 2
    assert engine.step() == [] and engine.decode_steps == 2, "an idle engine's clock stands still"


def test_no_slot_left():
    engine = TransformersEngine(MODELS["qwen3"]().eval(), stop_ids=frozenset([1]), slots=1)
    engine.submit(0, [3], 2)
    with pytest.raises(ValueError, match="all 1 slots are taken"):
        engine.submit(1, [3], 2)
    engine.release(0)
    engine.submit(1, [3], 2)
