"""From observations to token ids through a model's own chat template, one turn at a time.

Tokens that the policy generated are kept as they were generated and never tokenised again: the log-probs recorded
at rollout stay those of the tokens trained on.
"""

from __future__ import annotations

from typing import Any

_PROBE = "spofastplaceholder"  # no template contains it


class ChatFormat:
    """Renders the turns of one conversation incrementally.

    The template is rendered once around placeholder turns; the text around a placeholder is what frames each turn.
    A template that rewrites earlier turns by their contents (some drop old reasoning) is fed what it was fed
    before, and more.

    Args:
        tokenizer: a Hugging Face tokenizer with a chat template.
        system: the system message; "" for none. Templates without a system role get it at the head of the
            first observation.
    """

    def __init__(self, tokenizer: Any, system: str = ""):
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(
                "tokenizer: expected one with a chat template, got one without (tokenizer.chat_template)"
            )
        self._tokenizer = tokenizer
        self._system = system
        turns = [{"role": role, "content": _PROBE} for role in ("user", "assistant", "user")]
        earlier, shown, self._after_observation = self._render(turns).rpartition(_PROBE)
        _, said, self._before_observation = earlier.rpartition(_PROBE)
        if not (shown and said):
            raise ValueError(
                "tokenizer: its chat template does not show the messages of users and assistants"
            )
        closing = self._encode(self._before_observation)
        eos = tokenizer.eos_token_id
        # what ends an assistant's turn in the template ends it in generation too
        self.stop_ids = frozenset([*closing[:1], *([] if eos is None else [eos])])
        if not self.stop_ids:
            raise ValueError(
                "tokenizer: neither an eos token nor a chat template that closes a turn; cannot stop"
            )

    def _render(self, messages: list[dict[str, str]]) -> str:
        return self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def opening(self, observation: str) -> list[int]:
        """Token ids of the whole prompt before the first action."""
        user = {"role": "user", "content": self._clean(observation)}
        if not self._system:
            return self._encode(self._render([user]))
        try:
            text = self._render([{"role": "system", "content": self._system}, user])
        except Exception:  # jinja2's TemplateError: this template knows no system role
            user["content"] = f"{self._system}\n\n{user['content']}"
            text = self._render([user])
        return self._encode(text)

    def turn(self, observation: str, generated: list[int]) -> list[int]:
        """Token ids that follow a generated action: the rest of its turn, the observation, the next turn's head."""
        text = self._before_observation + self._clean(observation).strip() + self._after_observation
        tokens = self._encode(text)
        return tokens[1:] if tokens[:1] == generated[-1:] else tokens

    def text(self, generated: list[int]) -> str:
        """The generated action as text, without the stop token."""
        return self._tokenizer.decode(generated, skip_special_tokens=True)

    def _clean(self, text: str) -> str:
        """Observation text cannot forge the template's markers: special tokens inside it are broken apart."""
        for token in self._tokenizer.all_special_tokens:
            if token in text:
                text = text.replace(token, token[0] + " " + token[1:])
        return text


def parse_command(text: str) -> str:
    """The command in a generated message: its last non-empty line, after any closed reasoning block."""
    text = text.rpartition("</think>")[2]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1].removeprefix("Action:").removeprefix(">").strip()
