"""`python -m coordinator` is the `coordinator` command."""

import sys

from coordinator.cli.main import main

sys.exit(main())
