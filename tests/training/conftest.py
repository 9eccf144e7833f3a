import pytest

from training.corpus import public


@pytest.fixture
def no_public_texts(monkeypatch, tmp_path):
    """A corpus of generated text alone, as it is where no public texts are at hand."""
    monkeypatch.setenv("SPECCHAT_CORPUS", str(tmp_path))
    functions = (public.stories, public.chats, public.sentences, public.vocabulary, public.prompts)
    for function in functions:
        function.cache_clear()
    yield
    for function in functions:
        function.cache_clear()
