"""From observations to token ids through a model's own chat template, one turn at a time.

Tokens that the policy generated are kept as they were generated and never tokenised again: the log-probs recorded
at rollout stay those of the tokens trained on.
"""

from __future__ import annotations

from typing import Any

_PROBE = "spo"


class ChatFormat:
    """Renders the turns of one conversation incrementally.

    The template is rendered around short placeholder turns, and what it adds after them is what a new turn costs.
    This holds for templates whose text for a turn does not depend on the contents of earlier turns; a template that
    rewrites earlier turns (some drop old reasoning) is still fed consistently: the policy sees what it saw before,
    and more.

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
        before = [{"role": "user", "content": _PROBE}, {"role": "assistant", "content": _PROBE}]
        self._before = before
        self._rendered_before = self._render(before, generate=False)
        _head, found, tail = self._rendered_before.rpartition(_PROBE)
        if not found:
            raise ValueError("tokenizer: its chat template does not show an assistant's message")
        self._closing = tuple(self._encode(tail))
        eos = tokenizer.eos_token_id
        stops = {self._closing[0]} if self._closing else set()
        self.stop_ids = frozenset(stops | ({eos} if eos is not None else set()))
        if not self.stop_ids:
            raise ValueError(
                "tokenizer: neither an eos token nor a chat template that closes a turn; cannot stop"
            )

    def _render(self, messages: list[dict[str, str]], *, generate: bool) -> str:
        return self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generate)

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def opening(self, observation: str) -> list[int]:
        """Token ids of the whole prompt before the first action."""
        user = {"role": "user", "content": self._clean(observation)}
        if not self._system:
            return self._encode(self._render([user], generate=True))
        try:
            text = self._render([{"role": "system", "content": self._system}, user], generate=True)
        except Exception:  # jinja2's TemplateError: this template knows no system role
            user["content"] = f"{self._system}\n\n{user['content']}"
            text = self._render([user], generate=True)
        return self._encode(text)

    def turn(self, observation: str, generated: list[int]) -> list[int]:
        """Token ids that follow a generated action: the rest of its turn, the observation, the next turn's head."""
        messages = [*self._before, {"role": "user", "content": self._clean(observation)}]
        text = self._render(messages, generate=True)
        if not text.startswith(self._rendered_before):
            raise ValueError("tokenizer: its chat template rewrites earlier turns when one is added")
        closing = list(self._closing)
        if closing and generated and generated[-1] == closing[0]:
            closing = closing[1:]
        elif closing and generated and generated[-1] in self.stop_ids:
            closing = []
        return closing + self._encode(text[len(self._rendered_before) :])

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
