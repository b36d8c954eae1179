"""What each view of a project folder becomes, as JSON by name: its SQL, or the error's text.

A process of its own, as the project's code is; one for many views, of which each may be wrong.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from lockstep.errors import ProjectError
from lockstep.frames.project import PythonProject
from lockstep.sql.project import read_project_files


def main(folder: str) -> None:
    folder = os.path.abspath(folder)
    os.chdir(folder)
    answer, sys.stdout = sys.stdout, sys.stderr
    project = PythonProject(read_project_files(Path(folder)), {})
    found = {}
    for view in project.declared:
        try:
            found[view.name] = project.text(view.name.lower())
        except ProjectError as error:
            found[view.name] = str(error)
    json.dump(found, answer)


if __name__ == "__main__":
    main(sys.argv[1])
