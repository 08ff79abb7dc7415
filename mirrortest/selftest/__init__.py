"""Tests of mirrortest itself: synthetic logs with known findings (`synth`), and `calibrate`."""
