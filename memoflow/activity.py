"""Activities: functions whose work is claimed, leased, recorded and, when safe, retried."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, ParamSpec, TypeVar, cast, get_type_hints

from memoflow import faults
from memoflow.cause import current_cause
from memoflow.context import Current, Host, Run, current_run, entered, joined
from memoflow.errors import (
    ApprovalRequired,
    ConfigurationError,
    InvalidRequest,
    MemoflowError,
    ResultNotEncodable,
    ResultNotRetained,
)
from memoflow.identity import ActivityIdentity, check_person, new_id
from memoflow.ledger.activities import Claim, ClaimActivity, CompleteActivity, EndAttempt, Fence
from memoflow.ledger.outputs import read_output
from memoflow.ledger.places import output_place
from memoflow.retry import Retry
from memoflow.tools import encode_result
from memoflow.turn import Attempt

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["Activity"]

P = ParamSpec("P")
R = TypeVar("R")

MAX_OUTPUT_BYTES: Final = 16 * 1024 * 1024
_RESERVED: Final = ("workflow_id", "run_id", "activity_id")


class Activity(Generic[P, R]):
    """A function run as an activity. Made by ``@rt.activity(...)``."""

    def __init__(
        self,
        host: Host,
        function: Callable[P, R],
        *,
        version: str,
        name: str | None = None,
        budget: str | None = None,
        retry: Retry | None = None,
        requester: str | None = None,
    ) -> None:
        self._host = host
        self.function = function
        self.name = name or function.__name__
        self.version = version
        self.budget = budget
        self.requester = f"agent:{self.name}" if requester is None else check_person("requester", requester)
        self._retry = retry or Retry(attempts=1)
        self._signature = inspect.signature(function)
        self._is_async = inspect.iscoroutinefunction(function)
        self._check_signature()
        self._output = _Output(function)
        self.__doc__ = function.__doc__

    def _check_signature(self) -> None:
        clash = [name for name in _RESERVED if name in self._signature.parameters]
        if clash:
            raise ConfigurationError(
                f"Activity {self.name!r} has a parameter {clash[0]!r}, which names the run. "
                "Rename the parameter."
            )

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Refused: an activity is started with `run`, which needs to know which run it belongs to."""
        raise ConfigurationError(
            f"Start activity {self.name!r} with {self.name}.run(…, workflow_id=…, run_id=…). "
            "The plain function is in its attribute 'function'."
        )

    def run(
        self,
        *args: Any,
        workflow_id: str | None = None,
        run_id: str | None = None,
        activity_id: str | None = None,
        **kwargs: Any,
    ) -> R:
        """Run the activity, or return what it returned before under the same identity.

        Args:
            args: positional arguments of the function, as JSON can carry them.
            workflow_id: the business process; that of the enclosing run, or the activity's name.
            run_id: this run of it; that of the enclosing run, or a new one. Without a stable run_id
                nothing is found again: a retry from another process is new work and pays again.
            activity_id: which activity of the run; the activity's name. Give one when the same
                function is called more than once in a run.
            kwargs: keyword arguments of the function.

        Returns:
            What the function returns; an awaitable of it for an ``async def`` function.

        Raises:
            ActivityBusy: another attempt is running.
            ActivityMismatch: this identity was used for other work.
            ApprovalRequired: a tool call waits for a person; run it again when it is decided.
            LeaseLost: another attempt took over.
        """
        run = self._run(workflow_id, run_id)
        identity = ActivityIdentity(
            self._host.namespace,
            run.workflow_id,
            run.run_id,
            self.name if activity_id is None else activity_id,
            self.name,
            self.version,
        )
        digest = self._input_digest(args, kwargs)
        if self._is_async:
            return cast(R, self._retry.acall(self._attempt_async, run, identity, digest, args, kwargs))
        return cast(R, self._retry.call(self._attempt, run, identity, digest, args, kwargs))

    def _run(self, workflow_id: str | None, run_id: str | None) -> Run:
        outer = current_run()
        within = (
            outer is not None and workflow_id in (None, outer.workflow_id) and run_id in (None, outer.run_id)
        )
        if outer is not None and within:
            accounts = outer.accounts
            charged = joined(accounts, self.budget)
            return Run(outer.workflow_id, outer.run_id, charged, accounts, outer.requester, current_cause())
        # An empty id is refused where the identity is made: taken for none, it would find nothing again.
        workflow_id = self.name if workflow_id is None else workflow_id
        run_id = new_id() if run_id is None else run_id
        requester = None if outer is None else outer.requester
        return Run(workflow_id, run_id, joined((), self.budget), (), requester, current_cause())

    def _input_digest(self, args: Any, kwargs: Any) -> str:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            given = encode_result([list(bound.args), bound.kwargs], MAX_OUTPUT_BYTES, what="It")
        except ResultNotEncodable as error:
            raise InvalidRequest(
                f"The input of activity {self.name!r} cannot be recorded, so it was not started. {error}"
            ) from None
        return self._host.digester.json(json.loads(given.text))

    # One attempt

    def _attempt(self, run: Run, identity: ActivityIdentity, digest: str, args: Any, kwargs: Any) -> Any:
        claim: Claim = self._host.commit(self._claim(run, identity, digest), partial(_unclaimed, identity))
        if claim.completed:
            return self._recorded(identity, claim)
        attempt = self._enter(run, identity, claim)
        try:
            with self._watched(attempt):
                value: Any = self.function(*args, **kwargs)
            done = self._completion(attempt, value)
        except faults.Stop:
            raise
        except BaseException as error:
            with _ignoring_memoflow():
                self._host.commit(_ending(attempt, error))
            raise
        self._host.commit(done)
        return value

    async def _attempt_async(
        self, run: Run, identity: ActivityIdentity, digest: str, args: Any, kwargs: Any
    ) -> Any:
        claim: Claim = await self._host.acommit(
            self._claim(run, identity, digest), partial(_unclaimed, identity)
        )
        if claim.completed:
            return await asyncio.to_thread(self._recorded, identity, claim)
        attempt = self._enter(run, identity, claim)
        attempt.on_lost = canceller = _Canceller()
        attempt.abandoned = asyncio.get_running_loop().is_closed
        try:
            return await self._carry_out(attempt, args, kwargs)
        except asyncio.CancelledError:
            if canceller.withdraw() and attempt.lost is not None:
                raise attempt.lost from None
            raise
        finally:
            canceller.withdraw()

    async def _carry_out(self, attempt: Current, args: Any, kwargs: Any) -> Any:
        try:
            with self._watched(attempt):
                value: Any = await self.function(*args, **kwargs)  # type: ignore[misc]
            done = self._completion(attempt, value)
        except (faults.Stop, GeneratorExit):
            # The second: the collector drops a task whose loop is gone, and nothing can be awaited.
            raise
        except BaseException as error:
            with _ignoring_memoflow():
                await self._host.acommit(_ending(attempt, error))
            raise
        await self._host.acommit(done)
        return value

    def _claim(self, run: Run, identity: ActivityIdentity, digest: str) -> ClaimActivity:
        return ClaimActivity(identity, digest, self._host.lease_us, self._host.worker, run.cause)

    def _enter(self, run: Run, identity: ActivityIdentity, claim: Claim) -> Current:
        host = self._host
        attempt = Attempt(
            identity,
            _fence(identity, claim),
            host.digester,
            host.vault,
            host.prices,
            requester=run.requester or self.requester,
            bench=host.bench,
            approval_us=host.approval_us,
        )
        return Current(host, attempt, run)

    @contextmanager
    def _watched(self, attempt: Current) -> Generator[None]:
        self._host.watch(attempt)
        try:
            with entered(attempt.run, attempt):
                yield
        except MemoflowError as error:
            if attempt.record.undecided:
                # Whatever failed: a further attempt would only be refused, until somebody has decided.
                error.retryable = False
            raise
        finally:
            self._host.forget(attempt)

    def _completion(self, attempt: Current, value: Any) -> CompleteActivity:
        data = self._output.encode(value)
        record, activity_id = attempt.record, attempt.record.fence.activity_id
        digest = record.digester.bytes(data)
        place = output_place(digest)
        row = record.vault.seal(
            record.identity, activity_id, "output", place=place.place, binding=place.binding, value=data
        )
        return CompleteActivity(record.fence, digest, row, record.running)

    def _recorded(self, identity: ActivityIdentity, claim: Claim) -> Any:
        row = self._host.ledger.database.read(partial(read_output, owner_id=claim.activity_id, kind="output"))
        what, digest = f"output of activity {identity}", claim.output_digest
        place = output_place(digest or "")
        try:
            return self._output.decode(
                self._host.vault.open(identity, row, place=place.place, binding=place.binding, what=what)
            )
        except ResultNotRetained as gone:
            lost = gone.with_digest(digest)
        except ValueError:
            # Not chained: its text shows the value.
            reason = "it does not fit the function's return annotation, which must have been another one"
            lost = ResultNotRetained(what=what, digest=digest, reason=reason)
        raise lost


