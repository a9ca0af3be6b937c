"""The ``gids`` command."""
