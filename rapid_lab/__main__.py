"""`python -m rapid_lab`."""

import sys

from rapid_lab.cli import main

sys.exit(main())
