"""Multi-token prediction: the layer that came with the target drafts as EAGLE's head does, again on what it made."""

from specchat.engine.decoding.draft import Role
from specchat.engine.drafters.eagle import EagleDrafter


class MtpDrafter(EagleDrafter):
    """A chain."""

    name = "mtp"
    role: Role = "mtp"
