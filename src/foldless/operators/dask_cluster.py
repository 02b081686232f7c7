"""Blocks of rows on the workers of a Dask cluster: questions go to where rows are, answers come in order.

Dask computes the blocks, keeps them, and computes them again when a worker is lost. The products of a sweep
are not Dask tasks: a task costs the scheduler a few milliseconds whatever it does, and a sweep has two for
every block. Instead each worker is asked once about all of its blocks (`Client.run`), so that weights travel
once for each worker and 8 blocks on 2 workers are 4 messages a sweep (benchmarks/scale/dask.md).

Nothing waits for ever. A question to a worker that the scheduler no longer lists is dropped and asked again
where its blocks are by then; blocks that nobody computes, and a scheduler that does not answer, are errors.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any

from foldless.operators.row_blocks import Own, Question

# How often an unanswered question is looked after. A worker that dies is noticed at once if it was working;
# this is for those that were dead when asked, which a scheduler tries to reach for half a minute.
LOOK_SECONDS = 1.0
# Workers may come and go; one question that fails this often has met more than bad luck.
ATTEMPTS = 10
# For how long nobody may be computing a block that is missing, and how long a scheduler may think.
PATIENCE_SECONDS = 40.0
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0

RESUME = (
    "What was learnt so far is kept if the fit had a checkpoint: start a cluster, make X again on it, and "
    "call fit again with the same checkpoint."
)


class ClusterLost(ConnectionError):
    """The scheduler, or every worker, is gone."""


class RowsLost(ClusterLost):
    """Rows of X are gone for good: Dask cannot compute them again."""


class _Failed(Exception):
    """What keeps Dask from computing a block, carried past the handling of lost connections."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class OnWorkers:
    """Blocks in the memory of workers, and how to ask about them."""

    def __init__(self, client: Any, parts: Sequence[Any]) -> None:
        self._client = client
        self._futures: list[Any] = client.compute(list(parts))
        self._places: list[str] | None = None

    def __len__(self) -> int:
        return len(self._futures)

    def keep(self, chosen: Sequence[int]) -> None:
        """Only these blocks; the others are let go."""
        self._futures = [self._futures[i] for i in chosen]
        self._places = None

    def ask(self, question: Question, told: tuple[Any, ...], own: Own) -> list[Any]:
        """The answers of some blocks, in the order of `own`."""
        answers: dict[int, Any] = {}
        try:
            for _ in range(ATTEMPTS):
                missing = {i: own[i] for i in own if i not in answers}
                if not missing:
                    return [answers[i] for i in own]
                self._client.sync(self._ask_once, question, told, missing, answers)
        except _Failed as failure:
            raise failure.error from failure
        except ClusterLost:
            raise
        except (OSError, TimeoutError, CancelledError) as error:
            raise ClusterLost(
                f"The Dask scheduler does not answer ({str(error) or type(error).__name__}). {RESUME}"
            ) from error
        except RuntimeError as error:
            if self._client.status == "running":
                raise
            raise ClusterLost(f"The Dask client is closed. {RESUME}") from error
        raise ClusterLost(
            f"Workers were lost {ATTEMPTS} times while they were asked about the same rows. {RESUME}"
        )

    async def _ask_once(
        self, question: Question, told: tuple[Any, ...], own: Own, answers: dict[int, Any]
    ) -> None:
        """Ask every worker about its blocks; what a worker takes to its grave is left unanswered."""
        if self._client.status != "running":
            raise ConnectionError(f"the client is {self._client.status}")
        if self._places is None:
            self._places = await self._located()
        by_worker: dict[str, dict[int, tuple[str, tuple[Any, ...]]]] = {}
        for i, arguments in own.items():
            by_worker.setdefault(self._places[i], {})[i] = (self._futures[i].key, arguments)
        calls = {
            asyncio.ensure_future(
                self._client.run(answered, question, told, asked, workers=[worker], on_error="return")
            ): worker
            for worker, asked in by_worker.items()
        }
        try:
            async for result in _as_answered(calls, self._holders):
                if isinstance(result, Exception) and not isinstance(result, OSError | TimeoutError):
                    raise result
                answers.update(result if isinstance(result, dict) else {})
        finally:
            for call in calls:
                call.cancel()
        if any(i not in answers for i in own):
            self._places = None

    async def _holders(self) -> dict[str, Sequence[str]]:
        """Which workers have each block, by the scheduler's own list."""
        try:
            held = await asyncio.wait_for(self._client.who_has(self._futures), PATIENCE_SECONDS)
        except CancelledError as error:
            raise self._let_go() from error
        return {key: tuple(workers) for key, workers in held.items()}

    async def _located(self) -> list[str]:
        """A worker for each block, as soon as all blocks are computed."""
        pause, idle_since, seen = FIRST_PAUSE, time.monotonic(), -1
        while True:
            held = await self._holders()
            places = [held.get(future.key, ()) for future in self._futures]
            if all(places):
                return [sorted(workers)[0] for workers in places]
            await self._check_computable()
            working = await asyncio.wait_for(self._client.processing(), PATIENCE_SECONDS)
            n_held = sum(bool(workers) for workers in places)
            if any(working.values()) or n_held != seen:
                idle_since, seen = time.monotonic(), n_held
            elif time.monotonic() - idle_since > PATIENCE_SECONDS:
                absent, seconds = len(places) - n_held, round(PATIENCE_SECONDS)
                raise ClusterLost(
                    f"{absent} of {len(places)} blocks of X are on no worker, and for {seconds} s "
                    f"nobody was computing them; there are {len(working)} workers. {RESUME}"
                )
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, LONGEST_PAUSE)

    async def _check_computable(self) -> None:
        """Raise what keeps Dask from computing a block."""
        for future in self._futures:
            if future.status == "error":
                error = await future.exception()
                if type(error).__name__ == "KilledWorker":
                    raise RowsLost(
                        "Workers died again and again while computing the same rows of X; most likely they "
                        f"ran out of memory. Use smaller chunks of rows, or larger workers. {RESUME}"
                    ) from error
                if isinstance(error, ModuleNotFoundError) and error.name == "foldless":
                    error = ModuleNotFoundError(
                        "foldless is not installed on the workers of the Dask cluster. Install the same "
                        "version there as here.",
                        name="foldless",
                    )
                raise _Failed(error)
            if future.status == "cancelled":
                raise self._let_go()

    def _let_go(self) -> Exception:
        """Why the scheduler forgets blocks that are still wanted."""
        if self._client.status != "running":
            return ConnectionError(f"the client is {self._client.status}")
        return RowsLost(
            "Rows of X were on a worker that is gone, and Dask does not know how to compute them again: data "
            "given to client.scatter exist only where they were put. Make X from files, or with "
            f"dask.array.from_array, which can be repeated. {RESUME}"
        )


