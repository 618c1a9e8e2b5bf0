"""How an answer is to go wrong."""

import base64
from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A fault for the next ``times`` calls of ``method`` (None: for all of them).

    ``"*"`` is every method. With ``status``, ``body`` or ``body_base64`` the answer is
    that, with ``headers`` added, and the method is not carried out; otherwise, and
    whenever ``run`` is true, it is. ``run`` false and no body: 200 and nothing.

    The answer is then delivered: held until a release (``hold``), after ``delay``
    seconds, its body one byte every ``drip`` seconds, only the first ``cut`` bytes of
    the body under the full Content-Length, or not at all (``close``). ``drop`` closes
    the connection unannounced after a whole answer.
    """

    method: str = "*"
    times: Annotated[int, msgspec.Meta(ge=1)] | None = 1
    run: bool | None = None
    status: Annotated[int, msgspec.Meta(ge=100, le=599)] | None = None
    headers: dict[str, str] = {}
    body: str | None = None
    body_base64: str | None = None
    hold: bool = False
    delay: Seconds = 0
    drip: Seconds = 0
    cut: Annotated[int, msgspec.Meta(ge=0)] | None = None
    close: bool = False
    drop: bool = False

    def __post_init__(self) -> None:
        if self.body is not None and self.body_base64 is not None:
            raise ValueError("give body or body_base64")
        self.literal_body()
        "".join([*self.headers, *self.headers.values()]).encode("latin-1")  # what HTTP carries

    @property
    def literal(self) -> bool:
        """Whether the fault brings its own answer."""
        given = (self.status, self.body, self.body_base64)
        return self.run is False or any(part is not None for part in given)

    @property
    def runs(self) -> bool:
        """Whether the method is carried out."""
        return self.run or (self.run is None and not self.literal)

    @property
    def ends_connection(self) -> bool:
        return self.close or self.drop or self.cut is not None

    def literal_body(self) -> bytes:
        if self.body_base64 is not None:
            return base64.b64decode(self.body_base64, validate=True)
        return (self.body or "").encode()


class Faults:
    """The faults that are set, oldest first; a call takes the first that fits."""

    def __init__(self) -> None:
        self.waiting: list[Fault] = []

    def take(self, method: str) -> Fault | None:
        """Return the fault for this call and count it down."""
        for fault in self.waiting:
            if fault.method == "*" or fault.method.lower() == method.lower():
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times == 0:
                        self.waiting.remove(fault)
                return fault
        return None
