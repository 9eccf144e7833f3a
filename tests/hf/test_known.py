"""What is read from transformers' lists agrees with what they hold once it is imported."""

from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

from specchat.engine.hf.known import known_models, unsupported

TEXT = (MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)


def test_the_lists_are_those_of_transformers() -> None:
    known = known_models()
    assert known is not None
    assert set(known.text_types) == {kind for each in TEXT for kind in each}
    assert set(known.text_types) <= set(known.types)
    assert all(kind in CONFIG_MAPPING for kind in known.text_types)
    assert set(known.quantisations) == set(AUTO_QUANTIZATION_CONFIG_MAPPING)


def test_every_class_that_writes_text_may_run() -> None:
    for each in TEXT:
        for kind, classes in each.items():
            for name in [classes] if isinstance(classes, str) else classes:
                assert unsupported({"model_type": kind, "architectures": [name]}) == "", (kind, name)