async def _as_answered(
    calls: Mapping[asyncio.Future[Any], str], holders: Callable[[], Awaitable[dict[str, Sequence[str]]]]
) -> AsyncIterator[Any]:
    """What workers said, as it comes; those that have lost what they were asked about are not waited for."""
    pending = set(calls)
    while pending:
        done, pending = await asyncio.wait(pending, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for call in done:
            worker = calls[call]
            yield call.result()[worker]
        if pending and not done:
            alive = {worker for workers in (await holders()).values() for worker in workers}
            pending = {call for call in pending if calls[call] in alive}


async def answered(
    question: Question,
    told: tuple[Any, ...],
    asked: Mapping[int, tuple[str, tuple[Any, ...]]],
    dask_worker: Any,
) -> dict[int, Any]:
    """On a worker: the answers of those of the blocks that are here, on as many threads as it has."""
    loop = asyncio.get_running_loop()
    free = asyncio.Semaphore(dask_worker.state.nthreads)

    async def answer(key: str, arguments: tuple[Any, ...]) -> Any:
        async with free:
            # Here and not on a thread: what is spilled to disk comes back one by one.
            block = dask_worker.data[key]
            run = dask_worker.executors["default"]
            return await loop.run_in_executor(run, lambda: question(block.operator, *told, *arguments))

    here = {i: entry for i, entry in asked.items() if entry[0] in dask_worker.data}
    found = await asyncio.gather(*(answer(*entry) for entry in here.values()))
    return dict(zip(here, found, strict=True))
