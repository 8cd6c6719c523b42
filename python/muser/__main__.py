"""`python -m muser`."""

import sys

from muser.cli import main

sys.exit(main())
