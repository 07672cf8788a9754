"""The plan of a sweep with its cost, for `--dry-run`: nothing is made."""

from typing import Any

from rapid_lab.experiment.duration import spoken
from rapid_lab.sweep.cost import plan_cost
from rapid_lab.sweep.options import Options
from rapid_lab.sweep.plan import Plan
from rapid_lab.sweep.storage import Place
from rapid_lab.sweep.study import target_of


def plan_document(plan: Plan, options: Options, place: Place) -> dict[str, Any]:
    """What would be done, and what it would cost."""
    target = target_of(plan, options.num_trials)
    cost = plan_cost(plan, target)
    return {
        "study": plan.study,
        "storage": place.shown,
        "plan": plan.document(),
        "points": plan.points(),
        "trials": target,
        "runs": cost.num_runs,
        "workers": options.num_workers,
        "relations": {"lowest": cost.lowest_relations, "highest": cost.highest_relations, "is_exact": cost.is_exact},
        "seconds": None if cost.seconds is None else cost.seconds / options.num_workers,
        "notes": plan.notes(),
    }


def rendered_plan(document: dict[str, Any]) -> str:
    """The same for people."""
    plan, relations = document["plan"], document["relations"]
    spent = f"{relations['highest']:,}" if relations["is_exact"] else "{lowest:,} to {highest:,}".format(**relations)
    seconds = document["seconds"]
    lines = [
        f"study {document['study']} in {document['storage']}: {document['trials']} trials, {document['runs']} runs "
        f"(seeds {', '.join(str(seed) for seed in plan['seeds'])}) on {plan['dataset']}",
        *(f"  {name}: {_axis(axis)}" for name, axis in plan["space"].items()),
        f"objective: {', '.join(plan['objectives'])}; prune: {plan['prune']}",
        "first trials:" if document["points"] else "no trial is given",
        *(f"  {', '.join(f'{name} {value}' for name, value in point.items())}" for point in document["points"]),
        f"relations: {spent}",
        f"time: {'unknown until the first trial' if seconds is None else f'about {spoken(seconds)}'} "
        f"with {document['workers']} worker{'s' if document['workers'] > 1 else ''}",
        *(f"note: {note}" for note in document["notes"]),
    ]
    return "\n".join(lines)


def _axis(axis: Any) -> str:
    if isinstance(axis, list):
        return ", ".join(str(value) for value in axis)
    return f"{axis['low']} to {axis['high']}{', by its logarithm' if axis['is_log'] else ''}"
