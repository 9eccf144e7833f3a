"""The tower of a checkpoint that reads pictures, with its projector: of transformers' classes and its own tensors."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import ModuleList

from specchat.clean import one_line
from specchat.engine.errors import EngineError, ModelError
from specchat.engine.hardware.free_memory import free_memory
from specchat.engine.hardware.gpu import free_gpu_memory
from specchat.engine.memory.plan import GIB, SPARE
from specchat.engine.pictures.decode import decoded
from specchat.engine.pictures.files import tower_files
from specchat.engine.pictures.in_parts import pause
from specchat.engine.pictures.kinds import COUNTS, Grid
from specchat.engine.weights.checkpoint import Checkpoint

NONE_OF_TEXT = {"num_hidden_layers": 0, "layer_types": [], "vocab_size": 1, "pad_token_id": None}
"""Settings of a model of text without layers, which transformers builds beside a tower."""


CPU = torch.device("cpu")
LOOKING = 2 * GIB
"""Bytes that a tower on a GPU may take beside its weights; pictures that take more are looked at by the processor."""


class Processed(NamedTuple):
    """A picture as a tower takes it, and the grid of its features."""

    inputs: Any
    grid: Grid


class Tower:
    """A tower in float32; its weights are read when the first picture is looked at."""

    def __init__(self, checkpoint: Checkpoint, vocabulary: Mapping[str, int], device: torch.device = CPU) -> None:
        """Read the settings.

        Args:
            vocabulary: has the token of pictures, which GGUF files do not name.
            device: looks at pictures that take no more than LOOKING.

        Raises:
            ModelError: a file is missing, or its values cannot be used.
        """
        self._files = files = tower_files(checkpoint, vocabulary)
        self.kind, self._config, self._processor = files.kind, files.config, files.processor
        self.mark = int(self._config.image_token_id)
        """Token that a chat template writes in the place of a picture."""
        self.deep = len(self._config.vision_config.deepstack_visual_indexes) if self.kind.deep else 0
        """Layers of the text after which a picture's rows are added to."""
        self._device, self._models = device, dict[torch.device, Any]()

    def processed(self, data: bytes) -> Processed:
        """A picture's pixels as the tower takes them.

        Raises:
            EngineError: "request": it cannot be read.
        """
        image, more = decoded(data), {}
        if self.kind.sizes == "image_sizes":
            cell = self.kind.merge(self._config) * self._config.vision_config.patch_size
            more = {"patch_size": {"height": cell, "width": cell}}
        try:
            inputs = self._processor(image, return_tensors="pt", **more)
        except ValueError as error:
            raise EngineError("request", f"A picture cannot be read ({one_line(str(error), 100)}).") from None
        return Processed(inputs, self.kind.grid(inputs, self._config))

    @torch.inference_mode()
    def rows(self, picture: Processed) -> Tensor:
        """A picture's features, float32 [grid.cells, hidden], with those for further layers; it is looked at alone.

        They are in main memory. It pauses before each layer.

        Raises:
            EngineError: memory does not suffice, or the tower's weights cannot be used.
        """
        device, model = self._model_for(self._working(picture))
        inputs = {
            name: one.to(device) if isinstance(one, Tensor) else one
            for name, one in picture.inputs.items()
            if name not in COUNTS
        }
        found = model.get_image_features(**inputs, return_dict=True)
        further = found.deepstack_features if self.deep else ()
        # Older versions of transformers do not split these by picture.
        added = (one if isinstance(one, Tensor) else one[0] for one in further)
        rows = torch.cat([found.pooler_output[0], *added], -1).float().cpu()
        torch.cuda.empty_cache()  # other programs may have what looking took
        return rows

    def memory(self) -> int:
        """Bytes of weights; 0 before the first picture."""
        return sum(one.nbytes for model in self._models.values() for one in model.parameters())

    def _working(self, picture: Processed) -> int:
        """Bytes that looking at a picture takes: scores of one head and their mask, and rows between products."""
        vision, patches = self._config.vision_config, picture.grid.cells * self.kind.merge(self._config) ** 2
        return int(4 * patches * (2 * patches + 8 * vision.hidden_size + 4 * vision.intermediate_size))

    def _model_for(self, working: int) -> tuple[torch.device, Any]:
        """The model that looks at a picture, which takes so many bytes, and its device; equal pictures have one."""
        device = self._device if working <= LOOKING else CPU
        if device in self._models:
            self._check_fits(0, working, device)
            return device, self._models[device]
        try:
            tensors = self._files.tensors()
        except ValueError as error:
            raise self._unfit(str(error)) from None
        weights = sum(4 * one.numel() for one in tensors.values())
        if device != CPU and weights + LOOKING > free_gpu_memory(device):
            # Others took what the plan had found free. No picture was looked at there yet.
            self._device = CPU
            return self._model_for(working)
        self._check_fits(weights, working, device)
        torch.backends.cudnn.allow_tf32 = False  # would round the products of patches
        self._models[device] = self._read(tensors, device)
        return device, self._models[device]

    def _read(self, tensors: dict[str, Tensor], device: torch.device) -> Any:
        from transformers import AutoModel
        from transformers.initialization import no_init_weights

        config = deepcopy(self._config)
        for key, value in NONE_OF_TEXT.items():
            setattr(config.get_text_config(), key, value)
        config.audio_config = None
        with no_init_weights():
            model: Any = AutoModel.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
        del model.language_model
        try:
            wanted = {_plain(name): name for name in model.state_dict()}
            named = {wanted.get(_plain(name), name): one.to(device, torch.float32) for name, one in tensors.items()}
            model.load_state_dict(named, assign=True)
        except RuntimeError as error:
            raise self._unfit(one_line(str(error), 200)) from None
        for layers in (one for one in model.modules() if isinstance(one, ModuleList)):
            for layer in layers:
                layer.register_forward_pre_hook(lambda *_: pause())
        return model.eval().requires_grad_(False).to(device)

    def _unfit(self, words: str) -> ModelError:
        return ModelError(
            f"{self._files.where}: the tower that reads pictures cannot be used ({words}). Take a checkpoint "
            "whose tower is stored in 16 or 32 bits, or leave the pictures out."
        )

    def _check_fits(self, weights: int, working: int, device: torch.device) -> None:
        """Check that a device has room for bytes of weights to be read, and for what looking at a picture takes."""
        free, kind = (free_memory(), "memory") if device == CPU else (free_gpu_memory(device), "GPU memory")
        read = f" ({weights / GIB:.1f} for the model's tower)" if weights else ""
        if free is not None and weights + working > (1 - SPARE) * free:
            raise EngineError(
                "memory",
                f"Looking at this picture takes {(weights + working) / GIB:.1f} GiB of {kind}{read}, and "
                f"{free / GIB:.1f} GiB are free. Close other programs, or send a smaller copy.",
            )


def _plain(name: str) -> str:
    """A tensor's name without the level that older versions of transformers have in SigLIP."""
    return name.replace(".vision_model.", ".")
