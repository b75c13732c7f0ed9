"""Choose layer, pooling and radius for a model, once, before training (BiPACE, Appendices F and H).

Fingerprints of a model are hidden states; from which layer to take them, and how close two of them
must be to count as the same state, depends on the model. A scan over a file of rollouts answers
both. The layer is the one from which a linear probe best predicts the family of the task, among
those whose clusters are healthy; the radius is the one at which the median cluster has 4 to 8 rows.
"""

from ascribe_lab.calibrate.choose import (
    FINER,
    RADII,
    Calibration,
    Features,
    LayerScan,
    NoHealthyLayerError,
    Partition,
    calibrate,
)
from ascribe_lab.calibrate.probe import Probe

__all__ = [
    "FINER",
    "RADII",
    "Calibration",
    "Features",
    "LayerScan",
    "NoHealthyLayerError",
    "Partition",
    "Probe",
    "calibrate",
]
