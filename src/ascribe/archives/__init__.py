"""Archives: tables of steps of any size, credited or checked in parts that fit into memory."""

from ascribe.archives.run import ArchiveCredit, check_archive, credit_archive, fits_memory
from ascribe.archives.workers import WorkerError

__all__ = ["ArchiveCredit", "WorkerError", "check_archive", "credit_archive", "fits_memory"]
