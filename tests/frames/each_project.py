"""What is said of each of several wrong project folders, as JSON: the error's kind and text.

One process for all, as starting one takes as long as all that it does.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from lockstep.errors import ProjectError
from lockstep.frames.project import write_views
from lockstep.sql.project import read_project_files


def main(folders: list[str]) -> None:
    answer, sys.stdout = sys.stdout, sys.stderr
    found = []
    for folder in map(os.path.abspath, folders):
        os.chdir(folder)
        try:
            write_views(read_project_files(Path(folder)), {})
            found.append(("", "nothing"))
        except ProjectError as error:
            found.append((type(error).__name__, str(error)))
    json.dump(found, answer)


if __name__ == "__main__":
    main(sys.argv[1:])