class _Output:
    """How a function's result is written and read again: by its return annotation, else as plain JSON."""

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            hint = get_type_hints(function).get("return", Any)
        except NameError as error:
            raise ConfigurationError(
                f"The annotations of activity {function.__name__!r} cannot be resolved ({error}). "
                "Import their names at run time, at the top of the module."
            ) from None
        self._adapter = None if hint in (Any, None, type(None)) else _adapter(function, hint)

    def encode(self, value: Any) -> bytes:
        if self._adapter is None:
            # As an item of a list it is written as JSON, also if it is text.
            listed = encode_result([value], MAX_OUTPUT_BYTES, what="The output of an activity").text
            return _bounded(listed[1:-1].encode())
        try:
            # Warnings would print the value.
            data = self._adapter.dump_json(value, warnings="error")
            # What is read as something else, such as NaN as null, could never be restored.
            self._adapter.validate_json(data)
            return _bounded(data)
        except ResultNotEncodable:
            raise
        except Exception:
            raise ResultNotEncodable(
                f"The activity returned a {type(value).__name__} that does not fit its return annotation. "
                "Its calls are recorded, so running it again costs nothing."
            ) from None

    def decode(self, data: bytes) -> Any:
        return json.loads(data) if self._adapter is None else self._adapter.validate_json(data)


