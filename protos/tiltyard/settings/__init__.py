"""How both programs read, check and reload a settings file. It knows the settings of neither.

Each program brings its own rules, and its own log.
"""
