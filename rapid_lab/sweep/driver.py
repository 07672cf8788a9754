"""The command of a sweep: plan, workers, progress, and the end. `--worker` is the same without the others."""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from optuna.study import Study

from rapid_lab import names
from rapid_lab.errors import DataError, SettingError, TrainingError, told_where_unwritable
from rapid_lab.experiment.store import check_places
from rapid_lab.harmless import file_name
from rapid_lab.sweep import ending, record
from rapid_lab.sweep.dry_run import plan_document, rendered_plan
from rapid_lab.sweep.laboratory import Laboratory
from rapid_lab.sweep.launching import LAUNCHED, LocalWorkers, end_with_launcher
from rapid_lab.sweep.options import Options, read_options
from rapid_lab.sweep.outcome import rendered, trial_rows
from rapid_lab.sweep.plan import Plan
from rapid_lab.sweep.progress import Progress
from rapid_lab.sweep.space import Sweep
from rapid_lab.sweep.storage import Place, held, make_place
from rapid_lab.sweep.study import Outlook, find_study, mend, open_study, outlook
from rapid_lab.sweep.worker import Work
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.launched import launched_run
from rapid_lab.tracking.redaction import hide_secrets_in_tracebacks, message_of
from rapid_lab.tracking.runs import TrackedRun, existing_run
from rapid_lab.tracking.signals import Interrupted, orderly_end
from rapid_lab.tracking.store import prepare_store
from rapid_lab.variables import check_variables

POLL_SECONDS = 0.5
# Attributes of a study
RUN_ID = "run_id"
CONCLUDED = "concluded"  # how much of it was there when it was last concluded


def main(sweep: Sweep, arguments: Sequence[str] | None = None, laboratory: Laboratory | None = None) -> int:
    """The sweep as a command; 2 and one message on standard error for what the user can mend."""
    if arguments is None:
        hide_secrets_in_tracebacks()
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        check_variables()
        with launched_run(), told_where_unwritable():
            return Driver(sweep, words, laboratory or Laboratory()).run()
    except (SettingError, DataError, TrackingError, TrainingError) as error:
        print(f"{sweep.name}_sweep.py: {message_of(error)}", file=sys.stderr)
        return 2