def _adapter(function: Callable[..., Any], hint: Any) -> TypeAdapter[Any]:
    # Here and not at the top: importing memoflow is to be cheap, and pydantic is not.
    from pydantic import PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(hint)
    except PydanticUserError:
        raise ConfigurationError(
            f"The return type of activity {function.__name__!r} cannot be written as JSON. "
            "Return plain data, a dataclass or a pydantic model."
        ) from None


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_OUTPUT_BYTES:
        raise ResultNotEncodable(
            f"The activity returned {len(data)} bytes of JSON; {MAX_OUTPUT_BYTES} are kept at most. "
            "Return less, or a reference to it."
        )
    return data


def _fence(identity: ActivityIdentity, claim: Claim) -> Fence:
    return Fence(identity.namespace, claim.activity_id, claim.attempt, str(identity))


def _unclaimed(identity: ActivityIdentity, claim: Claim) -> EndAttempt | None:
    """Gives back a claim that was interrupted while it was recorded."""
    if claim.completed:
        return None
    return EndAttempt(_fence(identity, claim), "CANCELLED", "Interrupted")


def _ending(attempt: Current, error: BaseException) -> EndAttempt:
    state = "FAILED" if isinstance(error, Exception) else "CANCELLED"
    if isinstance(error, ApprovalRequired):
        state = "PARKED"
    record = attempt.record
    return EndAttempt(record.fence, state, type(error).__name__[:128], record.running)


@contextmanager
def _ignoring_memoflow() -> Generator[None]:
    """The activity's own exception is the news; an unrecorded end is found by the next claim."""
    try:
        yield
    except MemoflowError:
        return


class _Canceller:
    """Cancels the task of an attempt that lost its lease, as long as the attempt lasts."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._loop = task, asyncio.get_running_loop()
        self._before = task.cancelling()
        self._over = self._cancelled = False

    def __call__(self) -> None:
        with suppress(RuntimeError):  # The loop may be closed by now.
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if not self._over:
            self._cancelled = self._task.cancel()

    def withdraw(self) -> bool:
        """End it. True if it cancelled the task and nobody else did."""
        self._over, cancelled, self._cancelled = True, self._cancelled, False
        return cancelled and self._task.uncancel() <= self._before
