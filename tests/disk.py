"""A disk that is full, and has room again."""

from functools import partial

from specchat.chat.store import Store


def room(store: Store, pages: int) -> None:
    """Let the database grow by so many pages, from the writer's next transaction on."""
    writer = store._writer
    begin = partial(type(writer)._begin, writer)

    def begin_with_room() -> None:
        writer._begin = begin  # type: ignore[method-assign]
        grown = writer._connection.execute("PRAGMA page_count").fetchone()[0] + pages
        writer._connection.execute(f"PRAGMA max_page_count = {grown}")
        begin()

    writer._begin = begin_with_room  # type: ignore[method-assign]
