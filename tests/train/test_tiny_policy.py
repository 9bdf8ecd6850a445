import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from spo_fast.envs.alfworld import FILLER_WORDS, AlfworldGame, generate_games, vocabulary
from spo_fast.train.config import PolicyConfig
from spo_fast.train.tiny_policy import make_model, make_tokenizer, save_policy

NAMES = ["cabinet 1", "cabinet 2", "mug 1"]


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer(vocabulary(), names=NAMES, filler=FILLER_WORDS)


def test_a_known_name_is_one_token_and_an_unknown_one_is_read_word_by_word(tokenizer):
    text = "On the cabinet 12, you see a mug 1, and a cabinet 2."
    assert tokenizer.tokenize(text) == ["cabinet", "12", "mug 1", "cabinet 2"]


@pytest.mark.parametrize(
    "command", ["take mug 1 from cabinet 12", "go to cabinet 2", "move mug 7 to cabinet 1", "look"]
)
def test_commands_survive_encoding_and_decoding(tokenizer, command):
    assert tokenizer.decode(tokenizer.encode(command)) == command


def test_no_command_uses_a_filler_word():
    for game in generate_games(12, seed=3):
        environment = AlfworldGame(game)
        _, info = environment.reset()
        assert not FILLER_WORDS & {
            word for command in info["admissible_commands"] for word in command.split()
        }
    assert not FILLER_WORDS & set(
        "look inventory go to open close take from move examine use heat clean cool slice with".split()
    )


def test_a_saved_policy_loads_with_the_auto_classes(tokenizer, tmp_path):
    model = make_model(tokenizer, PolicyConfig(hidden_size=32), seed=0)
    save_policy(model, tokenizer, tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "<|user|>You arrive at cabinet 1.<|assistant|>take mug 1 from cabinet 1<|end|>"
    assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.chat_template == tokenizer.chat_template
    ours, theirs = model.state_dict(), AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    assert ours.keys() == theirs.keys() and all((ours[k] == theirs[k]).all() for k in ours)
