"""A sender that tests answer for."""

from telegrammer.callbacks.outcome import Answer
from telegrammer.callbacks.sender import Post, Sender
from telegrammer_dispatcher.delivery import Flight


class FakeSender(Sender[Flight]):
    """Holds what was posted until the test answers it."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.flying: list[tuple[Flight, Post]] = []
        self.answers: list[tuple[Flight, Answer]] = []
        self.readable: set[int] = set()  # descriptors, until the next wait has told of them

    @property
    def free(self) -> int:
        return self.slots - len(self.flying)

    @property
    def running(self) -> int:
        return len(self.flying)

    @property
    def keys(self) -> list[Flight]:
        return [flight for flight, _ in (*self.flying, *self.answers)]

    def watch(self, descriptor: int) -> None: ...

    def unwatch(self, descriptor: int) -> None: ...

    def push(self) -> None: ...

    def start(self, key: Flight, post: Post) -> None:
        self.flying.append((key, post))

    def wait(self, seconds: float) -> tuple[list[tuple[Flight, Answer]], set[int]]:
        answers, self.answers = self.answers, []
        readable, self.readable = self.readable, set()
        return answers, readable

    def answer(self, update_id: int, answer: Answer) -> None:
        (found,) = [one for one in self.flying if one[0].job.update_id == update_id]
        self.flying.remove(found)
        self.answers.append((found[0], answer))

    def answer_all(self, answer: Answer) -> None:
        self.answers += [(flight, answer) for flight, _ in self.flying]
        self.flying.clear()
