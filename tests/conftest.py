"""Ctrl-C works in the commands under test, also where a shell started the tests in the background and ignores it."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
