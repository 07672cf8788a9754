"""Every name in the store, once: tags, metrics, artifacts, prefixes."""

SCHEMA_VERSION = 1
# Raised with each *Numbers* entry of the changelog: results before and after are not the same cell.
NUMBERS_VERSION = 2
PARAM_PREFIX = "cfg."

# Tags
METHOD = "rapid.method"
DATASET = "rapid.dataset"
DATA_SOURCE = "rapid.data_source"
DATA_HASH = "rapid.data_hash"
COMPLETE = "rapid.complete"
BIASED = "rapid.biased"
KIND = "rapid.kind"
DEVICE = "rapid.device"
HARDWARE = "rapid.hardware"
WORLD_SIZE = "rapid.world_size"  # processes that train the student; not in its identity
RESUMED = "rapid.resumed"
CONFIG_ID = "rapid.config_id"
TEACHER_ID = "rapid.teacher_id"
SOURCE_HASH = "rapid.source_hash"
SCHEMA = "rapid.schema_version"
NUMBERS = "rapid.numbers_version"
POINTS_TO = "rapid.points_to"
PROCESS = "rapid.process"  # whose run it is: host, pid and start
DAMAGED = "rapid.damaged"  # what of its record was lost
REPORT = "rapid.report"
STUDY_NAME = "rapid.study"
TRIAL_NUMBER = "rapid.trial"
PRUNED = "rapid.pruned"
# On a run that a trial used and did not start: the prefix, with the trial's own run id; the value is study/trial.
USED_BY = "rapid.used_by"

# Tags that the MLflow UI reads
DESCRIPTION = "mlflow.note.content"
PARENT = "mlflow.parentRunId"

# Values of KIND
STUDENT = "student"
TEACHER = "teacher"
SUITE = "suite"
STUDY = "study"
TRIAL = "trial"
COMPARISON = "comparison"
POINTER = "pointer"
KINDS = (STUDENT, TEACHER, SUITE, STUDY, TRIAL, COMPARISON, POINTER)

# Metrics of every step
RELATIONS_MAIN = "relations/main"
RELATIONS_PILOT = "relations/pilot"
RELATIONS_UNIQUE_MAIN = "relations/unique_main"
RELATIONS_UNIQUE_PILOT = "relations/unique_pilot"
RELATIONS_UNIQUE_UNION = "relations/unique_union"
LOSS_TOTAL = "loss/total"
LOSS_CE = "loss/ce"
LOSS_KD = "loss/kd"
LOSS_RELATIONAL = "loss/relational"
ESS_FRACTION = "proposal/ess_fraction"
MAX_CORRECTION = "proposal/max_correction"
STEP_MS = "time/step_ms"
PEAK_MB = "memory/peak_mb"
LOSS_METRICS = (LOSS_TOTAL, LOSS_CE, LOSS_KD, LOSS_RELATIONAL)
STEP_METRICS = (
    RELATIONS_MAIN,
    RELATIONS_PILOT,
    RELATIONS_UNIQUE_MAIN,
    RELATIONS_UNIQUE_PILOT,
    RELATIONS_UNIQUE_UNION,
    LOSS_TOTAL,
    LOSS_CE,
    LOSS_KD,
    LOSS_RELATIONAL,
    ESS_FRACTION,
    MAX_CORRECTION,
    STEP_MS,
    PEAK_MB,
)

# Metrics of every epoch
SELECTION_ACCURACY = "selection/accuracy"
SELECTION_NLL = "selection/nll"
RESIDUAL_MIX = "schedule/residual_mix"
EPOCH_METRICS = (SELECTION_ACCURACY, SELECTION_NLL, RESIDUAL_MIX)

# Metrics logged once
REPORT_ACCURACY = "report/accuracy"
REPORT_CORRECT = "report/correct"
REPORT_TOTAL = "report/total"
TRAIN_MINUTES = "time/train_minutes"
MEAN_MAIN = "relations/mean_main"
MEAN_PILOT = "relations/mean_pilot"
MEAN_UNIQUE_MAIN = "relations/mean_unique_main"
MEAN_UNIQUE_PILOT = "relations/mean_unique_pilot"
MEAN_UNIQUE_UNION = "relations/mean_unique_union"
FINAL_METRICS = (
    REPORT_ACCURACY,
    REPORT_CORRECT,
    REPORT_TOTAL,
    TRAIN_MINUTES,
    MEAN_MAIN,
    MEAN_PILOT,
    MEAN_UNIQUE_MAIN,
    MEAN_UNIQUE_PILOT,
    MEAN_UNIQUE_UNION,
)

# Metrics of a teacher
TEACHER_REPORT_ACCURACY = "teacher/report_accuracy"
TEACHER_TEMPERATURE = "teacher/calibration_temperature"
TEACHER_NLL_BEFORE = "teacher/selection_nll_before"
TEACHER_NLL_AFTER = "teacher/selection_nll_after"
TEACHER_METRICS = (TEACHER_REPORT_ACCURACY, TEACHER_TEMPERATURE, TEACHER_NLL_BEFORE, TEACHER_NLL_AFTER)

# Metrics of the machine; the MLflow UI shows "system/" on a page of its own
CPU_PERCENT = "system/cpu_percent"
MEMORY_MB = "system/memory_mb"

# Artifacts
RESULT = "result.json"
CONFIG = "config.toml"
PREDICTIONS = "predictions.parquet"
STEPS = "steps.parquet"
CALIBRATION = "calibration.json"
