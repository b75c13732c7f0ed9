"""Archives: tables of steps of any size, credited or checked in parts that fit into memory."""

from ascribe.archives.run import ArchiveCredit, check_archive, credit_archive, is_archive
from ascribe.archives.sample import sample_archive
from ascribe.archives.workers import WorkerError

__all__ = [
    "ArchiveCredit",
    "WorkerError",
    "check_archive",
    "credit_archive",
    "is_archive",
    "sample_archive",
]
