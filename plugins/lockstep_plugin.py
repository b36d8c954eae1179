"""What Airflow loads of Lockstep besides its DAGs: the timetable, so that it can store those DAGs.

The only file that Airflow's scan of the plugins folder imports; `.airflowignore` keeps it out of
the package beside it.
"""

from airflow.plugins_manager import AirflowPlugin

from lockstep.airflow.timetable import AlignedIntervalTimetable


class LockstepPlugin(AirflowPlugin):
    """Registers the aligned data intervals."""

    name = "lockstep"
    timetables = [AlignedIntervalTimetable]  # noqa: RUF012
