"""From the launch command that people have to a study whose baseline it is."""
