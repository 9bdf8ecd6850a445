import numpy as np
import torch

from spo_fast.envs.alfworld import AlfworldGame, demonstration, generate_games, vocabulary
from spo_fast.rollout.chat import ChatFormat
from spo_fast.train.config import PolicyConfig
from spo_fast.train.imitation import imitate, record
from spo_fast.train.tiny_policy import make_model, make_tokenizer


def demonstrations(tokenizer, n, seed=0, mistakes=0.3):
    rng = np.random.default_rng(seed)
    games = [AlfworldGame(g) for g in generate_games(n, seed, objects=(6, 8))]
    shown = [(g, demonstration(g, rng, mistakes=mistakes)) for g in games]
    chat = ChatFormat(tokenizer)
    return [
        record(g, d.commands, d.mistakes, chat, lambda text: tokenizer.encode(text, add_special_tokens=False))
        for g, d in shown
        if d is not None
    ]


def test_a_demonstration_as_tokens():
    tokenizer = make_tokenizer(vocabulary())
    for made in demonstrations(tokenizer, 6):
        text = tokenizer.decode(made.token_ids)
        assert tokenizer.unk_token not in text
        turns = text.split("<|assistant|>")[1:]
        assert [turn.partition("<|end|>")[0].strip() for turn in turns] == made.commands
        masks = np.array([made.action_mask, made.mistake_mask])
        assert masks.sum(0).max() == 1
        for row in masks:
            ids = [t for t, m in zip(made.token_ids, row, strict=True) if m]
            assert tokenizer.decode(ids).count("<|end|>") == ids.count(tokenizer.eos_token_id)
        assert len(made.token_ids) == len(made.action_mask) == len(made.mistake_mask) == len(made.logprobs)


def test_imitation_learns_and_repeats_by_seed():
    tokenizer = make_tokenizer(vocabulary())
    shown = demonstrations(tokenizer, 24)
    results = []
    for _ in range(2):
        model = make_model(tokenizer, PolicyConfig(hidden_size=32), seed=0)
        losses = []
        imitate(
            model,
            shown,
            epochs=2,
            learning_rate=3e-3,
            on_step=lambda *told, losses=losses: losses.append(told),
        )
        assert [step for step, _, _ in losses] == list(range(1, 13)) and losses[0][1] == 12
        assert np.mean([x for *_, x in losses[-3:]]) < 0.8 * losses[0][2]
        results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(results[0], results[1])


def test_mistakes_are_not_imitated():
    """The gradient does not depend on which tokens a mistake was made of, but for their role as context."""
    tokenizer = make_tokenizer(vocabulary())
    shown = demonstrations(tokenizer, 4)
    assert any(any(d.mistake_mask) for d in shown)
    model = make_model(tokenizer, PolicyConfig(hidden_size=32), seed=0)
    from spo_fast.train.imitation import _likelihoods

    with torch.no_grad():
        scored = _likelihoods(model, shown, list(range(len(shown))), 1.0)
        loss = total = 0.0
        actions = others = 0
        for d in shown:
            ids = torch.tensor([d.token_ids])
            scores = torch.log_softmax(model(ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[:, 0]
            act, wrong = torch.tensor(d.action_mask[1:]), torch.tensor(d.mistake_mask[1:])
            rest = 1 - act - wrong
            loss, actions = loss - (scores * act).sum(), actions + act.sum()
            total, others = total - (scores * rest).sum(), others + rest.sum()
    assert torch.isclose(scored[0], loss / actions, atol=1e-5)
    assert torch.isclose(scored[1], loss / actions + total / others, atol=1e-5)
