"""Holding back what a stream says of a call until the call is whole and was judged.

Bytes go in, bytes to pass on come out; nothing here does I/O. A fragment that was passed on cannot be called
back, so in ``enforce`` mode text flows and every frame from the first one of a call is held to its last one,
then passed on as it came, or never. In ``shadow`` mode every byte is passed on at once, and what would have
been decided is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from memoflow.inspection.calls.chat import ChatCalls
from memoflow.inspection.calls.frames import Frame, Frames
from memoflow.inspection.calls.messages import MessagesCalls
from memoflow.inspection.calls.records import API, AssembledCall, CallReader, Step
from memoflow.inspection.calls.responses import ResponsesCalls
from memoflow.inspection.engine import Decision, Session
from memoflow.inspection.events import Event, Kind
from memoflow.providers.base import UnreadableReply

__all__ = ["Holder", "Out", "Refusal"]

MAX_HELD_BYTES: Final = 8 * 1024 * 1024
"""Most bytes that are held back of one stream."""

_READERS: Final[dict[API, Callable[[], CallReader]]] = {
    "chat": ChatCalls,
    "messages": MessagesCalls,
    "responses": ResponsesCalls,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the rest of a stream is not passed on.

    Attributes:
        code: ``DENIED``, ``ASK``, ``INCOMPLETE``, or why clients could read something else than was judged.
        decision: the decision that stopped it, where one did.
    """

    code: str
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class Out:
    """What one step came to.

    Attributes:
        release: bytes to pass on now.
        decisions: decisions on calls, and on texts from outside, in order.
        refusal: set once, when nothing more will be passed on.
        problem: in ``shadow`` mode, why the stream would have been refused although no call was denied.
    """

    release: bytes = field(default=b"", repr=False)
    decisions: tuple[Decision, ...] = ()
    refusal: Refusal | None = None
    problem: str | None = None


class Holder:
    """Looks at one stream of one reply.

    Args:
        api: whose events they are.
        session: what its calls are judged in; its mode decides whether anything is held.
        name: id of the session in events.
        seq: number of the first event.
        max_held: most bytes that are held back.
    """

    def __init__(
        self,
        api: API,
        session: Session,
        *,
        name: str = "stream",
        seq: int = 1,
        max_held: int = MAX_HELD_BYTES,
    ) -> None:
        self._session, self._name = session, name
        self._shadow = session.mode == "shadow"
        self._max_held = max_held
        self._reader = _READERS[api]()
        self._frames = Frames()
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.seq = seq
        self.refused: Refusal | None = None
        self._blind = False

    @property
    def holds(self) -> bool:
        """Whether bytes are held back: meanwhile the connection may need a comment to stay open."""
        return bool(self._held)

    def feed(self, chunk: bytes) -> Out:
        """Take the next bytes of the stream."""
        return self._step(chunk, lambda: self._frames.feed(chunk))

    def finish(self) -> Out:
        """The stream has ended, well or not; what is still held is never passed on."""
        out = self._step(b"", self._frames.finish)
        if self.refused is None and (self._reader.is_open or self._frames.has_rest or self._held):
            return _joined(out, self._refuse("INCOMPLETE"))
        return out

    def _step(self, chunk: bytes, frames: Callable[[], Iterable[Frame]]) -> Out:
        if self._shadow:
            seen = Out() if self._blind else self._look(frames)
            return Out(chunk, seen.decisions, None, seen.problem)
        return Out() if self.refused is not None else self._look(frames)

    def _look(self, frames: Callable[[], Iterable[Frame]]) -> Out:
        outs = []
        try:
            for frame in frames():
                outs.append(self._frame(frame))
                if self.refused is not None:
                    break
        except UnreadableReply as error:
            self._blind = True
            outs.append(self._refuse(error.reason))
        return _joined(*outs)

    def _frame(self, frame: Frame) -> Out:
        if frame.problem is not None:
            return self._refuse(frame.problem)
        step = Step() if frame.event is None else self._reader.feed(frame.event)
        decisions = self._judge(step)
        refusal = self._why_not(step, decisions, frame)
        if refusal is not None:
            return _joined(Out(decisions=decisions), self._refuse(refusal.code, refusal.decision))
        self._held.append(frame.raw)
        self._held_bytes += len(frame.raw)
        if self._reader.is_open:
            too_much = self._held_bytes > self._max_held
            return _joined(Out(decisions=decisions), self._refuse("TOO_LARGE") if too_much else Out())
        return Out(self._let_go(), decisions)

    def _let_go(self) -> bytes:
        """What was held back, which is not held any more."""
        held, self._held, self._held_bytes = b"".join(self._held), [], 0
        return held

    def _judge(self, step: Step) -> tuple[Decision, ...]:
        results = [self._decide(result) for result in step.results]
        return (*results, *(self._decide(call.event()) for call in step.calls if self._is_whole(call)))

    def _is_whole(self, call: AssembledCall) -> bool:
        # In shadow mode also what is cut is judged: somebody may run it.
        return call.complete or self._shadow

    def _decide(self, kind: Kind) -> Decision:
        decision = self._session.judge(Event(self._name, self.seq, kind))
        self.seq += 1
        return decision

    def _why_not(self, step: Step, decisions: tuple[Decision, ...], frame: Frame) -> Refusal | None:
        judged = decisions[len(step.results) :]
        whole = [call for call in step.calls if self._is_whole(call)]
        # What the provider ran cannot be stopped any more, and is only told.
        stoppable = [one for one, call in zip(judged, whole, strict=True) if not call.ran]
        stopped = next((one for one in stoppable if one.effect != "run"), None)
        if stopped is not None:
            return Refusal("ASK" if stopped.effect == "ask" else "DENIED", stopped)
        if step.problem is not None:
            return Refusal(step.problem)
        if any(not call.complete and not call.ran for call in step.calls):
            return Refusal("INCOMPLETE")
        return Refusal("INCOMPLETE") if frame.done and self._reader.is_open else None

    def _refuse(self, code: str, decision: Decision | None = None) -> Out:
        self._let_go()
        if self._shadow:
            return Out(problem=code)
        self.refused = Refusal(code, decision)
        return Out(refusal=self.refused)


def _joined(*outs: Out) -> Out:
    return Out(
        b"".join(out.release for out in outs),
        tuple(decision for out in outs for decision in out.decisions),
        next((out.refusal for out in outs if out.refusal is not None), None),
        next((out.problem for out in outs if out.problem is not None), None),
    )
