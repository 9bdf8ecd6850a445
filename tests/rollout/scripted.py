"""A scripted engine and environment: episodes whose lengths and outcomes a test decides."""

from spo_fast.rollout.engine import Generation
from spo_fast.train.tiny_policy import make_tokenizer

WORDS = [
    "spo",
    "wait",
    "win",
    "lose",
    "you",
    "see",
    "round",
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "6",
    "7",
    "8",
    "9",
]


def tokenizer():
    return make_tokenizer(WORDS)


class ScriptedEngine:
    """Says ``say(request, turn)`` after ``delay(request, turn)`` decode steps."""

    def __init__(self, tokenizer, slots, say, delay=lambda request, turn: 1):
        self.tokenizer, self.slots, self.say, self.delay = tokenizer, slots, say, delay
        self.decode_steps = 0
        self.due = {}
        self.turns = {}
        self.contexts = {}

    @property
    def free_slots(self):
        return self.slots - len(self.turns)

    def submit(self, request, token_ids, max_new_tokens):
        turn = self.turns.get(request, 0)
        if turn == 0:
            assert self.free_slots > 0
        self.contexts.setdefault(request, []).append(list(token_ids))
        self.turns[request] = turn + 1
        self.due[request] = self.decode_steps + self.delay(request, turn)

    def step(self):
        if not self.due:
            return []
        self.decode_steps += 1
        out = []
        for request in sorted(r for r, due in self.due.items() if due <= self.decode_steps):
            del self.due[request]
            text = self.say(request, self.turns[request] - 1)
            ids = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
            out.append(Generation(request, ids, [-0.5] * len(ids), True))
        return out

    def release(self, request):
        del self.turns[request]
        self.due.pop(request, None)


class Rounds:
    """An environment of ``limit`` rounds that "win" and "lose" end."""

    def __init__(self, limit):
        self.limit, self.round = limit, 0

    def reset(self):
        self.round = 0
        return "you see round 0", {"won": False}

    def step(self, command):
        self.round += 1
        won, over = command == "win", command in ("win", "lose")
        return (
            f"you see round {self.round}",
            float(won),
            over,
            not over and self.round >= self.limit,
            {"won": won},
        )


class RoundTasks:
    def __init__(self, task_ids, limit=5):
        self.task_ids, self.limit = list(task_ids), limit

    def task_type(self, task_id):
        return "rounds"

    def make(self, task_id):
        return Rounds(self.limit)

    def step(self, environments, commands):
        return [e.step(c) for e, c in zip(environments, commands, strict=True)]
