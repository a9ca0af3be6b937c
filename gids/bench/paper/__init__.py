"""`gids bench paper`: the published comparison of GIDS and memory maps, made again with this loader."""
