"""The main job from end to end, on this machine."""
