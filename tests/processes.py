"""Scripts in processes of their own: what imports, forks or threads leave behind touches no other test."""

import os
import subprocess
import sys


def assert_fine(script, **environment):
    """Run a script that is to print "fine", with these variables set."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=900,  # if it hangs
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr
