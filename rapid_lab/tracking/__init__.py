"""MLflow and what keeps its record whole; nothing outside this folder imports mlflow.

`errors`, `launched`, `processes`, `provenance`, `redaction`, `signals`, `spool` and `system` are cheap to import; the
others import mlflow, which takes seconds. None imports torch.
"""

import os

# MLflow reads these while it is imported. Its links would go to standard output, which belongs to `--json`.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
# A server that hangs is given up after a minute, not after a quarter of an hour: what it does not take is kept.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
