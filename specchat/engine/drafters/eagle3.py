"""EAGLE-3 (Li et al. 2025): as EAGLE, by a head that looks at states from several of the target's layers."""

from specchat.engine.decoding.draft import Role
from specchat.engine.drafters.eagle import Eagle2Drafter, EagleDrafter


class Eagle3Drafter(EagleDrafter):
    """A chain."""

    name = "eagle3"
    role: Role = "eagle3"


class Eagle3TreeDrafter(Eagle2Drafter):
    """The tree of EAGLE-2, as in the paper."""

    name = "eagle3-tree"
    role: Role = "eagle3"
