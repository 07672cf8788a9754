"""MLflow and what keeps its record whole; nothing outside this folder imports mlflow.

`errors`, `provenance`, `redaction`, `signals` and `system` are cheap to import; `door`, `store`, `runs` and
`writer` import mlflow, which takes seconds. None imports torch.
"""

import os

# MLflow reads these while it is imported. Its links would go to standard output, which belongs to `--json`.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
