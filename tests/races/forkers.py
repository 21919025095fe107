"""Processes that fork with an open ledger.

They are themselves started for the purpose, so that no test is ever forked with the threads it has.
"""

from __future__ import annotations

import json
import os
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from memoflow import Budget, Runtime
from memoflow.openai import OpenAIResponses, ResponseStream
from memoflow.testing import SimulatedProvider, text, usage
from tests.races.racers import NEED, REQUEST, Place

__all__ = ["CHILDREN", "fork_in_activity", "fork_while_writing", "fork_with_streams", "outlive_parent"]

CHILDREN = 6
PARENT_WRITES = 40


def fork(body: Callable[[], None]) -> int:
    """Run ``body`` in a child that then ends at once, without the parent's clean-up; its process id."""
    with warnings.catch_warnings():
        # From Python 3.12 on a fork beside threads is warned of. That it works is what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def ended(pid: int) -> int:
    """Wait for a child; its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fork_in_activity(place: Place) -> dict[str, str]:
    """Fork inside of an activity; what the child was told, and then the parent."""
    llm = OpenAIResponses(SimulatedProvider(default=text("Yes.", usage=usage(400, 600))).client())
    with place.open() as runtime:

        def ask() -> str:
            return llm.run(REQUEST, budget=Budget(total_tokens=NEED), replay_key="turn").response.output_text

        @runtime.activity(version="v1", budget="acme", name="of_the_child")
        def own() -> str:
            return ask()

        @runtime.activity(version="v1", budget="acme")
        def activity() -> dict[str, str]:
            inbox, outbox = os.pipe()
            pid = fork(lambda: report(outbox, runtime, ask, lambda: own.run(workflow_id="w", run_id="1")))
            os.close(outbox)
            with open(inbox, encoding="utf-8") as lines:
                told: dict[str, str] = json.load(lines)
            assert ended(pid) == 0
            return {**told, "parent": ask()}

        return activity.run()


def report(outbox: int, runtime: Runtime, ask: Callable[[], str], own: Callable[[], str]) -> None:
    """What a forked child can do."""
    told = {
        "call": outcome(ask),
        "heartbeat": outcome(lambda: runtime.current().heartbeat()),
        "own activity": outcome(own),
        "watched": str(list(runtime._leases._watched)),
    }
    os.write(outbox, json.dumps(told).encode())


def fork_with_streams(place: Place) -> dict[str, str]:
    """Fork with a stream that is only made and two that are being read; what the child was told of them."""
    provider = SimulatedProvider(default=text("Yes.", usage=usage(400, 600)))
    llm = OpenAIResponses(provider.client())
    with place.open() as runtime:

        @runtime.activity(version="v1", budget="acme")
        def activity() -> dict[str, str]:
            made, begun, left = streams = [
                llm.stream(REQUEST, budget=Budget(total_tokens=NEED), replay_key=key) for key in "abc"
            ]
            for stream in (begun, left):
                next(stream)
            inbox, outbox = os.pipe()
            pid = fork(lambda: read_in_child(outbox, made, begun, left))
            os.close(outbox)
            with open(inbox, encoding="utf-8") as lines:
                told: dict[str, str] = json.load(lines)
            assert ended(pid) == 0
            said = " ".join(read(stream) for stream in streams)
            return {**told, "parent": said, "requests": str(len(provider.requests))}

        return activity.run()


def read_in_child(outbox: int, made: ResponseStream, begun: ResponseStream, left: ResponseStream) -> None:
    """What a forked child is told when it reads its parent's streams, and when it leaves one."""
    told = {
        "made": outcome(lambda: next(made)),
        "begun": outcome(lambda: next(begun)),
        "left": outcome(left.close),
    }
    os.write(outbox, json.dumps(told).encode())


def read(stream: ResponseStream) -> str:
    """The text of a stream that is read to its end."""
    for _ in stream:
        pass
    return stream.result.response.output_text


def outcome(work: Callable[[], Any]) -> str:
    """What came of it, or the kind of refusal."""
    try:
        return str(work())
    except Exception as error:
        return type(error).__name__


def fork_while_writing(place: Place) -> list[str]:
    """Fork again and again while a thread is writing; every account that parent and children have made."""
    paths = [f"parent{number}" for number in range(PARENT_WRITES)]
    with place.open() as runtime:
        runtime.budgets.put("first", Budget())

        def write() -> None:
            for path in paths:
                runtime.budgets.put(path, Budget())

        thread = threading.Thread(target=write)
        thread.start()
        children = []
        for number in range(CHILDREN):
            name = f"child{number}"
            children.append(fork(lambda name=name: runtime.budgets.put(name, Budget()) and None))  # type: ignore[misc]
        codes = [ended(pid) for pid in children]
        thread.join()
        assert codes == [0] * CHILDREN
    return ["first", *paths, *[f"child{number}" for number in range(CHILDREN)]]


def outlive_parent(place: Place) -> int:
    """Write in a child before and after the parent has closed its runtime; the child's exit code."""
    inbox, outbox = os.pipe()
    written, closed = os.pipe()
    runtime = place.open()
    runtime.budgets.put("parent", Budget())

    def write() -> None:
        runtime.budgets.put("before", Budget())
        os.write(outbox, b"x")
        os.read(written, 1)
        runtime.budgets.put("after", Budget())

    pid = fork(write)
    os.read(inbox, 1)
    runtime.close()
    os.write(closed, b"x")
    return ended(pid)
