"""``python -m spo_fast`` is the command ``spo-fast``."""

import sys

from spo_fast.cli import main

sys.exit(main())