class Driver:
    """One command, from its options to its exit code."""

    def __init__(self, sweep: Sweep, words: Sequence[str], laboratory: Laboratory) -> None:
        self.words, self.laboratory = words, laboratory
        self.options = read_options(sweep, words)
        self.started = time.monotonic()
        self.is_launched = LAUNCHED in os.environ
        self.progress = Progress(is_shown=not self.is_launched)
        # A storage that does not answer is told before any data is fetched.
        make_place(self.options.storage, sweep.name).check()
        self.plan = make_plan(sweep, self.options, laboratory, self._say_once)
        self.place: Place = make_place(self.options.storage, self.plan.study)

    def _say_once(self, line: str) -> None:
        """What the driver has said its workers need not repeat."""
        if not self.is_launched:
            self.progress.say(line)

    def run(self) -> int:
        """Print the plan, or carry it out."""
        try:
            return self._run()
        finally:
            self.place.leave()

    def _run(self) -> int:
        self._refuse_other_plan()
        if self.options.is_dry_run:
            document = plan_document(self.plan, self.options, self.place)
            print(json.dumps(document, indent=1) if self.options.as_json else rendered_plan(document))
            return 0
        if self.options.engine == "ray" and not self.is_launched:
            from rapid_lab.sweep.ray_engine import connect

            connect(self.options)
        check_places()
        for note in self.plan.notes():
            self._say_once(note)
        end_with_launcher()
        with orderly_end():
            return self._carry_out()

    def _refuse_other_plan(self) -> None:
        """Before anything is made; a storage that is not there yet has no studies."""
        storage = self.place.existing()
        if storage is not None:
            find_study(self.plan, storage)

    def _carry_out(self) -> int:
        # One after the other: several workers of a new study must not make the tables of one store together.
        with held(self.place.lock):
            prepare_store()
        self.laboratory.prepare(self.plan, self.progress.say)
        study, run = self.open()
        try:
            num_taken = 0
            if self.options.is_worker or (self.options.num_workers == 1 and self.options.engine == "local"):
                num_taken = self._work(study, run)
            else:
                self._watch_others(study)
            if self.is_launched:
                return 0
            found, report_faults = self._end(study, run)
        except BaseException as fault:
            self._abandon(study, run, fault)
            raise
        return 0 if found is None else self._code(found, report_faults, num_taken)

    def open(self) -> tuple[Study, TrackedRun]:
        """The study and its run, found or made; the run of whoever has started this worker stays with him."""
        with held(self.place.lock):
            study = open_study(self.plan, self.place.open())
            if self.is_launched:
                return study, existing_run(study.user_attrs[RUN_ID])
            mend(study, self.place, with_faults=not self.options.is_worker)
            run = record.study_run(self.plan)
            study.set_user_attr(RUN_ID, run.run_id)
            if not self._outlook(study).is_over:
                run.set_tags({names.COMPLETE: "false"})
        return study, run

    def _outlook(self, study: Study) -> Outlook:
        return outlook(study, self.plan, self.options.num_trials)

    def _work(self, study: Study, run: TrackedRun) -> int:
        timeout = self.options.timeout
        work = Work(
            plan=self.plan,
            place=self.place,
            study=study,
            parent_run_id=run.run_id,
            num_trials=self.options.num_trials,
            deadline=float("inf") if timeout is None else self.started + timeout,
            evaluate=self.laboratory.evaluate,
            say=self.progress.say,
        )
        with self.progress.over(lambda: self._outlook(study)):
            return work.until_done()

    def _watch_others(self, study: Study) -> None:
        """Start the workers and look on; whatever ends this command ends them."""
        with self.progress.over(lambda: self._outlook(study)), ExitStack() as stack:
            workers = self._launch()
            stack.callback(workers.end)
            while not workers.is_over:
                time.sleep(POLL_SECONDS)
            for line in workers.faults():
                self.progress.say(line)

    def _launch(self) -> Any:
        command = [sys.argv[0], *self.words, *self._time_left()]
        if self.options.engine == "ray":
            from rapid_lab.sweep.ray_engine import RayWorkers

            return RayWorkers(command, self.options, self.progress.say)
        return LocalWorkers(command, self.options.num_workers, self.progress.say)

    def _time_left(self) -> list[str]:
        """The option for workers: the time they are given began with this command, not with them."""
        if self.options.timeout is None:
            return []
        return ["--timeout", f"{max(self.started + self.options.timeout - time.monotonic(), 0.001):.3f}"]

    def _end(self, study: Study, run: TrackedRun) -> tuple[Outlook | None, dict[int, str]]:
        """Whoever finds nobody at work any more concludes the study; None where others still are.

        Reports come after that, since they may fail: what of them could not be read, by trial.
        """
        report_faults: dict[int, str] = {}
        found = self._conclude(study, run, report_faults, is_due=not self.options.is_worker)
        if found and found.is_over and self.options.is_reporting:
            report_faults = ending.read_reports(self.plan, study, self.laboratory, self.progress.say)
            found = self._conclude(study, run, report_faults, is_due=False)
        if found:
            self._print(study, ending.study_document(self.plan, study, run, found, report_faults))
        return found, report_faults

    def _conclude(
        self, study: Study, run: TrackedRun, report_faults: Mapping[int, str], *, is_due: bool
    ) -> Outlook | None:
        """End the study's run, with all that was found; the last of many workers finds that another has done that."""
        with held(self.place.lock):
            mend(study, self.place)
            found = self._outlook(study)
            if found.running:
                self.progress.say(f"study {self.plan.study}: {found.running} trials are still with other workers")
                return None
            state = [found.finished, found.failed, len(ending.known_reports(study)), len(report_faults)]
            if is_due or study.user_attrs.get(CONCLUDED) != state:
                run = record.taken_over(run)
                ending.conclude(self.plan, study, run, found, report_faults)
                study.set_user_attr(CONCLUDED, state)
            run.finish("FAILED" if found.failed else "FINISHED")
        return found

    def _code(self, found: Outlook, report_faults: Mapping[int, str], num_taken: int) -> int:
        is_late = self.options.timeout is not None and time.monotonic() - self.started >= self.options.timeout
        if not found.is_over and not is_late:
            raise DataError(f"{found.target - found.done} trials are left; the same command goes on with them")
        again = "the same command without --worker" if self.options.is_worker else "the same command"
        faults = [f"{found.failed} trials failed; {again} tries them again"] if found.failed else []
        faults += [f"the report of trial {number} could not be read: {why}" for number, why in report_faults.items()]
        # A worker that has found nothing to do ends well: one that is started again after a failure must come to rest.
        if faults and (num_taken or not self.options.is_worker):
            raise DataError("; ".join(faults))
        for line in faults:
            self.progress.say(line)
        return 0

    def _print(self, study: Study, document: dict[str, Any]) -> None:
        if self.options.as_json:
            print(json.dumps(document, indent=1))
            return
        print(rendered(self.plan, trial_rows(self.plan, study), ending.known_reports(study)))
        if document.get("hypervolume") is not None:
            print(f"hypervolume {document['hypervolume']:.4f} (of the box from 0 % at all pairs to 100 % for nothing)")
        if document["best"] is not None:
            where = f"mlflow artifacts download -r {document['run_id']} -a {ending.BEST}"
            print(f"best: trial {document['best']}; its settings: {where}")

    def _abandon(self, study: Study, run: TrackedRun, fault: BaseException) -> None:
        """End the study's run where nobody else is at work on it."""
        self.place.lock.release()
        if self.is_launched:
            return
        with held(self.place.lock):
            mend(study, self.place)
            if not self._outlook(study).running:
                run.finish("KILLED" if isinstance(fault, Interrupted) else "FAILED")
        self.progress.say(f"study {self.plan.study} stopped: the same command goes on with it")


def make_plan(sweep: Sweep, options: Options, laboratory: Laboratory, say: Any) -> Plan:
    """The plan of these options on the data as it is found."""
    facts = laboratory.facts(options.given, say)
    return Plan(
        sweep=sweep,
        study=options.study or file_name(sweep.name, facts.name),
        given=options.given,
        axes=options.axes,
        seeds=options.seeds,
        objectives=options.objectives,
        prune=options.prune,
        data=facts,
    )
