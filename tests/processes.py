"""Scripts in processes of their own: what imports, forks or threads leave behind touches no other test."""

import os
import subprocess
import sys


def run_script(script, **environment):
    """Run a script with these variables set; return what it printed."""
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=900,  # if it hangs
        check=False,
    )


def assert_fine(script, **environment):
    """Run a script that is to print "fine", with these variables set."""
    done = run_script(script, **environment)
    assert done.stdout == "fine\n", done.stderr
