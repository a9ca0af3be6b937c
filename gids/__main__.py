"""`python -m gids ...` is the command `gids`."""

from __future__ import annotations

import sys

from gids.cli.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
