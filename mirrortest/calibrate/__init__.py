"""How well our own findings hold: a saboteur's truth against what was found, online and offline."""
