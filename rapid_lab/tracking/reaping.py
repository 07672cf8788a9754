"""Runs that are RUNNING for processes which are gone: found, and closed."""

from dataclasses import dataclass

from mlflow.entities import Run

from rapid_lab import names
from rapid_lab.tracking.door import client, told_as
from rapid_lab.tracking.processes import Process, read_process
from rapid_lab.tracking.store import PAGE_SIZE


@dataclass(frozen=True)
class Found:
    """A run that is RUNNING, and what is known of its process; `status` is what it was closed as, if it was."""

    run_id: str
    name: str
    status: str | None
    reason: str


def reap(*, is_dry: bool) -> list[Found]:
    """Close the runs of dead processes of this machine; all others are left alone. A dry one only looks.

    A run below which another is at work is one of those: a study goes on when the process that opened it has died.
    """
    running = _running()
    at_work = {run.data.tags.get(names.PARENT) for run in running if _may_be_at_work(run)}
    return [_judged(run, is_dry=is_dry, has_work_below=run.info.run_id in at_work) for run in running]


def _may_be_at_work(run: Run) -> bool:
    process = read_process(run.data.tags.get(names.PROCESS, ""))
    return process is not None and not process.is_dead


def _running() -> list[Run]:
    found: list[Run] = []
    for experiment in _experiment_ids():
        token = None
        while True:
            with told_as("searching running runs"):
                page = client().search_runs(
                    [experiment], "attributes.status = 'RUNNING'", max_results=PAGE_SIZE, page_token=token
                )
            found += page
            token = page.token
            if not token:
                break
    return found


def _experiment_ids() -> list[str]:
    found: list[str] = []
    token = None
    while True:
        with told_as("reading the experiments"):
            page = client().search_experiments(max_results=PAGE_SIZE, page_token=token)
        found += [str(experiment.experiment_id) for experiment in page]
        token = page.token
        if not token:
            return found


def _judged(run: Run, *, is_dry: bool, has_work_below: bool) -> Found:
    run_id, name = run.info.run_id, run.info.run_name or ""
    process = read_process(run.data.tags.get(names.PROCESS, ""))
    if process is None:
        return Found(run_id, name, None, "it does not say which process it is of")
    if not process.is_here:
        return Found(run_id, name, None, f"process {process.pid} is of another machine, {process.host}")
    if process.is_alive:
        return Found(run_id, name, None, f"process {process.pid} is alive")
    if has_work_below:
        return Found(run_id, name, None, f"process {process.pid} is gone, but a run below it may be at work")
    return _closed(run_id, name, process, is_dry=is_dry)


def _closed(run_id: str, name: str, process: Process, *, is_dry: bool) -> Found:
    with told_as(f"closing run {run_id}"):
        run = client().get_run(run_id)  # once more: somebody may have gone on with it since the search
        if run.info.status != "RUNNING" or run.data.tags.get(names.PROCESS) != str(process):
            return Found(run_id, name, None, "another process has taken it over")
        # A run that has all it should have lacks nothing but its last word.
        status = "FINISHED" if run.data.tags.get(names.COMPLETE) == "true" else "KILLED"
        reason = f"process {process.pid} is gone"
        if not is_dry:
            line = f"Closed by `rapid-lab reap`: {reason}."
            before = run.data.tags.get(names.DESCRIPTION)
            client().set_tag(run_id, names.DESCRIPTION, f"{before}\n\n{line}" if before else line)
            client().set_terminated(run_id, status)
    return Found(run_id, name, status, reason)
